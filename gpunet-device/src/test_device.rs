//! A device of one slot, for the unit tests of this crate.

use crate::Net;
use gpunet_abi::context::Context;
use gpunet_abi::layout::{DeviceLayout, Geometry, SharedLayout};
use gpunet_abi::{MAGIC, VERSION};

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

/// Calls `test` with a device whose regions hold zeros.
pub(crate) fn with_device<R>(test: impl FnOnce(Net) -> R) -> R {
    let geometry = Geometry::new(1, 1, 1, 0, 0);
    let (shared_layout, device_layout) = (SharedLayout::new(&geometry), DeviceLayout::new(&geometry));
    let [mut shared, mut device] =
        [shared_layout.len, device_layout.len].map(|len| vec![Page([0; 4096]); len as usize / 4096]);
    let context = Context {
        magic: MAGIC,
        version: VERSION,
        launch: 0,
        sockets: 1,
        controls: 1,
        shards: 1,
        slots: 1,
        reserved: 0,
        shared: shared.as_mut_ptr() as u64,
        device: device.as_mut_ptr() as u64,
        shared_layout,
        device_layout,
        heartbeat_timeout_ns: 0,
        doorbells: [-1; 16],
    };
    // SAFETY: the context and both regions outlive the call.
    test(unsafe { Net::from_raw(&raw const context as u64) })
}
