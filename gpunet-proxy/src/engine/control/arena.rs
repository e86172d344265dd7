//! Arenas: the memory of streams between two attachments.
//!
//! Each pair of attachments that talks directly has arenas of its own, and no third one sees them.
//! An arena has two parts, one that each side polls (see `gpunet_abi::arena`); a stream takes one
//! ring in each. The first arena of a pair is small, and each further one is twice as large.
//!
//! Making an arena takes several steps, and each may wait for a process: agents provide the parts
//! in GPU memory, the control plane allocates those in pinned memory, then both agents map both
//! parts. An arena of which one attachment is gone is never used again: the other attachment's
//! agent unmaps it when the last stream in it is closed. This file has the tables, `life` the
//! steps.

mod life;

use super::tables::regions::ArenaRings;
use crate::model::message::Ring;
use gpunet_abi::arena::PartLayout;
use gpunet_abi::options::MAX_RING_LOG2;
use gpunet_core::ids::AttachmentId;
use gpunet_core::memory::PartMemory;
use gpunet_core::slab::Slab;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Ring memory in each part of a pair's first arena: eight streams with rings of the default size.
const FIRST_RINGS: u64 = 2 << 20;
/// Ring memory in each part of an arena at most: sixteen of the largest rings.
const MAX_RINGS: u64 = 16 << MAX_RING_LOG2;
/// How long agents may take. One that takes longer is considered stopped.
const TIMEOUT: Duration = Duration::from_secs(10);
/// GPU memory is mapped in pages of this size.
const GPU_PAGE: u64 = 2 << 20;

/// The state of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArenaState {
    /// Its parts are being made.
    Parts,
    /// Agents map it.
    Mapping,
    Ready,
    /// Out of use; agents unmap it.
    Dead,
}

/// The state of a part.
#[derive(Clone, Debug)]
enum PartState {
    Wanted,
    Pinned(PartMemory),
    /// Exported by its owner, for the other to map.
    Gpu {
        fd: Arc<OwnedFd>,
        len: u64,
    },
    /// In GPU memory, and mapped by both.
    Mapped,
}

/// One of the two attachments of an arena, and the part that it polls.
#[derive(Debug)]
struct Side {
    attachment: AttachmentId,
    /// Its region numbers of its own part and of the peer's.
    regions: [u8; 2],
    part: PartState,
    rings: Slab,
    /// Rings in GPU memory, by offset and log2, whose words its agent is clearing.
    clearing: Vec<(u64, u8)>,
    /// Bytes of the arena that its owner's account counts.
    counted: u64,
    /// What its agent was asked to do.
    agent: AgentState,
    /// Its agent has mapped both parts.
    mapped: bool,
}

/// What the agent of one side was asked to do. An agent answers each request once, so each is sent
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentState {
    /// Nothing: it has nothing to unmap.
    NotAsked,
    /// To provide or to map a part.
    Asked,
    /// To unmap both parts.
    Unmapping,
    /// It has unmapped them, or its attachment is gone.
    Left,
}

struct Arena {
    sides: [Side; 2],
    state: ArenaState,
    /// In GPU memory, or in pinned memory.
    on_gpus: bool,
    layout: PartLayout,
    /// Ends of streams that are not closed yet.
    ends: usize,
    /// The attachment whose connect it was made for, until an accept takes the first stream. Until
    /// then that attachment's owner is charged for both parts in pinned memory.
    connector: Option<AttachmentId>,
    /// The listener asks for rings as large as those that it was made for, so its owner takes over
    /// the charge for a part.
    is_shared_fairly: bool,
}

/// All arenas of a proxy.
#[derive(Default)]
pub(super) struct Arenas {
    arenas: BTreeMap<u32, Arena>,
    made: u32,
    /// Pairs of GPUs that cannot reach each other's memory.
    unreachable: Vec<Pair>,
}

/// Two attachments, the lower number first.
pub(super) type Pair = (AttachmentId, AttachmentId);

pub(super) fn pair_of(a: AttachmentId, b: AttachmentId) -> Pair {
    if a < b { (a, b) } else { (b, a) }
}

/// The result of taking rings in an arena.
pub(super) enum Taken {
    /// The rings of the first attachment's end, and of the second's.
    Rings(ArenaRings, ArenaRings),
    /// An arena is being made.
    Pending,
    /// No arena has room, and none is being made.
    None,
}

/// Whether there is room for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Available,
    /// An arena is being made.
    Pending,
    None,
}

