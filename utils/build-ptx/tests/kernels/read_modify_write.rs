//! The compiler repeats an operation, and the report names it once.
//@ gpunet-build-ptx: rule atomic-rmw: the compiler gives read-modify-write operations no scope and no ordering
//@ gpunet-build-ptx: near src/lib.rs:
//@ gpunet-build-ptx: `atom.add.u64` in `my_kernel::count`, 8 times (PTX lines

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use core::sync::atomic::{AtomicU64, Ordering};
use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct Count(Net, *mut u64);

// SAFETY: an address; the host says what lies there.
unsafe impl Send for Count {}

impl Kernel for Count {
    const ENTRY: &'static str = "count";

    fn run<G: Group>(self, _: &G) {
        count(self.1);
    }
}
kernel_entry!(count_entry, "count", Count);

#[inline(never)]
fn count(word: *mut u64) {
    for step in 1..9 {
        // SAFETY: the host gave a word for it.
        unsafe { AtomicU64::from_ptr(word) }.fetch_add(step, Ordering::Relaxed);
    }
}
