//! Many clients at once: requests join and leave the batch, and none changes another's answer.

use crate::client::{completion, connect, metric, metrics, read, send, send_and_end, until_metric};
use crate::process::Server;
use crate::server;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Waits for the first bytes of a stream.
fn first_bytes(stream: &mut impl Read) {
    let mut byte = [0; 512];
    assert!(stream.read(&mut byte).expect("the answer begins") > 0);
}

/// Steps of the model, and sequences of all of them.
fn steps(addr: SocketAddr) -> [u64; 2] {
    metrics(addr, ["gpunet_tokens_steps_total", "gpunet_tokens_step_sequences_total"])
}

fn prompt(client: usize) -> String {
    format!("User: {} {client}?", ["What is a ring", "Who sends", "Why", "A socket"][client % 4])
}

#[test]
fn each_of_many_gets_what_it_gets_alone() {
    many(&server(&["--blocks", "2", "--batch", "5"]));
}

#[test]
fn each_of_many_gets_the_same_from_every_block_of_the_model() {
    many(&server(&["--blocks", "2", "--models", "3", "--batch", "5"]));
}

fn many(server: &Server) {
    let addr = server.addr;
    let alone: Vec<_> =
        (0..6).map(|client| send(addr, &completion(&prompt(client), 10, "")).text()).collect();
    let before = steps(addr);
    assert_eq!(before[0], before[1], "one at a time");
    std::thread::scope(|scope| {
        for client in 0..12 {
            let expected = &alone[client % 6];
            scope.spawn(move || {
                let stream = send(addr, &completion(&prompt(client % 6), 10, r#","stream":true"#));
                assert_eq!(stream.streamed_text(), *expected, "client {client}");
            });
        }
    });
    let [steps, sequences] = steps(addr);
    assert!(sequences > steps, "requests were in a batch together");
    assert_eq!(metric(addr, "gpunet_tokens_requests_answered_total"), 18);
    until_metric(addr, "gpunet_tokens_requests_running", |running| running == 0);
}

#[test]
fn a_request_joins_a_batch_that_runs_and_leaves_it_before() {
    let server = server(&["--interval", "10"]);
    let mut long = connect(server.addr);
    long.write_all(completion("A ", 400, r#","stream":true,"ignore_eos":true"#).as_bytes())
        .expect("it is taken");
    first_bytes(&mut long);
    let short = send(server.addr, &completion("A ", 2, ""));
    assert!(short.json()["usage"]["completion_tokens"].as_u64() <= Some(2), "{short:?}");
    // 400 steps of 10 ms take longer than an answer of two.
    assert_eq!(metric(server.addr, "gpunet_tokens_requests_answered_total"), 1);
    let [steps, sequences] = steps(server.addr);
    assert!(sequences > steps, "they were in a batch together");
}

/// Who waits has rung before: nobody rings when the batch is empty again.
#[test]
fn who_finds_the_batch_full_is_served_after() {
    let server = server(&["--batch", "1"]);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(send(server.addr, &completion("A ", 20, "")).status, 200));
        }
    });
}

