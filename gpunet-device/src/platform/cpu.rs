//! The CPU device: waiters spin a little and then sleep on futexes; publishers wake them.
//!
//! | file | holds |
//! |---|---|
//! | `futex` | sleeping on a flag in shared memory |
//! | `bells` | what pollers sleep on: the epoch, and one bell for each arena |
//! | `scheduling` | how the operating system schedules blocks: they do not preempt who wakes them |
//! | `spin_yield` | spinning where cores are few |
//! | `grace` | when addresses of memory that is out of use may be used again |
//! | `panics` | what is known of a panic in a thread block |
//! | `turns` | threads of a block that take turns on one thread of the system |

mod bells;
mod futex;
pub(crate) mod grace;
pub(crate) mod panics;
pub(crate) mod scheduling;
pub mod spin_yield;
pub(crate) mod turns;

pub(crate) use bells::{ChangeCounts, PollerRegistration};

use self::futex::{futex_wait, futex_wake, futex_wake_for, longest_sleep};
pub use self::grace::CallGuard;
use self::spin_yield::{SpinYield, are_cores_few};
use gpunet_abi::Word;
use gpunet_abi::arena::PartHeader;
use gpunet_abi::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
use gpunet_abi::atomic::{yield_now as spin_loop, yield_now};
use gpunet_abi::epoch::Epoch;
use gpunet_abi::hand_off;
use gpunet_abi::park::{ParkFlag, SharedFlag, must_wake, park, park_beside_others};
use std::cell::{Cell, RefCell};
#[cfg(not(loom))]
use std::hint::spin_loop;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
#[cfg(not(loom))]
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Polls of a word before a waiter goes to sleep: one right after another, and where cores are few
/// those between which it yields.
const SPINS: u32 = 4096;
const SPINS_OF_FEW: u32 = 16;
const TURNS_OF_FEW: u32 = 256;
/// Rounds of a poller between two looks, each of which checks more than that of another waiter.
const SPINS_OF_POLL: u32 = 8;
/// A wait that is not longer is followed by one that spins: about as long as it would spin.
const SHORT_POLL_NS: u64 = 200_000;
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds of a monotonic clock.
pub(crate) fn now_ns() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// A release waits for nothing.
pub(crate) const RELEASE_WAITS: bool = false;

/// The C library copies.
pub(crate) const COPIES_IN_PLACE: bool = false;

/// Returns whether waiters sleep when nothing comes: unless a test makes them wait as a GPU's do.
#[inline(always)]
pub(crate) fn may_sleep() -> bool {
    !hand_off::blocks_poll()
}

/// How many polls of the position word come between two checks of status, cancel and heartbeat:
/// one, or as many as on a GPU where a test makes blocks wait as a GPU's do.
#[inline(always)]
pub(crate) fn slow_check_every() -> u32 {
    if may_sleep() { 1 } else { 128 }
}

/// Threads of this process that have slept beside others so far.
static THREADS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

thread_local! {
    /// What this thread stores in a park flag that it shares.
    static THREAD_NUMBER: NonZeroU32 = next_thread_number();
    /// The block of its launch that this thread belongs to.
    static BLOCK: Cell<u32> = const { Cell::new(0) };
    static ABANDONED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    static SPIN_YIELD: RefCell<SpinYield> = RefCell::new(SpinYield::new());
    /// How long this thread's last wait for several sockets took.
    static LAST_POLL_NS: Cell<u64> = const { Cell::new(0) };
}

fn next_thread_number() -> NonZeroU32 {
    loop {
        // Ordering: Relaxed; it only has to be another one each time.
        if let Some(number) = NonZeroU32::new(THREADS.fetch_add(1, Ordering::Relaxed)) {
            return number;
        }
    }
}

/// Makes this thread one of that block's.
pub(crate) fn set_block(block: u32) {
    BLOCK.set(block);
}

/// The calling thread's block.
pub(crate) fn block() -> u32 {
    BLOCK.get()
}

/// Makes this thread's waits end once `abandoned` is set: its launch has lost a thread.
pub(crate) fn end_waits_on(abandoned: Arc<AtomicBool>) {
    ABANDONED.set(Some(abandoned));
}

