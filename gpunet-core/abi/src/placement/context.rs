//! The value that a kernel gets: the address of its launch's context.

use crate::placement::layout::{CONTEXT_LEN, DeviceLayout, SharedLayout};
use crate::types::link::SHARDS;

/// Everything a kernel needs to find the regions, one per launch, in the device's memory.
///
/// Written by the host before the launch and never changed while it runs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Context {
    /// [`crate::MAGIC`].
    pub magic: u32,
    /// [`crate::VERSION`].
    pub version: u32,
    /// This launch's number, 0 to 63.
    pub launch: u32,
    /// Socket slots of kernels: those in the recycling ring.
    pub sockets: u32,
    /// Control slots.
    pub controls: u32,
    /// Data threads of the proxy.
    pub shards: u32,
    /// The number of socket slots; a handle names one of them.
    pub slots: u32,
    /// 0.
    pub reserved: u32,
    /// Shared region in the device's address space.
    pub shared: u64,
    /// Device region in the device's address space.
    pub device: u64,
    /// The shared region's parts.
    pub shared_layout: SharedLayout,
    /// The device region's parts.
    pub device_layout: DeviceLayout,
    /// If the heartbeat does not change for this many nanoseconds, calls return ENETDOWN.
    pub heartbeat_timeout_ns: u64,
    /// Eventfds of the data threads, for CPU thread blocks; -1 where there is none.
    pub doorbells: [i32; SHARDS],
}

const _: () = assert!(size_of::<Context>() as u64 == CONTEXT_LEN);
