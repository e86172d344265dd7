//! A connection that sends bytes and reads answers as bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any answer takes on a machine that does other things too.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Client {
    reader: BufReader<TcpStream>,
}

/// A request.
pub fn encode(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend(*argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("the server takes connections");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the server reads");
    }

    /// Sends a request and returns the answer.
    pub fn ask(&mut self, arguments: &[&[u8]]) -> String {
        self.send(&encode(arguments));
        self.answer()
    }

    /// The same, of words.
    pub fn say(&mut self, words: &str) -> String {
        let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        self.ask(&words)
    }

    /// The next answer, whole, as it came.
    pub fn answer(&mut self) -> String {
        String::from_utf8_lossy(&self.raw()).into_owned()
    }

    fn raw(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.reader.read_until(b'\n', &mut bytes).expect("an answer comes");
        let number =
            || String::from_utf8_lossy(&bytes[1..]).trim().parse::<i64>().expect("a length is a number");
        match bytes.first() {
            Some(b'$' | b'=') if number() >= 0 => {
                let mut value = vec![0; number() as usize + 2];
                self.reader.read_exact(&mut value).expect("a value comes");
                bytes.extend(value);
            }
            Some(sign @ (b'*' | b'%')) => {
                let elements = number() * if *sign == b'%' { 2 } else { 1 };
                (0..elements).for_each(|_| {
                    let element = self.raw();
                    bytes.extend(element);
                });
            }
            _ => {}
        }
        bytes
    }

    /// What comes until the server ends the connection; a reset counts as the end.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
