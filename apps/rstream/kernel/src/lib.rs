//! The kernels of `gpunet-rstream`, written once for GPU and CPU thread blocks.
//!
//! | kernel | what its one block does | module |
//! |---|---|---|
//! | [`RstreamListen`] | binds the listener, which outlives the launch | `listen` |
//! | [`Rstream`] | accepts or makes one connection, runs tests over it, and closes it | `rstream`, `counting` |
//!
//! The host hands over plain buffers and reads plain numbers back: the layouts are in [`record`].
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod counting;
mod listen;
pub mod record;
mod rstream;

pub use listen::RstreamListen;
pub use rstream::{Rstream, SYNC};

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{Rstream, RstreamListen};
    use gpunet_device::kernel_entry;

    kernel_entry!(rstream_listen, "gpunet_rstream_listen", RstreamListen);
    kernel_entry!(rstream, "gpunet_rstream", Rstream);
}