/// One block of the model is busy for a minute: the other one takes what comes.
#[test]
fn an_idle_block_of_the_model_takes_what_waits() {
    let server = server(&["--models", "2", "--batch", "2", "--interval", "60000"]);
    let addr = server.addr;
    let mut busy = connect(addr);
    busy.write_all(completion("A ", 480, r#","ignore_eos":true"#).as_bytes()).expect("it is taken");
    until_metric(addr, "gpunet_tokens_requests_running", |running| running == 1);
    assert_eq!(send(addr, &completion("B ", 1, "")).status, 200);
    until_metric(addr, "gpunet_tokens_requests_running", |running| running == 1);
}

/// How a client goes.
fn goes(addr: SocketAddr, is_reset: bool, fields: &str) {
    let mut client = connect(addr);
    client.write_all(completion("A ", 480, fields).as_bytes()).expect("it is taken");
    until_metric(addr, "gpunet_tokens_requests_running", |running| running == 1);
    if is_reset {
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("it is open");
    }
}

#[test]
fn the_request_of_a_client_that_goes_leaves_the_batch() {
    let server = server(&["--interval", "20"]);
    let addr = server.addr;
    let ways = [(true, r#","stream":true"#), (false, r#","stream":true"#), (true, ""), (false, "")];
    for (before, (is_reset, fields)) in ways.into_iter().enumerate() {
        goes(addr, is_reset, &format!(r#"{fields},"ignore_eos":true"#));
        until_metric(addr, "gpunet_tokens_requests_running", |running| running == 0);
        until_metric(addr, "gpunet_tokens_requests_abandoned_total", |gone| gone == before as u64 + 1);
    }
    assert_eq!(send(addr, &completion("A ", 2, "")).status, 200);
}

#[test]
fn who_ends_its_stream_after_the_request_is_answered() {
    let server = server(&[]);
    let expected = send(server.addr, &completion("Why", 6, "")).text();
    assert_eq!(send_and_end(server.addr, &completion("Why", 6, "")).text(), expected);
    let stream = send_and_end(server.addr, &completion("Why", 6, r#","stream":true"#));
    assert_eq!(stream.streamed_text(), expected);
}

#[test]
fn who_does_not_read_delays_nobody_and_loses_nothing() {
    let server = server(&["--batch", "4"]);
    let addr = server.addr;
    let request = completion("A ", 60, r#","stream":true,"ignore_eos":true"#);
    let slow: Vec<_> = (0..6)
        .map(|_| {
            let mut client = connect(addr);
            SockRef::from(&client).set_recv_buffer_size(2048).expect("it is open");
            client.write_all(request.as_bytes()).expect("it is taken");
            client
        })
        .collect();
    let answered = send(addr, &completion("A ", 60, r#","ignore_eos":true"#)).text();
    until_metric(addr, "gpunet_tokens_requests_running", |running| running == 0);
    for mut client in slow {
        assert_eq!(read(&mut client).streamed_text(), answered);
    }
}

#[test]
fn requests_beyond_the_queue_are_told_to_come_again() {
    let server = server(&["--batch", "1", "--waiting", "1", "--interval", "20"]);
    let addr = server.addr;
    let request = completion("A ", 480, r#","ignore_eos":true"#);
    let mut waiting: Vec<_> = Vec::new();
    for name in ["gpunet_tokens_requests_running", "gpunet_tokens_requests_waiting"] {
        let mut client = connect(addr);
        client.write_all(request.as_bytes()).expect("it is taken");
        until_metric(addr, name, |count| count == 1);
        waiting.push(client);
    }
    let refused = send(addr, &request);
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (503, &"server_error".into()));
    assert!(refused.head.contains("Retry-After: 1"), "{}", refused.head);
    drop(waiting);
    // Those who wait leave the queue, too, when they go.
    until_metric(addr, "gpunet_tokens_requests_waiting", |waiting| waiting == 0);
    assert_eq!(send(addr, &completion("A ", 1, "")).status, 200);
}

/// The batch is full all the while: only what leaves the queue by itself makes room.
#[test]
fn who_goes_while_it_waits_leaves_the_queue() {
    let server = server(&["--batch", "1", "--waiting", "2", "--interval", "60000"]);
    let addr = server.addr;
    let mut busy = connect(addr);
    busy.write_all(completion("A ", 480, r#","ignore_eos":true"#).as_bytes()).expect("it is taken");
    until_metric(addr, "gpunet_tokens_requests_running", |running| running == 1);
    let waiting = |count| until_metric(addr, "gpunet_tokens_requests_waiting", |waiting| waiting == count);
    let mut stays = connect(addr);
    stays.write_all(completion("B ", 1, "").as_bytes()).expect("it is taken");
    waiting(1);
    let stream = r#","stream":true"#;
    for (gone, (is_reset, fields)) in
        [(true, ""), (false, ""), (true, stream), (false, stream)].iter().enumerate()
    {
        let mut client = connect(addr);
        client.write_all(completion("C ", 4, fields).as_bytes()).expect("it is taken");
        if !fields.is_empty() {
            // What it has read does not make its host tell that it has gone.
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("the head comes at once");
                head.push(byte[0].into());
            }
        }
        waiting(2);
        assert_eq!(send(addr, &completion("D ", 1, "")).status, 503);
        if *is_reset {
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("it is open");
        }
        drop(client);
        waiting(1);
        assert_eq!(metric(addr, "gpunet_tokens_requests_abandoned_total"), gone as u64 + 1);
    }
    assert_eq!(metric(addr, "gpunet_tokens_requests_running"), 1, "the batch has not moved");
}

/// Requests behind each other on one connection, sent at once.
#[test]
fn a_connection_serves_its_requests_in_their_order() {
    let server = server(&[]);
    let expected: Vec<_> =
        (0..3).map(|at| send(server.addr, &completion(&prompt(at), 4, "")).text()).collect();
    let keep = |at| completion(&prompt(at), 4, "").replace("Connection: close\r\n", "");
    let mut client = connect(server.addr);
    let all = [keep(0), keep(1), completion(&prompt(2), 4, "")].concat();
    client.write_all(all.as_bytes()).expect("they are taken");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("the answers come");
    let texts = text.match_indices("{\"id\"").map(|(at, _)| {
        let json = serde_json::Deserializer::from_str(&text[at..]).into_iter::<serde_json::Value>().next();
        json.expect("a document").expect("of JSON")["choices"][0]["text"].as_str().expect("a text").to_owned()
    });
    assert_eq!(texts.collect::<Vec<_>>(), expected);
}
