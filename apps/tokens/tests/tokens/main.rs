//! `gpunet-tokens` as its users run it: the built program on the CPU device, and clients.

#[path = "../../../common/tests/support/process.rs"]
#[allow(dead_code, reason = "each suite uses a part")]
mod process;

mod bad;
mod batch;
mod client;
mod foreign;

use client::{completion, get, post, send};
use process::{Server, command};

/// Starts the program on the CPU, with further arguments.
fn server(args: &[&str]) -> Server {
    let all = [&["--listen", "127.0.0.1:0", "--device", "cpu"][..], args].concat();
    Server::start(command(env!("CARGO_BIN_EXE_gpunet-tokens"), &all))
}

#[test]
fn a_completion_has_the_same_text_as_its_stream() {
    let server = server(&["--blocks", "2"]);
    let whole = send(server.addr, &completion("User: What is a socket?", 12, ""));
    let json = whole.json();
    assert_eq!((whole.status, json["object"].as_str()), (200, Some("text_completion")));
    let usage = &json["usage"];
    assert_eq!(usage["prompt_tokens"], 24, "its bytes, and one with which a text begins");
    assert_eq!(usage["completion_tokens"].as_u64().unwrap() + 24, usage["total_tokens"].as_u64().unwrap());
    let fields = r#","stream":true,"stream_options":{"include_usage":true}"#;
    let stream = send(server.addr, &completion("User: What is a socket?", 12, fields));
    assert!(stream.head.contains("Content-Type: text/event-stream"), "{}", stream.head);
    assert_eq!(stream.streamed_text(), whole.text());
    let events = stream.events();
    let (usage, rest) = events.split_last().expect("there are some");
    assert_eq!((&usage["usage"], &usage["choices"]), (&json["usage"], &serde_json::json!([])));
    let (last, rest) = rest.split_last().expect("there are some");
    assert_eq!(last["choices"][0]["finish_reason"], json["choices"][0]["finish_reason"]);
    assert!(rest.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    server.interrupt();
    let output = server.finish();
    assert!(output.status.success() && output.out.contains("served 2 connections"), "{}", output.out);
}

#[test]
fn a_chat_begins_with_its_role_and_ends_with_its_line() {
    let server = server(&[]);
    let ask = |fields: &str| {
        let body = format!(
            r#"{{"messages":[{{"content":"a \"line\"","role":"system"}},{{"role":"user","content":[{{"type":"text","text":"What is a ring?"}}]}}],"model":"gpunet-tokens","temperature":0,"max_tokens":40{fields}}}"#
        );
        send(server.addr, &post("/v1/chat/completions", &body))
    };
    let whole = ask("").json();
    let message = &whole["choices"][0]["message"];
    assert_eq!((&whole["object"], &message["role"]), (&"chat.completion".into(), &"assistant".into()));
    let text = message["content"].as_str().expect("it has a text");
    assert!(!text.contains('\n'), "{text:?}");
    // `a "line"`, a line end; `User: What is a ring?`, a line end; `Assistant: `; the beginning.
    assert_eq!(whole["usage"]["prompt_tokens"], 9 + 22 + 11 + 1);
    let events = ask(r#","stream":true"#).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), text);
    let last = &events[events.len() - 1]["choices"][0];
    assert_eq!(last["finish_reason"], whole["choices"][0]["finish_reason"]);
}

#[test]
fn a_stop_sequence_ends_the_text_before_it() {
    let server = server(&[]);
    let text = send(server.addr, &completion("User: What is a ring?", 24, "")).text();
    let stop: String = text.chars().skip(5).take(3).collect();
    let expected = text.split(&stop).next().expect("there is one").to_owned();
    let fields = format!(r#","stop":["\u0001",{}]"#, serde_json::Value::from(stop.as_str()));
    let stopped = send(server.addr, &completion("User: What is a ring?", 24, &fields));
    let json = stopped.json();
    assert_eq!((stopped.text(), &json["choices"][0]["finish_reason"]), (expected.clone(), &"stop".into()));
    assert_eq!(json["usage"]["completion_tokens"], (expected.len() + stop.len()) as u64);
    let stream =
        send(server.addr, &completion("User: What is a ring?", 24, &format!("{fields},\"stream\":true")));
    assert_eq!(stream.streamed_text(), expected);
}

#[test]
fn a_seed_gives_the_same_text_again() {
    let server = server(&[]);
    let ask = |fields: &str| {
        let body = format!(r#"{{"model":"gpunet-tokens","prompt":["A "],"max_tokens":20{fields}}}"#);
        send(server.addr, &post("/v1/completions", &body)).text()
    };
    let seeded = ask(r#","seed":7,"temperature":1.5"#);
    assert_eq!(ask(r#","temperature":1.5,"seed":7"#), seeded);
    let others = (8..14).map(|seed| ask(&format!(r#","seed":{seed},"temperature":1.5"#)));
    assert!(others.into_iter().any(|other| other != seeded));
    // Without a seed each request has one of its own.
    let free: Vec<_> = (0..4).map(|_| ask(r#","temperature":2"#)).collect();
    assert!(free.iter().any(|text| *text != free[0]), "{free:?}");
}

#[test]
fn what_stands_beside_completions_is_answered() {
    let server = server(&["--timing"]);
    let models = get(server.addr, "/v1/models").json();
    assert_eq!(models["data"][0], get(server.addr, "/v1/models/gpunet-tokens").json());
    let stream = send(server.addr, &completion("a", 3, r#","stream":true"#));
    let clock = get(server.addr, "/healthz").json()["clock_ns"].as_u64().expect("a clock");
    let stored: Vec<_> = stream.events().iter().filter_map(|event| event["stored_ns"].as_u64()).collect();
    assert!(
        !stored.is_empty() && stored.is_sorted() && stored[stored.len() - 1] <= clock,
        "{stored:?} {clock}"
    );
    let metrics = get(server.addr, "/metrics");
    assert!(metrics.head.contains("text/plain; version=0.0.4"), "{}", metrics.head);
    for line in metrics.body.lines().filter(|line| !line.starts_with("# TYPE gpunet_tokens_")) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("gpunet_tokens_") && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(metrics.body.contains("gpunet_tokens_time_to_first_token_seconds_bucket{le=\"0.000150000\"} "));
    assert!(metrics.body.contains("gpunet_tokens_time_to_first_token_seconds_count 1\n"), "{}", metrics.body);
}
