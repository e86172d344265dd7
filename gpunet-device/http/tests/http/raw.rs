//! Raw requests, given to this server and to hyper's.

use crate::api::{Api, serve};
use crate::client::{Answer, answers};
use crate::hyper_server;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// What is compared of each answer: its class, and what it had if it was good.
fn summary(answers: &[Answer]) -> Vec<(u16, Option<Vec<u8>>)> {
    let last = |answer: &Answer| (answer.status / 100, (answer.status == 200).then(|| answer.body.clone()));
    answers.iter().filter(|answer| answer.status != 100).map(last).collect()
}

const HOST: &str = "Host: a\r\n";

#[test]
fn good_requests_are_answered_as_by_hyper() {
    let (server, hyper) = (serve(Api::DEFAULT), hyper_server::serve());
    for request in [
        format!("GET / HTTP/1.1\r\n{HOST}\r\n"),
        format!("\r\nGET / HTTP/1.1\r\n{HOST}\r\n"),
        format!("HEAD / HTTP/1.1\r\n{HOST}\r\n"),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        format!("GET http://a/ HTTP/1.1\r\n{HOST}\r\n"),
        format!("GET /?x HTTP/1.1\r\n{HOST}\r\n"),
        format!("GET / HTTP/1.1\r\n{HOST}A:\t b \t\r\nB:\r\nC: \u{e4}\r\n\r\n"),
        format!("GET /x HTTP/1.1\r\n{HOST}\r\n").repeat(3),
        format!("POST /echo HTTP/1.1\r\n{HOST}Content-Length: 3\r\n\r\nabc").repeat(3),
        format!("PUT /echo HTTP/1.1\r\n{HOST}content-length: 0003\r\n\r\nabc"),
        format!("POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\n\r\n").repeat(3),
        format!("POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n1 ;x\r\na\r\n0\r\nA: b\r\n\r\n").repeat(2),
        format!("POST /echo HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 1\r\n\r\na"),
        format!("GET / HTTP/1.1\r\n{HOST}Connection: close\r\n\r\nGET / HTTP/1.1\r\n{HOST}\r\n"),
        format!("GET / HTTP/1.1\r\n{HOST}Connection: Keep-Alive, x\r\n\r\n").repeat(2),
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".repeat(2),
        format!("POST / HTTP/1.1\r\n{HOST}\r\n"),
        format!("POST /echo HTTP/1.1\r\n{HOST}Content-Length: 0\r\n\r\n"),
    ] {
        let (ours, theirs) =
            (answers(server.addr(), request.as_bytes()), answers(hyper, request.as_bytes()));
        assert!(!ours.is_empty() && ours.iter().all(|answer| answer.status < 500), "{request:?}: {ours:?}");
        let class = |answers: &[Answer]| answers.iter().map(|answer| answer.status).collect::<Vec<_>>();
        // A path that has another method is not found there.
        let same = summary(&ours) == summary(&theirs);
        assert!(same, "{request:?}: {:?}, by hyper {:?}", class(&ours), class(&theirs));
    }
}

