//! What clients that keep to the rules are answered.

use crate::api::{Api, LETTERS, serve, serve_by, serve_with};
use crate::client::{Client, answers};
use gpunet_http::Limits;
use gpunet_serve_host::ServerSettings;
use std::time::{Duration, Instant};

fn letters(count: usize) -> Vec<u8> {
    LETTERS.iter().copied().cycle().take(count).collect()
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    for shape in [(1, 1), (2, 3)] {
        let server = serve_by(shape, Api::DEFAULT, ServerSettings::DEFAULT);
        let mut client = Client::connect(server.addr());
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "hello\n");
            assert_eq!(client.get("/query?a=b%20c").text(), "a=b%20c ");
            assert_eq!(client.get("/nothing").status, 404);
            client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
            assert_eq!(client.answer(false).unwrap().text(), "abc");
        }
        // Many at once.
        let count = 500;
        for at in 0..count {
            client.send(format!("GET /query?{at} HTTP/1.1\r\nHost: a\r\nUser-Agent:  x \r\n\r\n"));
        }
        client.end();
        for at in 0..count {
            assert_eq!(client.answer(false).unwrap().text(), format!("{at} x"));
        }
        assert_eq!(client.answer(false), None);
        assert_eq!(server.running.stop().unwrap().iter().map(|block| block.failed).sum::<u64>(), 0);
    }
}

#[test]
fn the_connection_is_kept_as_the_client_says() {
    let server = serve(Api::DEFAULT);
    for (request, field) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Some("close")),
        ("GET / HTTP/1.0\r\n\r\n", Some("close")),
        ("GET /stream/99 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("close")),
    ] {
        let mut client = Client::connect(server.addr());
        client.send(request);
        assert_eq!(client.answer(false).unwrap().field("connection"), field);
        // Without an end of the client's stream.
        assert_eq!(client.answer(false), None, "{request}");
    }
    let mut client = Client::connect(server.addr());
    client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().field("connection"), Some("keep-alive"));
    assert_eq!(client.get("/").field("connection"), None);
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let server = serve(Api::DEFAULT);
    for path in ["/", "/length/100", "/stream/100", "/nothing", "/events/1"] {
        let mut client = Client::connect(server.addr());
        let get = client.get(path);
        for _ in 0..2 {
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let head = client.answer(true).unwrap();
            assert_eq!((head.status, &head.fields), (get.status, &get.fields), "{path}");
        }
        assert_eq!(client.get("/").text(), "hello\n");
    }
}

#[test]
fn bodies_come_with_a_length_and_in_chunks() {
    let server = serve(Api::DEFAULT);
    let mut client = Client::connect(server.addr());
    for len in [0, 1, 1000, 14_000, 17_000, 100_000, 1 << 20] {
        let body = letters(len);
        let sum: u64 = body.iter().map(|&byte| u64::from(byte)).sum();
        client.send(format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.send(&body);
        assert_eq!(client.answer(false).unwrap().text(), format!("{len} {sum}"));
        client.send("POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (number, chunk) in body.chunks(1 + len / 7).enumerate() {
            client.send(format!("{:x};n={number}\r\n", chunk.len()));
            client.send([chunk, b"\r\n"].concat());
        }
        client.send("0\r\nTrailer: x\r\n\r\n");
        assert_eq!(client.answer(false).unwrap().text(), format!("{len} {sum}"));
    }
    client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().status, 413);
    // Its memory is free again.
    for _ in 0..20 {
        let mut client = Client::connect(server.addr());
        client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client.send(letters(900_000));
    }
    let send = |client: &mut Client| {
        client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client.send(letters(1_000_000));
        client.answer(false).unwrap()
    };
    // The server may not have seen yet that all of them have gone.
    let begun = Instant::now();
    let mut client = loop {
        let mut client = Client::connect(server.addr());
        match send(&mut client).status {
            503 if begun.elapsed() < Duration::from_secs(30) => std::thread::sleep(Duration::from_millis(10)),
            status => {
                assert_eq!(status, 200);
                break client;
            }
        }
    };
    for _ in 0..20 {
        assert!(send(&mut client).text().starts_with("1000000 "));
    }
}

