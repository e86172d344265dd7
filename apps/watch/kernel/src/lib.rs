//! The kernels of `gpunet-watch`, written once for GPU and CPU thread blocks.
//!
//! | kernel | what its blocks do |
//! |---|---|
//! | [`Work`] | take steps, and say so; one of them stalls |
//! | [`Flood`] | each warp writes records as fast as it can |
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

mod flood;
mod work;

pub use flood::{Flood, NUMBER, Write, lines as flood_lines};
pub use work::{STEP, Work, lines as work_lines};

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{Flood, Work};
    use gpunet_device::kernel_entry;

    kernel_entry!(work, "gpunet_watch_work", Work);
    kernel_entry!(flood, "gpunet_watch_flood", Flood);
}
