//! Bad input: each gets an answer that says what is wrong.

use crate::client::{completion, connect, get, post, read, send, send_and_end};
use crate::server;
use std::io::Write;

#[test]
fn a_request_that_asks_for_what_there_is_not_is_told_so() {
    let server = server(&[]);
    let good = r#""model":"gpunet-tokens","prompt":"a""#;
    let long = "a".repeat(600);
    let cases = [
        ("{", 400, "parse the JSON", None),
        ("", 400, "wrong at byte 0", None),
        ("[]", 400, "it must be a JSON object", Some("body")),
        (r#"{"prompt":"a"}"#, 400, "You must provide", Some("model")),
        (r#"{"model":"gpunet-tokens"}"#, 400, "You must provide", Some("prompt")),
        (
            r#"{"model":"gpt-9 \"x\"","prompt":"a"}"#,
            404,
            r#"model 'gpt-9 "x"' does not exist"#,
            Some("model"),
        ),
        (&format!(r#"{{{good},"max_tokens":0}}"#), 400, "at least 1", Some("max_tokens")),
        (&format!(r#"{{{good},"max_tokens":2.5}}"#), 400, "an integer", Some("max_tokens")),
        (&format!(r#"{{{good},"max_tokens":512}}"#), 400, "maximum context length is 512 tokens", None),
        (&format!(r#"{{{good},"max_tokens":99999999999}}"#), 400, "for the completion", None),
        (&format!(r#"{{"model":"gpunet-tokens","prompt":"{long}"}}"#), 400, "601 in the prompt", None),
        (&format!(r#"{{{good},"temperature":2.1}}"#), 400, "from 0 to 2", Some("temperature")),
        (&format!(r#"{{{good},"temperature":"hot"}}"#), 400, "from 0 to 2", Some("temperature")),
        (&format!(r#"{{{good},"stream":"yes"}}"#), 400, "true or false", Some("stream")),
        (&format!(r#"{{{good},"stop":["1","2","3","4","5"]}}"#), 400, "up to 4 strings", Some("stop")),
        (&format!(r#"{{{good},"stop":""}}"#), 400, "1 to 32 bytes", Some("stop")),
        (&format!(r#"{{{good},"stop":"{long}"}}"#), 400, "1 to 32 bytes", Some("stop")),
        (&format!(r#"{{{good},"n":2}}"#), 400, "only as 1", Some("n")),
        (&format!(r#"{{{good},"echo":true}}"#), 400, "only as false", Some("echo")),
        (&format!(r#"{{{good},"colour":1}}"#), 400, "argument supplied: colour", None),
        (&format!(r#"{{{good},"messages":[]}}"#), 400, "argument supplied: messages", None),
        (r#"{"model":"gpunet-tokens","prompt":["a","b"]}"#, 400, "array of one string", Some("prompt")),
        (&format!("{}1{}", "[".repeat(70), "]".repeat(70)), 400, "must be a JSON object", Some("body")),
        (&format!(r#"{{"user":{}1{}}}"#, "[".repeat(70), "]".repeat(70)), 400, "64 levels", None),
    ];
    for (body, status, message, param) in cases {
        let answer = send(server.addr, &post("/v1/completions", body));
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["param"].as_str()), (status, param), "{body}: {answer:?}");
        assert!(error["message"].as_str().expect("a text").contains(message), "{body}: {answer:?}");
        assert_eq!(error["type"], "invalid_request_error", "{answer:?}");
    }
    // Fields that change nothing, and null for those that are not given, are taken.
    let fields =
        r#","user":"me","n":1,"top_p":1.0,"presence_penalty":0,"echo":false,"stop":null,"logprobs":null"#;
    assert_eq!(send(server.addr, &completion("a", 1, fields)).status, 200);
}

#[test]
fn a_chat_without_sense_is_told_so() {
    let server = server(&[]);
    let cases = [
        (r#"[]"#, "at least one message", "messages"),
        (r#"["a"]"#, "array of objects", "messages"),
        (r#"[{"role":"tool","content":"a"}]"#, "system, developer, user or assistant", "messages.role"),
        (r#"[{"content":"a"}]"#, "You must provide", "messages.role"),
        (r#"[{"role":"user"}]"#, "You must provide", "messages.content"),
        (r#"[{"role":"user","content":[{"type":"image_url"}]}]"#, "parts of text", "messages.content"),
    ];
    for (messages, message, param) in cases {
        let body = format!(r#"{{"model":"gpunet-tokens","messages":{messages}}}"#);
        let answer = send(server.addr, &post("/v1/chat/completions", &body));
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["param"].as_str()), (400, Some(param)), "{answer:?}");
        assert!(error["message"].as_str().expect("a text").contains(message), "{answer:?}");
    }
    let absent = get(server.addr, "/v1/embeddings");
    assert_eq!((absent.status, &absent.json()["error"]["code"]), (404, &"unknown_url".into()));
    let other = get(server.addr, "/v1/completions");
    assert!(other.status == 405 && other.head.contains("Allow: POST, OPTIONS"), "{other:?}");
}

#[test]
fn bodies_that_lie_and_smuggle_get_the_answers_of_the_protocol() {
    let server = server(&[]);
    let head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
    for (rest, status) in [
        ("Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        ("Transfer-Encoding: gzip\r\n\r\n", 400),
        ("Content-Length: -1\r\n\r\n", 400),
        ("Content-Length: 99999999\r\n\r\n", 413),
        (&format!("X: {}\r\n\r\n", "y".repeat(9000)), 431),
        ("Content-Length : 1\r\n\r\na", 400),
        // Less than was announced.
        ("Content-Length: 500\r\n\r\n{}", 400),
    ] {
        let answer = send_and_end(server.addr, &format!("{head}{rest}"));
        assert_eq!(answer.status, status, "{rest:.80}: {answer:?}");
    }
    // A body in chunks is a body.
    let whole = completion("Why", 3, "");
    let body = whole.split_once("\r\n\r\n").expect("it has a body").1;
    let (first, second) = body.split_at(10);
    let mut client = connect(server.addr);
    let chunks = format!(
        "{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\na\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        second.len()
    );
    client.write_all(chunks.as_bytes()).expect("it is taken");
    assert_eq!(read(&mut client).text(), send(server.addr, &whole).text());
}
