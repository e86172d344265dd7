//! Direct streams between two attachments: a connect that has met an accept needs rings in an
//! arena.
//!
//! While the two have no arena with room, one is made, and the connect waits for it. Until then the
//! accept serves other connections, since the connecting process may be slow to map memory, or may
//! have stopped. Once the arena exists, the connect is the first in the listener's backlog again.

use super::Control;
use super::arena::{Pair, Room, Taken, pair_of};
use super::at::At;
use super::pair::{Pairing, ring_sizes};
use super::request::allowed;
use super::tables::pending::Wait;
use super::tables::regions::ArenaRings;
use super::tables::{StreamMemory, Waiter};
use gpunet_abi::options::{DEFAULT_RING_LOG2, TransportKind};
use gpunet_abi::{Error, Options};
use gpunet_core::ids::{AttachmentId, LaunchId, RequestId};
use gpunet_core::transport::Connect;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The waiting connects, in the order of their arrival.
#[derive(Default)]
pub(super) struct Joins {
    waiting: BTreeMap<u64, Join>,
    begun: u64,
}

/// A connect that waits for an arena.
struct Join {
    /// Attachment and slot.
    listener: (AttachmentId, u32),
    /// The listener's address.
    at: SocketAddr,
    /// The listener's options.
    options: Options,
    connect: Box<Connect>,
}

impl Joins {
    /// Adds a connect; returns its number.
    fn add(&mut self, join: Join) -> u64 {
        let id = self.begun;
        self.begun += 1;
        self.waiting.insert(id, join);
        id
    }
}

impl Join {
    fn pair(&self) -> Pair {
        pair_of(self.connect.ticket.attachment, self.listener.0)
    }
}

impl At<'_> {
    /// Ensures that an arena with room exists before a connect to another attachment's
    /// listener joins the backlog, so that even an accept that does not wait finds it. Returns
    /// whether the connect waits for an arena.
    pub(super) fn prepare(&mut self, id: RequestId, launch: LaunchId, connect: &Connect) -> bool {
        let connector = connect.ticket.attachment;
        let control = &mut *self.control;
        let Some(listener) = control.listener_at(connect.to).filter(|at| at.0 != connector) else {
            return false;
        };
        let there = control.attachments.get(listener.0);
        let Some(entry) = there.and_then(|there| there.slots.listener(listener.1)) else { return false };
        let (options, at) = (entry.bound.options, entry.addr);
        let (up, down) = ring_sizes(&connect.options, &options, DEFAULT_RING_LOG2);
        let making = match control.arenas.room_for(connector, listener.0, down, up) {
            Room::Available => false,
            Room::Pending => true,
            // If no arena can be made, the accept finds that out, and the connect tries another
            // transport.
            Room::None => control.make_arena((connector, listener.0), (down, up), &options),
        };
        if making {
            let connect = Box::new(connect.clone());
            let join = self.control.joins.add(Join { listener, at, options, connect });
            self.wait(id, launch, Wait::Joining { join });
        }
        making
    }

    /// Joins a connect and an accept of two attachments if there is room in an arena of theirs.
    /// Otherwise the connect waits for an arena, and the accept for the next connection.
    pub(super) fn join(&mut self, listener_slot: u32, waiter: Waiter, pairing: Pairing) {
        let (client, server) = (pairing.client.partner.attachment, self.state.id);
        let ((up, down), options) = (pairing.sizes(DEFAULT_RING_LOG2), pairing.server.options);
        let making = match self.control.arenas.take(client, server, down, up) {
            Taken::Rings(clients, servers) => {
                self.control.share_arena(clients.arena);
                return self.control.open_joined(&pairing, clients, servers);
            }
            Taken::Pending => true,
            Taken::None => self.control.make_arena((client, server), (down, up), &options),
        };
        self.wait_first(listener_slot, waiter);
        let Pairing { connect, at, .. } = pairing;
        let join = Join { listener: (server, listener_slot), at, options, connect };
        if making { self.control.wait_for_arena(join) } else { self.control.give_up_join(join) }
    }

    /// Tries another transport for a connect that gets no direct stream.
    fn connect_elsewhere(&mut self, connect: Connect) {
        let ticket = connect.ticket;
        let Some(waiting) = self.requests.remove(&ticket.request) else { return };
        if allowed(connect.options.transport, TransportKind::Tcp) {
            tracing::info!(to = %connect.to, "no memory to share with that peer: not peer but the next transport");
            let (kind, next) = self.control.routes.plan(&connect);
            self.start_connect(ticket.request, waiting.launch, connect, kind, next);
        } else {
            self.recycle(ticket.slot);
            self.reply_result(ticket.request, Err(Error::NoBuffers));
        }
    }

    /// Forgets a connect of this attachment that waited for an arena and is given up.
    pub(super) fn leave_join(&mut self, id: u64) {
        if let Some(join) = self.control.joins.waiting.remove(&id) {
            self.recycle(join.connect.ticket.slot);
        }
    }
}

