//! Arenas: the memory of streams between two attachments.
//!
//! Each pair of attachments that talks directly has arenas of its own, and no third one sees them. An
//! arena has two parts, one that each side polls (see `gpunet_abi::arena`); a stream takes one ring in
//! each. The first arena of a pair is small, and each further one is twice as large.
//!
//! Making one takes several steps, of which each may take a process's time: parts in GPU memory are
//! provided by their owner's agent, parts in pinned memory are made here, then both agents map both
//! parts. An arena whose other attachment is gone is never used again: the agent of the one that is left
//! unmaps it when the last stream in it is closed.

use super::Control;
use super::books::Device;
use crate::access::Account;
use crate::agent::{FromAgent, MapArena, Part, ToAgent};
use crate::message::{Message, Ring};
use gpunet_abi::arena::PartLayout;
use gpunet_abi::options::MAX_RING_LOG2;
use gpunet_abi::place::{FIRST_ARENA, REGIONS};
use gpunet_core::memory::PartMemory;
use gpunet_core::slab::Slab;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Ring memory in each part of a pair's first arena: eight streams with rings of the default size.
const FIRST_RINGS: u64 = 2 << 20;
/// Ring memory in each part of an arena at most: sixteen of the largest rings.
const MOST_RINGS: u64 = 16 << MAX_RING_LOG2;
/// How long agents may take. One that takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// GPU memory is mapped in pages of this size.
const GPU_PAGE: u64 = 2 << 20;

/// Numbers of regions in a device's table.
#[derive(Debug)]
pub(super) struct Regions {
    used: [bool; REGIONS],
}

impl Default for Regions {
    fn default() -> Self {
        Self { used: std::array::from_fn(|number| number < usize::from(FIRST_ARENA)) }
    }
}

impl Regions {
    fn take(&mut self) -> Option<u8> {
        let number = self.used.iter().position(|used| !used)?;
        self.used[number] = true;
        u8::try_from(number).ok()
    }

    fn give(&mut self, number: u8) {
        self.used[usize::from(number)] = false;
    }
}

/// The rings of one end of a stream in an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArenaRings {
    pub(super) arena: u32,
    /// In the other side's part.
    pub(super) send: Ring,
    /// In this side's part.
    pub(super) recv: Ring,
}

/// How far an arena has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its parts are being made.
    Parts,
    /// Agents map it.
    Mapping,
    Ready,
    /// Out of use; agents unmap it.
    Dead,
}

/// What of a part is there.
#[derive(Clone, Debug)]
enum PartState {
    Wanted,
    Pinned(PartMemory),
    Gpu { fd: Arc<OwnedFd>, len: u64 },
}

/// One of the two attachments of an arena, and the part that it polls.
#[derive(Debug)]
struct Side {
    device: u32,
    /// Its numbers for its own part and for the other.
    regions: [u8; 2],
    part: PartState,
    rings: Slab,
    /// Rings in GPU memory, by offset and log2, whose words its agent is setting back.
    clearing: Vec<(u64, u8)>,
    /// Bytes of its part that its owner's account counts.
    counted: u64,
    /// Its agent was asked for something, and so has something to forget.
    asked: bool,
    /// Its agent has mapped both parts.
    mapped: bool,
    /// Its attachment is gone, or its agent has unmapped both parts.
    left: bool,
}

struct Arena {
    sides: [Side; 2],
    state: State,
    /// In GPU memory, or in pinned memory.
    on_gpus: bool,
    layout: PartLayout,
    /// Ends of streams that are not closed yet.
    ends: usize,
}

/// All arenas of a proxy.
#[derive(Default)]
pub(super) struct Arenas {
    arenas: BTreeMap<u32, Arena>,
    made: u32,
    /// Pairs of GPUs that cannot reach each other's memory.
    apart: Vec<Pair>,
}

/// Two attachments, the lower number first.
pub(super) type Pair = (u32, u32);

pub(super) const fn pair_of(a: u32, b: u32) -> Pair {
    if a < b { (a, b) } else { (b, a) }
}

/// What became of a wish for rings in an arena.
pub(super) enum Taken {
    /// The rings of the first attachment's end, and of the second's.
    Rings(ArenaRings, ArenaRings),
    /// An arena is being made.
    Pending,
    /// There is none with room, and none is being made.
    None,
}

impl Arena {
    fn side_of(&self, device: u32) -> usize {
        usize::from(self.sides[1].device == device)
    }

    fn is_of(&self, pair: Pair) -> bool {
        (self.sides[0].device, self.sides[1].device) == pair
    }
}

