//! Plain accesses to numbers, and how lanes share the items of a phase.
#![allow(unsafe_code)]

use gpunet_device::Group;

/// A lane's part of a phase: the items `rank`, `rank + size`, and so on. A GPU's divisions of 32
/// bits are much shorter than those of 64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Lane {
    #[inline(always)]
    pub(crate) fn of<G: Group>(g: &G) -> Self {
        Self { rank: g.rank(), size: g.size() }
    }
}

/// Four numbers, loaded at once.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Four([f32; 4]);

/// # Safety
/// `from` is readable for four numbers, which nobody writes meanwhile, and aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn load_four(from: *const f32) -> [f32; 4] {
    // SAFETY: the caller's contract.
    unsafe { from.cast::<Four>().read() }.0
}

/// # Safety
/// `to` is writable for four numbers, which nobody else uses meanwhile, and aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn store_four(to: *mut f32, numbers: [f32; 4]) {
    // SAFETY: the caller's contract.
    unsafe { to.cast::<Four>().write(Four(numbers)) };
}

/// # Safety
/// `from` is a readable number, which nobody writes meanwhile.
#[inline(always)]
pub(crate) unsafe fn load(from: *const f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { from.read() }
}

/// # Safety
/// `to` is a writable number, which nobody else uses meanwhile.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut f32, number: f32) {
    // SAFETY: the caller's contract.
    unsafe { to.write(number) };
}

/// # Safety
/// As [`store`].
#[inline(always)]
pub(crate) unsafe fn add(to: *mut f32, number: f32) {
    // SAFETY: the caller's contract.
    let sum = unsafe { load(to) } + number;
    // SAFETY: the caller's contract.
    unsafe { store(to, sum) };
}
