//! The references of queues: copies without sockets, and sockets without a device.

use super::{LIMIT, Load, PIECE, Way};
use crate::bench::{Bench, ByHand, Lent, Step, Words};
use crate::outcome::Outcome;
use crate::report::{Role, Row};
use crate::sockets::{Kind, Socket, join, spawn};
use std::io::Result;
use std::time::{Duration, Instant};

/// Measures the copies of as many streams, enqueued by hand, between memory of the device and
/// pinned memory.
pub fn copies(bench: &Bench, load: Load) -> Outcome<Row> {
    let start = Words::COUNT - 1;
    let words = Words::new(bench)?;
    let pinned = bench.pinned(load.streams * load.size)?;
    let memory: Vec<Lent> = (0..load.streams).map(|_| bench.lend(load.size)).collect::<Outcome<_>>()?;
    let streams: Vec<ByHand> = (0..load.streams).map(|_| bench.by_hand()).collect::<Outcome<_>>()?;
    // A stream takes about a thousand operations.
    let portion = load.count.min(128);
    let (mut took, mut left, mut value) = (Duration::ZERO, load.count, 0);
    while left > 0 {
        let copies = portion.min(left);
        (left, value) = (left - copies, value + 1);
        for (at, (stream, memory)) in streams.iter().zip(&memory).enumerate() {
            let (device, host) = (memory.address(), pinned.device(at * load.size) as u64);
            let (to, from) = if load.way == Way::Out { (host, device) } else { (device, host) };
            stream.enqueue(&[Step::Wait { word: words.address(start), value }])?;
            let copy = [Step::Copy { to, from, len: load.size }];
            (0..copies).try_for_each(|_| stream.enqueue(&copy))?;
            stream.enqueue(&[Step::Write { word: words.address(at), value }])?;
        }
        let began = Instant::now();
        words.here(start).publish(value);
        (0..load.streams).try_for_each(|at| words.wait(at, value, LIMIT).map(drop))?;
        took += began.elapsed();
    }
    drop(streams);
    memory.into_iter().for_each(Lent::done);
    Ok(load.row(Role::Floor, "copies alone", took))
}

/// Measures as many plain streams, each between two threads. They send the same messages: those
/// that do not fit into a core's cache take longer.
pub fn plain(load: Load) -> Outcome<Duration> {
    let pairs = Socket::pairs(Kind::Tcp, load.streams)?;
    let (total, message) = (load.size as u64 * load.count, vec![7; load.size]);
    let message = &message;
    let took = std::thread::scope(|scope| -> Result<Duration> {
        let began = Instant::now();
        let mut threads = Vec::new();
        for [near, far] in pairs {
            threads.push(spawn(scope, move || pour(near, message, load.count))?);
            threads.push(spawn(scope, move || drain(far, total))?);
        }
        threads.into_iter().try_for_each(join)?;
        Ok(began.elapsed())
    })?;
    Ok(took)
}

/// Sends a message `count` times.
pub fn pour(mut socket: Socket, message: &[u8], count: u64) -> Result<()> {
    for _ in 0..count {
        message.chunks(PIECE).try_for_each(|piece| socket.send_all(piece))?;
    }
    Ok(())
}

/// Receives `total` bytes.
pub fn drain(mut socket: Socket, total: u64) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = total;
    while left > 0 {
        let most = PIECE.min(left as usize);
        match socket.receive(&mut piece[..most])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => left -= n as u64,
        }
    }
    Ok(())
}