impl Arena {
    fn side_of(&self, attachment: AttachmentId) -> usize {
        usize::from(self.sides[1].attachment == attachment)
    }

    /// Returns whether no agent has it mapped any more.
    fn is_left(&self) -> bool {
        self.sides.iter().all(|side| side.agent == AgentState::Left)
    }

    fn is_of(&self, pair: Pair) -> bool {
        (self.sides[0].attachment, self.sides[1].attachment) == pair
    }
}

impl Arenas {
    /// A number that no arena has. Numbers come again only after all others.
    fn next_id(&mut self) -> u32 {
        loop {
            let id = self.made;
            self.made = self.made.wrapping_add(1);
            if !self.arenas.contains_key(&id) {
                return id;
            }
        }
    }

    /// Takes rings for a stream between `a` and `b`: one of `to_a` bytes (log2) in which `a`
    /// receives, one of `to_b` in which `b` does.
    pub(super) fn take(&mut self, a: AttachmentId, b: AttachmentId, to_a: u8, to_b: u8) -> Taken {
        let mut pending = false;
        for (&id, arena) in self.arenas.iter_mut().filter(|(_, arena)| arena.is_of(pair_of(a, b))) {
            match arena.state {
                ArenaState::Parts | ArenaState::Mapping => pending = true,
                ArenaState::Dead => {}
                ArenaState::Ready => {
                    let (at_a, at_b) = (arena.side_of(a), arena.side_of(b));
                    let Some(first) = arena.sides[at_a].rings.take(to_a) else { continue };
                    let Some(second) = arena.sides[at_b].rings.take(to_b) else {
                        arena.sides[at_a].rings.give(first, to_a);
                        continue;
                    };
                    arena.ends += 2;
                    let ring = |offset, log2| Ring { offset, log2 };
                    let (in_a, in_b) = (ring(first, to_a), ring(second, to_b));
                    return Taken::Rings(
                        ArenaRings { arena: id, send: in_b, recv: in_a },
                        ArenaRings { arena: id, send: in_a, recv: in_b },
                    );
                }
            }
        }
        if pending { Taken::Pending } else { Taken::None }
    }

    /// Returns whether [`Arenas::take`] would find rings.
    pub(super) fn room_for(&mut self, a: AttachmentId, b: AttachmentId, to_a: u8, to_b: u8) -> Room {
        match self.take(a, b, to_a, to_b) {
            Taken::Pending => Room::Pending,
            Taken::None => Room::None,
            Taken::Rings(at_a, at_b) => {
                if let Some(arena) = self.arenas.get_mut(&at_a.arena) {
                    arena.ends -= 2;
                    for (attachment, rings) in [(a, at_a), (b, at_b)] {
                        let side = arena.side_of(attachment);
                        arena.sides[side].rings.give(rings.recv.offset, rings.recv.log2);
                    }
                }
                Room::Available
            }
        }
    }

    /// The region numbers that `attachment` has for its own part of an arena and for the peer's.
    pub(super) fn regions(&self, arena: u32, attachment: AttachmentId) -> Option<[u8; 2]> {
        self.arenas.get(&arena).map(|arena| arena.sides[arena.side_of(attachment)].regions)
    }

    /// How the parts of an arena are laid out.
    pub(super) fn layout(&self, arena: u32) -> Option<PartLayout> {
        self.arenas.get(&arena).map(|arena| arena.layout)
    }

    /// Returns whether an arena lies in GPU memory.
    pub(super) fn is_on_gpus(&self, arena: u32) -> bool {
        self.arenas.get(&arena).is_some_and(|arena| arena.on_gpus)
    }

    /// Wakes the CPU blocks of `attachment` that wait on its end of a stream.
    pub(super) fn wake(&self, attachment: AttachmentId, rings: &ArenaRings) {
        let Some(arena) = self.arenas.get(&rings.arena) else { return };
        if let PartState::Pinned(memory) = &arena.sides[arena.side_of(attachment)].part {
            memory.wake(rings.recv.offset);
        }
    }
}

impl Side {
    fn give_cleared(&mut self, ring: u64) {
        // Only rings that the agent was asked to clear count.
        if let Some(at) = self.clearing.iter().position(|&(offset, _)| offset == ring) {
            let (offset, log2) = self.clearing.swap_remove(at);
            self.rings.give(offset, log2);
        }
    }
}

#[cfg(test)]
mod tests;
