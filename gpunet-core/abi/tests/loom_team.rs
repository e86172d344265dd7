//! Every interleaving of the words by which members of a team meet, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom_team --release`.
//!
//! The models use loom's atomics in the shapes and orderings of gpunet-device's `team`: `signal`,
//! `barrier`, `wait`, and of `ring_bell` and `pause_for_bell` of its CPU platform.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// The words of a member's block that the models need, and the elements of its part.
struct Block {
    arrived: [AtomicU64; 2],
    signal: AtomicU64,
    broken: AtomicU64,
    left: AtomicU64,
    bell: AtomicU32,
    pollers: AtomicU32,
    /// Stands for the futex: somebody has woken the sleeper since it looked.
    woken: AtomicBool,
    elements: [UnsafeCell<u64>; 2],
}

// Who uses an element is what the models check.
unsafe impl Sync for Block {}
unsafe impl Send for Block {}

impl Block {
    fn new() -> Self {
        Self {
            arrived: [AtomicU64::new(0), AtomicU64::new(0)],
            signal: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            left: AtomicU64::new(0),
            bell: AtomicU32::new(0),
            pollers: AtomicU32::new(0),
            woken: AtomicBool::new(false),
            elements: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    fn put(&self, at: usize, value: u64) {
        self.elements[at].with_mut(|element| unsafe { *element = value });
    }

    fn get(&self, at: usize) -> u64 {
        self.elements[at].with(|element| unsafe { *element })
    }

    /// As `ring_bell`.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.pollers.load(Ordering::Relaxed) != 0 {
            self.bell.fetch_add(1, Ordering::Release);
            self.woken.store(true, Ordering::Release);
        }
    }
}

#[test]
fn who_sees_a_signal_sees_what_was_put_before() {
    loom::model(|| {
        let block = Arc::new(Block::new());
        let writer = {
            let block = block.clone();
            thread::spawn(move || {
                block.put(0, 7);
                block.signal.store(1, Ordering::Release);
            })
        };
        if block.signal.load(Ordering::Acquire) >= 1 {
            assert_eq!(block.get(0), 7);
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn a_barrier_separates_what_comes_before_from_what_comes_after() {
    loom::model(|| {
        let blocks = Arc::new([Block::new(), Block::new()]);
        let member = |rank: usize, blocks: Arc<[Block; 2]>| {
            let other = 1 - rank;
            let meet = |number| {
                blocks[other].arrived[rank].store(number, Ordering::Release);
                while blocks[rank].arrived[other].load(Ordering::Acquire) < number {
                    thread::yield_now();
                }
            };
            // Each writes into the other's part, and after the barrier reads its own; after the
            // next one the other writes there again.
            blocks[other].put(0, 10 + rank as u64);
            meet(1);
            assert_eq!(blocks[rank].get(0), 10 + other as u64);
            meet(2);
            blocks[other].put(0, 20 + rank as u64);
        };
        let second = {
            let blocks = blocks.clone();
            thread::spawn(move || member(1, blocks))
        };
        member(0, blocks.clone());
        second.join().expect("no panic");
    });
}

#[test]
fn additions_of_several_groups_grow_and_none_is_lost() {
    loom::model(|| {
        let (lock, sent) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
        let block = Arc::new(Block::new());
        let adder = || {
            let (lock, sent, block) = (lock.clone(), sent.clone(), block.clone());
            thread::spawn(move || {
                while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    thread::yield_now();
                }
                let sum = sent.load(Ordering::Relaxed) + 1;
                sent.store(sum, Ordering::Relaxed);
                block.signal.store(sum, Ordering::Release);
                lock.store(0, Ordering::Release);
            })
        };
        let adders = [adder(), adder()];
        let first = block.signal.load(Ordering::Acquire);
        let second = block.signal.load(Ordering::Acquire);
        assert!(first <= second, "a signal grows");
        adders.into_iter().for_each(|adder| adder.join().expect("no panic"));
        assert_eq!(block.signal.load(Ordering::Acquire), 2);
    });
}

#[test]
fn a_sleeper_is_woken_or_does_not_sleep() {
    loom::model(|| {
        let block = Arc::new(Block::new());
        let writer = {
            let block = block.clone();
            thread::spawn(move || {
                block.signal.store(1, Ordering::Release);
                block.ring();
            })
        };
        // As `pause_for_bell`.
        block.pollers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let seen = block.bell.load(Ordering::Acquire);
        if block.signal.load(Ordering::Acquire) == 0 && block.bell.load(Ordering::Acquire) == seen {
            // It sleeps: the kernel has compared the bell. So the writer must wake it.
            while !block.woken.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        block.pollers.fetch_sub(1, Ordering::SeqCst);
        writer.join().expect("no panic");
    });
}

#[test]
fn what_a_member_signalled_before_it_left_is_found() {
    loom::model(|| {
        let block = Arc::new(Block::new());
        // Its program says that it leaves after its kernel has ended; the owner's program hears it.
        let left = Arc::new(AtomicBool::new(false));
        let member = {
            let (block, left) = (block.clone(), left.clone());
            thread::spawn(move || {
                block.put(0, 7);
                block.signal.store(1, Ordering::Release);
                left.store(true, Ordering::Release);
            })
        };
        let program = {
            let (block, left) = (block.clone(), left.clone());
            thread::spawn(move || {
                if left.load(Ordering::Acquire) {
                    block.left.store(1, Ordering::Release);
                }
            })
        };
        // As `await_slowly`.
        if block.signal.load(Ordering::Acquire) == 0 {
            let (broken, left) = (block.broken.load(Ordering::Relaxed), block.left.load(Ordering::Relaxed));
            if broken != 0 || left != 0 {
                fence(Ordering::Acquire);
                assert_eq!(block.signal.load(Ordering::Acquire), 1);
                assert_eq!(block.get(0), 7);
            }
        }
        member.join().expect("no panic");
        program.join().expect("no panic");
    });
}
