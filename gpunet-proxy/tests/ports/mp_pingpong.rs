//! mp_pingpong: one message to and fro, by the program, on queues, in kernels; with a computation between, or without.
//!
//! The original prints these side by side (mp_pingpong_all). Here each form must move the same bytes: what comes back is
//! what went, changed by the kernel where there is one.

use crate::kernels::{Turns, Words, nth, recv, send};
use crate::ranks::{Rank, everywhere, finish, run_both};
use crate::support::{Memory, bounded, pattern};
use gpunet_device::{Buffer, Group, Kernel, Net, Prepared, Result};
use gpunet_proxy::queue::Done;
use std::collections::VecDeque;

const SIZES: [usize; 4] = [1, 64, 1000, 4096];
const RING: u64 = 16 << 10;

/// mp_pingpong_kernel_stream, the column "sync": the program waits for each message before it sends the next.
#[test]
fn the_program_waits_for_each_message() {
    const ROUNDS: u64 = 100;
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            run_both(&mut ranks, |rank| {
                for (round, size) in (0..ROUNDS).zip(SIZES.into_iter().cycle()) {
                    let ball =
                        if rank.number == 0 { Memory::filled(round, 0, size) } else { Memory::new(size) };
                    for sends in [rank.number == 0, rank.number == 1] {
                        let Rank { queue, sender, receiver, .. } = &mut *rank;
                        let enqueue = if sends {
                            queue.send(sender, ball.buffer())
                        } else {
                            queue.recv(receiver, ball.buffer())
                        };
                        enqueue.expect("a position");
                        queue.synchronize().expect("no failure");
                    }
                    assert!(ball.holds(0, size, round, 0), "round {round}");
                }
            });
        });
    });
}

/// Messages of a batch, and batches in flight.
const BATCH: usize = 16;
const IN_FLIGHT: usize = 4;
const BATCHES: usize = 12;

/// The kernel between a receive and the next send: inverts all bits of a message in the memory that it came into.
#[derive(Clone, Copy)]
struct Invert {
    turns: Turns,
    memory: Buffer,
    size: usize,
}

impl Kernel for Invert {
    const ENTRY: &'static str = "invert";
    fn run<G: Group>(self, g: &G) {
        for turn in 0..self.memory.len() / self.size {
            let message = self.memory.slice(turn * self.size, self.size);
            let invert = || {
                for at in (g.rank() as usize..self.size).step_by(g.size() as usize) {
                    // SAFETY: inside the message, of which each lane has a share, in this kernel's turn.
                    unsafe {
                        let byte = message.as_ptr().add(at);
                        byte.write_volatile(!byte.read_volatile());
                    }
                }
                Ok(())
            };
            self.turns.take(g, turn as u64 + 1, invert).expect("nothing fails");
        }
    }
}

/// One rank's exchanges on its queue, four batches ahead.
fn on_queue(rank: &mut Rank<'_>, size: usize, with_kernel: bool, start: &Words) {
    let len = BATCHES * BATCH * size;
    let ball = if rank.number == 0 { Memory::filled(1, 0, len) } else { Memory::new(len) };
    let words = Words::new(2);
    let (turns, memory) = (Turns::of(&words), ball.buffer());
    let launch = with_kernel.then(|| rank.launch(1, |_| Invert { turns, memory, size }));
    let Rank { queue, sender, receiver, number, .. } = rank;
    if *number == 1 {
        queue.wait_word(start.at(0), 1).expect("enqueued");
    }
    let mut flying: VecDeque<Done> = VecDeque::new();
    for batch in 0..BATCHES {
        if flying.len() == IN_FLIGHT {
            flying.pop_front().expect("four of them").wait().expect("no failure");
        }
        for i in batch * BATCH..(batch + 1) * BATCH {
            let message = memory.slice(i * size, size);
            if *number == 0 {
                queue.send(sender, message).expect("a position");
            }
            queue.recv(receiver, message).expect("a position");
            if with_kernel {
                turns.enqueue(queue, i as u64 + 1);
            }
            if *number == 1 {
                queue.send(sender, message).expect("a position");
            }
        }
        flying.push_back(queue.notify());
        if batch + 1 == IN_FLIGHT && *number == 0 {
            start.at(0).publish(1);
        }
    }
    flying.into_iter().for_each(|done| done.wait().expect("no failure"));
    launch.into_iter().for_each(finish);
    // Both kernels have inverted what rank 0 has; that of rank 1 has inverted it once.
    let inverted = if with_kernel && *number == 1 { 0xff } else { 0 };
    let expected: Vec<_> = (0..len).map(|at| pattern(1, at) ^ inverted).collect();
    assert!(ball.copy(0, len) == expected, "messages of {size} bytes");
}

