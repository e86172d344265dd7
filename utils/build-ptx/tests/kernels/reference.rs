//! A reference, from which the load would be hoisted out of the loop.
//@ cargo check: `K` holds a reference, a function pointer or another parameter that is never zero
//@ cargo check: at .flag
//@ cargo check: encountered a null reference
//@ gpunet-build-ptx: `&'static u64` is a reference, and a kernel's parameters hold none

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K {
    net: Net,
    flag: &'static u64,
}

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {
        while *self.flag == 0 {}
    }
}
kernel_entry!(k, "k", K);
