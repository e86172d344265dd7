//! The device's side of an attachment, made before the proxy knows of it.

use super::device::{AttachedDevice, OwnedDevice};
use crate::attached::agent::{Agent, SharedAgent};
use crate::attached::device_memory::{DeviceMemory, bytes_of};
use crate::attached::link::Link;
use crate::attached::placement::Plan;
use crate::attached::socket_table::{HostSlots, SocketTable};
use crate::model::error::AttachError;
use gpu_usermap::cuda::{Device, Registration};
use gpunet_abi::context::Context;
use gpunet_abi::layout::{DeviceLayout, LAUNCHES, SHARDS};
use gpunet_abi::{MAGIC, VERSION};
use gpunet_core::memory::SharedMemory;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The parameters of an attachment.
pub(crate) struct Wanted<'a> {
    pub(crate) device: Option<&'a Device>,
    pub(crate) plan: Plan,
    pub(crate) device_rings: u64,
}

/// The device's side of an attachment, before the proxy knows of it.
pub(crate) struct Prepared {
    memory: Arc<SharedMemory>,
    registration: Option<Registration>,
    own: Arc<DeviceMemory>,
    contexts: u64,
    doorbells: Arc<[OwnedFd]>,
    device: Option<Device>,
    agent: SharedAgent,
}

impl Prepared {
    /// Registers the shared region with the device and writes the launches' contexts into its
    /// memory.
    pub(crate) fn new(
        device: Option<&Device>,
        memory: Arc<SharedMemory>,
        own: Arc<DeviceMemory>,
        doorbells: Arc<[OwnedFd]>,
        heartbeat: Duration,
    ) -> Result<Self, AttachError> {
        let region = memory.region().clone();
        let registration = device.map(|device| device.register(region.clone())).transpose();
        let registration = registration.map_err(AttachError::Register)?;
        let shared = registration.as_ref().map_or(region.base().as_ptr() as u64, Registration::device_ptr);
        let (geometry, shared_layout) = (*memory.geometry(), *memory.layout());
        let device_layout = DeviceLayout::new(&geometry);
        let mut bells = [-1; SHARDS];
        if device.is_none() {
            for (number, bell) in bells.iter_mut().zip(&*doorbells) {
                *number = bell.as_raw_fd();
            }
        }
        for launch in 0..LAUNCHES {
            let context = Context {
                magic: MAGIC,
                version: VERSION,
                launch,
                sockets: geometry.sockets,
                controls: geometry.controls,
                shards: geometry.shards,
                slots: geometry.slots(),
                reserved: 0,
                shared,
                device: own.address(),
                shared_layout,
                device_layout,
                heartbeat_timeout_ns: heartbeat.as_nanos() as u64,
                doorbells: bells,
            };
            let offset = device_layout.contexts as usize + launch as usize * size_of::<Context>();
            own.write(offset, bytes_of(&context)).map_err(AttachError::Copy)?;
        }
        let contexts = own.address() + device_layout.contexts;
        let device = device.cloned();
        let agent = SharedAgent::new(Agent::new(device.clone(), own.clone(), device_layout, memory.clone()));
        Ok(Self { memory, registration, own, contexts, doorbells, device, agent })
    }

    /// The agent of this attachment.
    pub(crate) fn agent(&self) -> SharedAgent {
        self.agent.clone()
    }

    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The attached device, once the proxy serves it.
    pub(crate) fn attached(self, link: Link) -> OwnedDevice {
        let Self { memory, registration, own, contexts, doorbells, device, agent } = self;
        let geometry = memory.geometry();
        let shared =
            registration.as_ref().map_or(memory.region().base().as_ptr() as u64, Registration::device_ptr);
        let shared = (shared, memory.layout().len);
        let table = SocketTable::new(own.clone(), DeviceLayout::new(geometry), geometry.slots(), shared);
        OwnedDevice::new(AttachedDevice {
            link,
            memory,
            launches: Mutex::default(),
            table,
            host_slots: HostSlots::default(),
            host_launch: OnceLock::new(),
            contexts,
            device,
            _agent: agent,
            registration,
            _own: own,
            doorbells,
        })
    }
}

/// Returns whether other processes and other GPUs may map this device's memory.
pub(crate) fn can_share(device: &Device) -> bool {
    match device.can_share() {
        Ok(()) => true,
        Err(why) => {
            tracing::info!(device = device.name(), %why, "no direct streams in this GPU's memory");
            false
        }
    }
}
