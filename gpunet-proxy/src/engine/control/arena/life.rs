//! An arena's life: its parts are made, agents map it, it is used, agents unmap it.

use super::{
    AgentState, Arena, ArenaState, FIRST_RINGS, GPU_PAGE, MAX_RINGS, PartState, Side, TIMEOUT, pair_of,
};
use crate::engine::control::Control;
use crate::engine::control::tables::AttachmentEntry;
use crate::engine::control::tables::pending::Wait;
use crate::engine::control::tables::regions::ArenaRings;
use crate::model::access::Account;
use crate::model::agent::{FromAgent, MapArena, Part, ToAgent};
use crate::model::message::Message;
use gpunet_abi::Options;
use gpunet_abi::arena::PartLayout;
use gpunet_core::ids::AttachmentId;
use gpunet_core::memory::PartMemory;
use gpunet_core::slab::Slab;
use std::sync::Arc;

impl Control {
    /// Begins to make an arena for a connect of `a` to a listener of `b`, with room for a ring of
    /// `to_a` bytes (log2) in the part of `a` and one of `to_b` in the part of `b`; returns whether
    /// it could begin. The owner of `a` is charged for both parts, because no accept has taken the
    /// connection yet.
    pub(in crate::engine::control) fn make_arena(
        &mut self,
        (a, b): (AttachmentId, AttachmentId),
        (to_a, to_b): (u8, u8),
        listener: &Options,
    ) -> bool {
        let pair = pair_of(a, b);
        let of_pair = |arena: &&Arena| arena.is_of(pair) && arena.state != ArenaState::Dead;
        let last =
            self.arenas.arenas.values().filter(of_pair).map(|arena| arena.layout.len - arena.layout.rings);
        let usual = last.max().map_or(FIRST_RINGS, |last| 2 * last).min(MAX_RINGS);
        let wanted = usual.max(2 << to_a.max(to_b));
        let (send, recv) = listener.rings();
        let is_shared_fairly = wanted <= usual.max(2 << send.max(recv));
        let is_unreachable = self.arenas.unreachable.contains(&pair);
        let shareable = |attachment: Option<&AttachmentEntry>| attachment.is_some_and(|d| d.state.shareable);
        let on_gpus =
            !is_unreachable && shareable(self.attachments.get(a)) && shareable(self.attachments.get(b));
        // A part in GPU memory is a whole number of its pages.
        let layout = PartLayout::new(wanted);
        let len = if on_gpus { layout.len.div_ceil(GPU_PAGE) * GPU_PAGE } else { layout.len };
        let mut sides = Vec::with_capacity(2);
        for id in [pair.0, pair.1] {
            let Some(attachment) = self.attachments.get_mut(id) else { break };
            // GPU memory is not charged: it is the owner's own.
            let counted = if on_gpus || id != a { 0 } else { 2 * layout.len };
            if !attachment.count_memory(counted) {
                tracing::debug!(id = id.0, "no more ring memory for that user");
                break;
            }
            let (Some(own), Some(peer)) = (attachment.regions.take(), attachment.regions.take()) else {
                attachment.uncount_memory(counted);
                break;
            };
            sides.push(Side {
                attachment: id,
                regions: [own, peer],
                part: PartState::Wanted,
                rings: Slab::new(layout.rings, wanted),
                clearing: Vec::new(),
                counted,
                agent: AgentState::NotAsked,
                mapped: false,
            });
        }
        let sides = match <[Side; 2]>::try_from(sides) {
            Ok(sides) => sides,
            Err(sides) => {
                for side in sides {
                    self.give_regions(side.attachment, side.regions, side.counted);
                }
                tracing::warn!(
                    a = a.0,
                    b = b.0,
                    "no arena: an attachment talks to too many others, or its user has no memory left"
                );
                return false;
            }
        };
        let id = self.arenas.next_id();
        let (state, connector) = (ArenaState::Parts, Some(a));
        let arena = Arena { sides, state, on_gpus, layout, ends: 0, connector, is_shared_fairly };
        self.arenas.arenas.insert(id, arena);
        self.start_arena_timer(id);
        if on_gpus {
            for attachment in [a, b] {
                self.ask_agent(id, attachment, ToAgent::Provide { arena: id, len });
            }
        } else {
            let messages = self.messages.clone();
            // Preallocation takes a while for large parts.
            self.pool.run(move || {
                let parts = PartMemory::create(wanted).and_then(|a| Ok([a, PartMemory::create(wanted)?]));
                let parts = parts.map_err(|error| error.to_string());
                let _ = messages.send(Message::ArenaParts { arena: id, parts });
            });
        }
        true
    }

