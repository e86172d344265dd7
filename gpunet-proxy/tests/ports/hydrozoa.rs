//! Hydrozoa's example: the host program prepares sends and receives, and hands them to a kernel, which plays all of them.
//!
//! The original ends before that ("implementation not yet done"): it lacks `get_descriptors`, which makes of a request what
//! a kernel can use. Here that is a [`Prepared`], a plain value among the kernel's parameters.

use crate::kernels::{nth, recv, send};
use crate::ranks::{APART, Place, Rank, TOGETHER, everywhere, finish, run_both};
use crate::support::{Memory, bounded, pauses_seed};
use gpunet_device::{Buffer, Group, Kernel, Net, Prepared, Result};
use std::time::Instant;

/// The sends and receives of the example.
const EXAMPLE: usize = 20;

/// What the kernel gets: a descriptor of each message, by value.
#[derive(Clone, Copy)]
struct Descriptors {
    net: Net,
    ring: u64,
    sends: [Prepared; EXAMPLE],
    receives: [Prepared; EXAMPLE],
    from: Buffer,
    to: Buffer,
}

impl Kernel for Descriptors {
    const ENTRY: &'static str = "descriptors";
    fn run<G: Group>(self, g: &G) {
        self.play(g).expect("the stream goes on");
    }
}

impl Descriptors {
    fn play<G: Group>(&self, g: &G) -> Result<()> {
        let (mut from, mut to) = (self.from, self.to);
        for (sent, came) in self.sends.into_iter().zip(self.receives) {
            let (to_send, to_fill) = (sent.len as usize, came.len as usize);
            send(g, self.net, sent, self.ring, from.first(to_send))?;
            recv(g, self.net, came, to.first(to_fill))?;
            (from, to) = (from.skip(to_send), to.skip(to_fill));
        }
        Ok(())
    }
}

/// The example: 16 threads, 20 sends and receives, of all lengths from 1 to 20 words.
#[test]
fn a_kernel_plays_twenty_descriptors() {
    let len = |i: usize| 8 * (i + 1);
    let total = 8 * EXAMPLE * (EXAMPLE + 1) / 2;
    bounded(move || {
        everywhere(4096, |place, mut ranks| {
            run_both(&mut ranks, |rank| {
                let (sent, came) = (Memory::filled(rank.number as u64, 0, total), Memory::new(total));
                let sends = std::array::from_fn(|i| rank.sender.prepare(len(i)).expect("room").prepared);
                let receives = std::array::from_fn(|i| rank.receiver.prepare(len(i)).expect("room").prepared);
                let (ring, from, to) = (rank.sender.capacity() as u64, sent.buffer(), came.buffer());
                finish(rank.launch(16, |net| Descriptors { net, ring, sends, receives, from, to }));
                assert!(came.holds(0, total, 1 - rank.number as u64, 0), "{place:?}");
            });
        });
    });
}

/// Messages that a kernel sends before it receives as many: fewer than a ring holds.
const AHEAD: u64 = 1024;
const LEN: usize = 16;

/// Plays messages of 16 bytes, without end: two descriptors are all of them. Each has its number and the rank.
#[derive(Clone, Copy)]
struct Stream {
    net: Net,
    rank: u64,
    ring: u64,
    sent: Prepared,
    came: Prepared,
    count: u64,
    /// Two messages: one to send, one that came.
    memory: Buffer,
}

impl Kernel for Stream {
    const ENTRY: &'static str = "stream";
    fn run<G: Group>(self, g: &G) {
        let mut next = 0;
        while next < self.count {
            let end = self.count.min(next + AHEAD);
            (next..end).for_each(|i| self.send(g, i).expect("the stream goes on"));
            (next..end).for_each(|i| self.recv(g, i).expect("the stream goes on"));
            next = end;
        }
    }
}

impl Stream {
    fn send<G: Group>(&self, g: &G, i: u64) -> Result<()> {
        let from = self.memory.first(LEN);
        // SAFETY: the kernel has one lane, and the memory is its own.
        unsafe { from.as_ptr().cast::<[u64; 2]>().write_unaligned([i, self.rank]) };
        send(g, self.net, nth(self.sent, i), self.ring, from)
    }

    fn recv<G: Group>(&self, g: &G, i: u64) -> Result<()> {
        let to = self.memory.skip(LEN);
        recv(g, self.net, nth(self.came, i), to)?;
        // SAFETY: as in `send`.
        let came = unsafe { to.as_ptr().cast::<[u64; 2]>().read_unaligned() };
        assert_eq!(came, [i, 1 - self.rank]);
        Ok(())
    }
}

/// Messages each way and place: in all places together 1,000,000, unless the environment says more.
fn count() -> u64 {
    let default = if pauses_seed().is_some() { 5_000 } else { 200_000 };
    std::env::var("GPUNET_PORTS_MESSAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// A ring of 64 KiB and two descriptors are enough for any number: there is no queue of requests that could run out.
#[test]
fn kernels_play_any_number_of_small_messages() {
    let place = |place: Place| {
        bounded(move || {
            let start = Instant::now();
            place.run(64 << 10, |mut ranks| run_both(&mut ranks, stream));
            println!("{place:?}: {} messages each way in {:?}", count(), start.elapsed());
        });
    };
    TOGETHER.into_iter().chain(APART).for_each(place);
}

fn stream(rank: &mut Rank<'_>) {
    let memory = Memory::new(2 * LEN);
    let (sent, came) = (rank.sender.prepare(LEN), rank.receiver.prepare(LEN));
    let (sent, came) = (sent.expect("room").prepared, came.expect("room").prepared);
    let (number, ring, memory) = (rank.number as u64, rank.sender.capacity() as u64, memory.buffer());
    finish(rank.launch(1, |net| Stream { net, rank: number, ring, sent, came, count: count(), memory }));
    let bytes = count() * LEN as u64;
    let outcomes = [rank.sender.outcome(), rank.receiver.outcome()].map(|outcome| outcome.expect("readable"));
    assert_eq!(outcomes[1].position, bytes);
    assert!(outcomes.iter().all(|outcome| outcome.error.is_none()));
}
