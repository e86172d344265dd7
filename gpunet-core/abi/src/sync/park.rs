//! Sleeping and waking without losing a wake-up.
//!
//! A CPU waiter that has spun long enough sleeps on a flag beside the word it waits for. The two
//! sides follow Dekker's pattern, so that at least one of them sees the other:
//!
//! ```text
//! publisher                       waiter
//!   store the word                  set the flag
//!   SeqCst fence                    SeqCst fence
//!   flag set? then wake             word changed? then do not sleep
//! ```
//!
//! A GPU waiter never sleeps, and a GPU publisher never wakes: on nvptx64 none of this is compiled.
//! `tests/loom.rs` explores every interleaving.

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::hand_off::{self, HandOff};
use core::num::NonZeroU32;

/// A flag that is set while someone sleeps on it; its address is what a futex waits on.
pub trait ParkFlag {
    /// Stores 1 (a waiter is about to sleep) or 0.
    fn store(&self, sleeping: bool);
    /// Loads the flag.
    fn load(&self) -> bool;
    /// The full fence that both sides pass.
    fn fence();
}

/// Returns whether a publisher must wake the waiter. Called after the word was stored.
#[inline(always)]
pub fn must_wake<F: ParkFlag>(flag: &F) -> bool {
    hand_off::at(HandOff::Waking);
    F::fence();
    flag.load()
}

/// Sleeps by `sleep` unless `changed` returns that the wait is over.
///
/// `sleep` must return when the flag is no longer 1, and at the latest after a bounded time; it may
/// return early. The caller loads its word again in any case.
#[inline(always)]
pub fn park<F: ParkFlag>(flag: &F, changed: impl FnOnce() -> bool, sleep: impl FnOnce()) {
    flag.store(true);
    hand_off::at(HandOff::Parking);
    F::fence();
    if !changed() {
        sleep();
    }
    flag.store(false);
}

/// A [`ParkFlag`] on which several threads of one process may sleep.
pub trait NumberedParkFlag: ParkFlag {
    /// Stores the number of a thread that is about to sleep, which no other thread has.
    fn store_number(&self, thread: NonZeroU32);
}

/// As [`park`], for one of several threads that may sleep on the flag. `sleep` must return when the
/// flag has another value than the thread's number.
///
/// No thread clears the flag: the others would sleep on, and nobody would wake them. The publisher
/// clears it, and then wakes all. A flag that is left set costs the next publisher one needless
/// wake-up.
///
/// Each thread stores a number of its own, so that it sleeps only if nobody has stored anything
/// since: were it a 1, a thread that has not begun to sleep yet could take the 1 of another one,
/// stored after the publisher had cleared the flag and woken all, for its own.
#[inline(always)]
pub fn park_beside_others<F: NumberedParkFlag>(
    flag: &F,
    thread: NonZeroU32,
    changed: impl FnOnce() -> bool,
    sleep: impl FnOnce(),
) {
    flag.store_number(thread);
    hand_off::at(HandOff::Parking);
    F::fence();
    if !changed() {
        sleep();
    }
}

/// A [`ParkFlag`] in shared memory.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct SharedFlag(*mut u32);

// SAFETY: an address whose every access is atomic; `from_ptr`'s contract keeps it mapped.
unsafe impl Send for SharedFlag {}
// SAFETY: as above.
unsafe impl Sync for SharedFlag {}

impl SharedFlag {
    /// Makes a flag of the four bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr` is 4-byte aligned, stays mapped while the flag is used, and is accessed by CPUs only,
    /// atomically.
    #[must_use]
    pub const unsafe fn from_ptr(ptr: *mut u32) -> Self {
        Self(ptr)
    }

    /// The address, for the futex call.
    #[must_use]
    pub const fn as_ptr(self) -> *mut u32 {
        self.0
    }

    #[inline(always)]
    fn atomic<'a>(self) -> &'a AtomicU32 {
        // SAFETY: aligned, mapped and only atomically accessed, by the contract of `from_ptr`.
        unsafe { AtomicU32::from_ptr(self.0) }
    }
}

impl NumberedParkFlag for SharedFlag {
    // Ordering: Relaxed, as below.
    #[inline(always)]
    fn store_number(&self, thread: NonZeroU32) {
        self.atomic().store(thread.get(), Ordering::Relaxed);
    }
}

impl ParkFlag for SharedFlag {
    // Ordering: Relaxed; the SeqCst fences on both sides order flag and word against each other.
    #[inline(always)]
    fn store(&self, sleeping: bool) {
        self.atomic().store(u32::from(sleeping), Ordering::Relaxed);
    }

    // Ordering: Relaxed, as above.
    #[inline(always)]
    fn load(&self) -> bool {
        self.atomic().load(Ordering::Relaxed) != 0
    }

    // Ordering: SeqCst on both sides (the module's figure): without it both could read old values,
    // the waiter sleep and the publisher not wake it.
    #[inline(always)]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn who_waits_sleeps_with_its_flag_set() {
        let mut word = 0;
        // SAFETY: a word of this test.
        let flag = unsafe { SharedFlag::from_ptr(&raw mut word) };
        assert!(!must_wake(&flag));
        let slept = Cell::new(0);
        park(&flag, || false, || slept.set(slept.get() + u32::from(must_wake(&flag))));
        assert_eq!(slept.get(), 1, "it sleeps, and whoever publishes then has to wake it");
        park(&flag, || true, || slept.set(2));
        assert_eq!(slept.get(), 1, "what has changed is not waited for");
        assert!(!must_wake(&flag), "nobody sleeps any more");
    }
}
