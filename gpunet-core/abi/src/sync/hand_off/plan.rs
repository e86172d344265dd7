//! The events at hand-offs, drawn from a seed.

use super::{HAND_OFFS, HandOff};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::vec::Vec;

/// The events that may happen to threads at hand-offs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything is drawn from it.
    pub seed: u64,
    /// The longest pause.
    pub longest: Duration,
    /// Threads whose names begin so may stop for good, each with this chance in a million at a
    /// hand-off.
    pub deaths: Vec<(&'static str, u32)>,
    /// They stop at these hand-offs only; at all of them if there are none.
    pub deadly: Vec<HandOff>,
    /// Pauses at these hand-offs only; at all of them if there are none.
    pub only: Vec<HandOff>,
    /// Blocks of the CPU device wait as a GPU's do, also after the plan has ended. See
    /// [`blocks_poll`].
    pub polls: bool,
    /// Sleepers of the CPU device wait until they are woken, also after the plan has ended, so that
    /// a lost wake-up shows. An agent that only stops (a daemon) is not noticed. See
    /// [`sleeps_are_endless`].
    pub endless: bool,
}

impl Plan {
    /// Pauses and yields everywhere; no agent dies.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            longest: Duration::from_millis(20),
            deaths: Vec::new(),
            deadly: Vec::new(),
            only: Vec::new(),
            polls: false,
            endless: false,
        }
    }
}

/// How often threads were at each hand-off, and what was done there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hand-offs that were passed.
    pub passed: u64,
    /// Pauses.
    pub paused: u64,
    /// Threads that stopped for good.
    pub died: u64,
}

static ON: AtomicBool = AtomicBool::new(false);
static POLLS: AtomicBool = AtomicBool::new(false);
static ENDLESS: AtomicBool = AtomicBool::new(false);
/// Counts the plans, so that threads draw anew for each.
static ROUND: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(0);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);
static COUNTS: [[AtomicU64; 3]; HAND_OFFS] = [const { [const { AtomicU64::new(0) }; 3] }; HAND_OFFS];

thread_local! {
    static LOCAL: Cell<Local> = const { Cell::new(Local { round: 0, state: 0, longest_us: 0, death: 0, deadly: 0, only: 0 }) };
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// One thread's generator, and what it needs of the plan.
#[derive(Clone, Copy)]
struct Local {
    round: u64,
    state: u64,
    longest_us: u64,
    death: u32,
    /// A bit for each hand-off at which it may stop for good; 0: at all.
    deadly: u32,
    /// A bit for each hand-off at which it pauses; 0: at all.
    only: u32,
}

/// Begins a plan; it ends the one before.
pub fn start(plan: Plan) {
    POLLS.store(plan.polls, Ordering::Relaxed);
    ENDLESS.store(plan.endless, Ordering::Relaxed);
    *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    THREADS.store(0, Ordering::Relaxed);
    COUNTS.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
    ROUND.fetch_add(1, Ordering::Relaxed);
    ON.store(true, Ordering::Release);
}

/// Ends the plan: threads continue undisturbed, except those that have stopped for good. Returns
/// what was done.
pub fn stop() -> [Counts; HAND_OFFS] {
    ON.store(false, Ordering::Release);
    counts()
}

/// Returns what this plan, or the last one, has done so far.
#[must_use]
pub fn counts() -> [Counts; HAND_OFFS] {
    std::array::from_fn(|at| {
        let [passed, paused, died] = &COUNTS[at];
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { passed: load(passed), paused: load(paused), died: load(died) }
    })
}

/// Returns whether a plan makes threads pause.
#[must_use]
pub fn is_running() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns whether blocks of the CPU device wait as those of a GPU: they poll, sleep on nothing,
/// and wake nobody.
#[must_use]
pub fn blocks_poll() -> bool {
    POLLS.load(Ordering::Relaxed)
}

/// Returns whether sleeping CPU blocks and host threads wait for somebody who wakes them, and never
/// look for themselves whether they were forgotten.
#[must_use]
pub fn sleeps_are_endless() -> bool {
    ENDLESS.load(Ordering::Relaxed)
}

/// Runs `body` undisturbed: for a thread of a test that watches the others.
pub fn hold<T>(body: impl FnOnce() -> T) -> T {
    let before = HELD.replace(true);
    let result = body();
    HELD.set(before);
    result
}

/// One of this many passes of a hand-off pauses. Spinning threads pass often.
const fn rarity(at: HandOff) -> u64 {
    match at {
        HandOff::Observed => 4096,
        HandOff::Published | HandOff::Copied | HandOff::Waking => 128,
        HandOff::MessageTaken | HandOff::CommandTaken | HandOff::Parking | HandOff::EpochRead => 64,
        _ => 16,
    }
}

/// Notes that the calling thread is at a hand-off: it may pause, yield, or never come back.
pub fn at(at: HandOff) {
    if !ON.load(Ordering::Relaxed) || HELD.get() {
        return;
    }
    let mut local = LOCAL.get();
    let round = ROUND.load(Ordering::Relaxed);
    if local.round != round {
        let Some(fresh) = begin(round) else { return };
        local = fresh;
    }
    let draw = next(&mut local.state);
    LOCAL.set(local);
    let count = |which: usize| COUNTS[at as usize][which].fetch_add(1, Ordering::Relaxed);
    count(0);
    let is_among = |bits: u32| bits == 0 || bits & (1 << at as usize) != 0;
    if local.death > 0
        && is_among(local.deadly)
        && draw >> 32 < u64::from(local.death) * (1 << 32) / 1_000_000
    {
        count(2);
        loop {
            std::thread::park();
        }
    }
    if !is_among(local.only) {
        return;
    }
    match draw % rarity(at) {
        0 => {
            count(1);
            // Short ones more often than long ones.
            let part = (draw >> 20 & 0xff) * (draw >> 28 & 0xff);
            std::thread::sleep(Duration::from_micros((local.longest_us * part) >> 16));
        }
        1 => std::thread::yield_now(),
        _ => {}
    }
}

/// A thread's first draw of a plan: what it does depends on the seed, its name, and how many came
/// before it.
fn begin(round: u64) -> Option<Local> {
    let plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = plan.as_ref()?;
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("");
    let death =
        plan.deaths.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(0, |&(_, chance)| chance);
    let mut state = plan.seed ^ THREADS.fetch_add(1, Ordering::Relaxed).rotate_left(32);
    name.bytes().for_each(|byte| state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let bits = |of: &[HandOff]| of.iter().fold(0, |bits, &at| bits | 1 << at as usize);
    let (deadly, only) = (bits(&plan.deadly), bits(&plan.only));
    let longest_us = u64::try_from(plan.longest.as_micros()).unwrap_or(u64::MAX >> 16);
    Some(Local { round, state, longest_us, death, deadly, only })
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
