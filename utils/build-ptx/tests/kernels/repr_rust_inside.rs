//! The compiler may order what is inside a parameter as it likes.
//@ cargo check: `extern` fn uses type `Inner`, which is not FFI-safe
//@ gpunet-build-ptx: `extern` fn uses type `Inner`, which is not FFI-safe

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(Net, Inner);

#[derive(Clone, Copy)]
struct Inner(u64, u64);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
