//! The agent: what the control plane asks of the process that owns an attachment.
//!
//! Two attachments that talk directly share an *arena*: two parts, each in memory that its owner polls.
//! The proxy decides what lies where; only the owner of an attachment can map memory into its device's
//! address space, allocate GPU memory and export it. In an embedded proxy the agent is a thread of the
//! same process; under a daemon it is the client's session thread, and requests and answers travel over
//! the session's socket, descriptors with them.

use crate::device_memory::DeviceMemory;
use crate::message::Message;
use crossbeam_channel::Sender;
use gpu_usermap::cuda::Device;
use gpunet_abi::layout::DeviceLayout;
use gpunet_core::memory::SharedMemory;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// How the control plane reaches an attachment's agent. Never blocks; to an agent that is gone it does
/// nothing, since its attachment is about to be forgotten.
pub(crate) type AgentLink = Box<dyn Fn(ToAgent) + Send + Sync>;

/// A request to the owner of an attachment. Each but the last is answered by one [`FromAgent`].
#[derive(Debug)]
pub(crate) enum ToAgent {
    /// Allocate `len` bytes of the device's memory for others to map, and export them.
    Provide { arena: u32, len: u64 },
    /// Map both parts of an arena and enter them in the device's table of regions.
    Map(MapArena),
    /// The arena is out of use: unmap it as soon as no kernel that may know it runs.
    Unmap { arena: u32 },
}

/// Both parts of an arena, as one of its two attachments gets them.
#[derive(Debug)]
pub(crate) struct MapArena {
    pub(crate) arena: u32,
    /// The part that this attachment's device polls, and the number of its region.
    pub(crate) near: (u8, Part),
    /// The part that the other device polls.
    pub(crate) far: (u8, Part),
    /// The other device never wakes a sleeper: it is a GPU.
    pub(crate) silent: bool,
}

/// Where one part of an arena is.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// In the memory that this agent has provided.
    Own,
    /// A sealed memfd.
    Pinned(Arc<OwnedFd>),
    /// Another device's memory, exported by its agent; `len` is what that agent says.
    Gpu { fd: Arc<OwnedFd>, len: u64 },
}

/// What an agent answers.
#[derive(Debug)]
pub(crate) enum FromAgent {
    /// To [`ToAgent::Provide`].
    Provided { arena: u32, fd: OwnedFd, len: u64 },
    /// To [`ToAgent::Map`].
    Mapped { arena: u32 },
    /// To either, when it cannot be.
    Failed { arena: u32, reason: String },
    /// To [`ToAgent::Unmap`]: the numbers of its regions are free.
    Unmapped { arena: u32 },
}

/// The agent of an attachment of this process: a thread that is started by the first request and ends
/// with the link, when the attachment is forgotten.
pub(crate) fn embedded_agent(device: u32, agent: Agent, answers: UnboundedSender<Message>) -> AgentLink {
    let thread = Mutex::new(AgentThread::Idle(Box::new(agent)));
    Box::new(move |request| {
        // A panic in here is a failed start, which leaves `Ended`.
        let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.start(device, &answers);
        let refused = match &*thread {
            AgentThread::Running(requests) => requests.send(request).err().map(|unsent| unsent.0),
            _ => Some(request),
        };
        if let Some(request) = refused {
            let answer = request.failed("the agent's thread has ended");
            let _ = answers.send(Message::Agent { device, answer });
        }
    })
}

/// Where an embedded agent is.
enum AgentThread {
    /// Not yet needed.
    Idle(Box<Agent>),
    Running(Sender<ToAgent>),
    /// The system refused a thread.
    Ended,
}

impl AgentThread {
    fn start(&mut self, device: u32, answers: &UnboundedSender<Message>) {
        *self = match std::mem::replace(self, Self::Ended) {
            Self::Idle(mut agent) => {
                let (requests, inbox) = crossbeam_channel::unbounded();
                let answers = answers.clone();
                let serve = move || {
                    for request in inbox {
                        let answer = agent.handle(request);
                        let _ = answers.send(Message::Agent { device, answer });
                    }
                };
                match std::thread::Builder::new().name("gpunet-agent".to_owned()).spawn(serve) {
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

impl ToAgent {
    /// What is answered if it cannot be.
    pub(crate) fn failed(&self, reason: &str) -> FromAgent {
        let reason = reason.to_owned();
        match self {
            Self::Provide { arena, .. } | Self::Map(MapArena { arena, .. }) => {
                FromAgent::Failed { arena: *arena, reason }
            }
            Self::Unmap { arena } => FromAgent::Unmapped { arena: *arena },
        }
    }
}

/// The agent's state: what it has mapped for its attachment. Used by one thread, which may wait for
/// CUDA.
#[derive(Debug)]
pub(crate) struct Agent {
    device: Option<Device>,
    own: Arc<DeviceMemory>,
    layout: DeviceLayout,
    shared: Arc<SharedMemory>,
}

impl Agent {
    /// The agent of the attachment whose device (`None`: the CPU) has its own memory at `own`.
    pub(crate) fn new(
        device: Option<Device>,
        own: Arc<DeviceMemory>,
        layout: DeviceLayout,
        shared: Arc<SharedMemory>,
    ) -> Self {
        Self { device, own, layout, shared }
    }

    /// Does what the control plane asks.
    pub(crate) fn handle(&mut self, request: ToAgent) -> FromAgent {
        let _ = (&self.device, &self.own, &self.layout, &self.shared);
        match request {
            ToAgent::Provide { arena, .. } => FromAgent::Failed { arena, reason: "not yet".to_owned() },
            ToAgent::Map(map) => FromAgent::Failed { arena: map.arena, reason: "not yet".to_owned() },
            ToAgent::Unmap { arena } => FromAgent::Unmapped { arena },
        }
    }
}