impl Arenas {
    /// Takes rings for a stream between `a` and `b`: one of `to_a` bytes (log2) in which `a` receives,
    /// one of `to_b` in which `b` does.
    pub(super) fn take(&mut self, a: u32, b: u32, to_a: u8, to_b: u8) -> Taken {
        let mut pending = false;
        for (&id, arena) in self.arenas.iter_mut().filter(|(_, arena)| arena.is_of(pair_of(a, b))) {
            match arena.state {
                State::Parts | State::Mapping => pending = true,
                State::Dead => {}
                State::Ready => {
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

    /// The numbers that `device` has for its own part of an arena and for the other's.
    pub(super) fn regions(&self, arena: u32, device: u32) -> Option<[u8; 2]> {
        self.arenas.get(&arena).map(|arena| arena.sides[arena.side_of(device)].regions)
    }

    /// How the parts of an arena are laid out.
    pub(super) fn layout(&self, arena: u32) -> Option<PartLayout> {
        self.arenas.get(&arena).map(|arena| arena.layout)
    }

    /// Says whether an arena lies in GPU memory.
    pub(super) fn is_on_gpus(&self, arena: u32) -> bool {
        self.arenas.get(&arena).is_some_and(|arena| arena.on_gpus)
    }

    /// Wakes the CPU blocks of `device` that wait on its end of a stream.
    pub(super) fn wake(&self, device: u32, rings: &ArenaRings) {
        let Some(arena) = self.arenas.get(&rings.arena) else { return };
        if let PartState::Pinned(memory) = &arena.sides[arena.side_of(device)].part {
            memory.wake(rings.recv.offset);
        }
    }
}

impl Device {
    /// Counts memory in the owner's account; says whether the owner may have it.
    fn count_memory(&self, bytes: u64) -> bool {
        self.attached.account.as_ref().is_none_or(|account| account.take_memory(bytes).is_ok())
    }

    fn uncount_memory(&self, bytes: u64) {
        if let Some(account) = &self.attached.account {
            account.give_memory(bytes);
        }
    }
}

impl Control {
    /// Begins to make an arena for two attachments, with room for a ring of `to_a` bytes (log2) in the
    /// part of `a` and one of `to_b` in the part of `b`; says whether it could begin.
    pub(super) fn make_arena(&mut self, a: u32, b: u32, to_a: u8, to_b: u8) -> bool {
        let pair = pair_of(a, b);
        let of_pair = |arena: &&Arena| arena.is_of(pair) && arena.state != State::Dead;
        let last =
            self.arenas.arenas.values().filter(of_pair).map(|arena| arena.layout.len - arena.layout.rings);
        let wanted = last.max().map_or(FIRST_RINGS, |last| 2 * last).min(MOST_RINGS).max(2 << to_a.max(to_b));
        let apart = self.arenas.apart.contains(&pair);
        let shareable = |device: Option<&Device>| device.is_some_and(|d| d.attached.shareable);
        let on_gpus = !apart && shareable(self.devices.get(&a)) && shareable(self.devices.get(&b));
        // A part in GPU memory is a whole number of its pages.
        let layout = PartLayout::new(wanted);
        let len = if on_gpus { layout.len.div_ceil(GPU_PAGE) * GPU_PAGE } else { layout.len };
        let mut sides = Vec::with_capacity(2);
        for id in [pair.0, pair.1] {
            let Some(device) = self.devices.get_mut(&id) else { break };
            // A GPU's memory is its owner's own.
            let counted = if on_gpus { 0 } else { layout.len };
            if !device.count_memory(counted) {
                tracing::debug!(id, "no more ring memory for that user");
                break;
            }
            let (Some(near), Some(far)) = (device.regions.take(), device.regions.take()) else {
                device.uncount_memory(counted);
                break;
            };
            sides.push(Side {
                device: id,
                regions: [near, far],
                part: PartState::Wanted,
                rings: Slab::new(layout.rings, wanted),
                clearing: Vec::new(),
                counted,
                asked: false,
                mapped: false,
                left: false,
            });
        }
        let sides = match <[Side; 2]>::try_from(sides) {
            Ok(sides) => sides,
            Err(sides) => {
                for side in sides {
                    self.give_regions(side.device, side.regions, side.counted);
                }
                tracing::warn!(
                    a,
                    b,
                    "no arena: an attachment talks to too many others, or its user has no memory left"
                );
                return false;
            }
        };
        let id = self.arenas.made;
        self.arenas.made += 1;
        self.arenas.arenas.insert(id, Arena { sides, state: State::Parts, on_gpus, layout, ends: 0 });
        let messages = self.messages.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(PATIENCE).await;
            let _ = messages.send(Message::ArenaTimeout { arena: id });
        });
        if on_gpus {
            for device in [a, b] {
                self.ask_agent(id, device, ToAgent::Provide { arena: id, len });
            }
        } else {
            let messages = self.messages.clone();
            // Preallocation takes a while for large parts.
            tokio::task::spawn_blocking(move || {
                let parts = PartMemory::create(wanted).and_then(|a| Ok([a, PartMemory::create(wanted)?]));
                let parts = parts.map_err(|error| error.to_string());
                let _ = messages.send(Message::ArenaParts { arena: id, parts });
            });
        }
        true
    }

    fn give_regions(&mut self, device: u32, regions: [u8; 2], counted: u64) {
        if let Some(device) = self.device(device) {
            device.uncount_memory(counted);
            regions.into_iter().for_each(|number| device.regions.give(number));
        }
    }

    fn ask_agent(&mut self, arena: u32, device: u32, request: ToAgent) {
        if let Some(arena) = self.arenas.arenas.get_mut(&arena) {
            let side = arena.side_of(device);
            arena.sides[side].asked = true;
        }
        if let Some(device) = self.devices.get(&device) {
            (device.attached.agent)(request);
        }
    }

    /// The pinned parts of an arena are there, or cannot be.
    pub(super) fn handle_arena_parts(&mut self, id: u32, parts: Result<[PartMemory; 2], String>) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        match parts {
            Ok(parts) if arena.state == State::Parts => {
                for (side, part) in arena.sides.iter_mut().zip(parts) {
                    side.part = PartState::Pinned(part);
                }
                self.map_arena(id);
            }
            Ok(_) => {}
            Err(reason) => self.fail_arena(id, &reason),
        }
    }

    /// All parts are there: both agents are to map them.
    fn map_arena(&mut self, id: u32) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        arena.state = State::Mapping;
        let part = |at: usize, own: bool| match &arena.sides[at].part {
            PartState::Gpu { .. } if own => Part::Own,
            PartState::Gpu { fd, len } => Part::Gpu { fd: fd.clone(), len: *len },
            PartState::Pinned(memory) => Part::Pinned(memory.region().clone()),
            // Not before all parts are there.
            PartState::Wanted => Part::Own,
        };
        let maps = [0, 1].map(|at| {
            let side = &arena.sides[at];
            let silent = self.devices.get(&arena.sides[1 - at].device).is_some_and(|d| d.attached.polled);
            let [near, far] = side.regions;
            let map =
                MapArena { arena: id, near: (near, part(at, true)), far: (far, part(1 - at, false)), silent };
            (side.device, map)
        });
        for (device, map) in maps {
            self.ask_agent(id, device, ToAgent::Map(map));
        }
    }