/// mp_pingpong_kernel_stream, the column "async", with `-W`: rank 1 waits for a word until rank 0 has posted four batches.
#[test]
fn queues_play_batches_that_were_posted_ahead() {
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            for size in SIZES {
                let start = Words::new(1);
                run_both(&mut ranks, |rank| on_queue(rank, size, false, &start));
            }
        });
    });
}

/// The column "async + kernel".
#[test]
fn queues_run_a_kernel_between_receive_and_send() {
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            for size in [64, 1000] {
                let start = Words::new(1);
                run_both(&mut ranks, |rank| on_queue(rank, size, true, &start));
            }
        });
    });
}

/// mp_pingpong_kernel: the exchange inside the kernel.
#[derive(Clone, Copy)]
struct PingPong {
    net: Net,
    rank: usize,
    ring: u64,
    sent: Prepared,
    came: Prepared,
    count: u64,
    ball: Buffer,
}

impl Kernel for PingPong {
    const ENTRY: &'static str = "pingpong";
    fn run<G: Group>(self, g: &G) {
        self.play(g).expect("the stream goes on");
    }
}

impl PingPong {
    fn play<G: Group>(&self, g: &G) -> Result<()> {
        for i in 0..self.count {
            let (sent, came) = (nth(self.sent, i), nth(self.came, i));
            if self.rank == 0 {
                send(g, self.net, sent, self.ring, self.ball)?;
            }
            recv(g, self.net, came, self.ball)?;
            if g.is_leader() {
                // SAFETY: the first byte of the ball, by one lane, between two barriers.
                unsafe {
                    self.ball.as_ptr().write_volatile(self.ball.as_ptr().read_volatile().wrapping_add(1))
                };
            }
            g.sync();
            if self.rank == 1 {
                send(g, self.net, sent, self.ring, self.ball)?;
            }
        }
        Ok(())
    }
}

/// Each kernel counts in the first byte.
#[test]
fn kernels_play_the_exchange_alone() {
    const COUNT: u64 = 101;
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            run_both(&mut ranks, |rank| {
                for size in SIZES {
                    let ball = if rank.number == 0 { Memory::filled(3, 0, size) } else { Memory::new(size) };
                    let (sent, came) = (rank.sender.prepare(size), rank.receiver.prepare(size));
                    let (sent, came) = (sent.expect("room").prepared, came.expect("room").prepared);
                    let (number, ring, ball_buffer) =
                        (rank.number, rank.sender.capacity() as u64, ball.buffer());
                    finish(rank.launch(2, |net| PingPong {
                        net,
                        rank: number,
                        ring,
                        sent,
                        came,
                        count: COUNT,
                        ball: ball_buffer,
                    }));
                    let exchanges = if rank.number == 0 { 2 * COUNT } else { 2 * COUNT - 1 };
                    let first = pattern(3, 0).wrapping_add(exchanges as u8);
                    assert_eq!(ball.copy(0, 1), [first], "{size} bytes");
                    assert!(ball.copy(1, size - 1) == Memory::filled(3, 1, size - 1).copy(0, size - 1));
                }
            });
        });
    });
}
