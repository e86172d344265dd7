//! The agent of an attachment: carries out the control plane's requests in the owner's process.
//!
//! In an embedded proxy it is a thread of the same process; under a daemon it is the client's
//! session thread, and requests and answers travel over the session's socket, descriptors with
//! them. `cpu_parts` says where a CPU device has its parts of arenas.

mod cpu_parts;

use crate::attached::device_memory::DeviceMemory;
use crate::attached::mapped::MappedMemory;
use crate::engine::control_queue::ControlSender;
use crate::model::agent::{AgentLink, FromAgent, MapArena, Part, ToAgent};
use crate::model::message::Message;
use crate::os::descriptors::hint;
use cpu_parts::CpuParts;
use crossbeam_channel::Sender;
use gpu_usermap::PooledRegion;
use gpu_usermap::cuda::{Device, ShareableBuffer};
use gpu_usermap::threads;
use gpunet_abi::layout::DeviceLayout;
use gpunet_abi::region::Region;
use gpunet_core::ids::AttachmentId;
use gpunet_core::memory::SharedMemory;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The agent of an attachment of this process: a thread that the first request starts and that ends
/// with the link, when the attachment is forgotten.
pub(crate) fn embedded_agent(
    attachment: AttachmentId,
    agent: SharedAgent,
    answers: ControlSender,
) -> AgentLink {
    let thread = Mutex::new(AgentThread::Idle(agent));
    Box::new(move |request| {
        // A panic in here is a failed start, which leaves `Ended`.
        let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.start(attachment, &answers);
        let refused = match &*thread {
            AgentThread::Running(requests) => requests.send(request).err().map(|unsent| unsent.0),
            _ => Some(request),
        };
        if let Some(request) = refused {
            let answer = request.failed("the agent's thread has ended");
            let _ = answers.send(Message::Agent { attachment, answer });
        }
    })
}

/// The state of an embedded agent's thread.
enum AgentThread {
    /// Not yet needed.
    Idle(SharedAgent),
    Running(Sender<ToAgent>),
    /// The system refused a thread.
    Ended,
}

impl AgentThread {
    fn start(&mut self, attachment: AttachmentId, answers: &ControlSender) {
        *self = match std::mem::replace(self, Self::Ended) {
            Self::Idle(agent) => {
                let (requests, inbox) = crossbeam_channel::unbounded();
                let answers = answers.clone();
                let serve = move || {
                    for request in inbox {
                        let answer = agent.handle(request);
                        let _ = answers.send(Message::Agent { attachment, answer });
                    }
                };
                match threads::spawn("gpunet-agent", serve) {
                    Ok(_) => Self::Running(requests),
                    Err(error) => {
                        tracing::error!(%error, "no thread for an agent: no peer streams to other devices");
                        Self::Ended
                    }
                }
            }
            other => other,
        };
    }
}

/// An agent, shared by the thread that serves it and by its attachment. Its mappings live as long
/// as either of them: kernels and tasks use them whether the daemon lives or not.
#[derive(Clone, Debug)]
pub(crate) struct SharedAgent(Arc<Mutex<Agent>>);

impl SharedAgent {
    pub(crate) fn new(agent: Agent) -> Self {
        Self(Arc::new(Mutex::new(agent)))
    }

    /// Carries out a request of the control plane.
    pub(crate) fn handle(&self, request: ToAgent) -> FromAgent {
        // A panic leaves at most an arena that was not answered for.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).handle(request)
    }
}

/// The agent's state: its mappings. One thread uses it, which may wait for CUDA.
#[derive(Debug)]
pub(crate) struct Agent {
    device: Option<Device>,
    own: Arc<DeviceMemory>,
    layout: DeviceLayout,
    shared: Arc<SharedMemory>,
    /// The parts of each arena, by their region numbers.
    mapped: HashMap<u32, Vec<(u8, PartMemory)>>,
    /// Parts in this GPU's memory.
    provided: HashMap<u32, ShareableBuffer>,
    /// Addresses of a CPU device.
    cpu_parts: CpuParts,
}

/// A part of an arena as this attachment has it.
#[derive(Debug)]
enum PartMemory {
    Cpu(PooledRegion),
    Gpu(MappedMemory),
}

impl PartMemory {
    /// Its entry in the device's table.
    fn region(&self, flags: u64) -> Region {
        let (address, len) = match self {
            Self::Cpu(part) => (part.address(), part.len()),
            Self::Gpu(memory) => (memory.address(), memory.len()),
        };
        Region::new(address, len as u64, flags)
    }
}

impl Agent {
    /// The agent of the attachment whose device (`None`: the CPU) has its own memory at `own`.
    pub(crate) fn new(
        device: Option<Device>,
        own: Arc<DeviceMemory>,
        layout: DeviceLayout,
        shared: Arc<SharedMemory>,
    ) -> Self {
        let cpu_parts = CpuParts::new(own.address());
        let (mapped, provided) = (HashMap::new(), HashMap::new());
        Self { device, own, layout, shared, mapped, provided, cpu_parts }
    }

