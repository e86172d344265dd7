//! Connections that are accepted before a group of the device asks for them, in slots that the
//! device has prepared ([`gpunet_abi::accept`]).
//!
//! Only connections of driven transports that wait in a system's queue are accepted ahead, while no
//! accept waits, no other connection waits for an accept, and ring memory is free. Until a group
//! takes it, such a stream belongs to its listener, and afterwards to the launch that the device
//! names.

use super::at::At;
use super::tables::ahead::Ahead;
use super::tables::shortage::Shortage;
use super::tables::slots::{Role, Slot};
use super::tables::{AttachmentEntry, Backlog, ListenerEntry};
use gpunet_abi::Handle;
use gpunet_abi::accept::PREPARED;
use gpunet_abi::control::{Descriptor, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::SHARED;
use gpunet_core::ids::{LaunchId, RequestId, SocketId};
use gpunet_core::transport::Accepted;
use std::io;

/// The slots that a request prepares.
pub(super) fn slots_of(request: &Request) -> impl Iterator<Item = Option<Handle>> {
    request.slots.iter().take_while(|&&raw| raw != 0).map(|&raw| Handle::from_raw(raw))
}

impl AttachmentEntry {
    /// Returns whether the device can just have prepared these slots for the listener: each is
    /// fresh, none of the host program's, and named once, and their positions are free and near.
    pub(super) fn could_prepare(&self, listener: &ListenerEntry, request: &Request) -> bool {
        let ahead = &listener.ahead;
        let near = ahead.accepted..ahead.accepted + PREPARED as u64;
        let mut named = Vec::with_capacity(PREPARED);
        let good = near.contains(&request.value)
            && (request.value..).zip(slots_of(request)).all(|(position, handle)| {
                let Some(handle) = handle else { return false };
                let is_new = !named.contains(&handle.slot());
                named.push(handle.slot());
                is_new
                    && near.contains(&position)
                    && !ahead.prepared.contains_key(&position)
                    && !ahead.refused.contains_key(&position)
                    && !self.state.memory.is_host_slot(handle.slot())
                    && self.is_fresh(handle.slot(), handle.generation())
            });
        good && !named.is_empty()
    }

    /// Returns whether listeners may hold the slots of that request, too: all of them together hold
    /// a quarter at most, so that other sockets find some.
    pub(super) fn may_hold(&self, request: &Request) -> bool {
        self.prepared + slots_of(request).count() <= self.kernel_slots() / 4
    }

    /// The connections of a listener that no group has taken.
    pub(super) fn untaken<'a>(&'a self, ahead: &'a Ahead) -> impl Iterator<Item = SocketId> + 'a {
        ahead.since(0).filter(|&socket| {
            self.slots.socket(socket).is_some_and(|entry| entry.accepted_ahead)
                && self.state.memory.taker(socket.slot).is_none()
        })
    }

    /// Returns whether one more connection may be accepted ahead: the listener stays open, and its
    /// queue has room.
    fn has_room_ahead(&self, listener_slot: u32) -> bool {
        let Some(listener) = self.slots.listener(listener_slot) else { return false };
        let backlog = listener.backlog as usize;
        // The sockets that a failed launch has left were counted. They are closed in several turns,
        // together with nothing that arrives now.
        !self.slots[listener_slot].retiring
            && (backlog >= PREPARED || self.untaken(&listener.ahead).count() < backlog)
    }

    /// Notes which streams that were accepted ahead are a launch's: those that it has taken, and,
    /// with `untaken`, those that nobody has taken from its listeners. The latter are reset when
    /// they are closed.
    pub(super) fn assign_accepted(&mut self, launch: LaunchId, untaken: bool) {
        let memory = self.state.memory.clone();
        for (slot, entry) in self.slots.iter_mut() {
            if entry.accepted_ahead && memory.taker(slot) == Some(launch) {
                (entry.launch, entry.accepted_ahead) = (Some(launch), false);
            }
        }
        if !untaken {
            return;
        }
        let left = |entry: &Slot| match &entry.role {
            Role::Listener(listener) if entry.launch == Some(launch) => {
                self.untaken(&listener.ahead).collect()
            }
            _ => Vec::new(),
        };
        let left: Vec<SocketId> = self.slots.iter().flat_map(|(_, entry)| left(entry)).collect();
        for SocketId { slot, .. } in left {
            let entry = &mut self.slots[slot];
            (entry.launch, entry.accepted_ahead) = (Some(launch), false);
            if let Role::Stream(stream) = &mut entry.role {
                stream.linger_ms = 0;
            }
        }
    }

    /// Passes over the positions of a request that could prepare slots and is refused: a group that
    /// takes one of them finds no connection there. Called before the slots are free again.
    pub(super) fn pass_over(&mut self, request: &Request) {
        let memory = self.state.memory.clone();
        let Some(listener) = self.slots.listener_mut(request.slot) else { return };
        for (position, handle) in (request.value..).zip(slots_of(request).flatten()) {
            let socket = SocketId { slot: handle.slot(), generation: handle.generation() };
            memory.write_accepted(socket.slot, &Descriptor::default());
            listener.ahead.refused.insert(position, socket);
        }
        let before = listener.ahead.accepted();
        listener.ahead.pass_over();
        let accepted = listener.ahead.accepted();
        if accepted > before {
            memory.released(request.slot).publish(accepted);
            memory.wake_slot(request.slot);
        }
    }

    /// Shows the device a stream that was accepted ahead.
    fn hand_over(&mut self, listener_slot: u32, slot: u32, descriptor: &Descriptor) {
        let entry = &mut self.slots[slot];
        (entry.launch, entry.accepted_ahead) = (None, true);
        let socket = SocketId { slot, generation: entry.generation };
        let memory = self.state.memory.clone();
        let Some(listener) = self.slots.listener_mut(listener_slot) else { return };
        listener.ahead.accept(socket);
        let accepted = listener.ahead.accepted();
        self.prepared -= 1;
        self.show_taken(listener_slot);
        memory.write_accepted(slot, descriptor);
        memory.released(listener_slot).publish(accepted);
        memory.wake_slot(listener_slot);
    }
}

impl ListenerEntry {
    /// Returns whether a connection waits that only an accept can take.
    fn must_be_asked(&mut self) -> bool {
        let is_peer =
            |backlog: &mut Backlog| backlog.listen.kind() == TransportKind::Peer && backlog.may_serve();
        self.handshakes.established() > 0 || self.backlogs.iter_mut().any(is_peer)
    }
}

impl At<'_> {
    /// Holds slots ready for connections of a listener.
    pub(super) fn hold_slots(&mut self, id: RequestId, request: &Request) {
        for (position, handle) in (request.value..).zip(slots_of(request).flatten()) {
            let entry = &mut self.slots[handle.slot()];
            (entry.generation, entry.role) = (handle.generation(), Role::Prepared);
            if let Some(listener) = self.slots.listener_mut(request.slot) {
                listener.ahead.prepared.insert(position, handle.slot());
                self.prepared += 1;
            }
        }
        self.reply_result(id, Ok(()));
        self.serve(request.slot);
    }

    /// Accepts a connection of a listener at which no accept waits, if one has arrived and can be
    /// opened. Returns whether to try the next. Connections that are left are for accepts, which
    /// report the shortage.
    pub(super) fn accept_ahead(&mut self, listener_slot: u32) -> bool {
        let spare = self.has_spare_rings(SHARED);
        let may_accept = !self.ending && spare && self.has_room_ahead(listener_slot);
        let Some(listener) = self.slots.listener_mut(listener_slot) else { return false };
        let options = listener.bound.options;
        let Some(&slot) = listener.ahead.prepared.get(&listener.ahead.accepted) else { return false };
        // Groups take connections that were accepted ahead before they send a request: at a busy
        // listener the others would wait for ever.
        if listener.must_be_asked() {
            return false;
        }
        let can_serve =
            |backlog: &mut Backlog| backlog.listen.kind() != TransportKind::Peer && backlog.may_serve();
        let Some(at) = listener.backlogs.iter_mut().position(can_serve) else { return false };
        if !may_accept {
            return false;
        }
        let (kind, addr) = (listener.backlogs[at].listen.kind(), listener.addr);
        let Ok(rings) = self.take_driven(kind, &options) else {
            return false;
        };
        if self.count_socket(slot).is_err() {
            self.give_rings(rings);
            return false;
        }
        let listener = self.slots.listener_mut(listener_slot);
        let accepted = listener.map(|listener| listener.backlogs[at].listen.accept());
        if let Some(Ok(Accepted::Driven(opened))) = accepted {
            let descriptor = self.open_stream(slot, rings, &options, opened);
            self.hand_over(listener_slot, slot, &descriptor);
            return true;
        }
        self.uncount_socket(slot);
        self.give_rings(rings);
        let Some(Err(error)) = accepted else { return false };
        // Another transport may have a connection.
        let is_empty = error.kind() == io::ErrorKind::WouldBlock;
        if !is_empty && Shortage::of(&error).is_none() {
            // It may have been this connection's end, and then no accept finds it.
            self.accept_failed(addr, &error);
        }
        is_empty
    }

    /// Ends what a closing listener has ahead of accepts. The connections that the device has not
    /// taken are reset: those after the first `taken`, or, if the device does not close it, those
    /// that no launch has and that no launch was left ([`AttachmentEntry::assign_accepted`]).
    pub(super) fn close_ahead(&mut self, ahead: &Ahead, taken: Option<u64>) {
        self.prepared -= ahead.prepared.len();
        ahead.prepared.values().for_each(|&slot| self.recycle(slot));
        let left: Vec<SocketId> = match taken {
            Some(taken) => ahead.since(taken).filter(|socket| self.slots.socket(*socket).is_some()).collect(),
            None => self.untaken(ahead).collect(),
        };
        left.into_iter().for_each(|SocketId { slot, .. }| self.close_stream(slot, Some(0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::control::plane::{Plane, run};
    use crate::model::message::Message;
    use gpunet_abi::control::Op;
    use gpunet_abi::{Error, Options, SockAddr};
    use gpunet_core::ids::{AttachmentId, HostRequestId};

    const ID: AttachmentId = AttachmentId(1);
    const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    const LISTENER: u32 = 1;

    /// Prepares a slot for the connection at a position; returns the errno.
    fn prepare(plane: &mut Plane, position: u64, slot: u32) -> u32 {
        let mut request = Request::new(Op::Prepare, LISTENER, 1, 0);
        (request.value, request.slots[0]) = (position, Handle::new(slot, 1).raw());
        plane.ask(ID, HostRequestId::new(0), request).try_recv().expect("an answer at once").errno
    }

    #[test]
    fn a_position_whose_slot_was_refused_is_passed_over() {
        for accepted_before in [false, true] {
            run(async {
                let mut plane = Plane::new();
                plane.attach(ID, false);
                let mut bind = Request::new(Op::Bind, LISTENER, 1, 0);
                (bind.address, bind.options) = (SockAddr::v4([127, 0, 0, 1], 0), TCP);
                (bind.flags, bind.backlog) = (Request::LISTEN, 8);
                let bound = plane.ask(ID, HostRequestId::new(0), bind).try_recv().expect("an answer at once");
                let address = bound.descriptor.local.to_std().expect("bound");
                let connect = |plane: &mut Plane| {
                    let client = std::net::TcpStream::connect(address).expect("it listens");
                    let socket = SocketId { slot: LISTENER, generation: 1 };
                    plane.control.handle(Message::ListenerReady { attachment: ID, socket });
                    client
                };
                let first = u64::from(accepted_before);
                if accepted_before {
                    assert_eq!(prepare(&mut plane, 0, 10), 0);
                }
                // Other listeners hold as many slots as they may.
                let attachment = plane.control.attachments.get_mut(ID).expect("attached");
                let held = attachment.kernel_slots() / 4;
                attachment.prepared += held;
                assert_eq!(prepare(&mut plane, first, 11), Error::TooManySockets.errno() as u32);
                plane.control.attachments.get_mut(ID).expect("attached").prepared -= held;
                assert_eq!(prepare(&mut plane, first, 12), Error::Protocol.errno() as u32, "passed");
                assert_eq!(prepare(&mut plane, first + 1, 13), 0);
                let clients: Vec<_> = (0..=first).map(|_| connect(&mut plane)).collect();
                let attachment = plane.control.attachments.get_mut(ID).expect("attached");
                assert_eq!(attachment.state.memory.released(LISTENER).observe(), first + 2);
                assert_eq!(attachment.prepared, 0, "all {} have a connection", clients.len());
                assert!(matches!(attachment.slots[11].role, Role::Free));
            });
        }
    }
}
