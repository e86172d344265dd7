//! Where an attachment's rc rings lie: chosen when it is made, from what GPU and machine offer.

use crate::attached::device_memory::DeviceMemory;
use crate::model::attachment_state::CardMemory;
use crate::model::config::{Config, Rdma};
use crate::model::error::AttachError;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::Device;
use gpu_usermap::placement::{Facts, Placement, PlacementChoice, choose, needs_flush};
use std::sync::Arc;

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Pinned host memory.
    Shared,
    /// The device's own memory.
    Device(Placement),
}

impl Plan {
    pub(crate) fn in_device_memory(self) -> bool {
        self != Self::Shared
    }
}

/// Chooses. What a network card itself refuses shows later, when it is asked.
pub(crate) fn plan(config: &Config, device: Option<&Device>) -> Result<Plan, AttachError> {
    let wanted = config.placement;
    let Some(device) = device else {
        return match wanted {
            PlacementChoice::Auto | PlacementChoice::Only(Placement::Pinned) => Ok(Plan::Shared),
            PlacementChoice::Only(placement @ Placement::GpuDmaBuf) => Ok(Plan::Device(placement)),
            PlacementChoice::Only(Placement::GpuPeerMem) => Err(AttachError::Placement(
                "peer-mem is for GPU memory, and this is the CPU device".to_owned(),
            )),
        };
    };
    if matches!(config.rdma, Rdma::Off) {
        return Ok(Plan::Shared);
    }
    let facts = Facts::gather(Some(device));
    match choose(&facts, wanted).map_err(|refused| AttachError::Placement(refused.to_string()))? {
        Placement::Pinned => Ok(Plan::Shared),
        // A flush is a CUDA call for every message, and the data path makes none.
        placement if needs_flush(&facts) => Err(AttachError::Placement(format!(
            "{placement}: this GPU orders a network card's writes only by a CUDA call for every message"
        ))),
        placement => Ok(Plan::Device(placement)),
    }
}

/// Allocates the device's own memory, and makes it known to network cards as planned.
pub(crate) fn allocate(
    plan: Plan,
    config: &Config,
    device: Option<&Device>,
    len: usize,
) -> Result<(DeviceMemory, Option<CardMemory>), AttachError> {
    let Some(device) = device else {
        let Plan::Device(_) = plan else { return Ok((DeviceMemory::heap(len)?, None)) };
        return stand_in(config, len);
    };
    let buffer = DeviceMemory::gpu(device, len)?;
    let card = match plan {
        Plan::Device(Placement::GpuDmaBuf) => {
            let exported =
                buffer.export_dmabuf().map_err(|error| AttachError::Placement(error.to_string()))?;
            let dmabuf = Some((Arc::new(exported.fd), exported.offset as u64));
            Some(CardMemory { address: buffer.ptr(), dmabuf, keep: buffer.clone() })
        }
        Plan::Device(_) => Some(CardMemory { address: buffer.ptr(), dmabuf: None, keep: buffer.clone() }),
        Plan::Shared => None,
    };
    Ok((DeviceMemory::Gpu(buffer), card))
}

/// A dma-buf of host memory in the place of a GPU's.
fn stand_in(config: &Config, len: usize) -> Result<(DeviceMemory, Option<CardMemory>), AttachError> {
    let region = PinnedRegion::create("gpunet-device", len)
        .map_err(|source| AttachError::Region { bytes: len as u64, source })?;
    let fd = match config.rdma {
        // A simulated card maps the memfd itself.
        #[cfg(feature = "sim")]
        Rdma::Simulated(_) => region.fd().try_clone_to_owned(),
        _ => region.export_dmabuf(),
    };
    let fd = fd.map_err(|error| AttachError::Placement(format!("no dma-buf of {len} bytes: {error}")))?;
    let address = region.base().as_ptr() as u64;
    let card = CardMemory { address, dmabuf: Some((Arc::new(fd), 0)), keep: region.clone() };
    Ok((DeviceMemory::Region(region), Some(card)))
}
