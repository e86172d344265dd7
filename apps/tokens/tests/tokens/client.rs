//! A small HTTP client: one connection for each request.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// What a server has answered, without chunks.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The text of a completion.
    pub fn text(&self) -> String {
        let json = self.json();
        json["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    /// The data of the events, without comments and `[DONE]`, which is checked.
    pub fn events(&self) -> Vec<Value> {
        let events = self.body.split_terminator("\n\n").filter(|event| *event != ":");
        let mut events: Vec<_> = events.map(|event| event.strip_prefix("data: ").expect(event)).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{self:?}");
        events.iter().map(|event| serde_json::from_str(event).expect(event)).collect()
    }

    /// The text of the completion that the events bring.
    pub fn streamed_text(&self) -> String {
        self.events()
            .iter()
            .filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned))
            .collect()
    }
}

/// A connection; a read that takes too long fails the test.
pub fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket has one");
    stream
}

/// A request of this body that closes its connection.
pub fn post(path: &str, body: &str) -> String {
    let len = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}")
}

/// A completion of so many tokens of a prompt, with other fields behind.
pub fn completion(prompt: &str, tokens: u32, fields: &str) -> String {
    let prompt = Value::from(prompt);
    let body = format!(
        r#"{{"model":"gpunet-tokens","prompt":{prompt},"max_tokens":{tokens},"temperature":0{fields}}}"#
    );
    post("/v1/completions", &body)
}

/// Sends bytes as they are, and reads to the end of the stream.
pub fn send(addr: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(addr);
    stream.write_all(request.as_bytes()).expect("it takes the request");
    read(&mut stream)
}

/// As [`send`], with the end of the client's stream behind the request.
pub fn send_and_end(addr: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(addr);
    stream.write_all(request.as_bytes()).expect("it takes the request");
    stream.shutdown(Shutdown::Write).expect("it is open");
    read(&mut stream)
}

/// Reads an answer to the end of the stream.
pub fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the answer comes");
    answer(&String::from_utf8(bytes).expect("answers are UTF-8"))
}

fn answer(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut body = body.to_owned();
    if head.contains("Transfer-Encoding: chunked") {
        let (mut whole, mut rest) = (String::new(), body.as_str());
        loop {
            let (size, chunk) = rest.split_once("\r\n").expect("a chunk begins with its size");
            let size = usize::from_str_radix(size, 16).expect("a size is hexadecimal");
            if size == 0 {
                assert_eq!(chunk, "\r\n", "the body ends");
                break;
            }
            whole += &chunk[..size];
            rest = chunk[size..].strip_prefix("\r\n").expect("a chunk ends");
        }
        body = whole;
    }
    Answer { status, head: head.to_owned(), body }
}

/// A request without a body.
pub fn get(addr: SocketAddr, path: &str) -> Answer {
    send(addr, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

/// Values of `/metrics`, of one moment.
pub fn metrics<const N: usize>(addr: SocketAddr, names: [&str; N]) -> [u64; N] {
    let answer = get(addr, "/metrics");
    names.map(|name| {
        let line = answer.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {}", answer.body))
    })
}

/// One of them.
pub fn metric(addr: SocketAddr, name: &str) -> u64 {
    metrics(addr, [name])[0]
}

/// Waits until a value of `/metrics` is as expected.
pub fn until_metric(addr: SocketAddr, name: &str, is_good: impl Fn(u64) -> bool) {
    while !is_good(metric(addr, name)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
