//! The socket slots of an attachment: what they are used for, how they are taken and given back.

use super::shortage::Topic;
use super::{AttachmentEntry, ListenerEntry, Partner, StreamEntry};
use crate::model::message::Ring;
use gpunet_abi::Handle;
use gpunet_abi::handle::next_generation;
use gpunet_abi::options::TransportKind;
use gpunet_core::ids::{LaunchId, SocketId};
use gpunet_core::transport::Bound;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::time::Instant;
use tracing::Span;

/// Slots that are allocated together.
const CHUNK: usize = 64;

/// One socket slot.
#[derive(Default)]
pub(in crate::engine::control) struct Slot {
    pub(in crate::engine::control) generation: u32,
    /// The launch that owns the socket; `None` if its launch left it for later launches.
    pub(in crate::engine::control) launch: Option<LaunchId>,
    pub(in crate::engine::control) role: Role,
    /// When it was taken; `None` while it is free.
    pub(in crate::engine::control) since: Option<Instant>,
    /// It is counted in its owner's account.
    pub(in crate::engine::control) counted: bool,
    /// Descriptors that are counted for it there, without those of streams.
    pub(in crate::engine::control) descriptors: u8,
    /// Its socket is closed for a launch that has ended: it is not free again before the host says
    /// that no running launch knows the handle.
    pub(in crate::engine::control) retiring: bool,
    /// Its stream was accepted ahead, and the device names its launch.
    pub(in crate::engine::control) accepted_ahead: bool,
    /// The span of its stream, for the log.
    pub(in crate::engine::control) span: Option<Span>,
}

/// What a slot is used for.
#[derive(Default)]
pub(in crate::engine::control) enum Role {
    /// In the recycling ring, or held by the device and not yet named in a request.
    #[default]
    Free,
    /// An address was taken; no listen or connect yet.
    Bound(Bound),
    /// A listener.
    Listener(Box<ListenerEntry>),
    /// A connect or an accept is under way for it.
    Opening,
    /// Held for a connection of a listener.
    Prepared,
    /// A stream.
    Stream(StreamEntry),
    /// A poll group, and the memory of its lists.
    Group(Ring),
    /// A socket that was closed for a launch that has ended, and its rings: both stay out of use
    /// until the host releases them.
    Retired(Option<StreamEntry>),
}

/// All slots of an attachment. Slots are allocated in chunks on first use: an attachment may ask
/// for many and use few, and unused ones cost nothing.
pub(in crate::engine::control) struct Slots {
    chunks: Vec<Option<Box<[Slot; CHUNK]>>>,
    len: usize,
    /// Stands for every slot that is not allocated.
    unused: Slot,
}

impl Slots {
    /// A table of `len` free slots.
    pub(in crate::engine::control) fn new(len: usize) -> Self {
        let chunks = std::iter::repeat_with(|| None).take(len.div_ceil(CHUNK)).collect();
        Self { chunks, len, unused: Slot::default() }
    }

    /// How many there are.
    #[cfg(test)]
    pub(in crate::engine::control) const fn len(&self) -> usize {
        self.len
    }

    /// The slot of that number, if there is one.
    pub(in crate::engine::control) fn get(&self, slot: u32) -> Option<&Slot> {
        let slot = slot as usize;
        let chunk = if slot < self.len { self.chunks.get(slot / CHUNK)? } else { return None };
        Some(chunk.as_ref().map_or(&self.unused, |chunk| &chunk[slot % CHUNK]))
    }

