//! Handshakes: clients of a listener that become connections before an accept takes them.
//!
//! Over rc a connection needs rings before its client is answered, and the client's last message before
//! it is established. A client can stop in between, so no accept waits for a particular one: the listener
//! answers its clients by itself and keeps those that are established, as a kernel does with TCP's. Only
//! these count as ready. What a client can hold meanwhile is bounded in number (`Listener::has_room`) and
//! in time.

use super::Control;
use super::shortage::Shortage;
use super::tables::{Backlog, Device, Listener, Role};
use crate::model::message::{Message, Rings};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::DEVICE;
use gpunet_core::ids::{AttachmentId, SocketId};
use gpunet_core::transport::{Opened, Opening};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Clients that a listener answers beyond those for which an accept waits.
const AHEAD: usize = 16;
/// A client that takes longer is given up. rdma_cm sends a message that was lost again after 4.3 s.
const LIMIT: Duration = Duration::from_secs(10);
/// The same while others wait and there is no room for them.
const CROWDED_LIMIT: Duration = Duration::from_secs(1);

/// The clients of a listener that have rings and that no accept has taken.
#[derive(Default)]
pub(super) struct Handshakes {
    /// Those that were answered, by number: the first one has taken the longest.
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    /// Those that an accept takes at once.
    established: VecDeque<(Rings, Opened)>,
}

struct Pending {
    since: Instant,
    /// Dropped, it gives the client up; the handshake then says when its rings are free.
    _stop: oneshot::Sender<()>,
}

impl Handshakes {
    fn len(&self) -> usize {
        self.pending.len() + self.established.len()
    }

    /// How many connections an accept takes at once.
    pub(super) fn established(&self) -> u64 {
        self.established.len() as u64
    }

    /// Gives up the client that has taken the longest, if that was long enough while others wait.
    fn make_room(&mut self) {
        if let Some(oldest) = self.pending.first_entry()
            && oldest.get().since.elapsed() >= CROWDED_LIMIT
        {
            oldest.remove();
        }
    }
}

impl Listener {
    /// Returns whether one more client may have rings: one more than accepts wait for in any case, so that
    /// a single client that stops holds up nobody; more than that only while the attachment has rings
    /// to spare.
    fn has_room(&self, spare: bool) -> bool {
        let (clients, accepts) = (self.handshakes.len(), self.waiters.len());
        clients <= accepts || (spare && clients < accepts + AHEAD.min(self.backlog as usize))
    }
}

impl Control {
    /// Answers the clients of a listener for which there is room; returns whether one is left.
    pub(super) fn answer_clients(&mut self, device_id: AttachmentId, slot: u32) -> bool {
        loop {
            let Some(device) = self.device(device_id) else { return false };
            let spare = device.has_spare_rings(device.rc_region());
            let Some(listener) = device.listener(slot) else { return false };
            let has_client = |backlog: &mut Backlog| backlog.short.is_none() && backlog.listen.has_request();
            let Some(at) = listener.backlogs.iter_mut().position(has_client) else { return false };
            if !listener.has_room(spare) {
                self.wait_for_room(device_id, slot);
                return true;
            }
            let (addr, options) = (listener.addr, listener.bound.options);
            let rings = match device.take_driven(TransportKind::Rc, options.send_log2, options.recv_log2) {
                Ok(rings) => rings,
                Err(shortage) => {
                    device.warn(shortage, format_args!("connections at {addr} wait"), None);
                    self.run_short(device_id, slot, at, shortage);
                    // Those that were answered and say nothing more may hold what is short.
                    self.wait_for_room(device_id, slot);
                    continue;
                }
            };
            let memory = device.memory_of(rings);
            let Some(listener) = device.listener(slot) else { return false };
            match listener.backlogs[at].listen.answer(&memory) {
                Ok(opening) => self.begin_handshake(device_id, slot, rings, opening),
                Err(error) => {
                    device.give_rings(rings);
                    if rings.region == DEVICE && error.kind() == io::ErrorKind::Unsupported {
                        device.refuse_device_rings(&error);
                    } else if let Some(shortage) = Shortage::of(&error) {
                        device.warn(shortage, format_args!("connections at {addr} wait"), Some(&error));
                        self.run_short(device_id, slot, at, shortage);
                    } else {
                        // This machine's fault: whoever waits learns it.
                        device.accept_failed(addr, &error);
                        let Some(listener) = device.listener(slot) else { return false };
                        listener.backlogs[at].listen.refuse();
                        if let Some(waiter) = listener.waiters.front().copied() {
                            self.cancel(device_id, waiter.request.control, crate::errno::errno(&error));
                        }
                    }
                }
            }
        }
    }

