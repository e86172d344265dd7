//! The CPU device.

use crate::unit::{NONE_BYTE, NONE_SM};
use gpunet_device::Group;
use gpunet_device::abi::Word;
use gpunet_device::abi::atomic::{AtomicU64, Ordering};

/// Stores two units of a record, each at once.
///
/// # Safety
/// `ptr` is 16-byte aligned, and in the place of a record that the caller writes.
#[inline(always)]
pub(crate) unsafe fn store_units(ptr: *mut u64, units: [u64; 2]) {
    for (at, unit) in units.into_iter().enumerate() {
        // SAFETY: the caller's contract. Ordering: Relaxed; the unit's tag comes with its bytes.
        unsafe { Word::from_ptr(ptr.wrapping_add(at)) }.set(unit);
    }
}

fn atomic<'a>(word: Word) -> &'a AtomicU64 {
    // SAFETY: an aligned, mapped word that all access atomically, by the contract of
    // `Word::from_ptr`; the reference lives for one operation.
    unsafe { AtomicU64::from_ptr(word.as_ptr()) }
}

/// Replaces `old` by `new` unless the word has changed.
#[inline(always)]
pub(crate) fn take(word: Word, old: u64, new: u64) -> bool {
    // Ordering: Acquire, pairs with the Release of `device_scope::publish` by the ring's last
    // recorder: what this one stores comes after what that one has stored in the same places.
    atomic(word).compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Replaces `old` by `new` unless the word has changed. It orders nothing.
#[inline(always)]
pub(crate) fn replace(word: Word, old: u64, new: u64) -> bool {
    // Ordering: Relaxed; a time, nothing is ordered by it.
    atomic(word).compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Adds one to a count of this device.
#[inline(always)]
pub(crate) fn count(word: Word) {
    // Ordering: Relaxed; a count, nothing is ordered by it.
    atomic(word).fetch_add(1, Ordering::Relaxed);
}

/// Adds to a count in pinned memory that this device alone writes, and the host reads.
#[inline(always)]
pub(crate) fn count_for_host(word: Word, more: u64) {
    // Ordering: Relaxed; as above.
    atomic(word).fetch_add(more, Ordering::Relaxed);
}

/// Takes a count of this device: sets it to zero, and returns what it was.
#[inline(always)]
pub(crate) fn take_count(word: Word) -> u64 {
    // Ordering: Relaxed; as above.
    atomic(word).swap(0, Ordering::Relaxed)
}

/// Returns the block of a group, and its place: multiprocessor, warp, lane.
#[inline(always)]
pub(crate) fn place<G: Group>(g: &G) -> (u32, u16, u8, u8) {
    (g.index(), NONE_SM, NONE_BYTE, NONE_BYTE)
}