    /// An agent answers.
    pub(super) fn handle_agent(&mut self, device: u32, answer: FromAgent) {
        match answer {
            FromAgent::Provided { arena: id, fd, len } => {
                let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
                let side = arena.side_of(device);
                if arena.state != State::Parts || arena.sides[side].device != device {
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
                let side = arena.side_of(device);
                if arena.state != State::Mapping || arena.sides[side].device != device {
                    return;
                }
                arena.sides[side].mapped = true;
                if arena.sides.iter().all(|side| side.mapped) {
                    arena.state = State::Ready;
                    // Descriptors of GPU memory have done their work.
                    let pair = (arena.sides[0].device, arena.sides[1].device);
                    self.resume_joins(pair);
                }
            }
            FromAgent::Failed { arena, reason } => self.fail_arena(arena, &reason),
            FromAgent::Cleared { arena, ring } => {
                if let Some(arena) = self.arenas.arenas.get_mut(&arena) {
                    let side = arena.side_of(device);
                    arena.sides[side].give_cleared(ring);
                }
            }
            FromAgent::Unmapped { arena } => self.leave_arena(arena, device),
        }
    }

    pub(super) fn handle_arena_timeout(&mut self, id: u32) {
        let late =
            self.arenas.arenas.get(&id).is_some_and(|a| matches!(a.state, State::Parts | State::Mapping));
        if late {
            self.fail_arena(id, "a process takes too long to map memory: it has stopped");
        }
    }

    /// An arena cannot be made: between GPUs another one in pinned memory is tried.
    fn fail_arena(&mut self, id: u32, reason: &str) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        if !matches!(arena.state, State::Parts | State::Mapping) {
            return;
        }
        let (pair, on_gpus) = ((arena.sides[0].device, arena.sides[1].device), arena.on_gpus);
        self.bury_arena(id);
        if on_gpus {
            tracing::warn!(?pair, reason, "no way between these GPUs' memories: rings in pinned host memory");
            self.arenas.apart.push(pair);
        } else {
            tracing::warn!(?pair, reason, "no memory for direct streams");
        }
        self.retry_joins(pair, on_gpus);
    }

