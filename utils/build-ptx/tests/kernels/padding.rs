//! Four bytes behind the first parameter, and four behind the last, belong to none.
//@ cargo check: read_every_byte::<K>`
//@ gpunet-build-ptx: read_every_byte::<K>`

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Group, Kernel, Net, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct K(u32, Net, u32);

impl Kernel for K {
    const ENTRY: &'static str = "k";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(k, "k", K);
