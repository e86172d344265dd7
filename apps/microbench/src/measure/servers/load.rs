//! Clients that ask the same again and again, and check what they are told.

use crate::outcome::Outcome;
use crate::sockets::{ListenAddr, Socket, are_cores_few, join, spawn};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The longest answer.
const MOST: usize = 4096;
/// Client threads of a rate, where there are cores for them.
const THREADS: usize = 4;

/// A request, and how its answer begins and ends. All answers have the same length.
#[derive(Clone, Copy)]
pub struct Question {
    pub request: &'static [u8],
    pub begins: &'static [u8],
    pub ends: &'static [u8],
}

impl Question {
    fn is_answer(&self, answer: &[u8]) -> bool {
        answer.starts_with(self.begins) && answer.ends_with(self.ends)
    }

    /// Asks for the first time. Returns the bytes of an answer.
    fn first(&self, socket: &mut Socket) -> Result<usize> {
        socket.send_all(self.request)?;
        let (mut answer, mut len) = ([0; MOST], 0);
        while !self.is_answer(&answer[..len]) {
            match socket.receive(&mut answer[len..])? {
                0 => return Err(self.unlike(&answer[..len])),
                n => len += n,
            }
        }
        Ok(len)
    }

    fn receive(&self, socket: &mut Socket, answer: &mut [u8]) -> Result<()> {
        if !socket.receive_all(answer)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if self.is_answer(answer) { Ok(()) } else { Err(self.unlike(answer)) }
    }

    fn unlike(&self, answer: &[u8]) -> Error {
        let [answer, request] =
            [answer, self.request].map(|bytes| bytes[..bytes.len().min(100)].escape_ascii());
        Error::other(format!("the answer to \"{request}\" was \"{answer}\""))
    }
}

/// Asks once, on a connection of its own.
pub fn once(addr: SocketAddr, question: Question) -> Result<()> {
    question.first(&mut Socket::connect(&ListenAddr::Tcp(addr))?).map(drop)
}

/// Returns the nanoseconds of each round trip of one client, which spins if there are cores for it.
pub fn round_trips(addr: SocketAddr, question: Question, rounds: u64) -> Result<Vec<u64>> {
    let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
    let mut answer = vec![0; question.first(&mut socket)?];
    socket.spin(!are_cores_few())?;
    let trip = |_| {
        let start = Instant::now();
        socket.send_all(question.request)?;
        question.receive(&mut socket, &mut answer)?;
        Ok(start.elapsed().as_nanos() as u64)
    };
    (0..rounds).map(trip).collect()
}

/// Returns the answers a second over this number of connections. Each thread asks on all of its
/// connections, and then takes all answers.
pub fn rate(addr: SocketAddr, question: Question, connections: usize, time: Duration) -> Outcome<f64> {
    let threads = if are_cores_few() { 1 } else { THREADS.min(connections) };
    let each = connections / threads;
    let mut clients = Vec::new();
    for _ in 0..threads {
        let open = |_| -> Result<(Socket, Vec<u8>)> {
            let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
            let len = question.first(&mut socket)?;
            Ok((socket, vec![0; len]))
        };
        clients.push((0..each).map(open).collect::<Result<Vec<_>>>()?);
    }
    let start = Instant::now();
    let answers = std::thread::scope(|scope| -> Result<u64> {
        let ask = |mut sockets: Vec<(Socket, Vec<u8>)>| {
            spawn(scope, move || {
                let mut answers = 0;
                while start.elapsed() < time {
                    sockets.iter_mut().try_for_each(|(socket, _)| socket.send_all(question.request))?;
                    for (socket, answer) in &mut sockets {
                        question.receive(socket, answer)?;
                        answers += 1;
                    }
                }
                Ok(answers)
            })
        };
        let threads: Vec<_> = clients.into_iter().map(ask).collect::<Result<_>>()?;
        threads.into_iter().map(join).sum()
    })?;
    Ok(answers as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const HELLO: Question = Question { request: b"hello?\n", begins: b"hel", ends: b"lo!\n" };

    /// Serves one connection after the other, and answers each request after the `good`th wrongly.
    fn serve(good: usize) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut request = [0; 7];
                    for nth in 0.. {
                        if stream.read_exact(&mut request).is_err() {
                            break;
                        }
                        let answer = if nth < good { b"hello!\n" } else { b"hullo!\n" };
                        stream.write_all(answer).unwrap();
                    }
                });
            }
        });
        addr
    }

    #[test]
    fn answers_are_counted_and_checked() {
        let addr = serve(usize::MAX);
        once(addr, HELLO).unwrap();
        assert_eq!(round_trips(addr, HELLO, 5).unwrap().len(), 5);
        assert!(rate(addr, HELLO, 8, Duration::from_millis(10)).unwrap() > 0.0);
        let addr = serve(2);
        for error in [
            round_trips(addr, HELLO, 5).map(drop).unwrap_err().to_string(),
            rate(addr, HELLO, 8, Duration::from_secs(10)).map(drop).unwrap_err().to_string(),
        ] {
            assert_eq!(error, "the answer to \"hello?\\n\" was \"hullo!\\n\"");
        }
    }
}
