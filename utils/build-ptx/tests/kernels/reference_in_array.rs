//! References deep inside a parameter, beside a `bool`, which has more unused values.
//@ cargo check: at .1[0].1
//@ cargo check: encountered a null reference
//@ gpunet-build-ptx: `&'static [u8]` is a reference, and a kernel's parameters hold none

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(Net, [Inner; 2]);

#[derive(Clone, Copy)]
#[repr(C)]
struct Inner(u64, &'static [u8], bool, [u8; 7]);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
