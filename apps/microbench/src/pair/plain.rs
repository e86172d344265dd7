//! The references for streams: the same work by a thread with a TCP or a Unix-domain socket.
//!
//! Each end of such a pair is a process of its own, as plain programs are.

use super::task::{Direction, EndpointKind, Flow, Side, Task, Work};
use crate::sockets::abstract_name;
use gpunet_device::now_ns;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long an end waits for the other one.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How many unsuccessful polls a spinning end makes before it yields the processor between polls:
/// the other end may need it.
const LOOKS: u32 = 4000;

/// A connected socket of either kind.
trait PlainSocket: Read + Write + Send {
    /// Calls spin from now on, or block.
    fn spin(&self, spin: bool) -> Result<()>;
}

impl PlainSocket for TcpStream {
    fn spin(&self, spin: bool) -> Result<()> {
        self.set_nonblocking(spin)
    }
}

impl PlainSocket for UnixStream {
    fn spin(&self, spin: bool) -> Result<()> {
        self.set_nonblocking(spin)
    }
}

/// A count of successive unsuccessful polls.
#[derive(Default)]
struct Looks(u32);

impl Looks {
    /// Pauses between two of them.
    fn pause(&mut self) {
        if self.0 < LOOKS {
            self.0 += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Runs one end of one or several pairs. Returns words as the kernels do: for an echo two outcomes
/// and the client's nanoseconds per round, and for a flow the bytes, start, end and calls of each
/// pair.
pub fn run(task: &Task) -> Result<Vec<u64>> {
    match task.work {
        Work::Echo { size, rounds } => {
            let mut socket = open(task, 0)?;
            echo(&mut *socket, task.side, size as usize, rounds)
        }
        Work::Flow(work) => {
            // All listeners of a server listen before the first one accepts.
            let pairs: Result<Vec<_>> = (0..work.pairs)
                .map(|pair| {
                    let task = task.clone();
                    std::thread::Builder::new()
                        .spawn(move || flow(&mut *open(&task, pair as u16)?, &task, work, pair))
                })
                .collect();
            let mut words = Vec::new();
            for pair in pairs? {
                words.extend(pair.join().map_err(|_| Error::other("a thread panicked"))??);
            }
            Ok(words)
        }
        Work::Duplex { .. } => Err(ErrorKind::InvalidInput.into()),
    }
}

fn open(task: &Task, pair: u16) -> Result<Box<dyn PlainSocket>> {
    let mut addr = task.addr;
    addr.set_port(addr.port() + pair);
    let name = || abstract_name(&format!("gpunet-bench-{}-{}", task.run, addr.port()));
    let (socket, spin): (Box<dyn PlainSocket>, bool) = match (task.kind, task.side) {
        (EndpointKind::Tcp { spin }, Side::Server) => {
            let listener = TcpListener::bind(addr)?;
            listener.set_nonblocking(true)?;
            let stream = accept(TIMEOUT, || listener.accept())?.0;
            stream.set_nodelay(true)?;
            (Box::new(stream), spin)
        }
        (EndpointKind::Tcp { spin }, _) => {
            let stream = retry_connect(|| TcpStream::connect(addr))?;
            stream.set_nodelay(true)?;
            (Box::new(stream), spin)
        }
        (EndpointKind::Unix { spin }, Side::Server) => {
            let listener = UnixListener::bind_addr(&name()?)?;
            listener.set_nonblocking(true)?;
            (Box::new(accept(TIMEOUT, || listener.accept())?.0), spin)
        }
        (EndpointKind::Unix { spin }, _) => {
            let name = name()?;
            (Box::new(retry_connect(|| UnixStream::connect_addr(&name))?), spin)
        }
        (EndpointKind::Gpunet(_), _) => return Err(ErrorKind::InvalidInput.into()),
    };
    socket.spin(spin)?;
    Ok(socket)
}

/// Polls a non-blocking listener until a client connects. It has a timeout, because a client that
/// has failed never connects.
fn accept<T>(timeout: Duration, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let limit = Instant::now() + timeout;
    loop {
        match ask() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() > limit {
                    return Err(Error::new(
                        ErrorKind::TimedOut,
                        format!("nobody connected within {timeout:?}"),
                    ));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Retries while the other end does not listen yet.
fn retry_connect<T>(mut connect: impl FnMut() -> Result<T>) -> Result<T> {
    let limit = Instant::now() + TIMEOUT;
    loop {
        match connect() {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < limit => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

fn echo(socket: &mut dyn PlainSocket, side: Side, size: usize, rounds: u64) -> Result<Vec<u64>> {
    let mut message = vec![7; size];
    let mut words = vec![0; 2];
    if side == Side::Server {
        // The client ends the stream when it has measured.
        while read(socket, &mut message)? {
            write(socket, &message)?;
            words[0] += 1;
        }
        return Ok(words);
    }
    for _ in 0..rounds {
        let start = Instant::now();
        write(socket, &message)?;
        if !read(socket, &mut message)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        words.push(start.elapsed().as_nanos() as u64);
        words[1] += 1;
    }
    Ok(words)
}

fn flow(socket: &mut dyn PlainSocket, task: &Task, work: Flow, pair: u32) -> Result<Vec<u64>> {
    let client_sends = match work.direction {
        Direction::ToServer => true,
        Direction::ToClient => false,
        Direction::Both => pair.is_multiple_of(2),
    };
    let mut buffer = vec![1; work.message as usize];
    let (mut moved, mut calls, mut looks) = (0, 0, Looks::default());
    let start = now_ns();
    if client_sends == (task.side == Side::Client) {
        while moved < work.bytes {
            write(socket, &buffer)?;
            moved += work.message;
            calls += 1;
        }
    } else {
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    moved += n as u64;
                    looks = Looks::default();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    looks.pause();
                    continue;
                }
                Err(error) => return Err(error),
            }
            calls += 1;
        }
    }
    Ok(vec![moved, start, now_ns(), calls])
}

/// Fills `message` by polling a non-blocking socket. Returns false at the stream's end.
fn read(socket: &mut dyn PlainSocket, message: &mut [u8]) -> Result<bool> {
    let (mut have, mut looks) = (0, Looks::default());
    while have < message.len() {
        match socket.read(&mut message[have..]) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => looks.pause(),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn write(socket: &mut dyn PlainSocket, message: &[u8]) -> Result<()> {
    let (mut sent, mut looks) = (0, Looks::default());
    while sent < message.len() {
        match socket.write(&message[sent..]) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => looks.pause(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::task::BlockShape;
    use super::*;
    use std::net::Ipv4Addr;

    fn task(kind: EndpointKind, side: Side, port: u16) -> Task {
        let work = Work::Echo { size: 64, rounds: 20 };
        let addr = (Ipv4Addr::LOCALHOST, port).into();
        Task { work, kind, side, addr, shape: BlockShape::ONE, run: std::process::id() }
    }

    #[test]
    fn two_ends_meet_and_leave_nothing() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        for spin in [false, true] {
            for kind in [EndpointKind::Tcp { spin }, EndpointKind::Unix { spin }] {
                let server = std::thread::spawn(move || run(&task(kind, Side::Server, free)));
                let words = run(&task(kind, Side::Client, free)).unwrap();
                assert_eq!((words[1], words.len()), (20, 22), "{kind:?}");
                assert_eq!(server.join().unwrap().unwrap(), [20, 0], "{kind:?}");
            }
        }
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let nobody = || Err::<(), _>(ErrorKind::WouldBlock.into());
        let error = accept(Duration::from_millis(20), nobody).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("nobody connected"), "{error}");
    }
}