/// Returns whether this thread's launch has lost a thread: it is to end.
pub(crate) fn is_abandoned() -> bool {
    // Ordering: Relaxed; a sign to stop, which brings no data.
    ABANDONED.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// Lets other threads run between two attempts for which there is no flag to sleep on.
pub fn back_off() {
    if turns::pass_on() {
        return;
    }
    yield_now();
}

/// Waits a little between two loads by a group that has nothing to do. A CPU poller sleeps on the
/// epoch instead.
pub(crate) fn nap() {
    if !turns::pass_on() && !may_sleep() {
        std::thread::sleep(NAP_OF_POLLS);
    }
}

/// As [`nap`]; returns whether `is_over` is true after it.
pub(crate) fn nap_unless(is_over: impl Fn() -> bool) -> bool {
    nap();
    is_over()
}

/// Lets others have the core between two loads of a word that another group writes.
pub fn yield_core() {
    if turns::pass_on() {
        return;
    }
    yield_now();
}

/// Nap of a waiter that may not sleep, on a machine with fewer cores than waiters.
const NAP_OF_POLLS: Duration = Duration::from_micros(20);

/// Longest nap of a thread of a host program whose word's writer wakes nobody.
const NAP_OF_THREADS: Duration = Duration::from_micros(200);

/// First and longest nap of a waiter whose word's writer wakes nobody.
const NAPS_NS: std::ops::RangeInclusive<u64> = 50_000..=1_600_000;

/// Rounds in which a waiter spins.
fn spins() -> u32 {
    if are_cores_few() { SPINS_OF_FEW } else { SPINS }
}

/// Lets another thread have the core where cores are few; returns whether it did. After the rounds
/// of spinning.
fn may_yield(round: u32) -> bool {
    are_cores_few() && round < spins() + TURNS_OF_FEW && SPIN_YIELD.with_borrow_mut(SpinYield::try_yield)
}

/// Looks at its sockets that a poller takes before it is ready to sleep: a short spin, which where
/// cores are few keeps one from who would answer.
pub(crate) fn looks_before_sleep() -> u32 {
    if are_cores_few() { 0 } else { 4 }
}

/// For how long a poller looks at the words that it would sleep on: as long as a waiter of
/// [`pause`] spins. A sleeper hears of a change some microseconds later.
///
/// It does so only if its thread's last wait was short, because nothing comes soon after a silence,
/// and where cores are not few: one that yields between two looks made the round trips of eight
/// connections take 29 to 49 us on two cores, and one that sleeps 35.
pub(crate) struct PollSpin {
    round: u32,
    started: u64,
}

impl PollSpin {
    pub(crate) fn new() -> Self {
        let sleeps = LAST_POLL_NS.get() > SHORT_POLL_NS || are_cores_few() || cfg!(loom);
        Self { round: if sleeps { SPINS } else { 0 }, started: now_ns() }
    }

    /// Waits a little; returns false once the poller is to sleep.
    pub(crate) fn spin(&mut self) -> bool {
        if turns::are_taken() || self.round >= SPINS {
            return false;
        }
        (0..SPINS_OF_POLL).for_each(|_| spin_loop());
        self.round += SPINS_OF_POLL;
        true
    }

    /// The wait is over, in which the thread was ready to sleep.
    pub(crate) fn end(&self) {
        LAST_POLL_NS.set(now_ns().saturating_sub(self.started));
    }
}

/// How long a waiter sleeps that nobody wakes. After the rounds of spinning.
fn nap_ns(round: u32) -> u64 {
    let doublings = (round.saturating_sub(spins()) / 32).min(5);
    (NAPS_NS.start() << doublings).min(*NAPS_NS.end())
}

/// Waits a little; after enough rounds sleeps on `flag` unless `changed`. `naps`: nobody sets the
/// flag back, or others sleep on it, too, so sleep for a short time only.
pub(crate) fn pause(round: u32, flag: *mut u32, limit_ns: u64, naps: bool, changed: impl FnOnce() -> bool) {
    if turns::pass_on() {
        return;
    }
    if round < spins() {
        spin_loop();
        return;
    }
    if !may_sleep() {
        return nap();
    }
    if may_yield(round) {
        return;
    }
    let limit_ns = if naps { limit_ns.min(nap_ns(round)) } else { limit_ns };
    // SAFETY: callers pass a park flag of their attachment's shared region, which stays mapped for
    // as long as kernels may use it.
    let flag = unsafe { SharedFlag::from_ptr(flag) };
    park(&flag, changed, || futex_wait(flag, 1, Duration::from_nanos(limit_ns).min(longest_sleep())));
}

/// Sleeps on `flag` unless `changed`, at most for `limit`. Several threads may. `naps`: the writer
/// wakes nobody, and so many sleeps in a row have passed.
pub(crate) fn park_thread(
    flag: *mut u32,
    limit: Duration,
    naps: Option<u32>,
    changed: impl FnOnce() -> bool,
) {
    if turns::pass_on() {
        return;
    }
    if !may_sleep() {
        return nap();
    }
    let nap = |naps| Duration::from_nanos(nap_ns(spins().saturating_add(naps))).min(NAP_OF_THREADS);
    let longest = naps.map_or(longest_sleep(), nap);
    // SAFETY: as in `pause`.
    let flag = unsafe { SharedFlag::from_ptr(flag) };
    let thread = THREAD_NUMBER.with(|number| *number);
    park_beside_others(&flag, thread, changed, || futex_wait(flag, thread.get(), limit.min(longest)));
}

/// Wakes who sleeps on `flag`, after a word was published.
pub(crate) fn wake(flag: *mut u32) {
    if !may_sleep() {
        return;
    }
    // SAFETY: as in `pause`.
    let flag = unsafe { SharedFlag::from_ptr(flag) };
    if must_wake(&flag) {
        flag.store(false);
        futex_wake(flag);
    }
}

/// Wakes who sleeps on `word` of its own, after the word was changed.
pub(crate) fn wake_sleeper(sleeping: *mut u32, word: Word) {
    if !may_sleep() {
        return;
    }
    // SAFETY: `WakeWords::wake`'s callers pass a flag that stays mapped.
    let flag = unsafe { SharedFlag::from_ptr(sleeping) };
    if must_wake(&flag) {
        // SAFETY: as above; the word's low half is the futex (little-endian).
        futex_wake(unsafe { SharedFlag::from_ptr(word.as_ptr().cast()) });
    }
}

/// Wakes the pollers of this attachment, if any sleep that may watch the socket in `slot`: moves
/// the epoch on.
pub(crate) fn wake_pollers(pollers: *mut u32, epoch: *mut u64, slot: u32) {
    if !may_sleep() {
        return;
    }
    // SAFETY: as in `pause`.
    let count = unsafe { SharedFlag::from_ptr(pollers) };
    if must_wake(&count) {
        // SAFETY: as in `pause`; CPUs alone change the epoch of a CPU attachment.
        let word = unsafe { AtomicU64::from_ptr(epoch) };
        // Ordering: Release, pairs with the Acquire load of the epoch in `poll`.
        word.fetch_add(Epoch::ANY, Ordering::Release);
        // SAFETY: as in `pause`; the epoch's low half is the futex (little-endian).
        futex_wake_for(unsafe { SharedFlag::from_ptr(epoch.cast()) }, Epoch::wakes(Some(slot)));
    }
}

/// Wakes the pollers of another attachment, if any sleep, by the bell in its part of the arena.
pub(crate) fn ring_bell(remote_part: *mut PartHeader) {
    if !may_sleep() {
        return;
    }
    // SAFETY: `entry::open` checked that a part begins there; it stays mapped while the attachment
    // lives.
    let (pollers, bell) = unsafe { (&raw mut (*remote_part).pollers, &raw mut (*remote_part).bell) };
    // SAFETY: as in `pause`.
    let count = unsafe { SharedFlag::from_ptr(pollers) };
    if must_wake(&count) {
        // SAFETY: as in `pause`; CPU blocks of one attachment change it, atomically.
        let word = unsafe { AtomicU32::from_ptr(bell) };
        // Ordering: Release, pairs with the Acquire load in `ChangeCounts::load` of the other
        // attachment.
        word.fetch_add(1, Ordering::Release);
        // SAFETY: as in `pause`.
        futex_wake(unsafe { SharedFlag::from_ptr(bell) });
    }
}

/// Waits a little; after enough rounds sleeps on the bell of the block at `own` unless `changed`.
/// `naps`: some writer rings no bell, so sleep for a short time only.
pub(crate) fn pause_for_bell(
    round: u32,
    own: *mut PartHeader,
    limit_ns: u64,
    naps: bool,
    changed: impl FnOnce() -> bool,
) {
    if turns::pass_on() {
        return;
    }
    if round < spins() {
        spin_loop();
        return;
    }
    if !may_sleep() {
        return nap();
    }
    if may_yield(round) {
        return;
    }
    let limit = Duration::from_nanos(if naps { limit_ns.min(nap_ns(round)) } else { limit_ns });
    // SAFETY: the caller's block, which stays mapped while its handle is used.
    let (pollers, bell) = unsafe { (&raw mut (*own).pollers, &raw mut (*own).bell) };
    // SAFETY: as above; CPUs alone touch the two, atomically.
    let (count, rung) = unsafe { (AtomicU32::from_ptr(pollers), AtomicU32::from_ptr(bell)) };
    // Ordering: SeqCst, with a fence before the words are looked at; pairs with the fence in
    // `ring_bell`: either the writer sees this sleeper, or the sleeper sees the word.
    count.fetch_add(1, Ordering::SeqCst);
    SharedFlag::fence();
    // Ordering: Acquire, pairs with the Release in `ring_bell`.
    let seen = rung.load(Ordering::Acquire);
    if !changed() {
        // SAFETY: as above.
        futex_wait(unsafe { SharedFlag::from_ptr(bell) }, seen, limit.min(longest_sleep()));
    }
    // Ordering: SeqCst, as above.
    count.fetch_sub(1, Ordering::SeqCst);
}

/// Rings a data thread's eventfd if it sleeps, after a word was published.
pub(crate) fn ring_doorbell(sleeping: *mut u32, doorbell: i32) {
    if !may_sleep() {
        return;
    }
    // SAFETY: as in `pause`.
    let flag = unsafe { SharedFlag::from_ptr(sleeping) };
    if must_wake(&flag) {
        let one = 1u64;
        // SAFETY: writes eight bytes from this stack to the eventfd. A closed descriptor fails
        // harmlessly; the proxy keeps it open while the attachment lives.
        unsafe { libc::write(doorbell, (&raw const one).cast(), 8) };
    }
}

/// Changes a lock among this device's threads from one value to another; returns whether it had the
/// first.
///
/// # Safety
/// `word` is aligned, mapped, and used as a lock only.
pub(crate) unsafe fn lock(word: *mut u32, from: u32, to: u32) -> bool {
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicU32::from_ptr(word) };
    // Ordering: Acquire, pairs with the Release exchange in `unlock` by the thread that had it
    // before: what it left in the entry is visible.
    word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Gives a lock back: from the value with which the caller's group has taken it to another. A lock
/// that has another value by now is another socket's, and stays as it is.
///
/// # Safety
/// As [`lock`].
pub(crate) unsafe fn unlock(word: *mut u32, from: u32, to: u32) {
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicU32::from_ptr(word) };
    // Ordering: Release, pairs with the Acquire exchange in `lock`.
    let _ = word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
}