impl Control {
    fn open_joined(&mut self, pairing: &Pairing, clients: ArenaRings, servers: ArenaRings) {
        let ends = [(&pairing.client, &pairing.server, clients), (&pairing.server, &pairing.client, servers)];
        let mut polled = [false; 2];
        // Both ends are in the tables before either is answered.
        for ((end, other, rings), polled) in ends.iter().zip(&mut polled) {
            if let Some(attachment) = self.attachments.get_mut(end.partner.attachment) {
                attachment.requests.remove(&end.request);
                attachment.open_end(end, other, StreamMemory::Arena(*rings));
                *polled = attachment.state.polled;
            }
        }
        let options = [&pairing.client.options, &pairing.server.options];
        let has_lines = self.has_lines(options, polled[0] || polled[1]);
        for ((end, other, rings), peer_polls) in ends.into_iter().zip([polled[1], polled[0]]) {
            let numbers = self.arenas.regions(rings.arena, end.partner.attachment);
            let layout = self.arenas.layout(rings.arena);
            let (Some(numbers), Some(layout)) = (numbers, layout) else { continue };
            if let Some(attachment) = self.attachments.get_mut(end.partner.attachment) {
                let addrs = (end.addr, other.addr);
                let descriptor =
                    attachment.arena_descriptor(numbers, &layout, peer_polls, &rings, has_lines, addrs);
                attachment.reply_end(end, descriptor);
            }
        }
    }

    /// Keeps a connect until the arena that is being made is ready.
    fn wait_for_arena(&mut self, join: Join) {
        let ticket = join.connect.ticket;
        let connector = self.attachments.get_mut(ticket.attachment);
        if let Some(waiting) = connector.and_then(|connector| connector.requests.get_mut(&ticket.request)) {
            waiting.what = Wait::Joining { join: self.joins.add(join) };
        }
    }

    fn joins_of(&self, which: impl Fn(&Join) -> bool) -> Vec<u64> {
        self.joins.waiting.iter().filter(|(_, join)| which(join)).map(|(&id, _)| id).collect()
    }

    /// Puts connects back at the head of the backlogs that they came from; returns the listeners.
    fn queue_again(&mut self, ids: Vec<u64>) -> Vec<(AttachmentId, u32)> {
        let mut listeners = Vec::new();
        // In reverse, so that the first is the first again.
        for id in ids.into_iter().rev() {
            let Some(Join { listener, at, connect, .. }) = self.joins.waiting.remove(&id) else {
                continue;
            };
            let ticket = connect.ticket;
            let connector = self.attachments.get_mut(ticket.attachment);
            if let Some(waiting) = connector.and_then(|connector| connector.requests.get_mut(&ticket.request))
            {
                waiting.what = Wait::Queued { slot: ticket.slot, connect };
                self.peer.put_back(at, ticket);
                if !listeners.contains(&listener) {
                    listeners.push(listener);
                }
            }
        }
        listeners
    }

    /// Continues the connects that wait for an arena of a pair: it is ready.
    pub(super) fn resume_joins(&mut self, pair: Pair) {
        let ids = self.joins_of(|join| join.pair() == pair);
        for listener in self.queue_again(ids) {
            self.serve_at(listener);
        }
    }

    /// Handles the failure to make a pair's arena: another one is tried (`again`), or the connects
    /// try another transport.
    pub(super) fn retry_joins(&mut self, pair: Pair, again: bool) {
        let ids = self.joins_of(|join| join.pair() == pair);
        let first = ids.first().and_then(|id| self.joins.waiting.get(id));
        let wanted = first.map(|join| {
            ((join.connect.ticket.attachment, join.listener.0), join.connect.options, join.options)
        });
        if let (Some((pair, client, server)), true) = (wanted, again)
            && let (up, down) = ring_sizes(&client, &server, DEFAULT_RING_LOG2)
            && self.make_arena(pair, (down, up), &server)
        {
            // They wait for the new one.
            return;
        }
        for id in ids {
            if let Some(join) = self.joins.waiting.remove(&id) {
                self.give_up_join(join);
            }
        }
    }

    /// Gives up a direct stream: the connect tries another transport.
    fn give_up_join(&mut self, join: Join) {
        if let Some(mut connector) = self.at(join.connect.ticket.attachment) {
            connector.connect_elsewhere(*join.connect);
        }
    }

    /// Puts the joins of a listener that closes back into its backlog, which closes with it.
    pub(super) fn leave_joins_at(&mut self, listener: (AttachmentId, u32)) {
        let ids = self.joins_of(|join| join.listener == listener);
        self.queue_again(ids);
    }
}
