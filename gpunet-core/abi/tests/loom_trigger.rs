//! Every interleaving of triggers and gates of one direction, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom_trigger --release`.
//!
//! The models have the shapes and orderings of gpunet-device's `trigger`; `reached` and `advance`
//! are the shipped ones.
#![cfg(loom)]

use gpunet_abi::entry::lock::{RELEASE, TAKEN};
use gpunet_abi::position::{StreamWord, advance};
use gpunet_abi::trigger::reached;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

/// A sending direction that the host has taken, with a message of one byte for each of two groups.
struct Sending {
    lock: AtomicU32,
    position: AtomicU64,
    published: AtomicU64,
    released: AtomicU64,
    ring: [UnsafeCell<u8>; 2],
}

impl Sending {
    fn new() -> Self {
        Self {
            lock: AtomicU32::new(TAKEN),
            position: AtomicU64::new(0),
            published: AtomicU64::new(0),
            released: AtomicU64::new(0),
            ring: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    /// A group fills its message.
    fn fill(&self, message: usize) {
        self.ring[message].with_mut(|byte| unsafe { *byte = 7 });
    }

    fn read(&self, message: usize) -> u8 {
        self.ring[message].with(|byte| unsafe { *byte })
    }

    /// `trigger::release::publish`.
    fn release(&self, to: u64) {
        while self.lock.compare_exchange(TAKEN, RELEASE, Ordering::Acquire, Ordering::Relaxed).is_err() {
            thread::yield_now();
        }
        let from = StreamWord(self.position.load(Ordering::Relaxed));
        if to > from.position() && !from.end() {
            self.position.store(to, Ordering::Relaxed);
            self.published.store(to, Ordering::Release);
        }
        self.lock.store(TAKEN, Ordering::Release);
    }

    /// `trigger::gate::Wait::end_stream`: this end gives up, because the other one has written an
    /// invalid word.
    fn give_up(&self) {
        while self.lock.compare_exchange(TAKEN, RELEASE, Ordering::Acquire, Ordering::Relaxed).is_err() {
            thread::yield_now();
        }
        let word = StreamWord(self.position.load(Ordering::Relaxed)).with_err();
        self.position.store(word.0, Ordering::Relaxed);
        self.published.store(word.0, Ordering::Release);
        self.lock.store(TAKEN, Ordering::Release);
    }

    /// A gate's look at the other end's word.
    fn look(&self, seen: StreamWord) -> StreamWord {
        let word = StreamWord::read(self.released.load(Ordering::Acquire));
        let own = self.position.load(Ordering::Relaxed);
        advance(seen, word, own).expect("a word that can be")
    }
}

/// Two groups release the triggers of their messages, in either order, and look at what was
/// released; the other end observes and releases. It never sees the word go back, and finds what
/// the group that published has written; and no gate takes its answer for more than was published.
#[test]
fn triggers_publish_in_order_whoever_releases_them() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let sending = Arc::new(Sending::new());
        let groups = [0, 1].map(|message| {
            let sending = sending.clone();
            thread::spawn(move || {
                sending.fill(message);
                sending.release(message as u64 + 1);
                sending.look(StreamWord::at(0));
            })
        });
        let mut last = 0;
        let mut observe = || {
            let now = sending.published.load(Ordering::Acquire);
            assert!(now >= last, "{last} and then {now}");
            if now > last {
                assert_eq!(sending.read(now as usize - 1), 7);
                // Published by the one group before the other: both messages are there.
                assert!(last == 0 || sending.read(0) == 7);
                sending.released.store(now, Ordering::Release);
            }
            last = now;
        };
        (0..2).for_each(|_| observe());
        groups.into_iter().for_each(|group| group.join().unwrap());
        observe();
        assert_eq!(sending.look(StreamWord::at(0)), StreamWord::at(2));
    });
}

/// The reader gives up (END and ERR) while a trigger is released and its group waits until the
/// message is released: the wait ends in any case, with a word that can be.
#[test]
fn a_reader_that_gives_up_ends_the_wait_at_a_gate() {
    loom::model(|| {
        let sending = Arc::new(Sending::new());
        let reader = {
            let sending = sending.clone();
            thread::spawn(move || {
                let landed = sending.published.load(Ordering::Acquire);
                sending.released.store(StreamWord::at(landed).with_err().0, Ordering::Release);
            })
        };
        sending.fill(0);
        sending.release(1);
        let mut seen = StreamWord::at(0);
        while !reached(seen, 1) {
            thread::yield_now();
            seen = sending.look(seen);
        }
        assert!(seen.err());
        reader.join().unwrap();
    });
}

/// Two groups wait at gates of a receiving direction. One keeps the word that it has believed: the
/// other one sees all that landed before it, and no older word.
#[test]
fn what_one_gate_has_seen_is_there_for_the_next() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), UnsafeCell::new(0u8)));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (landed, _, byte) = &*shared;
                byte.with_mut(|byte| unsafe { *byte = 7 });
                landed.store(1, Ordering::Release);
            })
        };
        let first = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (landed, seen, _) = &*shared;
                seen.store(landed.load(Ordering::Acquire), Ordering::Release);
            })
        };
        let (landed, seen, byte) = &*shared;
        let known = StreamWord(seen.load(Ordering::Acquire));
        if reached(known, 1) {
            assert_eq!(byte.with(|byte| unsafe { *byte }), 7);
        }
        let word = StreamWord(landed.load(Ordering::Acquire));
        advance(known, word, 1).expect("no older word");
        sender.join().unwrap();
        first.join().unwrap();
    });
}

