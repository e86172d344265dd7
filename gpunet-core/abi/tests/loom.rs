//! Every interleaving of the hand-offs, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom --release`.
//!
//! The models use loom's atomics in the shapes and orderings of `word`, `park` and `ring`; the park
//! and must_wake functions themselves are the shipped ones.
#![cfg(loom)]

use gpunet_abi::park::{ParkFlag, must_wake, park};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A park flag on loom's atomics, with the orderings of `SharedFlag`.
struct Flag(AtomicU32);

impl ParkFlag for Flag {
    fn store(&self, sleeping: bool) {
        self.0.store(u32::from(sleeping), Ordering::Relaxed);
    }
    fn load(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// The kernel's futex: sleeps while the flag is set, under a lock that the waker takes too.
struct Futex {
    lock: Mutex<()>,
    wake: Condvar,
}

impl Futex {
    fn new() -> Self {
        Self { lock: Mutex::new(()), wake: Condvar::new() }
    }
    /// FUTEX_WAIT: the check of the flag and the start of the sleep are one step.
    fn wait(&self, flag: &Flag) {
        let guard = self.lock.lock().unwrap();
        if flag.load() {
            drop(self.wake.wait(guard).unwrap());
        }
    }
    /// The waker's side: clear the flag, then FUTEX_WAKE.
    fn wake(&self, flag: &Flag) {
        flag.store(false);
        drop(self.lock.lock().unwrap());
        self.wake.notify_all();
    }
}

/// One publish against one waiter that parks: the waiter always ends, with the bytes in view.
#[test]
fn a_parked_waiter_is_always_woken() {
    loom::model(|| {
        let shared =
            Arc::new((AtomicU64::new(0), Flag(AtomicU32::new(0)), Futex::new(), UnsafeCell::new(0u8)));
        let publisher = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (word, flag, futex, byte) = &*shared;
                byte.with_mut(|p| unsafe { *p = 7 });
                word.store(1, Ordering::Release);
                if must_wake(flag) {
                    futex.wake(flag);
                }
            })
        };
        let (word, flag, futex, byte) = &*shared;
        while word.load(Ordering::Acquire) == 0 {
            park(flag, || word.load(Ordering::Acquire) != 0, || futex.wait(flag));
        }
        assert_eq!(byte.with(|p| unsafe { *p }), 7);
        publisher.join().unwrap();
    });
}

/// Two publishes in a row against a waiter that wants the second: a wake-up meant for the first
/// may come late and must not cost the second one.
#[test]
fn a_late_wake_up_does_not_eat_the_next_one() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), Flag(AtomicU32::new(0)), Futex::new()));
        let publisher = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (word, flag, futex) = &*shared;
                for value in 1..=2 {
                    word.store(value, Ordering::Release);
                    if must_wake(flag) {
                        futex.wake(flag);
                    }
                }
            })
        };
        let (word, flag, futex) = &*shared;
        while word.load(Ordering::Acquire) < 2 {
            park(flag, || word.load(Ordering::Acquire) == 2, || futex.wait(flag));
        }
        publisher.join().unwrap();
    });
}

/// A ring of two bytes, three bytes through it: no byte is read before it was written, none is
/// overwritten before it was read.
#[test]
fn ring_bytes_change_hands_with_the_words() {
    loom::model(|| {
        struct Ring {
            bytes: [UnsafeCell<u8>; 2],
            published: AtomicU64,
            consumed: AtomicU64,
        }
        let ring = Arc::new(Ring {
            bytes: [UnsafeCell::new(0), UnsafeCell::new(0)],
            published: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
        });
        let sender = {
            let ring = ring.clone();
            thread::spawn(move || {
                for position in 0..3u64 {
                    while position - ring.consumed.load(Ordering::Acquire) == 2 {
                        thread::yield_now();
                    }
                    ring.bytes[position as usize % 2].with_mut(|p| unsafe { *p = position as u8 + 1 });
                    ring.published.store(position + 1, Ordering::Release);
                }
            })
        };
        for position in 0..3u64 {
            while ring.published.load(Ordering::Acquire) == position {
                thread::yield_now();
            }
            assert_eq!(ring.bytes[position as usize % 2].with(|p| unsafe { *p }), position as u8 + 1);
            ring.consumed.store(position + 1, Ordering::Release);
        }
        sender.join().unwrap();
    });
}

/// An error after data: who sees the status, fences and looks again finds all data that came first.
#[test]
fn data_before_an_error_is_never_lost() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let proxy = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (landed, status) = &*shared;
                landed.store(5, Ordering::Release);
                status.store(104, Ordering::Release);
            })
        };
        let (landed, status) = &*shared;
        if landed.load(Ordering::Acquire) == 0 && status.load(Ordering::Relaxed) != 0 {
            fence(Ordering::Acquire);
            assert_eq!(landed.load(Ordering::Acquire), 5);
        }
        proxy.join().unwrap();
    });
}

