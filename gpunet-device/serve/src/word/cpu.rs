//! On a CPU there is one scope.

use gpunet_device::abi::atomic::{self, AtomicU32, AtomicU64, Ordering};

#[inline(always)]
pub(super) fn fence() {
    atomic::fence(Ordering::AcqRel);
}

#[inline(always)]
pub(super) fn full_fence() {
    atomic::fence(Ordering::SeqCst);
}

/// # Safety
/// `word` is aligned and mapped, and accessed atomically.
#[inline(always)]
pub(super) unsafe fn try_lock(word: *mut u32) -> bool {
    // Ordering: Acquire, pairs with the Release in `unlock`.
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicU32::from_ptr(word) };
    // It is looked at first: who waits does not take the word's cache line from its holder.
    word.load(Ordering::Relaxed) == 0
        && word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// # Safety
/// As [`try_lock`].
#[inline(always)]
pub(super) unsafe fn unlock(word: *mut u32) {
    // Ordering: Release, pairs with the Acquire in `try_lock`.
    // SAFETY: the caller's contract.
    unsafe { AtomicU32::from_ptr(word) }.store(0, Ordering::Release);
}

/// # Safety
/// As [`try_lock`].
#[inline(always)]
pub(super) unsafe fn take_next(word: *mut u64) -> u64 {
    // Ordering: Acquire, pairs with the Release of `device_scope::publish`.
    // SAFETY: the caller's contract.
    unsafe { AtomicU64::from_ptr(word) }.fetch_add(1, Ordering::Acquire)
}

/// # Safety
/// As [`try_lock`].
#[inline(always)]
pub(super) unsafe fn count_up(word: *mut u64) {
    // SAFETY: the caller's contract.
    unsafe { AtomicU64::from_ptr(word) }.fetch_add(1, Ordering::Relaxed);
}

/// # Safety
/// As [`try_lock`].
#[inline(always)]
pub(super) unsafe fn add(word: *mut u32, more: u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { AtomicU32::from_ptr(word) }.fetch_add(more, Ordering::Relaxed)
}
