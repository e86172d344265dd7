//! A function of the host is none of the device.
//@ cargo check: `K` holds a reference, a function pointer or another parameter that is never zero
//@ gpunet-build-ptx: `K` holds a reference, a function pointer or another parameter that is never zero

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(Net, extern "C" fn());

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
