//! Every interleaving of a sender and a receiver of units, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom_units --release`.
//!
//! The models have the shapes and orderings of gpunet-device's `SendHalf::send_units`,
//! `NextUnits::before` and `entry::begin_units`, with messages of one slot.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// A unit ring of two slots of one half each, and the words beside it. A slot holds its tag, which
/// is the number of its lap from 1 on, and the position of its message of one byte.
struct Stream {
    slots: [AtomicU64; 2],
    limit: AtomicU64,
    published: AtomicU64,
    /// The place of each byte in the ring: 7 if it was written there.
    ring: [AtomicU64; 4],
}

impl Stream {
    /// A stream whose unit ring still has what another one left there.
    fn new() -> Self {
        Self {
            slots: [AtomicU64::new(1 << 32 | 99), AtomicU64::new(1 << 32 | 98)],
            limit: AtomicU64::new(0),
            published: AtomicU64::new(0),
            ring: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// `entry::begin_units`.
    fn begin(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        self.limit.store(2, Ordering::Release);
    }

    /// Sends the byte at a position: by a unit if there is credit, else by the ring.
    fn send(&self, position: u64, slot: &mut u64) {
        if self.limit.load(Ordering::Acquire) > *slot {
            let tag = *slot / 2 + 1;
            self.slots[(*slot % 2) as usize].store(tag << 32 | position, Ordering::Relaxed);
            *slot += 1;
        } else {
            self.ring[position as usize].store(7, Ordering::Relaxed);
            self.published.store(position + 1, Ordering::Release);
        }
    }

    /// The position that the next slot names, if it is there.
    fn header(&self, slot: u64) -> Option<u64> {
        let found = self.slots[(slot % 2) as usize].load(Ordering::Relaxed);
        (found >> 32 == slot / 2 + 1).then_some(found & 0xffff_ffff)
    }

    /// Receives the byte at a position, if it is there, as `RecvHalf::recv` does.
    fn receive(&self, position: u64, slot: &mut u64) -> bool {
        if self.header(*slot) == Some(position) {
            *slot += 1;
            self.limit.store(*slot + 2, Ordering::Relaxed);
            return true;
        }
        let landed = self.published.load(Ordering::Acquire);
        if landed <= position {
            return false;
        }
        match self.header(*slot) {
            Some(next) if next <= position => return false,
            _ => {}
        }
        assert_eq!(self.ring[position as usize].load(Ordering::Relaxed), 7, "byte {position}");
        true
    }
}

/// Whatever way each byte takes, the receiver finds all of them in order.
#[test]
fn each_byte_comes_once_whatever_way_it_takes() {
    loom::model(|| {
        let stream = Arc::new(Stream::new());
        let sender = stream.clone();
        let thread = thread::spawn(move || {
            let mut slot = 0;
            (0..3).for_each(|position| sender.send(position, &mut slot));
        });
        stream.begin();
        let (mut position, mut slot) = (0, 0);
        while position < 3 {
            if stream.receive(position, &mut slot) {
                position += 1;
            } else {
                thread::yield_now();
            }
        }
        thread.join().unwrap();
    });
}
