//! A reference that may be zero.
//@ gpunet-build-ptx: `&'static u64` is a reference, and a kernel's parameters hold none

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(Net, Option<&'static u64>);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
