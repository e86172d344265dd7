//! The loads of clients, which know only the address of the server.

use crate::outcome::Outcome;
use crate::sockets::{ListenAddr, Socket, are_cores_few, join, spawn, spin};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of a small message.
pub const SIZE: usize = 64;
/// Bytes that a client of `bandwidth` offers at a time.
const PIECE: usize = 256 << 10;
/// The most bytes that are under way there and back.
const WINDOW: u64 = 1 << 20;
/// How long a stream of bytes may make no progress.
const STALL: Duration = Duration::from_secs(20);

/// Measures round trips of small messages by connections that are opened one after the other. All
/// stay open, and the last one is busy. Returns the nanoseconds of each round trip of each
/// connection.
pub fn latency(addr: SocketAddr, connections: usize, rounds: u64) -> Outcome<Vec<Vec<u64>>> {
    let mut open = Vec::new();
    let mut samples = Vec::new();
    for _ in 0..connections {
        let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
        socket.spin(!are_cores_few())?;
        let trips: Result<Vec<u64>> = (0..rounds).map(|_| socket.round_trip(&mut [1; SIZE])).collect();
        samples.push(trips?);
        open.push(socket);
    }
    Ok(samples)
}

/// Measures round trips of small messages by open connections, one after the other. Returns the
/// nanoseconds of each.
pub fn in_turn(addr: SocketAddr, connections: usize, rounds: u64) -> Outcome<Vec<u64>> {
    let connect = |_| -> Result<Socket> {
        let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
        socket.spin(!are_cores_few())?;
        socket.round_trip(&mut [1; SIZE])?;
        Ok(socket)
    };
    let mut open: Vec<_> = (0..connections).map(connect).collect::<Result<_>>()?;
    let trip = |round: u64| open[round as usize % connections].round_trip(&mut [1; SIZE]);
    Ok((0..rounds).map(trip).collect::<Result<_>>()?)
}

/// Returns how many bytes come back in total over all connections, each with a thread of its own,
/// and the time.
pub fn bandwidth(addr: SocketAddr, connections: usize, time: Duration) -> Outcome<(u64, Duration)> {
    let streams: Vec<TcpStream> =
        (0..connections).map(|_| TcpStream::connect(addr)).collect::<Result<_>>()?;
    let start = Instant::now();
    let bytes = std::thread::scope(|scope| -> Result<u64> {
        let clients: Vec<_> = streams
            .into_iter()
            .map(|stream| spawn(scope, move || pour(stream, time)))
            .collect::<Result<_>>()?;
        clients.into_iter().map(join).sum()
    })?;
    Ok((bytes, start.elapsed()))
}

/// Sends and receives at the same time. Returns how many bytes came back.
fn pour(mut stream: TcpStream, time: Duration) -> Result<u64> {
    stream.set_nonblocking(true)?;
    let few = are_cores_few();
    let (out, mut back) = (vec![7; PIECE], vec![0; PIECE]);
    let (mut sent, mut received) = (0, 0);
    let start = Instant::now();
    let mut moved_at = start;
    loop {
        let now = Instant::now();
        let over = now - start > time;
        if over && sent == received {
            return Ok(received);
        }
        let before = sent + received;
        if !over && sent - received < WINDOW {
            sent += unless_blocked(stream.write(&out))?;
        }
        received += unless_blocked(stream.read(&mut back))?;
        if sent + received > before {
            moved_at = now;
        } else if now - moved_at > STALL {
            return Err(ErrorKind::TimedOut.into());
        } else {
            spin(few);
        }
    }
}

fn unless_blocked(moved: Result<usize>) -> Result<u64> {
    match moved {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => Ok(bytes as u64),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error),
    }
}

/// Returns the connections per second. Each thread connects, sends a byte, receives it and closes,
/// again and again.
pub fn connects(addr: SocketAddr, threads: usize, rounds: u64) -> Outcome<f64> {
    let each = rounds / threads as u64;
    let start = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let client = move || -> Result<()> {
            for _ in 0..each {
                Socket::connect(&ListenAddr::Tcp(addr))?.round_trip(&mut [1])?;
            }
            Ok(())
        };
        let clients: Vec<_> = (0..threads).map(|_| spawn(scope, client)).collect::<Result<_>>()?;
        clients.into_iter().try_for_each(join)
    })?;
    Ok((each * threads as u64) as f64 / start.elapsed().as_secs_f64())
}

/// Opens connections that say nothing after their first bytes.
pub fn silent(addr: SocketAddr, connections: usize) -> Outcome<Vec<Socket>> {
    let open = |_| -> Result<Socket> {
        let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
        socket.round_trip(&mut [1])?;
        Ok(socket)
    };
    Ok((0..connections).map(open).collect::<Result<_>>()?)
}

/// Returns the nanoseconds of round trips, each after a silence. The client blocks.
pub fn after_silence(addr: SocketAddr, pause: Duration, rounds: u64) -> Outcome<Vec<u64>> {
    let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
    socket.round_trip(&mut [1; SIZE])?;
    let ask = |_| {
        std::thread::sleep(pause);
        socket.round_trip(&mut [1; SIZE])
    };
    Ok((0..rounds).map(ask).collect::<Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::super::plain::{Plain, Threads};
    use super::*;

    #[test]
    fn a_plain_server_answers_all_that_clients_do() {
        let server = Plain::start(Threads::Shared(1)).unwrap();
        let addr = server.addr;
        let samples = latency(addr, 2, 10).unwrap();
        assert_eq!(samples.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10]);
        assert_eq!(in_turn(addr, 3, 10).unwrap().len(), 10);
        let (bytes, took) = bandwidth(addr, 2, Duration::from_millis(20)).unwrap();
        assert!(bytes > 0 && took >= Duration::from_millis(20));
        assert!(connects(addr, 2, 10).unwrap() > 0.0);
        let pause = Duration::from_millis(2);
        let others = silent(addr, 5).unwrap();
        assert_eq!((after_silence(addr, pause, 3).unwrap().len(), others.len()), (3, 5));
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error() {
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(latency(addr, 1, 1).is_err() && in_turn(addr, 1, 1).is_err());
        assert!(bandwidth(addr, 1, STALL).is_err());
        assert!(connects(addr, 1, 1).is_err() && after_silence(addr, Duration::ZERO, 1).is_err());
    }
}
