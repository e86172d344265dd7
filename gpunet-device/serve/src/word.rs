//! Words that the blocks of one device share, and words that they share with the host. All accesses
//! are atomic.
//!
//! Blocks of one GPU order their accesses at the scope of that GPU: a release at system scope waits
//! until no load of host memory is in flight near its multiprocessor (1.8 us for a lock that nobody
//! contends on an H100, and up to 25 us while others poll; 0.6 us here).
#![allow(unsafe_code)]

#[cfg(not(target_arch = "nvptx64"))]
mod cpu;
#[cfg(target_arch = "nvptx64")]
mod nvptx;

#[cfg(not(target_arch = "nvptx64"))]
use cpu as scope;
use gpunet_device::abi::atomic::{AtomicU32, AtomicU64, Ordering};
use gpunet_device::abi::{Word, device_scope};
#[cfg(target_arch = "nvptx64")]
use nvptx as scope;

#[cfg(target_arch = "nvptx64")]
pub(crate) use nvptx::nap;

/// A fence among the blocks of a device: what this thread has read and written before comes before
/// what it does after.
#[inline(always)]
pub fn fence() {
    scope::fence();
}

/// A full fence among the blocks of a device: of two that each write first and read after it, one
/// reads what the other has written.
#[inline(always)]
pub(crate) fn full_fence() {
    scope::full_fence();
}

/// A word of 32 bits in the device's memory.
#[derive(Clone, Copy, Debug)]
pub struct Word32(*mut u32);

impl Word32 {
    /// # Safety
    /// `ptr` is aligned and mapped while the launch runs. Groups of one device alone access it,
    /// atomically.
    #[inline(always)]
    pub(crate) const unsafe fn from_ptr(ptr: *mut u32) -> Self {
        Self(ptr)
    }

    #[inline(always)]
    fn atomic<'a>(self) -> &'a AtomicU32 {
        // SAFETY: the contract of `from_ptr`; the reference lives for one operation.
        unsafe { AtomicU32::from_ptr(self.0) }
    }

    /// Reads it. Ordering: Relaxed; who needs order holds a lock.
    #[inline(always)]
    #[must_use]
    pub fn get(self) -> u32 {
        self.atomic().load(Ordering::Relaxed)
    }

    /// Writes it. Ordering: Relaxed, ordered by the release of the lock under which it is written.
    #[inline(always)]
    pub fn set(self, value: u32) {
        self.atomic().store(value, Ordering::Relaxed);
    }

    /// Tries to take a lock. Ordering: Acquire, pairs with the Release of [`Word32::unlock`] by the
    /// last holder; without it this holder could read what was there before that one's writes.
    #[inline(always)]
    pub(crate) fn try_lock(self) -> bool {
        // SAFETY: the contract of `from_ptr`.
        unsafe { scope::try_lock(self.0) }
    }

    /// Takes a lock, in the order of the calls. Ordering: Acquire, as above.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn lock(self) {
        // SAFETY: the contract of `from_ptr`.
        unsafe { scope::lock(self.0) };
    }

    /// Gives a lock back. Ordering: Release, pairs with the Acquire by the next holder.
    #[inline(always)]
    pub(crate) fn unlock(self) {
        // SAFETY: the contract of `from_ptr`.
        unsafe { scope::unlock(self.0) };
    }

    /// Adds to it; returns what it was. Ordering: Relaxed; a count, nothing is ordered by it.
    #[inline(always)]
    pub fn fetch_add(self, more: u32) -> u32 {
        // SAFETY: the contract of `from_ptr`.
        unsafe { scope::add(self.0, more) }
    }

    /// Replaces `old` by `new` unless it has changed. Ordering: Relaxed; a count, nothing is
    /// ordered by it.
    #[inline(always)]
    pub(crate) fn replace(self, old: u32, new: u32) -> bool {
        self.atomic().compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// As [`Word32`], of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Word64(*mut u64);

impl Word64 {
    /// Its address.
    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *mut u64 {
        self.0
    }

    /// # Safety
    /// As [`Word32::from_ptr`].
    #[inline(always)]
    pub(crate) const unsafe fn from_ptr(ptr: *mut u64) -> Self {
        Self(ptr)
    }

    #[inline(always)]
    fn atomic<'a>(self) -> &'a AtomicU64 {
        // SAFETY: as in `Word32::atomic`.
        unsafe { AtomicU64::from_ptr(self.0) }
    }

    /// Reads it. Ordering: Relaxed; a figure, nothing is ordered by it.
    #[inline(always)]
    #[must_use]
    pub fn get(self) -> u64 {
        self.atomic().load(Ordering::Relaxed)
    }

    /// Writes it. Ordering: Relaxed, as above.
    #[inline(always)]
    pub fn set(self, value: u64) {
        self.atomic().store(value, Ordering::Relaxed);
    }

    /// Replaces `old` by `new` unless it has changed. Ordering: Relaxed; the caller has fences.
    #[inline(always)]
    pub(crate) fn replace(self, old: u64, new: u64) -> bool {
        self.atomic().compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Reads it, and what its writer wrote before. Ordering: Acquire, pairs with
    /// [`Word64::publish`].
    #[inline(always)]
    #[must_use]
    pub fn observe(self) -> u64 {
        // SAFETY: the contract of `from_ptr`.
        device_scope::observe(unsafe { Word::from_ptr(self.0) })
    }

    /// Adds one; returns what it was. Ordering: Acquire, pairs with [`Word64::publish`] before it:
    /// what was published goes on with each addition.
    #[inline(always)]
    pub fn take_next(self) -> u64 {
        // SAFETY: the contract of `from_ptr`.
        unsafe { scope::take_next(self.0) }
    }

    /// Adds one, and waits for nothing. Ordering: Relaxed; the caller has a fence before it, which
    /// each later addition hands on.
    #[inline(always)]
    pub(crate) fn count_up(self) {
        // SAFETY: the contract of `from_ptr`.
        unsafe { scope::count_up(self.0) };
    }

    /// Writes it after all that was written before. Ordering: Release, pairs with
    /// [`Word64::observe`].
    #[inline(always)]
    pub fn publish(self, value: u64) {
        // SAFETY: the contract of `from_ptr`.
        device_scope::publish(unsafe { Word::from_ptr(self.0) }, value);
    }
}

/// A word of 64 bits that device and host share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostWord64(Word64);

impl HostWord64 {
    #[inline(always)]
    pub(crate) const fn of(word: Word64) -> Self {
        Self(word)
    }

    /// Reads it. Ordering: Relaxed; a figure, nothing is ordered by it.
    #[inline(always)]
    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }

    /// Writes it. Ordering: Relaxed, as above.
    #[inline(always)]
    pub(crate) fn set(self, value: u64) {
        self.0.set(value);
    }

    /// Reads it, and what its writer wrote before. Ordering: Acquire, pairs with
    /// [`HostWord64::publish`].
    #[inline(always)]
    pub(crate) fn observe(self) -> u64 {
        self.0.atomic().load(Ordering::Acquire)
    }

    /// Writes it after all that was written before. Ordering: Release, pairs with
    /// [`HostWord64::observe`].
    #[inline(always)]
    pub(crate) fn publish(self, value: u64) {
        self.0.atomic().store(value, Ordering::Release);
    }
}
