//! The frames. Their order and fields are the protocol: [`super::PROTOCOL`] counts the changes.

use super::Frame;
use super::Sent;
use super::numbers::{CallId, host_request};
use crate::model::agent::{MapArena, Part, ToAgent};
use crate::model::attachment_state::{Stats, Usage};
use crate::model::launch::FinishPolicy;
use gpu_usermap::PinnedRegion;
use gpunet_abi::Handle;
use gpunet_abi::layout::Geometry;
use gpunet_core::ids::HostRequestId;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The first frame of a program: what the connection is for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// A check whether there is a daemon that would take this program. The answer ends the
    /// connection.
    Probe,
    /// An attachment.
    Attach(AttachRequest),
    /// Read-only access for gpunetctl.
    Admin,
}

/// The attachment that a program requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachRequest {
    pub(crate) sockets: u32,
    pub(crate) controls: u32,
    pub(crate) shared_rings: u64,
    pub(crate) device_rings: u64,
    pub(crate) device: DeviceRepr,
    /// The program's name, for operators.
    pub(crate) command: String,
    /// The device's own memory as a network card reaches it; its dma-buf follows when the daemon
    /// asks for it.
    pub(crate) card: Option<CardRepr>,
}

/// The device that is attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum DeviceRepr {
    Cpu,
    Cuda {
        name: String,
        uuid: [u8; 16],
        /// Its memory can be mapped by other processes and other GPUs.
        shareable: bool,
    },
}

/// Where in its dma-buf, and at which address of the device, the device's own memory is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CardRepr {
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// From a program, after the welcome.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToDaemon {
    /// `fresh` are handles: see [`handles`].
    FinishLaunch {
        call: CallId,
        launch: u32,
        policy: PolicyRepr,
        fresh: Vec<i32>,
    },
    AbortLaunch {
        launch: u32,
    },
    Release {
        handles: Vec<i32>,
    },
    ResetAll,
    Usage {
        call: CallId,
    },
    /// A host program's request: the bytes of a `Request`.
    Ask {
        #[serde(with = "host_request")]
        id: HostRequestId,
        request: Vec<u8>,
    },
    Abandon {
        #[serde(with = "host_request")]
        id: HostRequestId,
    },
    Detach,
    Agent(AgentAnswer),
    /// For connections of the admin kind.
    Snapshot,
    /// The answer to [`ToProgram::SendCard`], with the dma-buf.
    Card,
    /// Memory in which kernels record.
    Records {
        call: CallId,
        len: u64,
    },
    /// For connections of the admin kind: what the kernels of a client have recorded.
    Logs {
        client: u32,
    },
}

/// [`FinishPolicy`] on the wire.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum PolicyRepr {
    Keep,
    Close,
    Reset,
}

/// [`crate::model::agent::FromAgent`] on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentAnswer {
    /// With the exported memory.
    Provided {
        arena: u32,
        len: u64,
    },
    Mapped {
        arena: u32,
    },
    Failed {
        arena: u32,
        reason: String,
    },
    Cleared {
        arena: u32,
        ring: u64,
    },
    Unmapped {
        arena: u32,
    },
}

/// From the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToProgram {
    /// The first answer, and the last.
    Refused {
        errno: i32,
        reason: String,
    },
    /// To a probe and an admin.
    Ready(DaemonRepr),
    /// The attachment is made; with the region and the data threads' doorbells.
    Welcome {
        daemon: DaemonRepr,
        geometry: Sizes,
    },
    Finished {
        call: CallId,
        closed: Vec<i32>,
        kept: u64,
        more: bool,
    },
    Usage {
        call: CallId,
        usage: UsageRepr,
        stats: StatsRepr,
    },
    /// The bytes of a `Reply`.
    Reply {
        #[serde(with = "host_request")]
        id: HostRequestId,
        reply: Vec<u8>,
    },
    /// The attachment has ended, because the program or the daemon wanted it. Nothing follows.
    Detached {
        stats: StatsRepr,
    },
    Agent(AgentRequest),
    /// A piece of a snapshot.
    Snapshot {
        piece: Vec<u8>,
        last: bool,
    },
    /// Asks a program that attaches for the dma-buf of its device's memory.
    SendCard,
    /// With the memory, unless there is a reason why it was not made.
    Records {
        call: CallId,
        refused: Option<String>,
    },
    /// With the memory of each set of rings.
    Logs {
        log: Option<LogRepr>,
        /// The clients that have such memory.
        clients: Vec<u32>,
    },
}

