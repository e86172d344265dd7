//! Every interleaving of the hand-offs, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom --release`.
//!
//! The models use loom's atomics in the shapes and orderings of `word`, `park`, `ring`, `recycle`
//! and `claim`; the functions park, park_beside_others, must_wake, recycle::take, claim::take,
//! release and leave are the shipped ones.
#![cfg(loom)]

use gpunet_abi::atomic::{self, model};
use gpunet_abi::claim::{self, ClaimWord};
use gpunet_abi::entry::lock;
use gpunet_abi::park::{NumberedParkFlag, ParkFlag, must_wake, park, park_beside_others};
use gpunet_abi::recycle::{self, SlotRing};
use gpunet_abi::ring::give_room;
use gpunet_abi::{StreamWord, Word};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::num::NonZeroU32;

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

impl NumberedParkFlag for Flag {
    fn store_number(&self, thread: NonZeroU32) {
        self.0.store(thread.get(), Ordering::Relaxed);
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
    /// The same of a thread that sleeps beside others: while the flag has its number.
    fn wait_as(&self, flag: &Flag, thread: NonZeroU32) {
        let guard = self.lock.lock().unwrap();
        if flag.0.load(Ordering::Relaxed) == thread.get() {
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

/// Of the models that run shipped code: what is only set may be seen later than what is set after
/// it.
#[test]
#[should_panic(expected = "seen in another order")]
fn a_model_finds_what_nothing_orders() {
    let words = [0, 0].map(|value| Box::into_raw(Box::new(value)) as usize);
    model(2, move || {
        let [first, second] = words.map(|word| unsafe {
            (word as *mut u64).write(0);
            Word::from_ptr(word as *mut u64)
        });
        let writer = thread::spawn(move || {
            first.set(1);
            second.set(1);
        });
        let seen = second.observe();
        assert!(first.peek() >= seen, "seen in another order");
        writer.join().unwrap();
    });
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

/// Two agents, each with a word of its own, wake a block that sleeps on both, by the flag that
/// tells them of it: it sleeps while the kernel finds both words as it knows them. The block has
/// seen both changes at the end, in the shape of `ChangeCounts::sleep_until_woken` and
/// `WakeWords::wake` of gpunet-device.
#[test]
fn a_sleeper_on_two_words_misses_neither() {
    struct Words {
        words: [AtomicU64; 2],
        flag: Flag,
        kernel: Mutex<()>,
        wake: Condvar,
    }
    impl Words {
        fn load(&self) -> [u64; 2] {
            [0, 1].map(|at| self.words[at].load(Ordering::Acquire))
        }
        fn change(&self, at: usize) {
            self.words[at].fetch_add(1, Ordering::Release);
            if must_wake(&self.flag) {
                drop(self.kernel.lock().unwrap());
                self.wake.notify_all();
            }
        }
        /// FUTEX_WAITV: to compare the words and to begin to sleep is one step.
        fn sleep(&self, known: [u64; 2]) {
            let guard = self.kernel.lock().unwrap();
            if self.load() == known {
                drop(self.wake.wait(guard).unwrap());
            }
        }
    }
    let mut exploration = loom::model::Builder::new();
    exploration.preemption_bound = Some(2);
    exploration.check(|| {
        let shared = Arc::new(Words {
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            flag: Flag(AtomicU32::new(0)),
            kernel: Mutex::new(()),
            wake: Condvar::new(),
        });
        let agents = [0, 1].map(|at| {
            let shared = shared.clone();
            thread::spawn(move || shared.change(at))
        });
        let mut known = [0, 0];
        while known != [1, 1] {
            park(&shared.flag, || shared.load() != known, || shared.sleep(known));
            known = shared.load();
        }
        agents.into_iter().for_each(|agent| agent.join().unwrap());
    });
}

/// Two threads of a host program that sleep on one flag: one waits for the first of two words that
/// the peer publishes, the other for both of them, or for what a thread of their own changes. The
/// flag that one of them leaves behind must tell of the other, whoever wakes whom.
#[test]
fn threads_that_share_a_flag_are_all_woken() {
    const FIRST: NonZeroU32 = NonZeroU32::MIN;
    const SECOND: NonZeroU32 = FIRST.saturating_add(1);
    // What ends the second wait: the peer's second word, or a change by a thread of the program.
    for published in [2, 1] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let shared =
                Arc::new((AtomicU64::new(0), AtomicU32::new(0), Flag(AtomicU32::new(0)), Futex::new()));
            let spawn = |body: fn(&(AtomicU64, AtomicU32, Flag, Futex), u64)| {
                let shared = shared.clone();
                thread::spawn(move || body(&shared, published))
            };
            let publisher = spawn(|(word, _, flag, futex), published| {
                for value in 1..=published {
                    word.store(value, Ordering::Release);
                    if must_wake(flag) {
                        futex.wake(flag);
                    }
                }
            });
            let first = spawn(|(word, _, flag, futex), _| {
                let is_over = || word.load(Ordering::Acquire) >= 1;
                while !is_over() {
                    park_beside_others(flag, FIRST, is_over, || futex.wait_as(flag, FIRST));
                }
            });
            let changer = (published == 1).then(|| {
                spawn(|(_, changes, flag, futex), _| {
                    changes.fetch_add(1, Ordering::Release);
                    if must_wake(flag) {
                        futex.wake(flag);
                    }
                })
            });
            let (word, changes, flag, futex) = &*shared;
            let is_over = || word.load(Ordering::Acquire) >= 2 || changes.load(Ordering::Acquire) > 0;
            while !is_over() {
                park_beside_others(flag, SECOND, is_over, || futex.wait_as(flag, SECOND));
            }
            for thread in [Some(publisher), Some(first), changer].into_iter().flatten() {
                thread.join().unwrap();
            }
        });
    }
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

/// An error after data: a reader that sees the status, fences and polls again finds all data that
/// came first.
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

/// A host's tasks and the thread that wakes them, in the shape of
/// `gpunet-proxy/src/host/reactor.rs`.
struct Host {
    word: AtomicU64,
    epoch: AtomicU64,
    pollers: Flag,
    table: Mutex<Table>,
    /// The kernel's lock of the futex at `epoch`.
    futex: Mutex<()>,
    futex_wake: Condvar,
    /// The thread's token: `std::thread::park` (loom's own disturbs a thread that waits for a
    /// lock).
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
/// counted when the task comes: the task always continues.
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

/// The recycling ring on loom's atomics, with the orderings of gpunet-device's `free_slots` and of
/// the proxy's `recycle`.
struct Slots {
    taken: AtomicU64,
    reclaimed: AtomicU64,
    cells: [AtomicU32; 2],
    /// What a slot's holder does with it.
    used: [UnsafeCell<u32>; 2],
    /// The one thread that recycles: its own count of pushes.
    pushed: Mutex<u64>,
}

impl Slots {
    fn new() -> Self {
        let slots = Self {
            taken: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            cells: [AtomicU32::new(0), AtomicU32::new(0)],
            used: [UnsafeCell::new(0), UnsafeCell::new(0)],
            pushed: Mutex::new(0),
        };
        slots.push(0);
        slots.push(1);
        slots
    }

    fn push(&self, slot: u32) {
        let mut pushed = self.pushed.lock().unwrap();
        self.cells[*pushed as usize % 2].store(slot, Ordering::Relaxed);
        *pushed += 1;
        self.reclaimed.store(*pushed, Ordering::Release);
    }
}

impl SlotRing for Slots {
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
        self.taken.compare_exchange(ticket, ticket + count, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
    fn reclaimed(&self) -> u64 {
        self.reclaimed.load(Ordering::Acquire)
    }
    fn cell(&self, ticket: u64) -> u32 {
        self.cells[ticket as usize % 2].load(Ordering::Relaxed)
    }
}

/// Threads that take slots, use them and give them back, so that cells are written again at once: a
/// slot has one owner at a time, and at the end each is free once.
#[test]
fn a_slot_has_one_owner() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slots = Arc::new(Slots::new());
        let take = |slots: &Slots, most: usize, times: usize| {
            for _ in 0..times {
                let mut taken = [0; 2];
                let count = recycle::take_many(slots, &mut taken[..most]);
                for &slot in &taken[..count] {
                    slots.used[slot as usize].with_mut(|used| unsafe { *used += 1 });
                    slots.push(slot);
                }
            }
        };
        let other = {
            let slots = slots.clone();
            thread::spawn(move || take(&slots, 2, 1))
        };
        take(&slots, 1, 2);
        other.join().unwrap();
        let last = [recycle::take(&*slots), recycle::take(&*slots), recycle::take(&*slots)];
        assert!(matches!(last, [Some(0), Some(1), None] | [Some(1), Some(0), None]), "{last:?}");
    });
}

/// A group closes a driven stream by its word, last of all; the data thread finds the close, sends
/// what was published, and gives the slot back; another group takes it. Nothing that was published
/// is missed, and the slot has one owner, although the first group publishes without END.
#[test]
fn a_closed_stream_has_sent_all_and_its_slot_is_the_next_ones() {
    const GENERATION: u64 = 1;
    struct Stream {
        published: AtomicU64,
        closed: AtomicU64,
        slots: Slots,
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (published, closed) = (AtomicU64::new(0), AtomicU64::new(0));
        let stream = Arc::new(Stream { published, closed, slots: Slots::new() });
        let slot = recycle::take(&stream.slots).unwrap();
        let closer = {
            let stream = stream.clone();
            thread::spawn(move || {
                stream.published.store(1, Ordering::Release);
                stream.slots.used[slot as usize].with_mut(|entry| unsafe { *entry += 1 });
                stream.published.store(2, Ordering::Release);
                stream.closed.store(GENERATION, Ordering::Release);
            })
        };
        let data_thread = {
            let stream = stream.clone();
            thread::spawn(move || {
                // The scan's hint, the observed word, and what was published, in this order.
                if stream.closed.load(Ordering::Relaxed) == 0
                    || stream.closed.load(Ordering::Acquire) != GENERATION
                {
                    return false;
                }
                assert_eq!(stream.published.load(Ordering::Acquire), 2, "sent and not found");
                stream.slots.push(slot);
                true
            })
        };
        // The other slot is free, too.
        let mut taken = vec![recycle::take(&stream.slots), recycle::take(&stream.slots)];
        for &slot in taken.iter().flatten() {
            // Words of the last socket are reset before a request names the slot.
            stream.slots.used[slot as usize].with_mut(|entry| unsafe { *entry = 0 });
        }
        let found = data_thread.join().unwrap();
        closer.join().unwrap();
        taken.extend([recycle::take(&stream.slots)]);
        assert_eq!(taken.iter().flatten().count(), 1 + usize::from(found));
    });
}

/// A claim on loom's atomics, with the orderings of gpunet-device's `request`.
struct Claim(AtomicU32);

impl ClaimWord for Claim {
    fn peek(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    fn store(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }
}

/// A group leaves its control slot, two others need one, and the proxy answers meanwhile: the slot
/// is adopted by one of them, after the answer, with what the first had noted.
#[test]
fn an_orphan_is_adopted_once_after_its_answer() {
    struct Slot {
        claim: Claim,
        /// What the claim's holder notes and writes.
        posted: UnsafeCell<u64>,
        request: UnsafeCell<u32>,
        request_seq: AtomicU64,
        abandon_seq: AtomicU64,
        reply: UnsafeCell<u32>,
        reply_seq: AtomicU64,
    }
    const SUCCESS: u32 = 0;
    const CANCELED: u32 = 125;
    /// What an adopter found, if it had the slot.
    fn adopt(slot: &Slot) -> Option<u32> {
        for _ in 0..2 {
            match claim::take(&slot.claim) {
                None => {}
                Some(claim::Taken::Free) => {
                    // Somebody else has adopted it, and given it back.
                    claim::release(&slot.claim);
                    return None;
                }
                Some(claim::Taken::Orphan) => {
                    let posted = slot.posted.with(|posted| unsafe { *posted });
                    if slot.reply_seq.load(Ordering::Acquire) == posted {
                        let reply = slot.reply.with(|reply| unsafe { *reply });
                        // The next request.
                        slot.posted.with_mut(|posted| unsafe { *posted += 1 });
                        slot.request.with_mut(|request| unsafe { *request = 7 });
                        claim::release(&slot.claim);
                        return Some(reply);
                    }
                    claim::leave(&slot.claim);
                }
            }
            thread::yield_now();
        }
        None
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let slot = Arc::new(Slot {
            claim: Claim(AtomicU32::new(claim::FREE)),
            posted: UnsafeCell::new(0),
            request: UnsafeCell::new(0),
            request_seq: AtomicU64::new(0),
            abandon_seq: AtomicU64::new(0),
            reply: UnsafeCell::new(0),
            reply_seq: AtomicU64::new(0),
        });
        // The first group posts, and leaves.
        assert_eq!(claim::take(&slot.claim), Some(claim::Taken::Free));
        slot.posted.with_mut(|posted| unsafe { *posted = 1 });
        slot.request.with_mut(|request| unsafe { *request = 41 });
        slot.request_seq.store(1, Ordering::Release);
        let proxy = {
            let slot = slot.clone();
            thread::spawn(move || {
                assert_eq!(slot.request_seq.load(Ordering::Acquire), 1);
                assert_eq!(slot.request.with(|request| unsafe { *request }), 41);
                let gave_up = slot.abandon_seq.load(Ordering::Acquire) == 1;
                slot.reply.with_mut(|reply| unsafe { *reply = if gave_up { CANCELED } else { SUCCESS } });
                slot.reply_seq.store(1, Ordering::Release);
            })
        };
        let adopters: Vec<_> = (0..2)
            .map(|_| {
                let slot = slot.clone();
                thread::spawn(move || adopt(&slot))
            })
            .collect();
        slot.abandon_seq.store(1, Ordering::Release);
        claim::leave(&slot.claim);
        let found: Vec<_> = adopters.into_iter().filter_map(|adopter| adopter.join().unwrap()).collect();
        proxy.join().unwrap();
        assert!(found.len() <= 1, "{found:?}");
        // Whoever comes now gets it.
        let late = adopt(&slot);
        assert!(found.len() + usize::from(late.is_some()) == 1, "{found:?}, {late:?}");
    });
}

/// A poller that goes to sleep, and whoever changes a word: the proxy moves the epoch on in any
/// case, a block of the device only if somebody is counted. The poller always ends.
#[test]
fn a_sleeping_poller_hears_of_every_change() {
    struct Poll {
        words: [AtomicU64; 2],
        epoch: AtomicU64,
        pollers: Flag,
        /// The kernel's lock of the futex at `epoch`.
        futex: Mutex<()>,
        futex_wake: Condvar,
    }
    impl Poll {
        fn wake(&self) {
            drop(self.futex.lock().unwrap());
            self.futex_wake.notify_all();
        }
        /// `SharedMemory::bump_epoch`.
        fn by_proxy(&self) {
            self.words[0].store(1, Ordering::Release);
            self.epoch.fetch_add(1, Ordering::Release);
            if must_wake(&self.pollers) {
                self.wake();
            }
        }
        /// `platform::wake_pollers`.
        fn by_block(&self) {
            self.words[1].store(1, Ordering::Release);
            if must_wake(&self.pollers) {
                self.epoch.fetch_add(1, Ordering::Release);
                self.wake();
            }
        }
        fn ready(&self) -> bool {
            self.words.iter().all(|word| word.load(Ordering::Acquire) == 1)
        }
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let poll = Arc::new(Poll {
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            epoch: AtomicU64::new(0),
            pollers: Flag(AtomicU32::new(0)),
            futex: Mutex::new(()),
            futex_wake: Condvar::new(),
        });
        let changes: [fn(&Poll); 2] = [Poll::by_proxy, Poll::by_block];
        let others = changes.map(|change| {
            let poll = poll.clone();
            thread::spawn(move || change(&poll))
        });
        // `Rest::take`: counted before the moment is taken, and the scan comes after it.
        if !poll.ready() {
            poll.pollers.0.fetch_add(1, Ordering::SeqCst);
            Flag::fence();
            loop {
                let moment = poll.epoch.load(Ordering::Acquire);
                if poll.ready() {
                    break;
                }
                let guard = poll.futex.lock().unwrap();
                if poll.epoch.load(Ordering::Relaxed) == moment {
                    drop(poll.futex_wake.wait(guard).unwrap());
                }
            }
            poll.pollers.0.fetch_sub(1, Ordering::SeqCst);
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// A poller sends one more byte by `send_more`, too many for its low-water mark, and waits for
/// space, while the data thread releases what was published before. The data thread moves the epoch
/// on only if it finds that the ring lacked room. Either it does, or the poller sees the space.
///
/// Fails without the fence of `give_room`.
#[test]
fn a_poller_that_waits_for_space_hears_of_it() {
    const CAPACITY: u64 = 8;
    // Published before, and whether the byte that follows is: if it fills the ring. Otherwise it is
    // left unpublished.
    for (low, before, is_published) in [(1, CAPACITY - 1, true), (4, 4, false)] {
        model(3, move || {
            // Published, released, epoch.
            let words = [before, 0, 0].map(|value| Box::into_raw(Box::new(value)));
            let [published, released, epoch] = words.map(|word| unsafe { Word::from_ptr(word) });
            let data_thread = thread::spawn(move || {
                // `DrivenStream::release`.
                let now = StreamWord::at(before);
                if give_room(released, now, before, published, (low, CAPACITY)) {
                    epoch.publish(1);
                }
            });
            if is_published {
                published.publish(before + 1);
            }
            // `PollerRegistration::enter`, or `fence_before_wait` of a GPU's poll, and the scan
            // that follows.
            atomic::fence(Ordering::SeqCst);
            let moment = epoch.observe();
            let free = CAPACITY - (before + 1 - released.peek());
            data_thread.join().unwrap();
            let is_woken = epoch.observe() != moment;
            assert!(free >= low || is_woken, "it waits although there is space");
            words.into_iter().for_each(|word| drop(unsafe { Box::from_raw(word) }));
        });
    }
}

/// Calls by handle have left bytes unpublished. While a poller publishes them, under the lock,
/// another group takes the half up, sends more and needs no lock: what is published goes forward
/// only, and the bytes that were left are published once.
#[test]
fn what_was_left_is_published_before_what_follows_it() {
    const LEFT: u64 = 4;
    const FREE: u32 = 0;
    const ANNOUNCE: u32 = 2;
    #[derive(Default)]
    struct Half {
        /// Of the lock, the note that bytes are left, the entry's position, and what is published.
        lock: AtomicU32,
        left: AtomicBool,
        position: AtomicU64,
        published: AtomicU64,
    }
    impl Half {
        /// `publish_deferred`.
        fn publish_left(&self) {
            let locks = || self.lock.compare_exchange(FREE, ANNOUNCE, Ordering::Acquire, Ordering::Relaxed);
            if !self.left.load(Ordering::Relaxed) || locks().is_err() {
                return;
            }
            if self.left.load(Ordering::Relaxed) {
                self.published.store(self.position.load(Ordering::Relaxed), Ordering::Release);
                self.left.store(false, Ordering::Release);
            }
            self.lock.store(FREE, Ordering::Release);
        }
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let half = Arc::new(Half::default());
        half.left.store(true, Ordering::Relaxed);
        half.position.store(LEFT, Ordering::Relaxed);
        let poller = {
            let half = half.clone();
            thread::spawn(move || half.publish_left())
        };
        // `become_sender`, and a send.
        while half.left.load(Ordering::Acquire) {
            half.publish_left();
            thread::yield_now();
        }
        assert_eq!(half.published.load(Ordering::Relaxed), LEFT);
        half.position.store(LEFT + 3, Ordering::Relaxed);
        half.published.store(LEFT + 3, Ordering::Release);
        poller.join().unwrap();
        assert_eq!(half.published.load(Ordering::Relaxed), LEFT + 3);
    });
}

/// A socket's state and its users.
type Socket = Arc<(AtomicU32, AtomicU64)>;

/// The host retires a socket; returns the users that it finds.
fn retire(socket: &Socket) -> thread::JoinHandle<u64> {
    let socket = socket.clone();
    thread::spawn(move || {
        let (state, users) = &*socket;
        state.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        users.load(Ordering::SeqCst)
    })
}

/// A group of another launch uses a handle while the host retires it: it finds the handle dead, or
/// the host finds it among the users.
#[test]
fn a_handle_is_dead_or_its_user_is_known() {
    loom::model(|| {
        // 1: open; bit 1: this launch uses it.
        let socket = Socket::new((AtomicU32::new(1), AtomicU64::new(0)));
        let host = retire(&socket);
        let (state, users) = &*socket;
        let known = users.load(Ordering::Relaxed);
        users.compare_exchange(known, known | 2, Ordering::Relaxed, Ordering::Relaxed).unwrap();
        fence(Ordering::SeqCst);
        let open = state.load(Ordering::Acquire) == 1;
        let known = host.join().unwrap() & 2 != 0;
        assert!(!open || known, "it goes on, and nobody waits for it");
    });
}

/// A group takes over a connection that was accepted ahead while the host retires its socket: it
/// finds the socket dead, or the host finds it among the users.
#[test]
fn a_connection_is_dead_or_its_taker_is_known() {
    const PREPARED: u32 = 1;
    const TAKEN: u32 = 2;
    loom::model(|| {
        let socket = Socket::new((AtomicU32::new(PREPARED), AtomicU64::new(0)));
        let host = retire(&socket);
        let (state, users) = &*socket;
        users.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).unwrap();
        fence(Ordering::SeqCst);
        let takes = state.compare_exchange(PREPARED, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let known = host.join().unwrap() != 0;
        assert!(!takes || known, "it goes on, and nobody waits for it");
    });
}

/// A message in a line and in the ring: two units and a header, two bytes and a word.
struct Lined {
    header: AtomicU64,
    units: [AtomicU64; 2],
    ring: [AtomicU64; 4],
    published: AtomicU64,
}

impl Lined {
    /// Sends two bytes at `position` as `SendHalf::send_line` does: the line, its header last; the
    /// ring; the word.
    fn send(&self, position: u64, bytes: [u64; 2]) {
        let tag = position << 1 | 1;
        for (unit, byte) in self.units.iter().zip(bytes) {
            unit.store(tag << 32 | byte, Ordering::Relaxed);
        }
        self.header.store(tag << 32 | 2, Ordering::Relaxed);
        for (offset, byte) in (position..).zip(bytes) {
            self.ring[offset as usize].store(byte, Ordering::Relaxed);
        }
        self.published.store(position + 2, Ordering::Release);
    }

    /// Looks once for two bytes at `position`, in the line or in the ring, as
    /// `RecvHalf::await_line_by` does.
    fn look(&self, position: u64) -> Option<[u64; 2]> {
        let tag = position << 1 | 1;
        let header = self.header.load(Ordering::Relaxed);
        let units = [0, 1].map(|unit: usize| self.units[unit].load(Ordering::Relaxed));
        let landed = self.published.load(Ordering::Acquire);
        if header == tag << 32 | 2 && units.iter().all(|unit| unit >> 32 == tag) {
            return Some(units.map(|unit| unit & 0xff));
        }
        let at = position as usize;
        (landed >= position + 2).then(|| [at, at + 1].map(|at| self.ring[at].load(Ordering::Relaxed)))
    }
}

/// A receiver takes two messages while the sender writes the second over the line of the first:
/// whatever it sees of the line in whatever order, it gets the bytes of each message, by the line
/// or by the ring.
#[test]
fn a_message_is_whole_in_its_line_or_taken_from_the_ring() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let zero = || AtomicU64::new(0);
        let lined = Arc::new(Lined {
            header: zero(),
            units: [zero(), zero()],
            ring: [zero(), zero(), zero(), zero()],
            published: zero(),
        });
        let sender = {
            let lined = lined.clone();
            thread::spawn(move || {
                lined.send(0, [1, 2]);
                lined.send(2, [3, 4]);
            })
        };
        let early = lined.look(0);
        assert!(matches!(early, None | Some([1, 2])), "{early:?}");
        let next = early.and_then(|_| lined.look(2));
        assert!(matches!(next, None | Some([3, 4])), "{next:?}");
        sender.join().unwrap();
        assert_eq!(lined.look(0), Some([1, 2]), "overwritten in the line, still in the ring");
        assert_eq!(lined.look(2), Some([3, 4]));
    });
}

