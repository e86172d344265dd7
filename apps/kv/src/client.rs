//! A small RESP2 client for the demonstration.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Why the client fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error("connection: {0}")]
    Io(io::Error),
    /// An answer is not RESP2.
    #[error("the server sent {0:?}, which is no answer")]
    NoAnswer(String),
    /// An answer is wrong.
    #[error("{command} was answered with {found:?} instead of {expected:?}")]
    Wrong {
        /// The command.
        command: String,
        /// The answer.
        found: Box<Answer>,
        /// The right one.
        expected: Box<Answer>,
    },
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `+OK`.
    Status(String),
    /// `-ERR ...`.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A value, or nil.
    Bulk(Option<Vec<u8>>),
    /// Several answers.
    Array(Vec<Answer>),
}

impl Answer {
    /// `+OK`.
    pub fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    /// A value.
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(Some(bytes.into()))
    }
}

/// A connection.
pub struct Client {
    reader: BufReader<TcpStream>,
    pending: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn connect(addr: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
        Ok(Self { reader: BufReader::new(stream), pending: Vec::new() })
    }

    /// Adds a command to those that the next [`Client::flush`] sends.
    pub fn queue(&mut self, arguments: &[&[u8]]) {
        self.pending.extend(format!("*{}\r\n", arguments.len()).into_bytes());
        for argument in arguments {
            self.pending.extend(format!("${}\r\n", argument.len()).into_bytes());
            self.pending.extend(*argument);
            self.pending.extend(b"\r\n");
        }
    }

    /// Sends what is queued.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.reader.get_mut().write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Sends a command and checks its answer.
    pub fn expect(&mut self, arguments: &[&[u8]], expected: &Answer) -> Result<(), ClientError> {
        self.queue(arguments);
        self.flush()?;
        self.check(arguments, expected)
    }

    /// Reads an answer and checks it.
    pub fn check(&mut self, arguments: &[&[u8]], expected: &Answer) -> Result<(), ClientError> {
        let found = self.answer()?;
        if found == *expected {
            return Ok(());
        }
        let words: Vec<_> =
            arguments.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(40)])).collect();
        Err(ClientError::Wrong {
            command: words.join(" "),
            found: Box::new(found),
            expected: Box::new(expected.clone()),
        })
    }

    /// Reads an answer.
    pub fn answer(&mut self) -> Result<Answer, ClientError> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let no_answer = || ClientError::NoAnswer(text.clone());
        let rest = text.get(1..).unwrap_or_default().to_owned();
        let number = || rest.parse::<i64>().map_err(|_| no_answer());
        match line.first() {
            Some(b'+') => Ok(Answer::Status(rest)),
            Some(b'-') => Ok(Answer::Error(rest)),
            Some(b':') => Ok(Answer::Integer(number()?)),
            Some(b'$') => match number()? {
                -1 => Ok(Answer::Bulk(None)),
                len => {
                    let mut bytes = vec![0; usize::try_from(len).map_err(|_| no_answer())? + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(bytes.len() - 2);
                    Ok(Answer::Bulk(Some(bytes)))
                }
            },
            Some(b'*') => (0..number()?).map(|_| self.answer()).collect::<Result<_, _>>().map(Answer::Array),
            _ => Err(no_answer()),
        }
    }
}