#[test]
fn without_a_heap_lengths_are_required_and_short() {
    let server = serve(Api { heap: 0, ..Api::DEFAULT });
    let status = |request: &str| answers(server.addr(), request.as_bytes())[0].status;
    assert_eq!(status("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 411);
    assert_eq!(status("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n"), 413);
    let body = "a".repeat(16_000);
    assert_eq!(
        status(&format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 16000\r\n\r\n{body}")),
        200
    );
}

#[test]
fn who_expects_it_is_told_to_send_the_body() {
    let server = serve(Api::DEFAULT);
    for (fields, body) in [
        ("Content-Length: 3", &b"abc"[..]),
        ("Content-Length: 20000", &letters(20_000)),
        ("Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
    ] {
        let mut client = Client::connect(server.addr());
        client.send(format!("POST /sum HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{fields}\r\n\r\n"));
        assert_eq!(client.answer(false).unwrap().status, 100);
        client.send(body);
        assert_eq!(client.answer(false).unwrap().status, 200);
        // Not if the body need not be waited for, nor if it is not wanted.
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.answer(false).unwrap().status, 200);
        client.send(
            "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n",
        );
        assert_eq!(client.answer(false).unwrap().status, 413);
    }
}

#[test]
fn long_answers_go_on_for_many_turns() {
    let server = serve(Api::DEFAULT);
    let mut client = Client::connect(server.addr());
    for count in [0, 1, 26, 100_000, 1_000_000] {
        for way in ["stream", "length"] {
            let answer = client.get(&format!("/{way}/{count}"));
            assert!(answer.body == letters(count), "{way} {count}");
            assert_eq!(answer.field("transfer-encoding").is_some(), way == "stream");
        }
    }
    // The same without chunks, for those who do not know them; and after the end of their stream.
    let answer = answers(server.addr(), b"GET /stream/300000 HTTP/1.0\r\n\r\n");
    assert!(answer[0].body == letters(300_000));
    let answer = answers(server.addr(), b"GET /stream/300000 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer[0].body == letters(300_000));
}

#[test]
fn events_come_one_by_one() {
    let server = serve_by((2, 3), Api::DEFAULT, ServerSettings::DEFAULT);
    let mut client = Client::connect(server.addr());
    for _ in 0..2 {
        client.send("GET /events/5 HTTP/1.1\r\nHost: a\r\n\r\n");
        let (status, fields) = client.head().unwrap();
        assert!(status == 200 && fields.contains(&"content-type: text/event-stream".to_owned()));
        for number in 0..5 {
            let name = if number == 0 { "event: first\n" } else { "" };
            let expected = format!("{name}data: event\ndata: {number}\n\n");
            assert_eq!(client.chunk().map(|chunk| String::from_utf8(chunk).unwrap()), Some(expected));
        }
        assert_eq!(client.chunk(), None);
    }
    // It ends when the client does, and other connections are served meanwhile.
    client.send("GET /events/1000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head().unwrap();
    for _ in 0..3 {
        client.chunk().expect("an event");
        assert_eq!(Client::connect(server.addr()).get("/").text(), "hello\n");
    }
    client.end();
    while client.chunk().is_some() {}
    assert_eq!(client.answer(false), None);
}

#[test]
fn a_request_is_the_same_wherever_it_is_cut() {
    let server = serve_by((1, 2), Api::DEFAULT, ServerSettings { room: 1024, ..ServerSettings::DEFAULT });
    let requests = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
        POST /sum?x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\nA: b\r\n\r\n\
        \r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let expected = answers(server.addr(), requests.as_bytes());
    assert_eq!(expected.len(), 3);
    assert!(expected.iter().all(|answer| answer.status == 200));
    let refused =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost : a\r\n\r\n";
    let expected_of_refused = answers(server.addr(), refused.as_bytes());
    assert_eq!(expected_of_refused.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 400]);
    for (text, expected) in [(requests, expected), (refused, expected_of_refused)] {
        let mut clients: Vec<_> = (1..text.len())
            .map(|cut| {
                let mut client = Client::connect(server.addr());
                client.send(&text[..cut]);
                (cut, client)
            })
            .collect();
        // Most of the first parts have been looked at by then.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for (cut, client) in &mut clients {
            client.send(&text[*cut..]);
            client.end();
            let found: Vec<_> = std::iter::from_fn(|| client.answer(false)).collect();
            assert_eq!(found, expected, "cut at {cut}");
        }
    }
}

#[test]
fn a_request_that_does_not_end_is_answered() {
    let limits = Limits { request_ns: 300_000_000, ..Limits::DEFAULT };
    let server = serve(Api { limits, ..Api::DEFAULT });
    for request in [
        "GET / HT",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\nab",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    ] {
        let mut client = Client::connect(server.addr());
        assert_eq!(client.get("/").status, 200);
        client.send(request);
        assert_eq!(client.answer(false).unwrap().status, 408, "{request}");
        assert_eq!(client.answer(false), None);
        // One that ends has no time to wait for.
        assert_eq!(answers(server.addr(), request.as_bytes())[0].status, 400, "{request}");
    }
}

#[test]
fn documents_go_through_unchanged() {
    use serde_json::json;
    let server = serve(Api::DEFAULT);
    let mut client = Client::connect(server.addr());
    for document in [
        json!(null),
        json!([]),
        json!({}),
        json!([[], {}, [1, [2]], {"a": {"b": [true, false, null]}}]),
        json!("\u{0}\u{1f}\"\\/\u{7f}\u{e4}\u{20ac}\u{1f600}\n\r\t"),
        json!({"model": "m\"1", "messages": [{"role": "user", "content": "h\u{e4}\u{1f600}"}], "n": -3, "t": 0.25e-3}),
    ] {
        for text in [document.to_string(), serde_json::to_string_pretty(&document).unwrap()] {
            client.send(format!(
                "POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            ));
            let answer = client.answer(false).unwrap();
            assert_eq!(answer.status, 200, "{text}");
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap(), document);
        }
    }
    client.send("POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n\"\\ud83d\\u0041\"");
    assert_eq!(client.answer(false).unwrap().status, 400);
}

/// Where many connections share the memory of rings, each has the smallest ones.
#[test]
fn bodies_that_no_ring_holds_are_collected() {
    let server = serve_with((1, 2), Api::DEFAULT, ServerSettings::DEFAULT, 4096);
    let mut client = Client::connect(server.addr());
    for len in [3900, 4000, 4096, 5000, 9000, 15_000, 16_300, 17_000] {
        for cut in [0, 20, 70, 3000] {
            let body = "a".repeat(len);
            let request = format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{body}");
            let (first, second) = request.split_at(cut);
            client.send(first);
            client.send(second);
            assert_eq!(client.answer(false).expect("an answer").text(), format!("{len} {}", 97 * len));
        }
    }
}

/// Rings are of 4 KiB, and a request that waits fills one.
#[test]
fn what_no_ring_holds_is_refused_at_once() {
    // Nobody waits for the end of a request: without an answer the client's own time ends.
    let limits = Limits { request_ns: 0, ..Limits::DEFAULT };
    let serve =
        |heap| serve_with((1, 2), Api { heap, limits, ..Api::DEFAULT }, ServerSettings::DEFAULT, 4096);
    let field = "a".repeat(5000);
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {field}");
    let line = format!("GET /{field}");
    let body = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6000\r\n\r\n{field}");
    for (heap, request, status) in [(0, &head, 431), (1 << 20, &head, 431), (0, &line, 414), (0, &body, 413)]
    {
        let server = serve(heap);
        // Beside another connection no turn waits for the next bytes.
        let (mut other, mut client) = (Client::connect(server.addr()), Client::connect(server.addr()));
        for _ in 0..3 {
            assert_eq!((other.get("/").status, client.get("/").status), (200, 200));
        }
        client.send(request);
        assert_eq!(
            client.answer(false).expect("an answer").status,
            status,
            "{:.20}, heap of {heap}",
            request
        );
        assert_eq!(client.answer(false), None);
        assert_eq!(other.get("/").status, 200);
    }
}

#[test]
fn a_request_may_fill_its_ring_behind_another_one() {
    let server = serve_with((1, 2), Api { heap: 0, ..Api::DEFAULT }, ServerSettings::DEFAULT, 4096);
    let (mut other, mut client) = (Client::connect(server.addr()), Client::connect(server.addr()));
    assert_eq!(other.get("/").status, 200);
    for total in [3200, 3900, 4095, 4096] {
        let start = |len| format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        let len = total - start(total).len();
        let first = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(900));
        client.send(format!("{first}{}{}", start(len), "b".repeat(len)));
        assert_eq!(client.answer(false).expect("an answer").status, 200);
        assert_eq!(client.answer(false).expect("an answer").text(), format!("{len} {}", 98 * len));
    }
}