/// A data thread goes to sleep for long and leaves its words to the thread that watches, in the
/// shape of gpunet-proxy's `shard::sleep` and `shard::watched`, while the GPU stores a word, which
/// wakes nobody: the thread finds it, or is woken.
///
/// Fails if the thread leaves the word as it is then, and not as its scan has found it.
#[test]
fn a_word_that_a_gpu_stores_wakes_the_thread_that_left_it_to_be_watched() {
    struct Watched {
        word: AtomicU64,
        /// The word as the thread saw it last, while it is watched.
        left: Mutex<Option<u64>>,
        /// The eventfd.
        rung: Mutex<bool>,
        ring: Condvar,
        is_awake: AtomicBool,
    }
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let watched = Arc::new(Watched {
            word: AtomicU64::new(0),
            left: Mutex::new(None),
            rung: Mutex::new(false),
            ring: Condvar::new(),
            is_awake: AtomicBool::new(false),
        });
        let gpu = {
            let watched = watched.clone();
            thread::spawn(move || watched.word.store(1, Ordering::Release))
        };
        let sleeper = {
            let watched = watched.clone();
            thread::spawn(move || {
                let seen = watched.word.load(Ordering::Relaxed);
                if seen == 0 {
                    *watched.left.lock().unwrap() = Some(seen);
                    let mut rung = watched.rung.lock().unwrap();
                    while !std::mem::take(&mut *rung) {
                        rung = watched.ring.wait(rung).unwrap();
                    }
                    drop(rung);
                    *watched.left.lock().unwrap() = None;
                }
                watched.is_awake.store(true, Ordering::Release);
            })
        };
        // `WatchedThread::check`, every few milliseconds.
        while !watched.is_awake.load(Ordering::Acquire) {
            let left = *watched.left.lock().unwrap();
            if left.is_some_and(|seen| watched.word.load(Ordering::Relaxed) != seen) {
                *watched.rung.lock().unwrap() = true;
                watched.ring.notify_all();
            }
            thread::yield_now();
        }
        gpu.join().unwrap();
        sleeper.join().unwrap();
    });
}

