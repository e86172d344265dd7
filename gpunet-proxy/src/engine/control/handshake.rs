//! Handshakes: clients of a listener that become connections before an accept takes them.
//!
//! Over rc a connection needs rings before its client is answered, and the client's last message
//! before it is established. A client can stop in between, so no accept waits for a particular one:
//! the listener answers its clients by itself and keeps those that are established, as a kernel
//! does with TCP's. Only these count as ready. The clients that have begun and not finished are
//! bounded in number (`ListenerEntry::has_room`) and in time.

use super::at::At;
use super::tables::handshakes::{Handshakes, Pending};
use super::tables::shortage::Shortage;
use super::tables::{AttachmentEntry, Backlog, ListenerEntry};
use crate::model::message::{Message, Rings};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::DEVICE;
use gpunet_core::ids::SocketId;
use gpunet_core::transport::{Opened, Opening};
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Clients that a listener answers ahead of accepts.
const MAX_AHEAD: usize = 16;
/// A client that takes longer is given up. rdma_cm sends a message that was lost again after 4.3 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl ListenerEntry {
    /// Returns whether one more client may have rings. There is always one client more than waiting
    /// accepts, so that a single stopped client does not block others; there are more only while
    /// the attachment has rings to spare.
    fn has_room(&self, spare: bool) -> bool {
        let (clients, accepts) = (self.handshakes.len(), self.waiters.len());
        clients <= accepts || (spare && clients < accepts + MAX_AHEAD.min(self.backlog as usize))
    }
}

impl At<'_> {
    /// Answers the clients of a listener for which there is room; returns whether one is left.
    pub(super) fn answer_clients(&mut self, slot: u32) -> bool {
        loop {
            let region = self.rc_region();
            let spare = self.has_spare_rings(region);
            let Some(listener) = self.slots.listener_mut(slot) else { return false };
            let has_client = |backlog: &mut Backlog| backlog.short.is_none() && backlog.listen.has_request();
            let Some(at) = listener.backlogs.iter_mut().position(has_client) else { return false };
            if !listener.has_room(spare) {
                self.wait_for_room(slot);
                return true;
            }
            let (addr, options) = (listener.addr, listener.bound.options);
            let rings = match self.take_driven(TransportKind::Rc, &options) {
                Ok(rings) => rings,
                Err(shortage) => {
                    self.warn(shortage, format_args!("connections at {addr} wait"), None);
                    self.run_short(slot, at, shortage);
                    // Clients that were answered and send nothing more may hold what is short.
                    self.wait_for_room(slot);
                    continue;
                }
            };
            let memory = self.memory_of(rings);
            let Some(listener) = self.slots.listener_mut(slot) else { return false };
            match listener.backlogs[at].listen.answer(&memory) {
                Ok(opening) => self.begin_handshake(slot, rings, opening),
                Err(error) => {
                    self.give_rings(rings);
                    if rings.region == DEVICE && error.kind() == io::ErrorKind::Unsupported {
                        self.refuse_device_rings(&error);
                    } else if let Some(shortage) = Shortage::of(&error) {
                        self.warn(shortage, format_args!("connections at {addr} wait"), Some(&error));
                        self.run_short(slot, at, shortage);
                    } else {
                        // A local failure: the waiting accept reports it.
                        self.accept_failed(addr, &error);
                        let Some(listener) = self.slots.listener_mut(slot) else { return false };
                        listener.backlogs[at].listen.refuse();
                        if let Some(waiter) = listener.waiters.front().copied() {
                            self.cancel(waiter.request, crate::os::errno::from_io(&error));
                        }
                    }
                }
            }
        }
    }

    /// Handles a client for which there is no room: makes some if possible, and tries again soon.
    fn wait_for_room(&mut self, slot: u32) {
        let Some(listener) = self.slots.listener_mut(slot) else { return };
        let handshakes = &mut listener.handshakes;
        // An accept takes an established one, and so makes room.
        if !handshakes.pending.is_empty() || handshakes.established.is_empty() {
            handshakes.make_room();
            self.serve_again(slot);
        }
    }

    /// Completes a handshake in a task of its own, which reports to [`At::handle_handshake`].
    fn begin_handshake(&mut self, slot: u32, rings: Rings, opening: Opening) {
        let (messages, attachment) = (self.control.messages.clone(), self.state.id);
        let socket = self.slots.id(slot);
        let Some(listener) = self.slots.listener_mut(slot) else { return };
        let number = listener.handshakes.next_number;
        listener.handshakes.next_number += 1;
        let (stop, stopped) = oneshot::channel::<()>();
        listener.handshakes.pending.insert(number, Pending { since: Instant::now(), _stop: stop });
        tokio::task::spawn_local(async move {
            // If it is given up, the connection is dropped here, before the message says that its
            // rings are free.
            let result = tokio::select! {
                result = tokio::time::timeout(HANDSHAKE_TIMEOUT, opening) => {
                    result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                }
                _ = stopped => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            let _ = messages.send(Message::Handshake { attachment, listener: socket, number, rings, result });
        });
    }

    /// Handles the end of a handshake: its connection is ready for an accept, or its rings are
    /// free.
    pub(super) fn handle_handshake(
        &mut self,
        socket: SocketId,
        number: u64,
        rings: Rings,
        result: io::Result<Opened>,
    ) {
        let slot = socket.slot;
        // Another listener may have the slot by now.
        let same = self.slots.socket(socket).is_some();
        let mut listener = self.slots.listener_mut(slot).filter(|_| same);
        if let Some(listener) = &mut listener {
            listener.handshakes.pending.remove(&number);
        }
        match (listener, result) {
            (Some(listener), Ok(opened)) => listener.handshakes.established.push_back((rings, opened)),
            (None, Ok(opened)) => self.close_connection(rings, opened),
            (_, Err(error)) => {
                tracing::debug!(slot, %error, "a client did not complete the handshake");
                self.give_rings(rings);
            }
        }
        self.handle_listener_ready(socket);
        self.serve_starved();
    }

    /// Gives the first established connection to the first accept that waits; returns whether it
    /// did.
    pub(super) fn accept_established(&mut self, slot: u32) -> bool {
        let Some(listener) = self.slots.listener_mut(slot) else { return false };
        let options = listener.bound.options;
        if listener.waiters.is_empty() {
            return false;
        }
        let Some((rings, opened)) = listener.handshakes.established.pop_front() else { return false };
        let Some(waiter) = listener.waiters.pop_front() else { return false };
        self.show_taken(slot);
        self.open_driven(waiter.request, waiter.target, rings, &options, opened);
        true
    }
}

impl AttachmentEntry {
    /// Closes the connections of a closing listener that no accept has taken. Clients that were
    /// answered are given up by the drop; their tasks report when the rings are free.
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
