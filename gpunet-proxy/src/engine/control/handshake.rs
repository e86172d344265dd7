//! Handshakes: clients of a listener that become connections before an accept takes them.
//!
//! Over rc a connection needs rings before its client is answered, and the client's last message before
//! it is established. A client can stop in between, so no accept waits for a particular one: the listener
//! answers its clients by itself and keeps those that are established, as a kernel does with TCP's. Only
//! these count as ready. What a client can hold meanwhile is bounded in number (`ListenerEntry::has_room`) and
//! in time.

use super::Control;
use super::tables::handshakes::{Handshakes, Pending};
use super::tables::shortage::Shortage;
use super::tables::slots::Role;
use super::tables::{AttachmentEntry, Backlog, ListenerEntry};
use crate::model::message::{Message, Rings};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::DEVICE;
use gpunet_core::ids::{AttachmentId, SocketId};
use gpunet_core::transport::{Opened, Opening};
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Clients that a listener answers ahead of accepts.
const MAX_AHEAD: usize = 16;
/// A client that takes longer is given up. rdma_cm sends a message that was lost again after 4.3 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl ListenerEntry {
    /// Returns whether one more client may have rings. There is always one client more than waiting accepts, so
    /// that a single client that stops holds up nobody; there are more only while the attachment has rings to
    /// spare.
    fn has_room(&self, spare: bool) -> bool {
        let (clients, accepts) = (self.handshakes.len(), self.waiters.len());
        clients <= accepts || (spare && clients < accepts + MAX_AHEAD.min(self.backlog as usize))
    }
}

impl Control {
    /// Answers the clients of a listener for which there is room; returns whether one is left.
    pub(super) fn answer_clients(&mut self, attachment_id: AttachmentId, slot: u32) -> bool {
        loop {
            let Some(attachment) = self.attachment(attachment_id) else { return false };
            let spare = attachment.has_spare_rings(attachment.rc_region());
            let Some(listener) = attachment.listener(slot) else { return false };
            let has_client = |backlog: &mut Backlog| backlog.short.is_none() && backlog.listen.has_request();
            let Some(at) = listener.backlogs.iter_mut().position(has_client) else { return false };
            if !listener.has_room(spare) {
                self.wait_for_room(attachment_id, slot);
                return true;
            }
            let (addr, options) = (listener.addr, listener.bound.options);
            let rings = match attachment.take_driven(TransportKind::Rc, &options) {
                Ok(rings) => rings,
                Err(shortage) => {
                    attachment.warn(shortage, format_args!("connections at {addr} wait"), None);
                    self.run_short(attachment_id, slot, at, shortage);
                    // Clients that were answered and send nothing more may hold what is short.
                    self.wait_for_room(attachment_id, slot);
                    continue;
                }
            };
            let memory = attachment.memory_of(rings);
            let Some(listener) = attachment.listener(slot) else { return false };
            match listener.backlogs[at].listen.answer(&memory) {
                Ok(opening) => self.begin_handshake(attachment_id, slot, rings, opening),
                Err(error) => {
                    attachment.give_rings(rings);
                    if rings.region == DEVICE && error.kind() == io::ErrorKind::Unsupported {
                        attachment.refuse_device_rings(&error);
                    } else if let Some(shortage) = Shortage::of(&error) {
                        attachment.warn(shortage, format_args!("connections at {addr} wait"), Some(&error));
                        self.run_short(attachment_id, slot, at, shortage);
                    } else {
                        // A local failure: the waiting accept reports it.
                        attachment.accept_failed(addr, &error);
                        let Some(listener) = attachment.listener(slot) else { return false };
                        listener.backlogs[at].listen.refuse();
                        if let Some(waiter) = listener.waiters.front().copied() {
                            self.cancel(attachment_id, waiter.request, crate::os::errno::from_io(&error));
                        }
                    }
                }
            }
        }
    }

