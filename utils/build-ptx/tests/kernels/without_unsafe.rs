//! A kernel crate may forbid unsafe code.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(Net);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
