//! Streams: connecting, opening, closing.

use super::Control;
use super::request::allowed;
use super::tables::{Partner, Role, Stream, StreamMemory, Wait};
use crate::model::message::{Attempt, Command, Message, OpenStream, Ring, Rings};
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::DEVICE;
use gpunet_abi::{Error, Options, Status};
use gpunet_core::connection::Counts;
use gpunet_core::ids::{AttachmentId, RequestId, SocketId};
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::{Connect, Connecting, Opened, Opening, Transport};
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Control {
    /// Connects: a peer of this proxy first, then TCP, as far as the socket's option allows.
    pub(super) fn connect(&mut self, device_id: AttachmentId, id: RequestId, request: &Request) {
        let Some(device) = self.device(device_id) else { return };
        let (slot, options, launch) = (request.slot, request.options, request.launch);
        let bound = match device.opening(slot, request.generation, launch) {
            Role::Bound(bound) => Some(bound),
            _ => None,
        };
        let bound = bound.map(Arc::new);
        let Some(to) = request.address.to_std() else {
            device.recycle(slot);
            return device.reply_result(id, Err(Error::FamilyNotSupported));
        };
        let ticket = Ticket { device: device_id, slot, generation: request.generation, control: id.control };
        let wish = Connect { to, from: bound, options, ticket, memory: None };
        // What it waits in is ready before it waits, so that an accept need not.
        if !(allowed(options.transport, TransportKind::Peer) && self.prepare(id, launch, &wish)) {
            self.connect_prepared(device_id, id, launch, wish);
        }
    }

    /// Goes on with a connect: by peer, if there is such a listener, else over a driven transport.
    pub(super) fn connect_prepared(
        &mut self,
        device_id: AttachmentId,
        id: RequestId,
        launch: u32,
        wish: Connect,
    ) {
        let (slot, options, to) = (wish.ticket.slot, wish.options, wish.to);
        let wish = if !allowed(options.transport, TransportKind::Peer) {
            Ok(wish)
        } else if !self.could_meet(&wish) {
            // Over TCP each end has rings of its own, which may be smaller.
            if options.transport == TransportKind::Peer as u8 { Err(Error::NoBuffers) } else { Ok(wish) }
        } else {
            let kept = wish.clone();
            match self.peer.connect(wish) {
                Connecting::Elsewhere(wish) => Ok(wish),
                Connecting::Queued => {
                    let what = Wait::Queued { slot, wish: Box::new(kept) };
                    if let Some(device) = self.device(device_id) {
                        device.wait(id, launch, what);
                    }
                    if let Some((device, listener)) = self.listener_at(to) {
                        self.serve(device, listener);
                    }
                    return;
                }
                Connecting::Pending(_) => Err(Error::ConnectionRefused),
            }
        };
        let Some(device) = self.device(device_id) else { return };
        match wish {
            // Peer was demanded, and this proxy holds no such listener.
            Ok(_) if options.transport == TransportKind::Peer as u8 => {
                device.recycle(slot);
                device.reply_result(id, Err(Error::ConnectionRefused));
            }
            Ok(wish) => {
                let (kind, next) = self.routes.plan(&wish);
                self.start_connect(device_id, id, launch, wish, kind, next);
            }
            Err(error) => {
                device.recycle(slot);
                device.reply_result(id, Err(error));
            }
        }
    }

    /// Starts a connect over a driven transport; `next` is tried if it fails.
    pub(super) fn start_connect(
        &mut self,
        device_id: AttachmentId,
        id: RequestId,
        launch: u32,
        wish: Connect,
        kind: TransportKind,
        next: Option<TransportKind>,
    ) {
        let Some(device) = self.device(device_id) else { return };
        let (slot, options) = (wish.ticket.slot, wish.options);
        let rings = match device.take_driven(kind, options.send_log2, options.recv_log2) {
            Ok(rings) => rings,
            Err(shortage) => {
                device.warn(shortage, format_args!("cannot connect to {}", wish.to), None);
                device.recycle(slot);
                return device.reply_result(id, Err(shortage.errno()));
            }
        };
        let memory = device.memory_of(rings);
        let opening =
            self.routes.connect(kind, Connect { memory: Some(memory), ..wish.clone() }, next.is_some());
        let attempt = Attempt { slot, kind, rings, options, wish, next };
        self.attempt(device_id, id, launch, attempt, opening);
    }

    /// Opens a driven stream, in a task of its own; [`Control::handle_attempted`] goes on.
    fn attempt(
        &mut self,
        device_id: AttachmentId,
        id: RequestId,
        launch: u32,
        attempt: Attempt,
        opening: Opening,
    ) {
        let attempt = Box::new(attempt);
        let messages = self.messages.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::task::spawn_local(async move {
            // Given up, the attempt is dropped here, and only then are its rings told to be free.
            let result = tokio::select! {
                result = opening => result,
                _ = stopped => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            let _ = messages.send(Message::Attempted { device: device_id, id, attempt, result });
        });
        let Some(device) = self.device(device_id) else { return };
        device.wait(id, launch, Wait::Attempt { _stop: stop });
    }

    /// An attempt ended: opens the stream, tries the next way, or takes back what was taken for it.
    pub(super) fn handle_attempted(
        &mut self,
        device_id: AttachmentId,
        id: RequestId,
        attempt: Box<Attempt>,
        result: io::Result<Opened>,
    ) {
        let Some(device) = self.device(device_id) else { return };
        let Attempt { slot, kind, rings, options, wish, next } = *attempt;
        let launch = device.waiting(id).map(|w| w.launch);
        let error = match (result, launch) {
            (Ok(opened), Some(_)) => {
                device.requests.remove(&id.control);
                self.routes.note(wish.to, kind, true);
                return self.open_driven(device_id, id, slot, rings, &options, opened);
            }
            // Given up meanwhile: the connection closes as `result` is dropped here, before its rings
            // are free for others.
            (_, None) => {
                device.give_rings(rings);
                device.recycle(slot);
                return self.serve_starved(device_id);
            }
            (Err(error), Some(_)) => error,
        };
        let launch = launch.unwrap_or_default();
        device.give_rings(rings);
        let no_device_rings = rings.region == DEVICE && error.kind() == io::ErrorKind::Unsupported;
        if no_device_rings {
            device.refuse_device_rings(&error);
        }
        match next {
            _ if no_device_rings => self.start_connect(device_id, id, launch, wish, kind, next),
            Some(next) => {
                tracing::info!(to = %wish.to, %error, "not by rc: tcp instead");
                self.routes.note(wish.to, kind, false);
                self.start_connect(device_id, id, launch, wish, next, None);
            }
            None => {
                tracing::debug!(slot, %error, "not connected");
                let errno = device.refused(format_args!("cannot open a connection"), &error);
                device.recycle(slot);
                device.reply_result(id, Err(errno));
            }
        }
        self.serve_starved(device_id);
    }

    /// Hands an open connection to its data thread and answers the request that waits for it.
    pub(super) fn open_driven(
        &mut self,
        device_id: AttachmentId,
        id: RequestId,
        slot: u32,
        rings: Rings,
        options: &Options,
        opened: Opened,
    ) {
        let shard = self.shard(slot).clone();
        let Some(device) = self.device(device_id) else { return };
        let entry = &mut device.slots[slot as usize];
        let generation = entry.generation;
        entry.role = Role::Stream(Stream {
            memory: StreamMemory::Own(rings),
            linger_ms: options.linger_ms,
            closed: false,
            partner: None,
            final_positions: None,
            addrs: Some((opened.local, opened.peer)),
            transport: opened.kind,
        });
        device.attached.memory.open_line(slot, generation);
        // Here and not by the data thread: who has the reply finds the stream counted.
        device.attached.totals.open();
        let mut reply = Reply::new(0, 0);
        reply.descriptor = device.driven_descriptor(slot, rings, &opened);
        let span = device.enter_span(slot, opened.kind, (opened.local, opened.peer));
        let stream = OpenStream { generation, io: opened.io, rings, span };
        shard.send(Command::Open { device: device_id, slot, stream });
        device.reply(id, &reply);
    }

    /// Closes whatever stands in the request's slot.
    pub(super) fn close(&mut self, device_id: AttachmentId, request: &Request) {
        let slot = request.slot;
        let Some(device) = self.device(device_id) else { return };
        match &mut device.slots[slot as usize].role {
            Role::Stream(stream) => {
                stream.final_positions = Some((request.send_position, request.recv_position));
                self.close_stream(device_id, slot, None);
            }
            Role::Listener(_) => self.close_listener(device_id, slot),
            Role::Bound(_) => device.recycle(slot),
            Role::Free => device.refuse_slot(slot, request.generation),
            Role::Opening | Role::Retired(_) => {}
        }
    }

    /// Closes a stream; `linger_ms` overrides the socket's own.
    pub(super) fn close_stream(&mut self, device_id: AttachmentId, slot: u32, linger_ms: Option<i32>) {
        let default_linger = self.linger.as_nanos() as u64;
        let shard = self.shard(slot).clone();
        let Some(device) = self.device(device_id) else { return };
        let Role::Stream(stream) = &mut device.slots[slot as usize].role else { return };
        if std::mem::replace(&mut stream.closed, true) {
            return;
        }
        let linger_ms = linger_ms.unwrap_or(stream.linger_ms);
        if stream.partner.is_some() {
            return self.close_direct(device_id, slot, linger_ms);
        }
        let linger_ns = u64::try_from(linger_ms).map_or(default_linger, |ms| ms * 1_000_000);
        shard.send(Command::Close { device: device_id, slot, linger_ns });
    }

    /// Closes one end of a direct stream. Its slot and the other's come back when both are closed, and
    /// so do the rings: until then the other end reads what is in them.
    fn close_direct(&mut self, device_id: AttachmentId, slot: u32, linger_ms: i32) {
        let Some(device) = self.device(device_id) else { return };
        let Role::Stream(ours) = device.slots[slot as usize].role else { return };
        let Some(partner) = ours.partner else { return };
        let theirs = self.partner_stream(partner);
        match theirs {
            Some((generation, theirs)) if !theirs.closed => {
                // The device said END in its words; a reset, or a kernel that is gone, said nothing.
                let status = Status::open(generation);
                let status = if linger_ms == 0 {
                    status.with_error(Error::ConnectionReset)
                } else {
                    status.with(Status::EOF | Status::NO_SEND)
                };
                let Some(device) = self.device(partner.device) else { return };
                device.attached.memory.set_status(partner.slot, status);
                if let StreamMemory::Arena(rings) = theirs.memory {
                    self.arenas.wake(partner.device, &rings);
                }
            }
            Some((_, theirs)) => {
                let (lost_here, lost_there) = match (ours.final_positions, theirs.final_positions) {
                    (Some(ours_at), Some(theirs_at)) => {
                        let (sent, received) = ours.memory.rings();
                        (unread(ours_at.0, theirs_at.1, sent), unread(theirs_at.0, ours_at.1, received))
                    }
                    // A kernel that left its end behind did not say what it read.
                    _ => (0, 0),
                };
                self.end_direct(device_id, slot, &ours, lost_here);
                self.end_direct(partner.device, partner.slot, &theirs, lost_there);
                self.check_detach(device_id);
                self.check_detach(partner.device);
            }
            // The other end's attachment is gone.
            None => {
                self.end_direct(device_id, slot, &ours, 0);
                self.check_detach(device_id);
            }
        }
    }

    /// The other end of a direct stream, if its attachment is still there.
    fn partner_stream(&mut self, partner: Partner) -> Option<(u32, Stream)> {
        let entry = self.device(partner.device)?.slots.get(partner.slot as usize)?;
        match entry.role {
            Role::Stream(stream) if entry.generation == partner.generation => {
                Some((entry.generation, stream))
            }
            _ => None,
        }
    }

    /// Both ends of a direct stream are closed, or the other's attachment is gone: ends this one.
    fn end_direct(&mut self, device_id: AttachmentId, slot: u32, stream: &Stream, lost: u64) {
        let Some(device) = self.device(device_id) else { return };
        device.attached.totals.close(lost);
        device.warn_undelivered(slot, lost);
        let (sent, received) = stream.final_positions.unwrap_or_default();
        self.past.add(stream.transport, Counts { sent, received, ..Counts::default() });
        self.end_stream(device_id, slot, stream);
    }

    /// A data thread is done with a stream.
    pub(super) fn handle_finished(
        &mut self,
        device_id: AttachmentId,
        SocketId { slot, generation }: SocketId,
        counts: Counts,
    ) {
        let Some(device) = self.device(device_id) else { return };
        let entry = &device.slots[slot as usize];
        let Role::Stream(stream) = entry.role else { return };
        if entry.generation == generation {
            self.past.add(stream.transport, counts);
            self.end_stream(device_id, slot, &stream);
            self.check_detach(device_id);
        }
    }

    /// Nothing of the proxy uses a stream any more: gives rings and slot back, or retires them.
    fn end_stream(&mut self, device_id: AttachmentId, slot: u32, stream: &Stream) {
        let Some(device) = self.device(device_id) else { return };
        let retiring = device.is_retiring(slot, stream);
        let Some(entry) = device.slots.get_mut(slot as usize) else { return };
        if retiring {
            entry.role = Role::Retired(Some(*stream));
        } else {
            self.free_stream(device_id, slot, stream);
        }
    }

    /// The host has released a retired stream: frees it, and its other end if that has waited for it.
    pub(super) fn release_stream(&mut self, device_id: AttachmentId, slot: u32, stream: &Stream) {
        let Some(device) = self.device(device_id) else { return };
        if device.is_retiring(slot, stream) {
            // The other end goes first.
            return;
        }
        let other = stream.partner.and_then(|partner| device.retired(partner).map(|other| (partner, other)));
        self.free_stream(device_id, slot, stream);
        if let Some((partner, other)) = other {
            self.free_stream(partner.device, partner.slot, &other);
        }
    }

    /// Gives the slot of a stream back that has ended, and its rings. The ends of a direct stream share
    /// theirs: the last one gives them back.
    pub(super) fn free_stream(&mut self, device_id: AttachmentId, slot: u32, stream: &Stream) {
        let is_last = stream.partner.is_none_or(|partner| !self.holds_rings(partner));
        match &stream.memory {
            StreamMemory::Arena(rings) => self.give_arena_rings(device_id, rings, is_last),
            StreamMemory::Own(rings) if is_last => {
                if let Some(device) = self.device(device_id) {
                    device.give_rings(*rings);
                }
            }
            StreamMemory::Own(_) => {}
        }
        if let Some(device) = self.device(device_id) {
            device.recycle(slot);
        }
        self.serve_starved(device_id);
    }

    /// Returns whether that end of a direct stream is there, open, closed or retired.
    fn holds_rings(&self, end: Partner) -> bool {
        let device = self.devices.get(&end.device);
        let entry = device.and_then(|device| device.slots.get(end.slot as usize));
        entry.is_some_and(|entry| {
            entry.generation == end.generation
                && matches!(entry.role, Role::Stream(_) | Role::Retired(Some(_)))
        })
    }
}

/// Bytes of a ring that its reader never read, by what its two ends said at close: no more than fit.
fn unread(sent: u64, consumed: u64, ring: Ring) -> u64 {
    sent.saturating_sub(consumed).min(ring.capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_claims_to_have_sent_is_bounded_by_its_ring() {
        let ring = Ring { offset: 0, log2: 12 };
        assert_eq!(unread(100, 60, ring), 40);
        assert_eq!(unread(60, 100, ring), 0);
        assert_eq!(unread(u64::MAX, 0, ring), 4096);
    }
}
