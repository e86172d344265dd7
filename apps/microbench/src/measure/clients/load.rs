//! What clients do: they know of the server its address alone.

use crate::bench::Outcome;
use crate::sockets::{ListenAddr, Socket, are_cores_few, join, spawn, spin};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of a small message.
pub const SIZE: usize = 64;
/// Bytes that a client of `bandwidth` offers at a time.
const PIECE: usize = 256 << 10;
/// Bytes that are on their way there and back at most.
const WINDOW: u64 = 1 << 20;
/// How long a stream of bytes may stand still.
const STALL: Duration = Duration::from_secs(20);

/// Round trips of small messages by connections that are opened one after the other; all stay open, and the last one
/// is busy. Nanoseconds of each round trip of each connection.
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

/// Bytes that come back in all over so many connections, each with a thread of its own, and the time.
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

/// Sends and receives side by side; returns how many bytes came back.
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

/// Connections a second: each connects, sends a byte, receives it and closes, one after the other in each thread.
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

/// Round trips, each after a silence; the client blocks. Nanoseconds.
pub fn after_silence(addr: SocketAddr, pause: Duration, rounds: u64) -> Outcome<Vec<u64>> {
    let mut socket = Socket::connect(&ListenAddr::Tcp(addr))?;
    socket.round_trip(&mut [1; SIZE])?;
    let ask = |_| {
        std::thread::sleep(pause);
        socket.round_trip(&mut [1; SIZE])
    };
    Ok((0..rounds).map(ask).collect::<Result<_>>()?)
}