    fn handle(&mut self, request: ToAgent) -> FromAgent {
        match request {
            ToAgent::Provide { arena, len } => match self.provide(arena, len) {
                Ok((fd, len)) => FromAgent::Provided { arena, fd, len },
                Err(reason) => FromAgent::Failed { arena, reason },
            },
            ToAgent::Map(map) => {
                let arena = map.arena;
                match self.map(map) {
                    Ok(()) => FromAgent::Mapped { arena },
                    Err(reason) => FromAgent::Failed { arena, reason },
                }
            }
            ToAgent::Clear { arena, line, len, ring } => match self.clear(arena, line, len) {
                Ok(()) => FromAgent::Cleared { arena, ring },
                Err(reason) => FromAgent::Failed { arena, reason },
            },
            ToAgent::Unmap { arena } => {
                self.unmap(arena);
                FromAgent::Unmapped { arena }
            }
        }
    }

    fn provide(&mut self, arena: u32, len: u64) -> Result<(OwnedFd, u64), String> {
        let Some(device) = &self.device else { return Err("the CPU device has no GPU memory".to_owned()) };
        let buffer = device.alloc_shareable(len as usize).map_err(|error| error.to_string())?;
        let fd = buffer.export().map_err(|error| error.to_string())?;
        let len = buffer.len() as u64;
        self.provided.insert(arena, buffer);
        Ok((fd, len))
    }

    /// Sets the words of a ring, and its line of messages behind them, back to 0.
    fn clear(&self, arena: u32, line: u64, len: u64) -> Result<(), String> {
        let Some(buffer) = self.provided.get(&arena) else { return Err("no such arena".to_owned()) };
        if len > gpunet_abi::line::used(1 << gpunet_abi::options::MAX_RING_LOG2) {
            return Err("no ring has so much to clear".to_owned());
        }
        let zeros = vec![0; len as usize];
        let written = buffer.device().write(buffer.buffer(), line as usize, &zeros);
        written.map_err(|error| error.to_string())
    }

    fn map(&mut self, map: MapArena) -> Result<(), String> {
        let peer_polls = if map.peer_polls { Region::POLLED } else { 0 };
        let parts = [(map.own, Region::VALID | Region::OWN | peer_polls), (map.peer, Region::VALID)];
        for ((number, part), flags) in parts {
            let memory = self.memory(map.arena, part)?;
            let region = memory.region(flags);
            // Even if a later part fails: the proxy asks an agent that could not map an arena to
            // unmap the parts that it has mapped.
            self.mapped.entry(map.arena).or_default().push((number, memory));
            self.enter(number, &region)?;
        }
        // A block that sleeps until something changes must wake for the new part, too.
        self.shared.bump_epoch(None);
        Ok(())
    }

    fn memory(&mut self, arena: u32, part: Part) -> Result<PartMemory, String> {
        let device = self.device.as_ref();
        let memory = match part {
            Part::Pinned(region) if device.is_none() => {
                return self.cpu_parts.map(&region).map(PartMemory::Cpu);
            }
            Part::Pinned(region) => {
                // A separate mapping with its own lifetime.
                let copied = region.fd().try_clone_to_owned();
                let fd = copied.map_err(|error| format!("{error}{}", hint(&error)))?;
                MappedMemory::pinned(device, fd)?
            }
            Part::Own => {
                let provided = self.provided.get(&arena).ok_or("nothing was provided for that arena")?;
                MappedMemory::Provided(provided.clone())
            }
            Part::Gpu { fd, len } => {
                let fd = fd.try_clone().map_err(|error| error.to_string())?;
                MappedMemory::imported(device, fd, len)?
            }
        };
        Ok(PartMemory::Gpu(memory))
    }

    fn enter(&self, number: u8, region: &Region) -> Result<(), String> {
        let offset = self.layout.regions as usize + usize::from(number) * size_of::<Region>();
        self.own.enter_region(offset, region).map_err(|error| error.to_string())
    }

    fn unmap(&mut self, arena: u32) {
        self.provided.remove(&arena);
        let Some(parts) = self.mapped.remove(&arena) else { return };
        let mut of_cpu = Vec::new();
        for (number, memory) in parts {
            if let Err(reason) = self.enter(number, &Region::default()) {
                tracing::warn!(reason, "cannot take a region out of the device's table");
            }
            match memory {
                PartMemory::Cpu(part) => of_cpu.push(part),
                // Given back when no kernel runs.
                PartMemory::Gpu(memory) => drop(memory),
            }
        }
        if !of_cpu.is_empty() {
            self.cpu_parts.unmap(of_cpu);
        }
    }
}
