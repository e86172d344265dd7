//! Attaching to a proxy of this process.

use super::device::OwnedDevice;
use super::prepare::{Prepared, Wanted, can_share};
use crate::attached::agent::embedded_agent;
use crate::attached::link::Link;
use crate::attached::placement;
use crate::engine::region::shared_memory;
use crate::engine::runtime::Runtime;
use crate::model::attachment_state::{AttachmentState, ClientInfo, Inbox, Totals};
use crate::model::error::AttachError;
use crate::os::doorbell::one_for_each;
use gpu_usermap::cuda::Device;
use gpunet_abi::hand_off::blocks_poll;
use gpunet_abi::layout::DeviceLayout;
use std::sync::Arc;
use std::time::Instant;

/// Attaches a device to a proxy of this process.
pub(crate) fn attach(runtime: &Arc<Runtime>, wanted: &Wanted<'_>) -> Result<OwnedDevice, AttachError> {
    if runtime.messages.is_closed() {
        return Err(AttachError::Stopped);
    }
    let (config, device) = (&runtime.config, wanted.device);
    let geometry = config.geometry(wanted.device_rings);
    let memory = shared_memory(geometry)?;
    let len = DeviceLayout::new(&geometry).len as usize;
    let (own, card) = placement::allocate(wanted.plan, config, device, len)?;
    let doorbells = one_for_each(runtime.shards.len()).map_err(AttachError::Doorbell)?;
    let prepared = Prepared::new(device, memory, Arc::new(own), doorbells.clone(), config.heartbeat)?;
    let id = runtime.next_id();
    let attachment = Arc::new(AttachmentState {
        id,
        memory: prepared.memory().clone(),
        polled: device.is_some() || blocks_poll(),
        shareable: device.is_some_and(can_share),
        agent: embedded_agent(id, prepared.agent(), runtime.messages.clone()),
        card,
        totals: Totals::default(),
        inbox: Inbox::new(geometry.controls),
        doorbells,
        account: None,
        client: ClientInfo::own(device.map_or("cpu", Device::name)),
        since: Instant::now(),
        _quota: None,
    });
    runtime.add(&attachment);
    Ok(prepared.attached(Link::Local { proxy: runtime.clone(), attachment }))
}
