//! Every kind of parameter that a kernel may have.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use core::marker::PhantomData;
use gpunet_device::{Buffer, Group, Kernel, Net, Options, PollSet, SockAddr, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct Parameters<const N: usize, T: 'static> {
    net: Net,
    buffer: Buffer,
    set: PollSet,
    addr: SockAddr,
    options: Options,
    numbers: [f32; N],
    inner: Inner,
    kind: PhantomData<&'static T>,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Inner {
    pointer: *mut &'static u64,
    optional: Option<core::num::NonZeroU32>,
    is_server: bool,
    role: Role,
    reserved: [u8; 2],
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Role {
    _Writer,
    _Reader,
}

// SAFETY: no code uses the pointer.
unsafe impl<const N: usize, T: Sync> Send for Parameters<N, T> {}

impl<const N: usize, T: Copy + Sync + 'static> Kernel for Parameters<N, T> {
    const ENTRY: &'static str = "correct";

    fn run<G: Group>(self, _: &G) {}
}
kernel_entry!(correct, "correct", Parameters<4, u32>);