/// Sixteen bytes, loaded and stored at once where the machine can.
pub(crate) type Chunk = [u64; 2];

/// Loads sixteen bytes.
///
/// # Safety
/// `ptr` is 16-byte aligned and readable.
#[inline(always)]
pub(crate) unsafe fn load_chunk(ptr: *const u8) -> Chunk {
    // SAFETY: the caller's contract.
    unsafe { ptr.cast::<Chunk>().read() }
}

/// Loads sixteen bytes that nobody loads again.
///
/// # Safety
/// As [`load_chunk`].
#[inline(always)]
pub(crate) unsafe fn load_chunk_once(ptr: *const u8) -> Chunk {
    // SAFETY: the caller's contract.
    unsafe { load_chunk(ptr) }
}

/// Stores sixteen bytes.
///
/// # Safety
/// `ptr` is 16-byte aligned and writable.
#[inline(always)]
pub(crate) unsafe fn store_chunk(ptr: *mut u8, chunk: Chunk) {
    // SAFETY: the caller's contract.
    unsafe { ptr.cast::<Chunk>().write(chunk) }
}

/// Stores two units of a line, each at once.
///
/// # Safety
/// `ptr` is one of the line's chunks.
#[inline(always)]
pub unsafe fn store_units(ptr: *mut u64, units: [u64; 2]) {
    for (at, unit) in units.into_iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { Word::from_ptr(ptr.wrapping_add(at)) }.set(unit);
    }
}

