//! Every interleaving of the hand-offs of connections that are accepted ahead, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom_accept --release`.
//!
//! The models use loom's atomics in the shapes and orderings of gpunet-device's `accepted` and
//! `accept_queue`, and of the proxy's `hand_over`; `recycle::take` and `TakenWord` are the shipped
//! ones. How a connection is taken over is in `loom.rs`.
#![cfg(loom)]

use gpunet_abi::accept::TakenWord;
use gpunet_abi::recycle::{self, SlotRing};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// The listener's generation.
const LISTENER: u32 = 7;
/// Connections that may come in one model.
const CONNECTIONS: usize = 3;

/// The queue of a listener that holds one slot, and so has one cell. The slot at a position has its
/// number.
struct Queue {
    taken: AtomicU64,
    prepared: AtomicU64,
    lock: AtomicU32,
    cell: AtomicU32,
    /// Slots that requests have named: the position after the last one.
    requested: AtomicU64,
    accepted: AtomicU64,
    /// What the proxy says of each connection.
    descriptors: [UnsafeCell<u64>; CONNECTIONS],
    /// The entry: the listener's until it is closed and nobody prepares, then another socket's.
    entry: UnsafeCell<u32>,
}

impl Queue {
    /// One slot is prepared.
    fn new() -> Self {
        Self {
            taken: AtomicU64::new(TakenWord::new(LISTENER, 0).0),
            prepared: AtomicU64::new(1),
            lock: AtomicU32::new(0),
            cell: AtomicU32::new(0),
            requested: AtomicU64::new(1),
            accepted: AtomicU64::new(0),
            descriptors: std::array::from_fn(|_| UnsafeCell::new(0)),
            entry: UnsafeCell::new(0),
        }
    }

    fn word(&self) -> TakenWord {
        TakenWord(self.taken.load(Ordering::Relaxed))
    }

    fn exchange(&self, from: TakenWord, to: TakenWord) -> Result<(), TakenWord> {
        let exchanged = self.taken.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        exchanged.map(|_| ()).map_err(TakenWord)
    }

    /// The proxy accepts a connection if it has a slot for it.
    fn hand_over(&self) {
        let accepted = self.accepted.load(Ordering::Relaxed);
        if self.requested.load(Ordering::Acquire) > accepted {
            let descriptor = &self.descriptors[accepted as usize];
            descriptor.with_mut(|descriptor| unsafe { *descriptor = accepted + 1 });
            self.accepted.store(accepted + 1, Ordering::Release);
        }
    }

    /// A group takes a connection, if there is one, and uses it.
    fn take(&self) -> Option<u32> {
        let slot = recycle::take(self)?;
        self.descriptors[slot as usize].with_mut(|descriptor| unsafe {
            assert_eq!(*descriptor, u64::from(slot) + 1, "not yet described");
            *descriptor = 100;
        });
        Some(slot)
    }

    /// A group prepares a slot if none is left.
    fn prepare(&self) {
        if self.lock.compare_exchange(0, LISTENER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        fence(Ordering::SeqCst);
        if let Some(taken) = self.word().open(LISTENER) {
            let first = self.prepared.load(Ordering::Relaxed);
            if first == taken && (first as usize) < CONNECTIONS {
                self.entry.with_mut(|entry| unsafe { *entry += 1 });
                self.cell.store(first as u32, Ordering::Relaxed);
                self.prepared.store(first + 1, Ordering::Relaxed);
                self.requested.store(first + 1, Ordering::Release);
            }
        }
        let _ = self.lock.compare_exchange(LISTENER, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// A group closes the queue, unless another group prepares; returns how many were taken.
    fn close(&self) -> Option<u64> {
        self.lock.compare_exchange(0, LISTENER, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let mut word = self.word();
        while let Err(now) = self.exchange(word, word.closed()) {
            word = now;
        }
        fence(Ordering::SeqCst);
        Some(word.position())
    }
}

impl SlotRing for Queue {
    fn taken(&self) -> u64 {
        self.word().open(LISTENER).unwrap_or(u64::MAX)
    }
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
        let word = |position| TakenWord::new(LISTENER, position);
        let exchanged = self.exchange(word(ticket), word(ticket + count));
        exchanged.map_err(|now| now.open(LISTENER).unwrap_or(u64::MAX))
    }
    fn reclaimed(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }
    fn cell(&self, _: u64) -> u32 {
        self.cell.load(Ordering::Relaxed)
    }
}

fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model
}

/// Groups take connections and prepare slots while the proxy hands over: each connection has one
/// taker, who sees what the proxy says of it, although the cell is written again at once.
#[test]
fn a_connection_has_one_taker() {
    bounded().check(|| {
        let queue = Arc::new(Queue::new());
        let group = || {
            let queue = queue.clone();
            thread::spawn(move || {
                let taken = queue.take();
                if taken.is_some() {
                    queue.prepare();
                }
                taken
            })
        };
        queue.hand_over();
        let groups = [group(), group()];
        queue.hand_over();
        let mut taken: Vec<_> = groups.into_iter().map(|group| group.join().unwrap()).collect();
        queue.hand_over();
        taken.extend([queue.take(), queue.take()]);
        let taken: Vec<_> = taken.into_iter().flatten().collect();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), queue.accepted.load(Ordering::Relaxed)), (taken.len(), taken.len() as u64));
    });
}

/// A group closes the queue while others take and prepare: what it counts is what was taken, and
/// nobody writes the entry of the listener once it is another socket's.
#[test]
fn a_closed_queue_is_left_alone() {
    bounded().check(|| {
        let queue = Arc::new(Queue::new());
        queue.hand_over();
        let other = {
            let queue = queue.clone();
            thread::spawn(move || {
                let taken = queue.take();
                queue.prepare();
                u64::from(taken.is_some())
            })
        };
        let counted = queue.close();
        if counted.is_some() {
            // The slot is taken anew.
            queue.entry.with_mut(|entry| unsafe { *entry = 0 });
            queue.lock.store(0, Ordering::Relaxed);
        }
        let taken = other.join().unwrap();
        // The listener is open as long as nobody could close it.
        let counted = counted.or_else(|| queue.close());
        assert_eq!(Some(taken), counted);
        assert_eq!(queue.take(), None);
    });
}