/// A gate gives the direction up while a trigger is released: the other end sees the mark in the
/// end, and nothing after it.
#[test]
fn a_trigger_does_not_publish_over_the_mark_of_an_end() {
    loom::model(|| {
        let sending = Arc::new(Sending::new());
        let group = {
            let sending = sending.clone();
            thread::spawn(move || {
                sending.fill(0);
                sending.release(1);
            })
        };
        let gate = {
            let sending = sending.clone();
            thread::spawn(move || sending.give_up())
        };
        let mut last = StreamWord::at(0);
        let mut observe = || {
            let word = StreamWord::read(sending.published.load(Ordering::Acquire));
            last = advance(last, word, 2).expect("a word that can be");
            if last.position() == 1 {
                assert_eq!(sending.read(0), 7);
            }
        };
        (0..2).for_each(|_| observe());
        group.join().unwrap();
        gate.join().unwrap();
        observe();
        assert!(last.err());
    });
}

/// A receiving direction with a message of two bytes, for which a CUDA stream waits. The proxy
/// publishes what lands; the program's watcher marks the word END and ERR once the socket has
/// failed, or the program gives it up: two writers.
struct Receiving {
    landed: AtomicU64,
    /// Of the socket: it has failed. Or the launch is cancelled.
    failed: AtomicU64,
    ring: [UnsafeCell<u8>; 2],
}

impl Receiving {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            landed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            ring: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// The proxy: so much lands, in two pieces.
    fn land(&self, len: u64) {
        for piece in 0..len {
            self.ring[piece as usize].with_mut(|byte| unsafe { *byte = 7 });
            self.landed.store(piece + 1, Ordering::Release);
        }
    }

    fn fail(&self) {
        self.failed.store(1, Ordering::Release);
    }

    /// The CUDA stream looks: by its own comparison. Returns the word that it passes by.
    fn look(&self) -> Option<StreamWord> {
        let word = self.landed.load(Ordering::Acquire);
        if word.wrapping_sub(2).cast_signed() < 0 {
            return None;
        }
        let word = StreamWord(word);
        if !word.err() {
            self.ring.iter().for_each(|byte| assert_eq!(byte.with(|byte| unsafe { *byte }), 7));
        }
        Some(word)
    }

    /// The watcher looks, and marks the word of a socket that has failed. Returns whether it has
    /// marked it.
    fn watch(&self) -> bool {
        if self.failed.load(Ordering::Acquire) == 0 {
            return false;
        }
        let word = StreamWord::read(self.landed.load(Ordering::Acquire));
        if reached(word, 2) {
            return false;
        }
        self.landed.store(word.with_err().0, Ordering::Release);
        true
    }
}

/// The socket fails, or is given up, at any time while bytes land or not, and the proxy may store
/// over the mark. The stream passes in any case. A wait that the watcher has not marked has its
/// message; of one that it has marked that is not known, whatever stands in the word afterwards, so
/// it has failed.
#[test]
fn a_stream_is_released_by_a_mark_that_races_with_a_publish() {
    for lands in [1, 2] {
        loom::model(move || {
            let receiving = Receiving::new();
            let proxy = {
                let receiving = receiving.clone();
                thread::spawn(move || receiving.land(lands))
            };
            let stream = {
                let receiving = receiving.clone();
                thread::spawn(move || receiving.look().or_else(|| receiving.look()))
            };
            receiving.fail();
            let mut has_marked = receiving.watch();
            // It goes on while the stream waits: until after the last publish.
            proxy.join().unwrap();
            has_marked |= receiving.watch();
            let word = stream.join().unwrap().or_else(|| receiving.look()).expect("it passes");
            // Without a mark the bytes were there, which `look` has checked.
            assert!(has_marked || (lands == 2 && !word.err()));
        });
    }
}

/// A gate of a kernel looks at the same word: it does not take the watcher's mark for the other
/// end's, for it finds that the socket has failed.
#[test]
fn a_gate_does_not_believe_the_mark_of_a_watcher() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let receiving = Receiving::new();
        let proxy = {
            let receiving = receiving.clone();
            thread::spawn(move || {
                receiving.land(1);
                receiving.fail();
            })
        };
        let watcher = {
            let receiving = receiving.clone();
            thread::spawn(move || {
                if receiving.failed.load(Ordering::Acquire) == 1 {
                    let word = StreamWord::read(receiving.landed.load(Ordering::Acquire));
                    // What landed before the failure stands.
                    assert_eq!(word, StreamWord::at(1));
                    receiving.landed.store(word.with_err().0, Ordering::Release);
                }
            })
        };
        // `trigger::gate::Wait::believe`.
        let word = StreamWord::read(receiving.landed.load(Ordering::Acquire));
        if word.err() {
            assert_eq!(receiving.failed.load(Ordering::Relaxed), 1, "the mark would be believed");
        } else if word.position() == 1 {
            assert_eq!(receiving.ring[0].with(|byte| unsafe { *byte }), 7);
        }
        proxy.join().unwrap();
        watcher.join().unwrap();
    });
}
