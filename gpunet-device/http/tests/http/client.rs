//! A client that sends bytes as they are, and reads answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Its fields, in lower case.
    pub fields: Vec<String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub struct Client {
    pub reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Self { reader: BufReader::new(stream) }
    }

    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that has refused the beginning may not take the rest.
        let _ = self.reader.get_mut().write_all(bytes.as_ref());
    }

    pub fn end(&mut self) {
        let _ = self.stream().shutdown(Shutdown::Write);
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.answer(false).expect("an answer")
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(_) => line.strip_suffix("\r\n").map(str::to_owned),
            Err(_) => None,
        }
    }

    /// The next answer; `None` at the end.
    pub fn answer(&mut self, is_head: bool) -> Option<Answer> {
        let (status, fields) = self.head()?;
        let mut answer = Answer { status, fields, body: Vec::new() };
        let is_chunked = answer.field("transfer-encoding") == Some("chunked");
        let length = answer.field("content-length").map(|length| length.parse().expect("a length"));
        match length {
            _ if is_head || matches!(answer.status, 100..200 | 204 | 304) => {}
            _ if is_chunked => {
                while let Some(chunk) = self.chunk() {
                    answer.body.extend(chunk);
                }
            }
            Some(length) => {
                answer.body.resize(length, 0);
                self.reader.read_exact(&mut answer.body).expect("the whole body");
            }
            None => drop(self.reader.read_to_end(&mut answer.body).expect("the end")),
        }
        Some(answer)
    }

    /// The first line and the fields of an answer.
    pub fn head(&mut self) -> Option<(u16, Vec<String>)> {
        let first = self.line()?;
        // hyper answers with the version of the request.
        let rest = first.strip_prefix("HTTP/1.1 ").or(first.strip_prefix("HTTP/1.0 "));
        let status = rest.and_then(|rest| rest.get(..3)).expect(&first);
        let status = status.parse().expect("a number");
        let mut fields = Vec::new();
        loop {
            let line = self.line().expect("a field");
            if line.is_empty() {
                return Some((status, fields));
            }
            let (name, value) = line.split_once(": ").expect(&line);
            fields.push(format!("{}: {value}", name.to_lowercase()));
        }
    }

    /// The next chunk; `None` at the end of the body.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.line().expect("a size");
        let size = usize::from_str_radix(&size, 16).expect(&size);
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk).expect("a chunk");
        assert_eq!(self.line().as_deref(), Some(""));
        (size > 0).then_some(chunk)
    }
}

/// All answers to these bytes, behind which the client's stream ends.
pub fn answers(addr: SocketAddr, bytes: &[u8]) -> Vec<Answer> {
    let mut client = Client::connect(addr);
    client.send(bytes);
    client.end();
    let is_head = bytes.starts_with(b"HEAD ");
    std::iter::from_fn(|| client.answer(is_head)).collect()
}
