//! On a GPU: the scope is the GPU. Rust's atomics have system scope there.

use core::arch::asm;

#[inline(always)]
pub(super) fn fence() {
    // SAFETY: it orders this thread's accesses, and does nothing else.
    unsafe { asm!("fence.acq_rel.gpu;", options(nostack)) };
}

/// # Safety
/// `word` is aligned and mapped, and accessed atomically by threads of this GPU alone.
#[inline(always)]
pub(super) unsafe fn lock(word: *mut u32) -> bool {
    let old: u32;
    // Ordering: acquire, pairs with the release in `unlock`.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.acquire.gpu.cas.b32 {o}, [{p}], 0, 1;", o = out(reg32) old, p = in(reg64) word, options(nostack));
    }
    old == 0
}

/// # Safety
/// As [`lock`].
#[inline(always)]
pub(super) unsafe fn unlock(word: *mut u32) {
    // Ordering: release, pairs with the acquire in `lock`.
    // SAFETY: the caller's contract.
    unsafe { asm!("st.release.gpu.b32 [{p}], 0;", p = in(reg64) word, options(nostack)) };
}

/// # Safety
/// As [`lock`].
#[inline(always)]
pub(super) unsafe fn claim(word: *mut u64, old: u64, new: u64) -> bool {
    let found: u64;
    // Ordering: acquire, pairs with the release of `device_scope::publish`.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.acquire.gpu.cas.b64 {f}, [{p}], {o}, {n};", f = out(reg64) found, p = in(reg64) word, o = in(reg64) old, n = in(reg64) new, options(nostack));
    }
    found == old
}

/// # Safety
/// As [`lock`].
#[inline(always)]
pub(super) unsafe fn add(word: *mut u32, more: u32) -> u32 {
    let before: u32;
    // Here, and not by `fetch_add`: the compiler gives that no scope.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.relaxed.gpu.add.u32 {b}, [{p}], {m};", b = out(reg32) before, p = in(reg64) word, m = in(reg32) more, options(nostack));
    }
    before
}

/// Lets some time pass: while others spin on a word, its holder reaches the cache that has it late.
#[inline(always)]
pub(crate) fn nap() {
    // SAFETY: it changes nothing.
    unsafe { asm!("nanosleep.u32 {t};", t = in(reg32) 100u32, options(nomem, nostack)) };
}
