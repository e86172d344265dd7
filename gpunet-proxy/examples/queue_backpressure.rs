//! A producer that is ahead of its consumer: the ring holds it up, and nothing is lost.
//!
//! ```text
//! cargo run --example queue_backpressure [tcp|peer]
//! ```
//!
//! Rank 0 sends batches of messages. Each batch is fifteen times as long as the ring. After each
//! batch rank 0 receives an acknowledgement. Rank 1 receives a batch, runs a kernel that counts the
//! right bytes, and sends the count as the acknowledgement. After every few messages its queue
//! waits for a word of the program: while it waits, the ring fills and rank 0 stops. libmp's
//! `mp_producer_consumer_kernel_stream` has the same shape.

mod ranks;

use gpunet_device::abi::TransportKind;
use gpunet_device::{Buffer, Group, Kernel};
use gpunet_proxy::Attachment;
use ranks::{Fallible, Rank, Turns, Words, await_word, buffer, bytes, finish, pattern, run_both};

const RING: u64 = 4096;
/// Messages of a batch, and bytes of each.
const MESSAGES: usize = 64;
const LEN: usize = 1000;
const BATCHES: u64 = 6;
/// Messages after which the consumer stalls anew.
const STALLS_EVERY: usize = 16;
const STALLS: u64 = (MESSAGES / STALLS_EVERY) as u64;

fn main() -> Fallible {
    ranks::start(run)
}

pub(crate) fn run(near: &Attachment, far: &Attachment, transport: TransportKind) -> Fallible {
    let mut ranks = ranks::ranks(near, far, transport, RING)?;
    // The batch in which the producer has seen that it is held up.
    let held_up = Words::new();
    run_both(&mut ranks, |rank| match rank.number {
        0 => produce(rank, transport, &held_up),
        _ => consume(rank, &held_up),
    })?;
    println!("{BATCHES} batches of {MESSAGES} messages of {LEN} bytes, through a ring of {RING}");
    Ok(())
}

fn produce(rank: &mut Rank<'_>, transport: TransportKind, held_up: &Words<1>) -> Fallible {
    let acknowledgement = rank.memory(&[0; 8])?;
    for batch in 1..=BATCHES {
        let data = rank.memory(&pattern(batch as usize, MESSAGES * LEN))?;
        let before = rank.queue.outcome().done;
        for i in 0..MESSAGES {
            rank.queue.send(&mut rank.sender, buffer(&data).slice(i * LEN, LEN))?;
        }
        rank.queue.recv(&mut rank.receiver, buffer(&acknowledgement))?;
        let done = rank.queue.notify();
        // The consumer takes nothing yet. So much is sent all the same, but no more than the rings
        // take.
        let sent = || rank.queue.outcome().done - before;
        while sent() < RING / LEN as u64 / 2 {
            std::thread::yield_now();
        }
        let most = match transport {
            TransportKind::Peer => RING,
            // A ring at either end, or a socket of the kernel, which may take all.
            TransportKind::Rc => 2 * RING,
            _ => (MESSAGES * LEN) as u64,
        };
        assert!(sent() * LEN as u64 <= most, "{} messages", sent());
        held_up.at(0).publish(batch);
        done.wait()?;
        let right = u64::from_le_bytes(bytes(&acknowledgement)?.try_into().expect("eight"));
        assert_eq!(right, (MESSAGES * LEN) as u64, "batch {batch}");
    }
    Ok(())
}

fn consume(rank: &mut Rank<'_>, held_up: &Words<1>) -> Fallible {
    let (data, acknowledgement) = (rank.memory(&[0; MESSAGES * LEN])?, rank.memory(&[0; 8])?);
    let (batch, right) = (buffer(&data), buffer(&acknowledgement));
    let (words, go) = (Words::new(), Words::<1>::new());
    let turns = Turns::of(&words);
    let launch = rank.launch(1, |_| Count { turns, batch, right })?;
    // Where in the queue each stall is: so much is done when it waits there.
    let (mut enqueued, mut stalls) = (0, Vec::new());
    for turn in 1..=BATCHES {
        for i in 0..MESSAGES {
            if i % STALLS_EVERY == 0 {
                stalls.push(enqueued);
                rank.queue.wait_word(go.at(0), stalls.len() as u64)?;
                enqueued += 1;
            }
            rank.queue.recv(&mut rank.receiver, batch.slice(i * LEN, LEN))?;
            enqueued += 1;
        }
        turns.enqueue(&mut rank.queue, turn)?;
        rank.queue.send(&mut rank.sender, right)?;
        enqueued += 3;
    }
    for (at, before) in (0..).zip(stalls) {
        await_word(held_up.at(0), at / STALLS + 1);
        while rank.queue.outcome().done < before {
            std::thread::yield_now();
        }
        go.at(0).publish(at + 1);
    }
    rank.queue.synchronize()?;
    finish(launch)
}

/// Counts the bytes of a batch that are right.
#[derive(Clone, Copy)]
struct Count {
    turns: Turns,
    batch: Buffer,
    right: Buffer,
}

impl Kernel for Count {
    const ENTRY: &'static str = "count";

    fn run<G: Group>(self, g: &G) {
        for turn in 1..=BATCHES {
            self.turns.take(g, turn, || {
                // SAFETY: inside the batch, which nobody writes during this kernel's turn.
                let byte = |at| unsafe { self.batch.as_ptr().add(at).read_volatile() };
                let expected = pattern(turn as usize, self.batch.len());
                let right =
                    expected.into_iter().enumerate().filter(|&(at, expected)| byte(at) == expected).count();
                // SAFETY: eight bytes of the program's, which the queue sends after this turn.
                unsafe { self.right.as_ptr().cast::<u64>().write_unaligned(right as u64) };
            });
        }
    }
}
