//! The GPU. Read-modify-writes are inline assembly, because rustc gives its own no scope. Nobody
//! waits for those whose result is not used: the assembler makes reductions of them.

use crate::unit::NONE_BYTE;
use core::arch::asm;
use gpunet_device::Group;
use gpunet_device::abi::Word;

// Ordering: Relaxed, of both. A unit's tag comes with its bytes, so nothing has to be ordered; PTX
// makes of a vector access one access of each element, and one of eight bytes is whole.
/// Stores two units of a record, each at once.
///
/// # Safety
/// `ptr` is 16-byte aligned, and in the place of a record that the caller writes.
#[inline(always)]
pub(crate) unsafe fn store_units(ptr: *mut u64, units: [u64; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("st.relaxed.sys.v2.b64 [{p}], {{{a}, {b}}};", a = in(reg64) units[0], b = in(reg64) units[1], p = in(reg64) ptr, options(nostack))
    };
}

/// Replaces `old` by `new` unless the word has changed.
#[inline(always)]
pub(crate) fn take(word: Word, old: u64, new: u64) -> bool {
    let found: u64;
    // Ordering: acquire at GPU scope, pairs with the release of `device_scope::publish` by the
    // ring's last recorder: what this one stores comes after what that one has stored there.
    // SAFETY: an aligned word of this GPU's memory, by the contract of `Records::new`.
    unsafe {
        asm!("atom.acquire.gpu.cas.b64 {f}, [{p}], {o}, {n};", f = out(reg64) found, p = in(reg64) word.as_ptr(), o = in(reg64) old, n = in(reg64) new, options(nostack));
    }
    found == old
}

/// Replaces `old` by `new` unless the word has changed. It orders nothing.
#[inline(always)]
pub(crate) fn replace(word: Word, old: u64, new: u64) -> bool {
    let found: u64;
    // Ordering: relaxed; a time, nothing is ordered by it.
    // SAFETY: an aligned word of this GPU's memory, by the contract of `Records::new`.
    unsafe {
        asm!("atom.relaxed.gpu.cas.b64 {f}, [{p}], {o}, {n};", f = out(reg64) found, p = in(reg64) word.as_ptr(), o = in(reg64) old, n = in(reg64) new, options(nostack));
    }
    found == old
}

/// Adds one to a count of this device.
#[inline(always)]
pub(crate) fn count(word: Word) {
    // Ordering: relaxed; a count, nothing is ordered by it.
    // SAFETY: an aligned word of this GPU's memory, by the contract of `Records::new`.
    unsafe {
        asm!("atom.relaxed.gpu.add.u64 {b}, [{p}], {m};", b = out(reg64) _, p = in(reg64) word.as_ptr(), m = in(reg64) 1u64, options(nostack));
    }
}

/// Adds to a count in pinned memory that this device alone writes, and the host reads. Such an
/// addition is atomic among the threads of one GPU; the host only loads the word.
#[inline(always)]
pub(crate) fn count_for_host(word: Word, more: u64) {
    // Ordering: relaxed; as above.
    // SAFETY: an aligned word of pinned memory, by the contract of `Records::new`.
    unsafe {
        asm!("atom.relaxed.sys.add.u64 {b}, [{p}], {m};", b = out(reg64) _, p = in(reg64) word.as_ptr(), m = in(reg64) more, options(nostack));
    }
}

/// Takes a count of this device: sets it to zero, and returns what it was.
#[inline(always)]
pub(crate) fn take_count(word: Word) -> u64 {
    let found: u64;
    // Ordering: relaxed; as above.
    // SAFETY: an aligned word of this GPU's memory, by the contract of `Records::new`.
    unsafe {
        asm!("atom.relaxed.gpu.exch.b64 {f}, [{p}], {n};", f = out(reg64) found, p = in(reg64) word.as_ptr(), n = in(reg64) 0u64, options(nostack));
    }
    found
}

macro_rules! special {
    ($name:ident, $register:literal) => {
        #[inline(always)]
        fn $name() -> u32 {
            let v: u32;
            // SAFETY: reads a special register.
            unsafe {
                asm!(concat!("mov.u32 {v}, %", $register, ";"), v = out(reg32) v, options(pure, nomem, nostack, preserves_flags));
            }
            v
        }
    };
}
special!(tid_x, "tid.x");
special!(tid_y, "tid.y");
special!(tid_z, "tid.z");
special!(ntid_x, "ntid.x");
special!(ntid_y, "ntid.y");
special!(ctaid_x, "ctaid.x");
special!(ctaid_y, "ctaid.y");
special!(ctaid_z, "ctaid.z");
special!(nctaid_x, "nctaid.x");
special!(nctaid_y, "nctaid.y");
special!(smid, "smid");

/// Returns the block of a group, and its place: multiprocessor, warp, lane.
#[inline(always)]
pub(crate) fn place<G: Group>(g: &G) -> (u32, u16, u8, u8) {
    let block = ctaid_x() + nctaid_x() * (ctaid_y() + nctaid_y() * ctaid_z());
    let thread = tid_x() + ntid_x() * (tid_y() + ntid_y() * tid_z());
    let warp = if g.size() > 32 { NONE_BYTE } else { (thread / 32) as u8 };
    let lane = if g.size() > 1 { NONE_BYTE } else { (thread % 32) as u8 };
    (block, smid() as u16, warp, lane)
}