/// A group has locked a half to announce, its socket is closed by somebody who does not wait for
/// it, and the slot is taken anew: the next socket's half has one user at a time.
#[test]
fn a_late_unlock_frees_no_lock_of_the_slots_next_socket() {
    const LATE: u32 = 1;
    const NEXT: u32 = 2;
    struct Half {
        lock: AtomicU32,
        position: UnsafeCell<u64>,
    }
    impl Half {
        fn change(&self, generation: u32, [from, to]: [u32; 2], success: Ordering) -> bool {
            let [from, to] = [from, to].map(|holder| lock::word(generation, holder));
            self.lock.compare_exchange(from, to, success, Ordering::Relaxed).is_ok()
        }
        fn unlock(&self, generation: u32, holder: u32) {
            self.change(generation, [holder, lock::FREE], Ordering::Release);
        }
    }
    loom::model(|| {
        let half = Arc::new(Half {
            lock: AtomicU32::new(lock::word(LATE, lock::ANNOUNCE)),
            position: UnsafeCell::new(0),
        });
        let late = {
            let half = half.clone();
            thread::spawn(move || half.unlock(LATE, lock::ANNOUNCE))
        };
        // In place of a store: loom would let the late exchange, which reads what was there before,
        // come after it.
        half.lock.swap(lock::word(NEXT, lock::FREE), Ordering::Relaxed);
        let call = |holder: u32| {
            let half = half.clone();
            thread::spawn(move || {
                if half.change(NEXT, [lock::FREE, holder], Ordering::Acquire) {
                    half.position.with_mut(|position| unsafe { *position += 1 });
                    half.unlock(NEXT, holder);
                }
            })
        };
        for group in [call(lock::CALL), call(lock::ANNOUNCE), late] {
            group.join().unwrap();
        }
        // An exchange, which finds the last value whatever it was ordered by.
        assert!(half.change(NEXT, [lock::FREE, lock::CALL], Ordering::Acquire), "free again");
    });
}
