//! On a GPU: the scope is the GPU. Rust's atomics have system scope there.

use core::arch::asm;

#[inline(always)]
pub(super) fn fence() {
    // SAFETY: it orders this thread's accesses, and does nothing else.
    unsafe { asm!("fence.acq_rel.gpu;", options(nostack)) };
}

#[inline(always)]
pub(super) fn full_fence() {
    // SAFETY: it orders this thread's accesses, and does nothing else.
    unsafe { asm!("fence.sc.gpu;", options(nostack)) };
}

// A lock's upper half is the next ticket, its lower half the one that is served. Where blocks took
// it by compare-exchange, those near the cache that has it passed the others again and again: of 50
// clients of one key, one waited for 1.5 s.

/// Takes a lock in the order of the calls.
///
/// # Safety
/// `word` is aligned and mapped, and accessed atomically by threads of this GPU alone.
#[inline(always)]
pub(super) unsafe fn lock(word: *mut u32) {
    let mut found: u32;
    // Ordering: acquire, pairs with the release in `unlock`.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.acquire.gpu.add.u32 {f}, [{p}], 65536;", f = out(reg32) found, p = in(reg64) word, options(nostack));
    }
    let ticket = found >> 16;
    loop {
        let ahead = ticket.wrapping_sub(found) & 0xffff;
        if ahead == 0 {
            return;
        }
        if ahead > 1 {
            nap(ahead * 200);
        }
        // Ordering: acquire, as above.
        // SAFETY: the caller's contract.
        unsafe {
            asm!("ld.acquire.gpu.u32 {f}, [{p}];", f = out(reg32) found, p = in(reg64) word, options(nostack));
        }
    }
}

/// Takes a lock if nobody has it, and nobody waits for it.
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub(super) unsafe fn try_lock(word: *mut u32) -> bool {
    // SAFETY: the caller's contract.
    let found =
        unsafe { core::sync::atomic::AtomicU32::from_ptr(word) }.load(core::sync::atomic::Ordering::Relaxed);
    if found >> 16 != found & 0xffff {
        return false;
    }
    let (before, after): (u32, u32) = (found, found.wrapping_add(1 << 16));
    let seen: u32;
    // Ordering: acquire, pairs with the release in `unlock`.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.acquire.gpu.cas.b32 {b}, [{p}], {o}, {n};", b = out(reg32) seen, p = in(reg64) word, o = in(reg32) before, n = in(reg32) after, options(nostack));
    }
    seen == before
}

/// # Safety
/// As [`lock`], which the caller has taken.
#[inline(always)]
pub(super) unsafe fn unlock(word: *mut u32) {
    // SAFETY: the caller's contract.
    let atomic = unsafe { core::sync::atomic::AtomicU32::from_ptr(word) };
    let mut before = atomic.load(core::sync::atomic::Ordering::Relaxed);
    loop {
        let (after, found) = (before & 0xffff_0000 | before.wrapping_add(1) & 0xffff, before);
        // Ordering: release, pairs with the acquire in `lock`. It fails only if another block has
        // taken a ticket. SAFETY: the caller's contract.
        unsafe {
            asm!("atom.release.gpu.cas.b32 {b}, [{p}], {o}, {n};", b = out(reg32) before, p = in(reg64) word, o = in(reg32) found, n = in(reg32) after, options(nostack));
        }
        if before == found {
            return;
        }
    }
}

/// # Safety
/// As [`lock`].
#[inline(always)]
pub(super) unsafe fn take_next(word: *mut u64) -> u64 {
    let before: u64;
    // Ordering: acquire, pairs with the release of `device_scope::publish`.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.acquire.gpu.add.u64 {b}, [{p}], 1;", b = out(reg64) before, p = in(reg64) word, options(nostack));
    }
    before
}

/// Adds one to a word. Nobody reads what it was, so the thread does not wait for it.
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub(super) unsafe fn count_up(word: *mut u64) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.relaxed.gpu.add.u64 {b}, [{p}], 1;", b = out(reg64) _, p = in(reg64) word, options(nostack));
    }
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

/// Lets about so many nanoseconds pass: while others load a word all the time, its holder reaches
/// the cache that has it late.
#[inline(always)]
pub(crate) fn nap(ns: u32) {
    // SAFETY: it changes nothing.
    unsafe { asm!("nanosleep.u32 {t};", t = in(reg32) ns, options(nomem, nostack)) };
}