#[test]
fn bad_requests_are_refused_as_by_hyper() {
    let (server, hyper) = (serve(Api::DEFAULT), hyper_server::serve());
    let long = "a".repeat(1 << 17);
    let post = |rest: &str| format!("POST /echo HTTP/1.1\r\n{HOST}{rest}");
    let refused_by_both = [
        (post("Content-Length: 1\r\nContent-Length: 2\r\n\r\na"), 400),
        (post("Content-Length: +1\r\n\r\na"), 400),
        (post("Content-Length: -1\r\n\r\na"), 400),
        (post("Content-Length: a\r\n\r\na"), 400),
        (post("Content-Length : 1\r\n\r\na"), 400),
        (post("Transfer-Encoding: gzip\r\n\r\na"), 400),
        (post("Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"), 400),
        ("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\n{HOST}A: b\r\n c\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\n{HOST}A b\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\n{HOST}A: \0\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\n{HOST}A: b\rc\r\n\r\n"), 400),
        ("GET / HTTP/1\r\n\r\n".to_owned(), 400),
        ("GET /\r\n\r\n".to_owned(), 400),
        ("(GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (format!("GET /{long} HTTP/1.1\r\n{HOST}\r\n"), 414),
        (format!("GET / HTTP/1.1\r\n{HOST}A: {}\r\n\r\n", "a".repeat(1 << 20)), 431),
        (format!("GET / HTTP/1.1\r\n{HOST}{}\r\n", "A: b\r\n".repeat(200)), 431),
    ];
    for (request, status) in refused_by_both {
        let (ours, theirs) = (answers(server.addr(), request.as_bytes()), answers(hyper, request.as_bytes()));
        let name = &request[..request.len().min(100)];
        assert_eq!(ours.iter().map(|answer| answer.status).collect::<Vec<_>>(), [status], "{name:?}");
        assert_eq!(ours[0].field("connection"), Some("close"));
        assert!(theirs.iter().all(|answer| answer.status / 100 == 4), "{name:?}: {theirs:?}");
    }
    // hyper is less strict, or drops the connection in the middle.
    for (request, status) in [
        (post("Content-Length: 1\r\nContent-Length: 1\r\n\r\na"), 400),
        (post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501),
        (post("Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n\r\n1;\n\r\na\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n\r\n ffffffffffffffff1\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n"), 413),
        (post("Content-Length: 9999999\r\n\r\n"), 413),
        (post("Expect: more\r\n\r\n"), 417),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\n{HOST}{HOST}\r\n"), 400),
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400),
        (format!("GET / HTTP/2.0\r\n{HOST}\r\n"), 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        (format!("BREW / HTTP/1.1\r\n{HOST}\r\n"), 501),
        (format!("CONNECT a:1 HTTP/1.1\r\n{HOST}\r\n"), 501),
    ] {
        let ours = answers(server.addr(), request.as_bytes());
        assert_eq!(ours.iter().map(|answer| answer.status).collect::<Vec<_>>(), [status], "{request:?}");
        assert_eq!(ours[0].field("connection"), Some("close"), "{request:?}");
    }
}

/// What is taken here hyper takes, too, and finds the same requests in it.
#[test]
fn nothing_is_read_in_another_way_than_by_hyper() {
    let (server, hyper) = (serve(Api::DEFAULT), hyper_server::serve());
    let parts = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /echo HTTP/1.1\r\n",
        "POST /echo HTTP/1.0\r\n",
        "PUT /echo HTTP/1.1\r\n",
        "Host: a\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "content-length: 5 \r\n",
        "Transfer-Encoding: chunked\r\n",
        "transfer-encoding:chunked\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "A: b\r\n",
        "\r\n",
        "\n",
        "\r",
        "abc",
        "0\r\n\r\n",
        "3\r\nabc\r\n",
        "3;x\r\nabc\r\n",
        "03\r\nabc\r\n",
        " ",
        "Content-Length: 3\r\n\r\nabc",
        "Host: a\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]);
    let start =
        prop::sample::select(vec!["GET / HTTP/1.1\r\nHost: a\r\n", "POST /echo HTTP/1.1\r\nHost: a\r\n"]);
    let stream = prop::collection::vec((start, prop::collection::vec(parts, 0..5)), 1..4);
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    runner
        .run(&stream, |stream| {
            let text: String =
                stream.iter().map(|(start, parts)| start.to_string() + &parts.concat()).collect();
            let (ours, theirs) = (
                summary(&answers(server.addr(), text.as_bytes())),
                summary(&answers(hyper, text.as_bytes())),
            );
            let good = ours.iter().take_while(|(class, _)| *class == 2).count();
            prop_assert!(theirs.len() >= good && ours[..good] == theirs[..good], "{:?} {:?}", ours, theirs);
            prop_assert!(ours.len() <= good + 1 || ours[good].0 == 4, "{:?}", ours);
            Ok(())
        })
        .unwrap();
    // Nothing hangs on any of them.
    assert_eq!(server.running.stop().unwrap().iter().map(|block| block.limited).sum::<u64>(), 0);
}
