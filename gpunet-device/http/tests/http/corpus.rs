//! Some hundred raw requests, given to this server and to hyper's: who accepts them, and what they
//! find in them. Each difference has its reason.

use crate::api::{Api, serve};
use crate::client::answers;
use crate::hyper_server;
use std::net::SocketAddr;

/// Who accepts a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Both, and they find the same method, target and body, and the same request behind it.
    Both,
    /// Neither: there is an error, or the connection ends.
    Neither,
    /// hyper. This server refuses it, and for this reason.
    Hyper(&'static str),
    /// This server. hyper refuses it, and for this reason.
    Us(&'static str),
}
use Verdict::{Both, Hyper, Neither, Us};

/// What follows each request. Who reads it where it is not sees another number of requests.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// What a server has found: of each request its description; `None` if it refused one.
fn found(addr: SocketAddr, request: &str) -> (Vec<String>, bool) {
    // Bytes above 127 are written as characters up to 255.
    let bytes: Vec<u8> = (request.to_owned() + NEXT).chars().map(|byte| byte as u8).collect();
    let answers = answers(addr, &bytes);
    let is_refused = answers.iter().any(|answer| answer.status >= 400) || answers.is_empty();
    let good = answers.into_iter().filter(|answer| answer.status == 200);
    (good.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).collect(), is_refused)
}

fn verdict(ours: &(Vec<String>, bool), theirs: &(Vec<String>, bool)) -> Result<Verdict, ()> {
    let accepts = |(found, is_refused): &(Vec<String>, bool)| !is_refused && !found.is_empty();
    match (accepts(ours), accepts(theirs)) {
        (true, true) if ours == theirs => Ok(Both),
        // A part of what was refused may have been taken for a request.
        (false, false) if ours.0.is_empty() && theirs.0.is_empty() => Ok(Neither),
        (false, false) => Err(()),
        (false, true) => Ok(Hyper("")),
        (true, false) => Ok(Us("")),
        (true, true) => Err(()),
    }
}

fn get(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

fn line(line: &str) -> String {
    format!("{line}\r\nHost: a\r\n\r\n")
}

fn post(rest: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: a\r\n{rest}")
}

fn chunked(body: &str) -> String {
    post(&format!("Transfer-Encoding: chunked\r\n\r\n{body}"))
}

fn each<const N: usize>(make: impl Fn(&str) -> String, texts: [&str; N]) -> Vec<String> {
    texts.iter().map(|text| make(text)).collect()
}

/// Characters, one in each text.
fn bytes(range: impl IntoIterator<Item = u8>, make: impl Fn(char) -> String) -> Vec<String> {
    range.into_iter().map(|byte| make(byte as char)).collect()
}

include!("corpus_table.rs");

#[test]
fn raw_requests_are_read_as_by_hyper_or_a_reason_is_known() {
    let (server, hyper) = (serve(Api { describes: 1, ..Api::DEFAULT }), hyper_server::describe());
    let (mut count, mut wrong) = (0, Vec::new());
    for (expected, requests) in table() {
        for request in requests {
            count += 1;
            let (ours, theirs) = (found(server.addr(), &request), found(hyper, &request));
            let same = match (verdict(&ours, &theirs), expected) {
                (Ok(Hyper(_)), Hyper(why)) | (Ok(Us(_)), Us(why)) => !why.is_empty(),
                (Ok(verdict), expected) => verdict == expected,
                (Err(()), _) => false,
            };
            if !same {
                let text = &request[..request.len().min(120)];
                wrong.push(format!("{expected:?}: {text:?}\n    here {ours:?}\n    hyper {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 300, "the table was not read: {count}");
    // None of them has kept a connection.
    assert_eq!(server.running.stop().unwrap().iter().map(|block| block.limited).sum::<u64>(), 0);
}