    /// The slot of that number, allocated if need be.
    fn get_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        let slot = slot as usize;
        let chunk = if slot < self.len { self.chunks.get_mut(slot / CHUNK)? } else { return None };
        let fresh = || Box::new(std::array::from_fn(|_| Slot::default()));
        Some(&mut chunk.get_or_insert_with(fresh)[slot % CHUNK])
    }

    /// The slot of a socket, as long as it is that socket's.
    pub(in crate::engine::control) fn socket(&self, socket: SocketId) -> Option<&Slot> {
        self.get(socket.slot).filter(|entry| entry.generation == socket.generation)
    }

    /// The stream that a socket is.
    pub(in crate::engine::control) fn stream(&self, socket: SocketId) -> Option<&StreamEntry> {
        match &self.socket(socket)?.role {
            Role::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// The listener in that slot.
    pub(in crate::engine::control) fn listener(&self, slot: u32) -> Option<&ListenerEntry> {
        match &self.get(slot)?.role {
            Role::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// The listener in that slot, to change it.
    pub(in crate::engine::control) fn listener_mut(&mut self, slot: u32) -> Option<&mut ListenerEntry> {
        match &mut self.get_mut(slot)?.role {
            Role::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// The socket that stands in that slot.
    pub(in crate::engine::control) fn id(&self, slot: u32) -> SocketId {
        SocketId { slot, generation: self[slot].generation }
    }

    /// The allocated slots, with their numbers.
    pub(in crate::engine::control) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.iter_from(0)
    }

    /// The allocated slots from the chunk of that one on, with their numbers.
    pub(in crate::engine::control) fn iter_from(&self, slot: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let chunks = self.chunks.iter().enumerate().skip(slot as usize / CHUNK);
        chunks.filter_map(|(at, chunk)| Some((at, chunk.as_ref()?))).flat_map(|(at, chunk)| {
            let first = (at * CHUNK) as u32;
            (first..).zip(chunk.iter())
        })
    }

    /// The allocated slots, mutably, with their numbers.
    pub(in crate::engine::control) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Slot)> {
        let chunks = self.chunks.iter_mut().enumerate();
        chunks.filter_map(|(at, chunk)| Some((at, chunk.as_mut()?))).flat_map(|(at, chunk)| {
            let first = (at * CHUNK) as u32;
            (first..).zip(chunk.iter_mut())
        })
    }

    /// The numbers of those in use.
    pub(in crate::engine::control) fn used(&self) -> impl Iterator<Item = u32> {
        self.iter().filter(|(_, entry)| !matches!(entry.role, Role::Free)).map(|(slot, _)| slot)
    }
}

impl Index<u32> for Slots {
    type Output = Slot;

    fn index(&self, slot: u32) -> &Slot {
        self.get(slot).expect("a slot of this attachment")
    }
}

impl IndexMut<u32> for Slots {
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        self.get_mut(slot).expect("a slot of this attachment")
    }
}

impl AttachmentEntry {
    /// Returns whether the device can just have taken that slot: it is free, and the generation
    /// follows its last one. Random bytes hardly ever pass.
    pub(in crate::engine::control) fn is_fresh(&self, slot: u32, generation: u32) -> bool {
        self.slots.get(slot).is_some_and(|entry| {
            matches!(entry.role, Role::Free) && next_generation(entry.generation) == generation
        })
    }

    /// Takes back a slot for which nothing was opened.
    pub(in crate::engine::control) fn refuse_slot(&mut self, slot: u32, generation: u32) {
        if self.is_fresh(slot, generation) {
            self.slots[slot].generation = generation;
            self.recycle(slot);
        }
    }

    /// Retires a slot for which a kernel called gsocket and nothing else; returns whether it is
    /// one.
    pub(in crate::engine::control) fn retire_fresh(&mut self, socket: Handle) -> bool {
        if !self.is_fresh(socket.slot(), socket.generation()) {
            return false;
        }
        let entry = &mut self.slots[socket.slot()];
        (entry.generation, entry.launch, entry.retiring) = (socket.generation(), None, true);
        entry.role = Role::Retired(None);
        entry.since = Some(Instant::now());
        self.used += 1;
        true
    }

    /// Returns whether kernels may still know a stream that has ended: its own handle, or that of
    /// its other end on this device, which polls the words of this slot.
    pub(in crate::engine::control) fn is_retiring(&self, slot: u32, stream: &StreamEntry) -> bool {
        let other = stream.partner.filter(|partner| partner.attachment == self.state.id);
        let other = other.and_then(|partner| self.slots.socket(partner.socket));
        self.slots[slot].retiring || other.is_some_and(|other| other.retiring)
    }

    /// Returns whether the stream in that slot is closed: by its device, or for it.
    pub(in crate::engine::control) fn is_closed(&self, slot: u32, stream: &StreamEntry) -> bool {
        stream.closed || self.state.memory.is_closed(slot, self.slots[slot].generation)
    }

    /// The retired stream that is this end, on this device.
    pub(in crate::engine::control) fn retired(&self, end: Partner) -> Option<StreamEntry> {
        match self.slots.socket(end.socket)?.role {
            Role::Retired(stream) if end.attachment == self.state.id => stream,
            _ => None,
        }
    }

    /// How many slots kernels take sockets from.
    pub(in crate::engine::control) fn kernel_slots(&self) -> usize {
        self.state.memory.geometry().sockets as usize
    }

    /// Returns whether as many slots are in use as kernels have.
    pub(in crate::engine::control) fn is_full(&self) -> bool {
        self.used >= self.kernel_slots()
    }

    /// Marks a slot as being opened for that generation and launch.
    pub(in crate::engine::control) fn opening(
        &mut self,
        slot: u32,
        generation: u32,
        launch: LaunchId,
    ) -> Role {
        let entry = &mut self.slots[slot];
        (entry.generation, entry.launch) = (generation, Some(launch));
        std::mem::replace(&mut entry.role, Role::Opening)
    }

    /// Opens the span of a new stream.
    pub(in crate::engine::control) fn enter_span(
        &mut self,
        slot: u32,
        kind: TransportKind,
        addrs: (SocketAddr, SocketAddr),
    ) -> Span {
        let (client, process) = (self.state.id.0, self.state.client.pid);
        let (local, peer) = addrs;
        // A span of level WARN, so that warnings are logged with the connection that they are
        // about.
        let span = tracing::warn_span!("connection", client, process, slot, ?kind, %local, %peer);
        span.in_scope(|| tracing::debug!("open"));
        self.slots[slot].span = Some(span.clone());
        span
    }

    /// Logs that a stream closed before its last `undelivered` bytes reached the peer: as a warning
    /// once in a while only, because clients that leave early can make any number of them.
    pub(in crate::engine::control) fn warn_undelivered(&mut self, slot: u32, undelivered: u64) {
        const TEXT: &str = "closed before everything was delivered";
        if undelivered == 0 {
            return;
        }
        let Some(span) = &self.slots[slot].span else { return };
        let _entered = span.enter();
        match self.log.pass(Topic::Undelivered, Instant::now()) {
            Some(held_back) => tracing::warn!(undelivered, held_back, "{TEXT}"),
            None => tracing::debug!(undelivered, "{TEXT}"),
        }
    }

    /// Makes a slot without rings free again, or retires it.
    pub(in crate::engine::control) fn recycle(&mut self, slot: u32) {
        let entry = &mut self.slots[slot];
        if entry.retiring {
            entry.role = Role::Retired(None);
            return;
        }
        (entry.role, entry.accepted_ahead) = (Role::Free, false);
        if let Some(span) = entry.span.take() {
            let lines_sent = self.state.memory.lines_sent_words().get(slot as usize).peek();
            span.in_scope(|| tracing::debug!(lines_sent, "closed"));
        }
        let descriptors = std::mem::take(&mut entry.descriptors);
        self.uncount_socket(slot);
        if descriptors > 0 {
            self.give_descriptors(descriptors.into());
        }
        self.state.memory.recycle(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_exist_once_they_are_used() {
        let mut slots = Slots::new(65_000);
        assert_eq!((slots.len(), slots.iter().count()), (65_000, 0));
        assert_eq!((slots[64_999].generation, slots.iter().count()), (0, 0));
        assert!(slots.get(65_000).is_none() && slots.get_mut(65_000).is_none());
        slots[64_999].generation = 7;
        slots[3].role = Role::Opening;
        assert_eq!((slots[64_999].generation, slots[64_998].generation), (7, 0));
        assert_eq!(slots.used().collect::<Vec<_>>(), [3]);
        assert_eq!(slots.iter().find(|(_, entry)| entry.generation == 7).map(|(slot, _)| slot), Some(64_999));
        assert_eq!(slots.iter_mut().count(), slots.iter().count());
        assert!(slots.iter().count() <= 2 * CHUNK);
        assert!(slots.iter_from(64_999).all(|(slot, _)| slot >= 64_000));
        assert_eq!(slots.iter_from(0).count(), slots.iter().count());
    }
}
