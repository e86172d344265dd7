//! What makes stores leave the CPU, one function per use.
//!
//! GPU memory behind PCIe is mapped write-combining: stores wait in buffers of a cache line, may
//! leave them in any order, and stay there until a buffer is full or a fence empties it.

#![allow(unsafe_code, reason = "fence instructions")]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;

/// Whether the functions below do what they say on this architecture.
pub(super) const KNOWN: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Empties the write-combining buffers: all stores before it reach the bus before any store after
/// it.
///
/// x86-64: SFENCE orders write-combining and non-temporal stores, which no other ordering of Rust's
/// does: a Release store is a plain `mov` there. aarch64: DSB waits until the stores are complete,
/// where DMB would order them and leave them in the merge buffer.
#[inline]
pub(super) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no operands; as it may access memory as far as the compiler
    // knows, no access moves across it.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("dsb st", options(nostack, preserves_flags));
    }
    // `map` refuses before anything gets here.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Keeps loads of a mapping between the accesses before and after it.
///
/// x86-64: loads of write-combining memory are weakly ordered, and streaming loads may be served
/// from a buffer that an earlier one filled; MFENCE empties it (Intel SDM, volume 1, 12.10.3).
#[inline]
pub(super) fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `store_fence`.
    unsafe {
        asm!("mfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("dsb sy", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
