//! Queues that move messages between memory of the device and plain programs.

use super::alone::{drain, pour};
use super::{LIMIT, Load, Way};
use crate::bench::{Bench, Lent, Words};
use crate::outcome::Outcome;
use crate::sockets::{Kind, ListenAddr, Listener, join, spawn};
use gpunet_device::{Buffer, Options, TransportKind};
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{Receiver, Sender};
use std::io::{Error, Result};
use std::time::{Duration, Instant};

/// Bytes that are enqueued ahead, unless these are too few or too many messages.
const AHEAD: usize = 32 << 20;

/// A queue, the direction that it uses, and the word in which it writes how many messages are done.
struct Lane {
    queue: Queue,
    direction: Direction,
    memory: Buffer,
    word: usize,
}

enum Direction {
    Send(Sender),
    Recv(Receiver),
}

/// Moves the messages. Returns how long that took for all streams together.
pub fn measure(bench: &Bench, load: Load) -> Outcome<Duration> {
    let words = Words::new(bench)?;
    let message: Vec<u8> = (0..load.size).map(|at| (at * 31 + at / 257) as u8).collect();
    let listener = Listener::new(Kind::Tcp)?;
    let ListenAddr::Tcp(addr) = listener.local_addr()? else { return Err("no address".into()) };
    let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(load.ring, load.ring);
    let (mut lanes, mut plain, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for word in 0..load.streams {
        let socket = bench.attachment().connect_blocking(addr, options)?;
        plain.push(listener.accept()?);
        let mut lent = bench.lend(load.size)?;
        let direction = match load.way {
            Way::Out => {
                lent.write(&message)?;
                Direction::Send(socket.take_send()?)
            }
            Way::In => Direction::Recv(socket.take_recv()?),
        };
        lanes.push(Lane { queue: bench.queue_with(load.settings)?, direction, memory: lent.buffer(), word });
        memory.push(lent);
    }
    let total = load.size as u64 * load.count;
    let took = std::thread::scope(|scope| -> Result<Duration> {
        let (words, message) = (&words, &message);
        let began = Instant::now();
        let mut plains = Vec::new();
        for socket in plain {
            plains.push(spawn(scope, move || match load.way {
                Way::Out => drain(socket, total),
                Way::In => pour(socket, message, load.count),
            })?);
        }
        let drivers: Vec<_> = lanes
            .iter_mut()
            .map(|lane| spawn(scope, move || lane.drive(words, load)))
            .collect::<Result<_>>()?;
        // The failure of a driver is more informative than that of a plain program that missed its
        // bytes.
        let driven = drivers.into_iter().map(join).fold(Ok(()), Result::and);
        let moved = plains.into_iter().map(join).fold(Ok(()), Result::and);
        driven.and(moved)?;
        Ok(began.elapsed())
    })?;
    for lane in &mut lanes {
        lane.queue.synchronize()?;
    }
    drop(lanes);
    for lent in memory {
        if !lent.holds(&message)? {
            return Err("a message has changed on its way".into());
        }
        Lent::done(lent);
    }
    Ok(took)
}

impl Lane {
    /// Enqueues all messages, some of them ahead of the completed ones.
    fn drive(&mut self, words: &Words, load: Load) -> Result<()> {
        let ahead = (AHEAD / load.size).clamp(2, 32) as u64;
        let wait = |done| words.wait_asleep(self.word, done, LIMIT);
        let failed = |error: Box<dyn std::error::Error>| Error::other(error.to_string());
        for number in 1..=load.count {
            match &mut self.direction {
                Direction::Send(sender) => self.queue.send(sender, self.memory)?,
                Direction::Recv(receiver) => self.queue.recv(receiver, self.memory)?,
            }
            self.queue.write(words.there(self.word), number)?;
            wait(number.saturating_sub(ahead)).map_err(failed)?;
        }
        wait(load.count).map_err(failed)
    }
}