    /// A client waits and there is no room for it: makes some if it can, and looks again soon.
    fn wait_for_room(&mut self, device_id: AttachmentId, slot: u32) {
        let Some(listener) = self.device(device_id).and_then(|device| device.listener(slot)) else { return };
        let handshakes = &mut listener.handshakes;
        // Of those that are established an accept takes one, and so makes room.
        if !handshakes.pending.is_empty() || handshakes.established.is_empty() {
            handshakes.make_room();
            self.serve_again(device_id, slot);
        }
    }

    /// Waits for a client that was answered, in a task of its own; [`Control::handle_handshake`] goes on.
    fn begin_handshake(&mut self, device_id: AttachmentId, slot: u32, rings: Rings, opening: Opening) {
        let messages = self.messages.clone();
        let Some(device) = self.device(device_id) else { return };
        let generation = device.slots[slot as usize].generation;
        let Some(listener) = device.listener(slot) else { return };
        let number = listener.handshakes.next_number;
        listener.handshakes.next_number += 1;
        let (stop, stopped) = oneshot::channel::<()>();
        listener.handshakes.pending.insert(number, Pending { since: Instant::now(), _stop: stop });
        tokio::task::spawn_local(async move {
            // Given up, the connection is dropped here, and only then are its rings told to be free.
            let result = tokio::select! {
                result = tokio::time::timeout(LIMIT, opening) => {
                    result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                }
                _ = stopped => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            let listener = SocketId { slot, generation };
            let _ = messages.send(Message::Handshake { device: device_id, listener, number, rings, result });
        });
    }

    /// A handshake ended: its connection is ready for an accept, or its rings are free.
    pub(super) fn handle_handshake(
        &mut self,
        device_id: AttachmentId,
        socket: SocketId,
        number: u64,
        rings: Rings,
        result: io::Result<Opened>,
    ) {
        let SocketId { slot, generation } = socket;
        let Some(device) = self.device(device_id) else { return };
        // Another listener may have the slot by now.
        let same = device.slots[slot as usize].generation == generation;
        let mut listener = device.listener(slot).filter(|_| same);
        if let Some(listener) = &mut listener {
            listener.handshakes.pending.remove(&number);
        }
        match (listener, result) {
            (Some(listener), Ok(opened)) => listener.handshakes.established.push_back((rings, opened)),
            (None, Ok(opened)) => device.close_connection(rings, opened),
            (_, Err(error)) => {
                tracing::debug!(slot, %error, "a client did not complete the handshake");
                device.give_rings(rings);
            }
        }
        self.handle_listener_ready(device_id, socket);
        self.serve_starved(device_id);
    }

    /// Gives the first established connection to the first accept that waits; returns whether it did.
    pub(super) fn accept_established(&mut self, device_id: AttachmentId, slot: u32) -> bool {
        let Some(device) = self.device(device_id) else { return false };
        let Some(listener) = device.listener(slot) else { return false };
        let options = listener.bound.options;
        if listener.waiters.is_empty() {
            return false;
        }
        let Some((rings, opened)) = listener.handshakes.established.pop_front() else { return false };
        let Some(waiter) = listener.waiters.pop_front() else { return false };
        self.open_driven(device_id, waiter.request, waiter.target, rings, &options, opened);
        true
    }
}

impl Device {
    /// The listener in that slot, if there is one.
    pub(super) fn listener(&mut self, slot: u32) -> Option<&mut Listener> {
        match &mut self.slots.get_mut(slot as usize)?.role {
            Role::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// Ends what no accept has taken of a listener that closes. Clients that were answered are given up by
    /// the drop, and tell when their rings are free.
    pub(super) fn close_handshakes(&mut self, handshakes: Handshakes) {
        for (rings, opened) in handshakes.established {
            self.close_connection(rings, opened);
        }
    }

    /// Closes a connection; its rings are free afterwards, and not before.
    fn close_connection(&mut self, rings: Rings, opened: Opened) {
        drop(opened);
        self.give_rings(rings);
    }
}
