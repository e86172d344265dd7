//! The compiler may order the parameters as it likes.
//@ cargo check: `extern` fn uses type `K`, which is not FFI-safe
//@ gpunet-build-ptx: `extern` fn uses type `K`, which is not FFI-safe

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
struct K(Net, u64);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