/// Where a client's records are, on the wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogRepr {
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) device: String,
    pub(crate) has_ended: bool,
    /// How many sets of rings there are, each with a descriptor.
    pub(crate) sets: u32,
}

/// A daemon's description of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DaemonRepr {
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) shards: u32,
    pub(crate) heartbeat_ms: u64,
    pub(crate) linger_ms: u64,
}

/// [`Geometry`] on the wire.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) sockets: u32,
    pub(crate) controls: u32,
    pub(crate) shards: u32,
    pub(crate) shared_rings: u64,
    pub(crate) device_rings: u64,
}

/// [`Usage`] on the wire.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct UsageRepr {
    pub(crate) sockets: u64,
    pub(crate) requests: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) free_ring_bytes: u64,
}

/// [`Stats`] on the wire.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct StatsRepr {
    pub(crate) opened: u64,
    pub(crate) closed: u64,
    pub(crate) undelivered: u64,
}

/// [`ToAgent`] on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AgentRequest {
    Provide {
        arena: u32,
        len: u64,
    },
    /// With the descriptors of the own part and then of the peer's, if they have any.
    Map {
        arena: u32,
        own: (u8, PartRepr),
        peer: (u8, PartRepr),
        peer_polls: bool,
    },
    Clear {
        arena: u32,
        line: u64,
        len: u64,
        ring: u64,
    },
    Unmap {
        arena: u32,
    },
}

/// [`Part`] on the wire.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum PartRepr {
    Own,
    Pinned,
    Gpu { len: u64 },
}

/// Handles on the wire.
pub(crate) fn handles(handles: &[Handle]) -> Vec<i32> {
    handles.iter().map(|handle| handle.raw()).collect()
}

/// The valid ones of the handles in a frame.
pub(crate) fn from_handles(raw: &[i32]) -> Vec<Handle> {
    raw.iter().filter_map(|&raw| Handle::from_raw(raw)).collect()
}

impl Frame for Hello {
    fn descriptors(&self) -> usize {
        0
    }
}

impl Frame for ToDaemon {
    fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::Card | Self::Agent(AgentAnswer::Provided { .. })))
    }
}

impl Frame for ToProgram {
    fn descriptors(&self) -> usize {
        match self {
            Self::Welcome { geometry, .. } => 1 + geometry.shards as usize,
            Self::Agent(AgentRequest::Map { own, peer, .. }) => own.1.descriptors() + peer.1.descriptors(),
            Self::Records { refused, .. } => usize::from(refused.is_none()),
            Self::Logs { log, .. } => log.as_ref().map_or(0, |log| log.sets as usize),
            _ => 0,
        }
    }
}

impl PartRepr {
    const fn descriptors(self) -> usize {
        match self {
            Self::Own => 0,
            Self::Pinned | Self::Gpu { .. } => 1,
        }
    }

    fn of(part: Part) -> (Self, Option<Sent>) {
        match part {
            Part::Own => (Self::Own, None),
            Part::Pinned(region) => (Self::Pinned, Some(region)),
            Part::Gpu { fd, len } => (Self::Gpu { len }, Some(fd)),
        }
    }

    fn part(self, fds: &mut impl Iterator<Item = OwnedFd>) -> Result<Part, String> {
        let mut fd = || fds.next().ok_or_else(|| "a descriptor is missing".to_owned());
        Ok(match self {
            Self::Own => Part::Own,
            Self::Pinned => Part::Pinned(PinnedRegion::from_fd(fd()?).map_err(|error| error.to_string())?),
            Self::Gpu { len } => Part::Gpu { fd: Arc::new(fd()?), len },
        })
    }
}

