//! The region that a device and the proxy share: made here, in the process that runs the proxy.

use crate::model::attachment_state::first_rings;
use crate::model::error::AttachError;
use gpu_usermap::PinnedRegion;
use gpunet_abi::layout::{Geometry, SharedLayout};
use gpunet_core::memory::SharedMemory;
use std::sync::Arc;

/// Makes and lays out the region that a device and the proxy share: its beginning.
pub(crate) fn shared_memory(geometry: Geometry) -> Result<Arc<SharedMemory>, AttachError> {
    let bytes = SharedLayout::new(&geometry).len;
    let first = SharedLayout::new(&geometry).rings + first_rings(&geometry);
    let region = PinnedRegion::create_growing("gpunet", bytes as usize, first as usize)
        .map_err(|source| AttachError::Region { bytes, source })?;
    Ok(Arc::new(SharedMemory::format(region, geometry).ok_or(AttachError::Layout)?))
}
