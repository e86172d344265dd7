//! A plain echo server, to compare with: kernel TCP and threads.

use crate::measure::server::LISTENING;
use crate::outcome::Outcome;
use crate::process::more_descriptors;
use crate::sockets::{are_cores_few, spin};
use clap::Args;
use std::fmt;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Bytes that a connection reads at a time.
const PIECE: usize = 256 << 10;
/// The pause between two polls of a thread that has no connections.
const REST: Duration = Duration::from_micros(50);

/// The threads that serve the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// A spinning thread for each connection.
    Each,
    /// A blocking thread for each connection.
    EachBlocks,
    /// This number of spinning threads, which share the connections.
    Shared(usize),
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each => f.write_str("each"),
            Self::EachBlocks => f.write_str("blocking"),
            Self::Shared(threads) => write!(f, "{threads}"),
        }
    }
}

impl FromStr for Threads {
    type Err = ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, ParseIntError> {
        Ok(match text {
            "each" => Self::Each,
            "blocking" => Self::EachBlocks,
            threads => Self::Shared(threads.parse()?),
        })
    }
}

/// What `plain-server` takes. `clients` starts it.
#[derive(Clone, Debug, Args)]
pub struct PlainServerArgs {
    /// Threads: a blocking one for each connection, a spinning one for each, or so many that spin.
    threads: Threads,
}

/// `plain-server`: serves, and says where.
pub fn plain_server(args: &PlainServerArgs) -> Outcome<()> {
    more_descriptors();
    let server = Plain::start(args.threads)?;
    println!("{LISTENING}{}", server.addr);
    loop {
        std::thread::park();
    }
}

impl Threads {
    /// Returns the server's name in a table.
    pub fn name(self) -> String {
        match self {
            Self::Each => "plain, a spinning thread a connection".to_owned(),
            Self::EachBlocks => "plain, a blocking thread a connection".to_owned(),
            Self::Shared(1) => "plain, one spinning thread".to_owned(),
            Self::Shared(threads) => format!("plain, {threads} spinning threads"),
        }
    }
}

/// A running server. It ends when it is dropped.
pub struct Plain {
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Plain {
    /// Serves at a free port of this machine.
    pub fn start(threads: Threads) -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut server = Self { addr: listener.local_addr()?, stop: Arc::default(), threads: Vec::new() };
        match threads {
            Threads::Each | Threads::EachBlocks => {
                server.spawn(move |stop| accept_each(&listener, threads == Threads::Each, stop))?;
            }
            Threads::Shared(count) => {
                listener.set_nonblocking(true)?;
                for _ in 0..count {
                    let listener = listener.try_clone()?;
                    server.spawn(move |stop| share(&listener, stop))?;
                }
            }
        }
        Ok(server)
    }

    fn spawn(&mut self, body: impl FnOnce(&Arc<AtomicBool>) + Send + 'static) -> Outcome<()> {
        let stop = self.stop.clone();
        self.threads.push(Builder::new().name("plain-server".to_owned()).spawn(move || body(&stop))?);
        Ok(())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // Ordering: Relaxed; the flag publishes nothing else.
        self.stop.store(true, Ordering::Relaxed);
        // For a thread that waits in accept.
        drop(TcpStream::connect(self.addr));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Accepts, and gives each connection a thread, which ends with it.
fn accept_each(listener: &TcpListener, spins: bool, stop: &Arc<AtomicBool>) {
    while let Ok((stream, _)) = listener.accept() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let stop = stop.clone();
        let serve = move || {
            if let Ok(mut connection) = Connection::new(stream, spins) {
                while !stop.load(Ordering::Relaxed) && !matches!(connection.turn(), Turn::Ended) {}
            }
        };
        // If there is no thread, its client sees the connection closed.
        let _ = Builder::new().name("plain-stream".to_owned()).spawn(serve);
    }
}

/// Accepts and serves, one connection after the other.
fn share(listener: &TcpListener, stop: &AtomicBool) {
    let (mut connections, few) = (Vec::<Connection>::new(), are_cores_few());
    while !stop.load(Ordering::Relaxed) {
        if let Ok((stream, _)) = listener.accept() {
            connections.extend(Connection::new(stream, true));
        }
        let mut moved = false;
        connections.retain_mut(|connection| {
            let turn = connection.turn();
            moved |= turn == Turn::Moved;
            turn != Turn::Ended
        });
        if connections.is_empty() {
            std::thread::sleep(REST);
        } else if !moved {
            spin(few);
        }
    }
}

/// The result of a turn of a connection.
#[derive(PartialEq)]
enum Turn {
    Moved,
    Nothing,
    Ended,
}

/// One connection, and the bytes that it has not sent back yet.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    pending: std::ops::Range<usize>,
}

impl Connection {
    fn new(stream: TcpStream, spins: bool) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(spins)?;
        Ok(Self { stream, buffer: vec![0; PIECE], pending: 0..0 })
    }

    fn turn(&mut self) -> Turn {
        match self.echo() {
            Ok(0) => Turn::Ended,
            Ok(_) => Turn::Moved,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Turn::Nothing,
            Err(_) => Turn::Ended,
        }
    }

    /// Receives if everything was sent back, and then sends.
    fn echo(&mut self) -> Result<usize> {
        if self.pending.is_empty() {
            self.pending = 0..self.stream.read(&mut self.buffer)?;
        }
        if self.pending.is_empty() {
            return Ok(0);
        }
        let sent = self.stream.write(&self.buffer[self.pending.clone()])?;
        self.pending.start += sent;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::{ListenAddr, Socket};

    #[test]
    fn every_kind_of_server_echoes_and_ends() {
        for threads in [Threads::Each, Threads::EachBlocks, Threads::Shared(2)] {
            let server = Plain::start(threads).unwrap();
            for byte in [7, 8] {
                let mut socket = Socket::connect(&ListenAddr::Tcp(server.addr)).unwrap();
                let mut message = [byte; 64];
                socket.round_trip(&mut message).unwrap();
                assert_eq!(message, [byte; 64], "{threads:?}");
            }
        }
    }
}