impl AgentRequest {
    /// The frame of a request, and the descriptors that go with it.
    pub(crate) fn of(request: ToAgent) -> (Self, Vec<Sent>) {
        match request {
            ToAgent::Provide { arena, len } => (Self::Provide { arena, len }, Vec::new()),
            ToAgent::Map(MapArena { arena, own, peer, peer_polls }) => {
                let ((own_repr, own_fd), (peer_repr, peer_fd)) = (PartRepr::of(own.1), PartRepr::of(peer.1));
                let fds = own_fd.into_iter().chain(peer_fd).collect();
                (Self::Map { arena, own: (own.0, own_repr), peer: (peer.0, peer_repr), peer_polls }, fds)
            }
            ToAgent::Clear { arena, line, len, ring } => (Self::Clear { arena, line, len, ring }, Vec::new()),
            ToAgent::Unmap { arena } => (Self::Unmap { arena }, Vec::new()),
        }
    }

    /// The request in a frame with these descriptors. Fails with the arena that cannot be mapped,
    /// and the reason.
    pub(crate) fn request(self, fds: Vec<OwnedFd>) -> Result<ToAgent, (u32, String)> {
        let mut fds = fds.into_iter();
        Ok(match self {
            Self::Provide { arena, len } => ToAgent::Provide { arena, len },
            Self::Map { arena, own, peer, peer_polls } => {
                let mut part = |is: PartRepr| is.part(&mut fds).map_err(|reason| (arena, reason));
                let own = (own.0, part(own.1)?);
                let peer = (peer.0, part(peer.1)?);
                ToAgent::Map(MapArena { arena, own, peer, peer_polls })
            }
            Self::Clear { arena, line, len, ring } => ToAgent::Clear { arena, line, len, ring },
            Self::Unmap { arena } => ToAgent::Unmap { arena },
        })
    }
}

impl From<FinishPolicy> for PolicyRepr {
    fn from(policy: FinishPolicy) -> Self {
        match policy {
            FinishPolicy::Keep => Self::Keep,
            FinishPolicy::Close => Self::Close,
            FinishPolicy::Reset => Self::Reset,
        }
    }
}

impl From<PolicyRepr> for FinishPolicy {
    fn from(policy: PolicyRepr) -> Self {
        match policy {
            PolicyRepr::Keep => Self::Keep,
            PolicyRepr::Close => Self::Close,
            PolicyRepr::Reset => Self::Reset,
        }
    }
}

impl From<&Geometry> for Sizes {
    fn from(geometry: &Geometry) -> Self {
        let &Geometry { sockets, controls, shards, shared_rings, device_rings, .. } = geometry;
        Self { sockets, controls, shards, shared_rings, device_rings }
    }
}

impl From<Usage> for UsageRepr {
    fn from(usage: Usage) -> Self {
        let Usage { ring_bytes, free_ring_bytes, .. } = usage;
        Self { sockets: usage.sockets as u64, requests: usage.requests as u64, ring_bytes, free_ring_bytes }
    }
}

impl From<UsageRepr> for Usage {
    fn from(usage: UsageRepr) -> Self {
        let UsageRepr { ring_bytes, free_ring_bytes, .. } = usage;
        Self {
            sockets: usage.sockets as usize,
            requests: usage.requests as usize,
            ring_bytes,
            free_ring_bytes,
        }
    }
}

impl From<Stats> for StatsRepr {
    fn from(Stats { opened, closed, undelivered }: Stats) -> Self {
        Self { opened, closed, undelivered }
    }
}

impl From<StatsRepr> for Stats {
    fn from(StatsRepr { opened, closed, undelivered }: StatsRepr) -> Self {
        Self { opened, closed, undelivered }
    }
}