    /// Schedules [`Control::handle_arena_timeout`] after [`TIMEOUT`].
    fn start_arena_timer(&self, id: u32) {
        let messages = self.messages.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(TIMEOUT).await;
            let _ = messages.send(Message::ArenaTimeout { arena: id });
        });
    }

    /// Notes that a stream in an arena was accepted: the listener's owner takes over the charge for
    /// a part, if it can and its listener asks for rings as large.
    pub(in crate::engine::control) fn share_arena(&mut self, id: u32) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        let Some(connector) = arena.connector.take() else { return };
        let at = arena.side_of(connector);
        let part = arena.layout.len;
        let listener = self.attachments.get(arena.sides[1 - at].attachment);
        if arena.is_shared_fairly
            && !arena.on_gpus
            && listener.is_some_and(|listener| listener.count_memory(part))
        {
            arena.sides[1 - at].counted = part;
            arena.sides[at].counted -= part;
            if let Some(connector) = self.attachments.get(connector) {
                connector.uncount_memory(part);
            }
        }
    }

    fn give_regions(&mut self, attachment: AttachmentId, regions: [u8; 2], counted: u64) {
        if let Some(attachment) = self.attachments.get_mut(attachment) {
            attachment.uncount_memory(counted);
            regions.into_iter().for_each(|number| attachment.regions.give(number));
        }
    }

    fn ask_agent(&mut self, arena: u32, attachment: AttachmentId, request: ToAgent) {
        if let Some(arena) = self.arenas.arenas.get_mut(&arena) {
            let side = &mut arena.sides[arena.side_of(attachment)];
            side.agent = match request {
                ToAgent::Unmap { .. } => AgentState::Unmapping,
                _ => AgentState::Asked,
            };
        }
        if let Some(attachment) = self.attachments.get(attachment) {
            (attachment.state.agent)(request);
        }
    }

    /// Handles the pinned parts of an arena, or the failure to allocate them.
    pub(in crate::engine::control) fn handle_arena_parts(
        &mut self,
        id: u32,
        parts: Result<[PartMemory; 2], String>,
    ) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else {
            return self.pool.run(move || drop(parts));
        };
        match parts {
            Ok(parts) if arena.state == ArenaState::Parts => {
                for (side, part) in arena.sides.iter_mut().zip(parts) {
                    side.part = PartState::Pinned(part);
                }
                self.map_arena(id);
            }
            Ok(parts) => self.pool.run(move || drop(parts)),
            Err(reason) => self.fail_arena(id, &reason),
        }
    }

    /// Has both agents map the parts, which are all there.
    fn map_arena(&mut self, id: u32) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        arena.state = ArenaState::Mapping;
        let part = |at: usize, own: bool| match &arena.sides[at].part {
            PartState::Gpu { .. } if own => Part::Own,
            PartState::Gpu { fd, len } => Part::Gpu { fd: fd.clone(), len: *len },
            PartState::Pinned(memory) => Part::Pinned(memory.region().clone()),
            // Not before all parts exist.
            PartState::Wanted | PartState::Mapped => Part::Own,
        };
        let maps = [0, 1].map(|at| {
            let side = &arena.sides[at];
            let peer_polls =
                self.attachments.get(arena.sides[1 - at].attachment).is_some_and(|d| d.state.polled);
            let [own, peer] = side.regions;
            let map = MapArena {
                arena: id,
                own: (own, part(at, true)),
                peer: (peer, part(1 - at, false)),
                peer_polls,
            };
            (side.attachment, map)
        });
        for (attachment, map) in maps {
            self.ask_agent(id, attachment, ToAgent::Map(map));
        }
    }

    /// Handles an answer of an agent.
    pub(in crate::engine::control) fn handle_agent(&mut self, attachment: AttachmentId, answer: FromAgent) {
        match answer {
            FromAgent::Provided { arena: id, fd, len } => {
                let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
                let side = arena.side_of(attachment);
                if arena.state != ArenaState::Parts || arena.sides[side].attachment != attachment {
                    return;
                }
                if len < arena.layout.len {
                    return self.fail_arena(id, "less memory was provided than was asked for");
                }
                arena.sides[side].part = PartState::Gpu { fd: Arc::new(fd), len };
                if arena.sides.iter().all(|side| matches!(side.part, PartState::Gpu { .. })) {
                    self.map_arena(id);
                }
            }
            FromAgent::Mapped { arena: id } => {
                let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
                let side = arena.side_of(attachment);
                if arena.state != ArenaState::Mapping || arena.sides[side].attachment != attachment {
                    return;
                }
                arena.sides[side].mapped = true;
                if arena.sides.iter().all(|side| side.mapped) {
                    arena.state = ArenaState::Ready;
                    for side in &mut arena.sides {
                        // The descriptor is no longer needed, and would keep the memory of a dead
                        // process.
                        if matches!(side.part, PartState::Gpu { .. }) {
                            side.part = PartState::Mapped;
                        }
                    }
                    let pair = (arena.sides[0].attachment, arena.sides[1].attachment);
                    self.resume_joins(pair);
                }
            }
            FromAgent::Failed { arena, reason } => self.fail_arena(arena, &reason),
            FromAgent::Cleared { arena, ring } => {
                if let Some(arena) = self.arenas.arenas.get_mut(&arena) {
                    let side = arena.side_of(attachment);
                    arena.sides[side].give_cleared(ring);
                }
            }
            FromAgent::Unmapped { arena } => self.leave_arena(arena, attachment),
        }
    }

    pub(in crate::engine::control) fn handle_arena_timeout(&mut self, id: u32) {
        let late = self
            .arenas
            .arenas
            .get(&id)
            .is_some_and(|a| matches!(a.state, ArenaState::Parts | ArenaState::Mapping));
        if late {
            return self.fail_arena(id, "a process takes too long to map memory: it has stopped");
        }
        let is_unused =
            |arena: &Arena| arena.state == ArenaState::Ready && arena.connector.is_some() && arena.ends == 0;
        if !self.arenas.arenas.get(&id).is_some_and(is_unused) {
            return;
        }
        // A connect that waits for an accept will use the arena. Without such a connect it only
        // costs the owner that is charged for it.
        if self.is_arena_awaited(id) {
            self.start_arena_timer(id);
        } else {
            tracing::debug!(arena = id, "nobody has accepted a stream in it: taken back");
            self.bury_arena(id);
        }
    }

    /// Returns whether a connect that would use an arena waits in a backlog.
    fn is_arena_awaited(&self, id: u32) -> bool {
        let Some(arena) = self.arenas.arenas.get(&id) else { return false };
        let [one, other] = [0, 1].map(|at| arena.sides[at].attachment);
        [(one, other), (other, one)].into_iter().any(|(connector, listener)| {
            let requests = self.attachments.get(connector).map(|attachment| attachment.requests.values());
            requests.into_iter().flatten().any(|waiting| match &waiting.what {
                Wait::Queued { connect, .. } => {
                    let at = self.peer.backlog_of(connect.ticket);
                    at.and_then(|at| self.peer_listeners.get(&at)).is_some_and(|at| at.0 == listener)
                }
                _ => false,
            })
        })
    }

    /// Gives up making an arena; between GPUs, another one in pinned memory is tried.
    fn fail_arena(&mut self, id: u32, reason: &str) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        if !matches!(arena.state, ArenaState::Parts | ArenaState::Mapping) {
            // In an arena that is in use: a ring that cannot be cleared is not used again.
            tracing::warn!(arena = id, reason, "an agent could not do what it was asked");
            return;
        }
        let (pair, on_gpus) = ((arena.sides[0].attachment, arena.sides[1].attachment), arena.on_gpus);
        self.bury_arena(id);
        if on_gpus {
            tracing::warn!(?pair, reason, "no way between these GPUs' memories: rings in pinned host memory");
            self.arenas.unreachable.push(pair);
        } else {
            tracing::warn!(?pair, reason, "no memory for direct streams");
        }
        self.retry_joins(pair, on_gpus);
    }

    /// Takes an arena out of use; agents unmap it once no stream is left in it. Several events may
    /// do this to one arena: a failure, and the end of each attachment.
    fn bury_arena(&mut self, id: u32) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        arena.state = ArenaState::Dead;
        if arena.ends > 0 {
            return;
        }
        let sides = [0, 1].map(|at| (arena.sides[at].attachment, arena.sides[at].agent));
        for (attachment, agent) in sides {
            match agent {
                AgentState::NotAsked => self.leave_arena(id, attachment),
                AgentState::Asked => self.ask_agent(id, attachment, ToAgent::Unmap { arena: id }),
                AgentState::Unmapping | AgentState::Left => {}
            }
        }
    }

    /// Frees an arena. Freeing a gigabyte takes a tenth of a second, which others need not wait
    /// for.
    fn remove_arena(&mut self, id: u32) {
        if let Some(arena) = self.arenas.arenas.remove(&id) {
            self.pool.run(move || drop(arena));
        }
    }

    /// Removes an attachment from an arena.
    fn leave_arena(&mut self, id: u32, attachment: AttachmentId) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        let at = arena.side_of(attachment);
        let side = &mut arena.sides[at];
        if arena.state != ArenaState::Dead || side.attachment != attachment || side.agent == AgentState::Left
        {
            return;
        }
        side.agent = AgentState::Left;
        let (regions, counted) = (side.regions, std::mem::take(&mut side.counted));
        if arena.is_left() {
            self.remove_arena(id);
        }
        self.give_regions(attachment, regions, counted);
    }

    /// Notes that one end of a stream in an arena is closed for good; `both` if the other end is,
    /// too. Then the rings may be reused, unless one of the two attachments is ending: the proxy
    /// closed its end, and its kernels may still use these words.
    pub(in crate::engine::control) fn give_arena_rings(
        &mut self,
        attachment: AttachmentId,
        rings: &ArenaRings,
        both: bool,
    ) {
        let Some(arena) = self.arenas.arenas.get_mut(&rings.arena) else { return };
        arena.ends -= 1;
        let stay =
            |side: &Side| self.attachments.get(side.attachment).is_some_and(|attachment| !attachment.ending);
        match arena.state {
            ArenaState::Ready if both && arena.sides.iter().all(stay) => {
                let at = arena.side_of(attachment);
                for (side, ring) in [(at, rings.recv), (1 - at, rings.send)] {
                    let side = &mut arena.sides[side];
                    match &side.part {
                        PartState::Pinned(memory) => {
                            memory.clear(ring.offset, ring.capacity());
                            side.rings.give(ring.offset, ring.log2);
                        }
                        // Only its owner can write to it.
                        _ => {
                            let Some(owner) = self.attachments.get(side.attachment) else { continue };
                            side.clearing.push((ring.offset, ring.log2));
                            let line = arena.layout.line(ring.offset);
                            let len = gpunet_abi::line::used(ring.capacity());
                            let request = ToAgent::Clear { arena: rings.arena, line, len, ring: ring.offset };
                            (owner.state.agent)(request);
                        }
                    }
                }
            }
            ArenaState::Dead if arena.ends == 0 => self.bury_arena(rings.arena),
            _ => {}
        }
    }

    /// Forgets the arenas of an attachment that is gone: they are never used again.
    pub(in crate::engine::control) fn forget_arenas(
        &mut self,
        attachment: AttachmentId,
        account: Option<&Account>,
    ) {
        let of_device = |arena: &Arena| arena.sides.iter().any(|side| side.attachment == attachment);
        let gone: Vec<u32> =
            self.arenas.arenas.iter().filter(|(_, arena)| of_device(arena)).map(|(&id, _)| id).collect();
        for id in gone {
            let Some(arena) = self.arenas.arenas.get_mut(&id) else { continue };
            let at = arena.side_of(attachment);
            arena.sides[at].agent = AgentState::Left;
            if let Some(account) = account {
                account.give_memory(std::mem::take(&mut arena.sides[at].counted));
            }
            let making = matches!(arena.state, ArenaState::Parts | ArenaState::Mapping);
            let pair = (arena.sides[0].attachment, arena.sides[1].attachment);
            let is_left = arena.is_left();
            self.bury_arena(id);
            if is_left {
                self.remove_arena(id);
            }
            if making {
                self.retry_joins(pair, false);
            }
        }
        self.arenas.unreachable.retain(|pair| pair.0 != attachment && pair.1 != attachment);
    }
}
