//! mp_producer_consumer_kernel_stream: rank 0 sends and waits for an acknowledgement; rank 1 waits, runs a kernel, and
//! acknowledges. The ring is smaller than a batch, and the consumer stalls: nothing may be lost.

use crate::kernels::{Turns, Words, await_word};
use crate::ranks::{Place, Rank, everywhere, finish, run_both};
use crate::support::{Memory, bounded, pattern};
use gpunet_device::{Buffer, Group, Kernel, TransportKind};
use std::time::Duration;

const RING: u64 = 4096;
/// Messages of a batch, and bytes of each: 15 rings' worth.
const MESSAGES: usize = 64;
const LEN: usize = 1000;
const BATCHES: usize = 6;
/// Messages after which the consumer stalls anew.
const STALLS_EVERY: usize = 16;

/// Consumes: counts the bytes of a batch that are right, for the acknowledgement.
#[derive(Clone, Copy)]
struct Consume {
    turns: Turns,
    batch: Buffer,
    acknowledgement: Buffer,
}

impl Kernel for Consume {
    const ENTRY: &'static str = "consume";
    fn run<G: Group>(self, g: &G) {
        for turn in 1..=BATCHES as u64 {
            self.turns
                .take(g, turn, || {
                    let right = |at: &usize| {
                        // SAFETY: inside the batch, which nobody writes during this kernel's turn.
                        let byte = unsafe { self.batch.as_ptr().add(*at).read_volatile() };
                        byte == pattern(turn, *at)
                    };
                    let right = (0..self.batch.len()).filter(right).count() as u64;
                    // SAFETY: eight bytes of the program's, which the queue sends after this turn.
                    unsafe { self.acknowledgement.as_ptr().cast::<u64>().write_unaligned(right) };
                    Ok(())
                })
                .expect("nothing fails");
        }
    }
}

fn produce(rank: &mut Rank<'_>, place: Place, stalled: &Words) {
    let acknowledgement = Memory::new(8);
    for batch in 1..=BATCHES {
        let data = Memory::filled(batch as u64, 0, MESSAGES * LEN);
        let before = rank.queue.outcome().done;
        for i in 0..MESSAGES {
            rank.queue.send(&mut rank.sender, data.buffer().slice(i * LEN, LEN)).expect("a position");
        }
        rank.queue.recv(&mut rank.receiver, acknowledgement.buffer()).expect("a position");
        let done = rank.queue.notify();
        std::thread::sleep(Duration::from_micros(500));
        let sent = rank.queue.outcome().done - before;
        // The consumer takes nothing, so no more is sent than the rings take. (A socket of tcp may take all.)
        match place.kind() {
            TransportKind::Tcp => {}
            TransportKind::Peer => assert!(sent * LEN as u64 <= RING, "{sent} messages"),
            _ => assert!(sent * LEN as u64 <= 2 * RING, "{sent} messages"),
        }
        assert!(sent <= MESSAGES as u64, "not acknowledged");
        stalled.at(1).publish(batch as u64);
        done.wait().expect("no failure");
        let right = u64::from_le_bytes(acknowledgement.copy(0, 8).try_into().expect("eight"));
        assert_eq!(right, (MESSAGES * LEN) as u64, "batch {batch}");
    }
}

fn consume(rank: &mut Rank<'_>, stalled: &Words) {
    let (data, acknowledgement) = (Memory::new(MESSAGES * LEN), Memory::new(8));
    let words = Words::new(2);
    let (turns, batch, answer) = (Turns::of(&words), data.buffer(), acknowledgement.buffer());
    let launch = rank.launch(1, |_| Consume { turns, batch, acknowledgement: answer });
    let mut stalls = 0;
    for turn in 1..=BATCHES as u64 {
        for i in 0..MESSAGES {
            if i % STALLS_EVERY == 0 {
                stalls += 1;
                rank.queue.wait_word(stalled.at(0), stalls).expect("enqueued");
            }
            rank.queue.recv(&mut rank.receiver, batch.slice(i * LEN, LEN)).expect("a position");
        }
        turns.enqueue(&mut rank.queue, turn);
        rank.queue.send(&mut rank.sender, answer).expect("a position");
    }
    rank.queue.synchronize().expect("no failure");
    finish(launch);
}

/// Releases one stall after another, the first of each batch only when the producer has seen that it is held up.
fn stall(stalled: &Words) {
    let each = (MESSAGES / STALLS_EVERY) as u64;
    for stall in 0..BATCHES as u64 * each {
        if stall % each == 0 {
            await_word(stalled.at(1), stall / each + 1);
        }
        std::thread::sleep(Duration::from_micros(300));
        stalled.at(0).publish(stall + 1);
    }
}

#[test]
fn a_consumer_that_stalls_loses_nothing() {
    bounded(|| {
        everywhere(RING, |place, mut ranks| {
            let stalled = Words::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| stall(&stalled));
                run_both(&mut ranks, |rank| match rank.number {
                    0 => produce(rank, place, &stalled),
                    _ => consume(rank, &stalled),
                });
            });
        });
    });
}