    /// Takes an arena out of use; agents unmap it once no stream is left in it.
    fn bury_arena(&mut self, id: u32) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        arena.state = State::Dead;
        if arena.ends > 0 {
            return;
        }
        let sides: Vec<(u32, bool)> =
            arena.sides.iter().filter(|side| !side.left).map(|side| (side.device, side.asked)).collect();
        for (device, asked) in sides {
            if asked {
                self.ask_agent(id, device, ToAgent::Unmap { arena: id });
            } else {
                self.leave_arena(id, device);
            }
        }
    }

    /// An attachment has nothing of an arena any more.
    fn leave_arena(&mut self, id: u32, device: u32) {
        let Some(arena) = self.arenas.arenas.get_mut(&id) else { return };
        let at = arena.side_of(device);
        if arena.state != State::Dead || arena.sides[at].device != device || arena.sides[at].left {
            return;
        }
        arena.sides[at].left = true;
        let (regions, counted) = (arena.sides[at].regions, arena.sides[at].counted);
        if arena.sides.iter().all(|side| side.left) {
            self.arenas.arenas.remove(&id);
        }
        self.give_regions(device, regions, counted);
    }

    /// One end of a stream in an arena is closed for good; `both` says that the other is, too. Then its
    /// rings may be used again, unless one of the two attachments is coming to its end: it did not close
    /// by itself then, and its kernels may still look at these words.
    pub(super) fn give_arena_rings(&mut self, device: u32, rings: &ArenaRings, both: bool) {
        let Some(arena) = self.arenas.arenas.get_mut(&rings.arena) else { return };
        arena.ends -= 1;
        let stay = |side: &Side| self.devices.get(&side.device).is_some_and(|device| !device.ending);
        match arena.state {
            State::Ready if both && arena.sides.iter().all(stay) => {
                let at = arena.side_of(device);
                for (side, ring) in [(at, rings.recv), (1 - at, rings.send)] {
                    let side = &mut arena.sides[side];
                    match &side.part {
                        PartState::Pinned(memory) => {
                            memory.clear(ring.offset);
                            side.rings.give(ring.offset, ring.log2);
                        }
                        // Only its owner can write there.
                        _ => {
                            let Some(owner) = self.devices.get(&side.device) else { continue };
                            side.clearing.push((ring.offset, ring.log2));
                            let line = arena.layout.line(ring.offset);
                            let request = ToAgent::Clear { arena: rings.arena, line, ring: ring.offset };
                            (owner.attached.agent)(request);
                        }
                    }
                }
            }
            State::Dead if arena.ends == 0 => self.bury_arena(rings.arena),
            _ => {}
        }
    }

    /// An attachment is gone: its arenas are never used again.
    pub(super) fn forget_arenas(&mut self, device: u32, account: Option<&Account>) {
        let of_device = |arena: &Arena| arena.sides.iter().any(|side| side.device == device);
        let gone: Vec<u32> =
            self.arenas.arenas.iter().filter(|(_, arena)| of_device(arena)).map(|(&id, _)| id).collect();
        for id in gone {
            let Some(arena) = self.arenas.arenas.get_mut(&id) else { continue };
            let at = arena.side_of(device);
            arena.sides[at].left = true;
            if let Some(account) = account {
                account.give_memory(arena.sides[at].counted);
            }
            let making = matches!(arena.state, State::Parts | State::Mapping);
            let pair = (arena.sides[0].device, arena.sides[1].device);
            let all_left = arena.sides.iter().all(|side| side.left);
            self.bury_arena(id);
            if all_left {
                self.arenas.arenas.remove(&id);
            }
            if making {
                self.retry_joins(pair, false);
            }
        }
        self.arenas.apart.retain(|pair| pair.0 != device && pair.1 != device);
    }
}

impl Side {
    fn give_cleared(&mut self, ring: u64) {
        // What an agent says is believed of rings only that it was asked to clear.
        if let Some(at) = self.clearing.iter().position(|&(offset, _)| offset == ring) {
            let (offset, log2) = self.clearing.swap_remove(at);
            self.rings.give(offset, log2);
        }
    }
}
