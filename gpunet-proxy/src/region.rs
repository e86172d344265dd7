//! The region that a device and the proxy share: made here, by whoever runs the proxy.

use crate::model::error::AttachError;
use gpu_usermap::PinnedRegion;
use gpunet_abi::layout::{Geometry, SharedLayout};
use gpunet_core::memory::SharedMemory;
use std::sync::Arc;

/// Ring memory that an attachment begins with; the rest is allocated while it is already in use.
const FIRST_RINGS: u64 = 4 << 20;

/// Ring memory in the shared region that exists from the start.
pub(crate) fn first_rings(geometry: &Geometry) -> u64 {
    geometry.shared_rings.min(FIRST_RINGS)
}

/// Makes and lays out the region that a device and the proxy share: its beginning.
pub(crate) fn shared_memory(geometry: Geometry) -> Result<Arc<SharedMemory>, AttachError> {
    let bytes = SharedLayout::new(&geometry).len;
    let first = SharedLayout::new(&geometry).rings + first_rings(&geometry);
    let region = PinnedRegion::create_growing("gpunet", bytes as usize, first as usize)
        .map_err(|source| AttachError::Region { bytes, source })?;
    Ok(Arc::new(SharedMemory::format(region, geometry).ok_or(AttachError::Layout)?))
}