/// Loads two units of a line, each at once.
///
/// # Safety
/// `ptr` is one of the line's chunks.
#[inline(always)]
pub unsafe fn load_units(ptr: *mut u64) -> [u64; 2] {
    // SAFETY: the caller's contract.
    unsafe { [Word::from_ptr(ptr).peek(), Word::from_ptr(ptr.wrapping_add(1)).peek()] }
}

/// Loads two words that their writer has published and leaves alone: the calling lane has observed
/// the word that tells of them. A process may change them all the same, so the loads are atomic.
///
/// # Safety
/// `ptr` is 8-byte aligned and readable.
#[inline(always)]
pub unsafe fn load_published(ptr: *mut u64) -> [u64; 2] {
    // SAFETY: the caller's contract.
    unsafe { load_units(ptr) }
}

/// Copies everything by the one lane there is.
///
/// # Safety
/// As `ptr::copy_nonoverlapping`.
#[inline(always)]
pub(crate) unsafe fn copy_alone(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's contract.
    unsafe { src.copy_to_nonoverlapping(dst, len) };
    true
}

/// Hides a value from the optimiser; nothing to hide on the CPU.
#[inline(always)]
pub(crate) fn opaque(value: bool) -> bool {
    value
}

/// Hides where a number comes from; nothing to hide on the CPU.
#[inline(always)]
pub(crate) fn opaque_u32(value: u32) -> u32 {
    value
}
