//! Requests of the control plane to the process that owns an attachment, and their answers.
//!
//! Two attachments that talk directly share an *arena*: two parts, each in memory that its owner
//! polls. The proxy decides what lies where; only the owner of an attachment can map memory into
//! its device's address space, allocate GPU memory and export it.

use gpu_usermap::PinnedRegion;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How the control plane reaches an attachment's agent. Never blocks; to an agent that is gone it
/// does nothing, since its attachment is about to be forgotten.
pub(crate) type AgentLink = Box<dyn Fn(ToAgent) + Send + Sync>;

/// A request to the owner of an attachment. Each is answered by one [`FromAgent`].
#[derive(Debug)]
pub(crate) enum ToAgent {
    /// Allocate `len` bytes of the device's memory for others to map, and export them.
    Provide { arena: u32, len: u64 },
    /// Map both parts of an arena and enter them in the device's table of regions.
    Map(MapArena),
    /// Clear `len` bytes from offset `line` of the own part on, in GPU memory: the words of the
    /// ring at offset `ring`, and its line of messages. The ring is to be reused.
    Clear { arena: u32, line: u64, len: u64, ring: u64 },
    /// The arena is out of use: unmap it as soon as no kernel that may know it runs.
    Unmap { arena: u32 },
}

/// Both parts of an arena, as one of its two attachments gets them.
#[derive(Debug)]
pub(crate) struct MapArena {
    pub(crate) arena: u32,
    /// The part that this attachment's device polls, and its region number.
    pub(crate) own: (u8, Part),
    /// The part that the peer's device polls, and its region number.
    pub(crate) peer: (u8, Part),
    /// The peer's device polls and needs no wake-ups: it is a GPU.
    pub(crate) peer_polls: bool,
}

/// Where one part of an arena is.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// In the memory that this agent has provided.
    Own,
    /// A sealed memfd.
    Pinned(Arc<PinnedRegion>),
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
    /// To [`ToAgent::Clear`].
    Cleared { arena: u32, ring: u64 },
    /// To any of these, if it failed.
    Failed { arena: u32, reason: String },
    /// To [`ToAgent::Unmap`]: the numbers of its regions are free.
    Unmapped { arena: u32 },
}

impl ToAgent {
    /// The answer if it failed.
    pub(crate) fn failed(&self, reason: &str) -> FromAgent {
        let reason = reason.to_owned();
        match self {
            Self::Provide { arena, .. } | Self::Map(MapArena { arena, .. }) => {
                FromAgent::Failed { arena: *arena, reason }
            }
            Self::Clear { arena, .. } => FromAgent::Failed { arena: *arena, reason },
            Self::Unmap { arena } => FromAgent::Unmapped { arena: *arena },
        }
    }
}
