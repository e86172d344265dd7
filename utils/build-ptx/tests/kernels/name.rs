//! The entry and the kernel have different names.
//@ cargo check: the entry is named `kernel`, and `Kernel::ENTRY` of `K` is another name
//@ gpunet-build-ptx: the entry is named `kernel`, and `Kernel::ENTRY` of `K` is another name

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(Net);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "kernel", K);
