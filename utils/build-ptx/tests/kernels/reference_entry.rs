//! An entry written by hand, with a reference among its parameters.
//@ gpunet-build-ptx: rule non-coherent-load: this load may return a stale value
//@ gpunet-build-ptx: src/lib.rs:15: `ld.global.nc.
//@ gpunet-build-ptx: ` in `watch` (PTX line

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device as _;

/// # Safety
/// `out` points to a word in the device's memory.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn watch(flag: &u64, out: *mut u64) {
    while *flag == 0 {}
    // SAFETY: the caller's promise.
    unsafe { out.write(*flag) };
}