    /// Handles a client for which there is no room: makes some if possible, and tries again soon.
    fn wait_for_room(&mut self, attachment_id: AttachmentId, slot: u32) {
        let Some(listener) = self.attachment(attachment_id).and_then(|attachment| attachment.listener(slot))
        else {
            return;
        };
        let handshakes = &mut listener.handshakes;
        // An accept takes an established one, and so makes room.
        if !handshakes.pending.is_empty() || handshakes.established.is_empty() {
            handshakes.make_room();
            self.serve_again(attachment_id, slot);
        }
    }

    /// Completes a handshake in a task of its own, which reports to [`Control::handle_handshake`].
    fn begin_handshake(&mut self, attachment_id: AttachmentId, slot: u32, rings: Rings, opening: Opening) {
        let messages = self.messages.clone();
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let generation = attachment.slots[slot as usize].generation;
        let Some(listener) = attachment.listener(slot) else { return };
        let number = listener.handshakes.next_number;
        listener.handshakes.next_number += 1;
        let (stop, stopped) = oneshot::channel::<()>();
        listener.handshakes.pending.insert(number, Pending { since: Instant::now(), _stop: stop });
        tokio::task::spawn_local(async move {
            // If it is given up, the connection is dropped here, before the message says that its rings are free.
            let result = tokio::select! {
                result = tokio::time::timeout(HANDSHAKE_TIMEOUT, opening) => {
                    result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                }
                _ = stopped => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            let listener = SocketId { slot, generation };
            let _ = messages.send(Message::Handshake {
                attachment: attachment_id,
                listener,
                number,
                rings,
                result,
            });
        });
    }

    /// Handles the end of a handshake: its connection is ready for an accept, or its rings are free.
    pub(super) fn handle_handshake(
        &mut self,
        attachment_id: AttachmentId,
        socket: SocketId,
        number: u64,
        rings: Rings,
        result: io::Result<Opened>,
    ) {
        let SocketId { slot, generation } = socket;
        let Some(attachment) = self.attachment(attachment_id) else { return };
        // Another listener may have the slot by now.
        let same = attachment.slots[slot as usize].generation == generation;
        let mut listener = attachment.listener(slot).filter(|_| same);
        if let Some(listener) = &mut listener {
            listener.handshakes.pending.remove(&number);
        }
        match (listener, result) {
            (Some(listener), Ok(opened)) => listener.handshakes.established.push_back((rings, opened)),
            (None, Ok(opened)) => attachment.close_connection(rings, opened),
            (_, Err(error)) => {
                tracing::debug!(slot, %error, "a client did not complete the handshake");
                attachment.give_rings(rings);
            }
        }
        self.handle_listener_ready(attachment_id, socket);
        self.serve_starved(attachment_id);
    }

    /// Gives the first established connection to the first accept that waits; returns whether it did.
    pub(super) fn accept_established(&mut self, attachment_id: AttachmentId, slot: u32) -> bool {
        let Some(attachment) = self.attachment(attachment_id) else { return false };
        let Some(listener) = attachment.listener(slot) else { return false };
        let options = listener.bound.options;
        if listener.waiters.is_empty() {
            return false;
        }
        let Some((rings, opened)) = listener.handshakes.established.pop_front() else { return false };
        let Some(waiter) = listener.waiters.pop_front() else { return false };
        attachment.show_taken(slot);
        self.open_driven(attachment_id, waiter.request, waiter.target, rings, &options, opened);
        true
    }
}

impl AttachmentEntry {
    /// The listener in that slot, if there is one.
    pub(super) fn listener(&mut self, slot: u32) -> Option<&mut ListenerEntry> {
        match &mut self.slots.get_mut(slot as usize)?.role {
            Role::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// Closes the connections of a closing listener that no accept has taken. Clients that were answered are given
    /// up by the drop; their tasks report when the rings are free.
    pub(super) fn close_handshakes(&mut self, handshakes: Handshakes) {
        for (rings, opened) in handshakes.established {
            self.close_connection(rings, opened);
        }
    }

    /// Closes a connection, and then frees its rings.
    fn close_connection(&mut self, rings: Rings, opened: Opened) {
        drop(opened);
        self.give_rings(rings);
    }
}