/// A control slot: the reply belongs to the request, also when the device gave up in between.
#[test]
fn a_reply_answers_the_request_it_names() {
    loom::model(|| {
        struct Slot {
            request: UnsafeCell<u32>,
            request_seq: AtomicU64,
            abandon_seq: AtomicU64,
            reply: UnsafeCell<u32>,
            reply_seq: AtomicU64,
        }
        let slot = Arc::new(Slot {
            request: UnsafeCell::new(0),
            request_seq: AtomicU64::new(0),
            abandon_seq: AtomicU64::new(0),
            reply: UnsafeCell::new(0),
            reply_seq: AtomicU64::new(0),
        });
        let answered = Arc::new(AtomicBool::new(false));
        let proxy = {
            let (slot, answered) = (slot.clone(), answered.clone());
            thread::spawn(move || {
                while slot.request_seq.load(Ordering::Acquire) != 1 {
                    thread::yield_now();
                }
                let asked = slot.request.with(|p| unsafe { *p });
                // The abandon word only decides which answer is given; there is exactly one.
                let gave_up = slot.abandon_seq.load(Ordering::Acquire) == 1;
                slot.reply.with_mut(|p| unsafe { *p = if gave_up { 125 } else { asked + 1 } });
                assert!(!answered.swap(true, Ordering::Relaxed));
                slot.reply_seq.store(1, Ordering::Release);
            })
        };
        slot.request.with_mut(|p| unsafe { *p = 41 });
        slot.request_seq.store(1, Ordering::Release);
        slot.abandon_seq.store(1, Ordering::Release);
        while slot.reply_seq.load(Ordering::Acquire) != 1 {
            thread::yield_now();
        }
        let reply = slot.reply.with(|p| unsafe { *p });
        assert!(reply == 42 || reply == 125);
        proxy.join().unwrap();
    });
}

/// A host's tasks and the thread that wakes them, in the shape of `gpunet-proxy/src/host/reactor.rs`.
struct Host {
    word: AtomicU64,
    epoch: AtomicU64,
    pollers: Flag,
    table: Mutex<Table>,
    /// The kernel's lock of the futex at `epoch`.
    futex: Mutex<()>,
    futex_wake: Condvar,
    /// The thread's token: `std::thread::park` (loom's own disturbs a thread that waits for a lock).
    unparked: Mutex<bool>,
    unpark: Condvar,
    woken: Mutex<bool>,
    wake: Condvar,
}

struct Table {
    registered: bool,
    counted: bool,
    stop: bool,
}

impl Host {
    fn new(counted: bool) -> Self {
        Self {
            word: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            pollers: Flag(AtomicU32::new(u32::from(counted))),
            table: Mutex::new(Table { registered: false, counted, stop: false }),
            futex: Mutex::new(()),
            futex_wake: Condvar::new(),
            unparked: Mutex::new(false),
            unpark: Condvar::new(),
            woken: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Whoever changes a word.
    fn publish(&self) {
        self.word.store(1, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::Release);
        if must_wake(&self.pollers) {
            drop(self.futex.lock().unwrap());
            self.futex_wake.notify_all();
        }
    }

    /// The task's call.
    fn is_over(&self) -> bool {
        self.word.load(Ordering::Acquire) == 1
    }

    /// The thread: after one idle round that it spends counted it parks.
    fn run(&self) {
        let mut idle = 0;
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            let mut table = self.table.lock().unwrap();
            if table.stop {
                return;
            }
            if table.registered && self.is_over() {
                table.registered = false;
                *self.woken.lock().unwrap() = true;
                self.wake.notify_all();
            }
            idle = if table.registered { 0 } else { idle + 1 };
            let parks = idle > 1 || (idle > 0 && !table.counted);
            if parks && std::mem::take(&mut table.counted) {
                self.pollers.0.fetch_sub(1, Ordering::SeqCst);
            }
            drop(table);
            if parks {
                let mut unparked = self.unparked.lock().unwrap();
                while !std::mem::take(&mut *unparked) {
                    unparked = self.unpark.wait(unparked).unwrap();
                }
                continue;
            }
            let guard = self.futex.lock().unwrap();
            if self.epoch.load(Ordering::Relaxed) == epoch {
                drop(self.futex_wake.wait(guard).unwrap());
            }
        }
    }

    fn unpark(&self) {
        *self.unparked.lock().unwrap() = true;
        self.unpark.notify_all();
    }

    /// The task: a call, the registration, the call again, the wait.
    fn wait(&self) {
        if self.is_over() {
            return;
        }
        let mut table = self.table.lock().unwrap();
        table.registered = true;
        let count = !std::mem::replace(&mut table.counted, true);
        if count {
            self.pollers.0.fetch_add(1, Ordering::SeqCst);
            Flag::fence();
        }
        drop(table);
        if count {
            self.unpark();
        }
        if self.is_over() {
            return;
        }
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.wake.wait(woken).unwrap();
        }
    }

    /// Ends the thread. (The shipped one needs no more than `stop` and a bounded sleep.)
    fn stop(&self) {
        self.table.lock().unwrap().stop = true;
        self.unpark();
        self.epoch.fetch_add(1, Ordering::Release);
        drop(self.futex.lock().unwrap());
        self.futex_wake.notify_all();
    }
}

/// One change against a task that waits and the thread that wakes it, whether or not that thread is
/// counted when the task comes: the task always goes on.
#[test]
fn a_task_that_waits_is_always_woken() {
    for counted in [false, true] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let host = Arc::new(Host::new(counted));
            let (looks, publishes) = (host.clone(), host.clone());
            let looker = thread::spawn(move || looks.run());
            let publisher = thread::spawn(move || publishes.publish());
            host.wait();
            host.stop();
            publisher.join().unwrap();
            looker.join().unwrap();
        });
    }
}
