//! The 64-bit word that one agent writes and another reads.
//!
//! On nvptx64 the four operations become `ld.acquire.sys`, `ld.relaxed.sys`, `st.release.sys` and
//! `st.relaxed.sys`; golden tests on the shipped PTX pin that. There is deliberately no
//! read-modify-write: rustc's `fetch_*` on nvptx64 lose scope and ordering, and the PCIe bus has
//! no such operation to offer.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::hand_off::{self, HandOff};

/// A word in memory that is shared with another agent.
///
/// A `Word` is a raw address, not a reference: agents map the memory at different places and write
/// it at any time. It is `Copy`; the code that hands it out keeps the rule "one writing agent".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Word(*mut u64);

// SAFETY: a Word is an address whose every access is atomic; `from_ptr`'s contract keeps the
// memory alive for as long as the value is used, on whichever thread.
unsafe impl Send for Word {}
// SAFETY: as above; all operations take `self` by value and are atomic.
unsafe impl Sync for Word {}

impl Word {
    /// Makes a word of the eight bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr` is 8-byte aligned, and the memory stays mapped while the word is used. All agents
    /// access it by atomic operations only.
    #[must_use]
    pub const unsafe fn from_ptr(ptr: *mut u64) -> Self {
        Self(ptr)
    }

    /// Returns the address.
    #[must_use]
    pub const fn as_ptr(self) -> *mut u64 {
        self.0
    }

    #[inline(always)]
    fn atomic<'a>(self) -> &'a AtomicU64 {
        // SAFETY: aligned, mapped and only atomically accessed, by the contract of `from_ptr`.
        // The reference lives for one operation, and AtomicU64 has interior mutability, so it
        // promises the compiler nothing about the value.
        unsafe { AtomicU64::from_ptr(self.0) }
    }

    /// Observes the word: everything its writer did before [`Word::publish`] is visible after.
    // Ordering: Acquire, pairs with the Release store in `publish` by the word's one writer;
    // without it the reader could copy ring bytes that have not arrived yet.
    #[inline(always)]
    #[must_use]
    pub fn observe(self) -> u64 {
        let value = self.atomic().load(Ordering::Acquire);
        hand_off::at(HandOff::Observed);
        value
    }

    /// Reads the word without ordering anything: a hint, to be confirmed by [`Word::observe`].
    // Ordering: Relaxed, no partner; used to look for a change cheaply.
    #[inline(always)]
    #[must_use]
    pub fn peek(self) -> u64 {
        self.atomic().load(Ordering::Relaxed)
    }

    /// Publishes `value`. An agent that observes it sees what this agent wrote before.
    // Ordering: Release, pairs with the Acquire load in `observe`; after a group barrier it carries
    // the writes of all lanes (cumulativity).
    #[inline(always)]
    pub fn publish(self, value: u64) {
        self.atomic().store(value, Ordering::Release);
        hand_off::at(HandOff::Published);
    }

    /// Stores a value that a later [`Word::publish`] of another word makes visible.
    // Ordering: Relaxed, ordered by the Release store that follows it.
    #[inline(always)]
    pub fn set(self, value: u64) {
        self.atomic().store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_what_was_stored_last() {
        let mut memory = 7;
        // SAFETY: a word of this test.
        let word = unsafe { Word::from_ptr(&raw mut memory) };
        assert_eq!((word.observe(), word.peek()), (7, 7));
        word.publish(8);
        assert_eq!((word.observe(), word.peek()), (8, 8));
        word.set(9);
        assert_eq!((word.observe(), word.peek()), (9, 9));
    }
}
