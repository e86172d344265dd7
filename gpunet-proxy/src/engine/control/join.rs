//! Direct streams between two attachments: a connect that has met an accept needs rings in an arena.
//!
//! While the two have no arena with room, one is made, and the connect waits for it. The accept serves other
//! connections meanwhile, since the connecting process may take its time to map memory, or have stopped. Once there
//! is an arena, the connect is the first in the listener's backlog again.

use super::Control;
use super::arena::{Pair, Room, Taken, pair_of};
use super::pair::{Meeting, ring_sizes};
use super::request::allowed;
use super::tables::pending::Wait;
use super::tables::regions::ArenaRings;
use super::tables::slots::Role;
use super::tables::{StreamMemory, Waiter};
use gpunet_abi::options::{DEFAULT_RING_LOG2, TransportKind};
use gpunet_abi::{Error, Options};
use gpunet_core::ids::{AttachmentId, LaunchId, RequestId};
use gpunet_core::transport::Connect;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The connects that wait, in the order in which they came.
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

impl Join {
    fn pair(&self) -> Pair {
        pair_of(self.connect.ticket.attachment, self.listener.0)
    }
}

impl Control {
    /// Makes sure that there is an arena with room before a connect to another attachment's listener joins the
    /// backlog, so that even an accept that does not wait finds it. Returns whether the connect waits for an arena.
    pub(super) fn prepare(&mut self, id: RequestId, launch: LaunchId, connect: &Connect) -> bool {
        let connector = connect.ticket.attachment;
        let Some(listener) = self.listener_at(connect.to).filter(|at| at.0 != connector) else {
            return false;
        };
        let entry = self
            .attachments
            .get(&listener.0)
            .and_then(|attachment| attachment.slots.get(listener.1 as usize));
        let Some(Role::Listener(entry)) = entry.map(|entry| &entry.role) else { return false };
        let (options, at) = (entry.bound.options, entry.addr);
        let (up, down) = ring_sizes(&connect.options, &options, DEFAULT_RING_LOG2);
        let making = match self.arenas.room_for(connector, listener.0, down, up) {
            Room::Available => false,
            Room::Pending => true,
            // If none can be made, the accept finds out, and the connect tries another transport.
            Room::None => self.make_arena((connector, listener.0), (down, up), &options),
        };
        if let (Some(attachment), true) = (self.attachment(connector), making) {
            let connect = Box::new(connect.clone());
            attachment.wait(id, launch, Wait::Queued { slot: connect.ticket.slot, connect: connect.clone() });
            self.wait_for_arena(Join { listener, at, options, connect });
        }
        making
    }

    /// Joins a connect and an accept of two attachments if there is room in an arena of theirs. Otherwise the
    /// connect waits for an arena, and the accept for the next connection.
    pub(super) fn join(&mut self, listener: (AttachmentId, u32), waiter: Waiter, meeting: Meeting) {
        let (client, server) = (meeting.client.attachment, meeting.server.attachment);
        let ((up, down), options) = (meeting.sizes(DEFAULT_RING_LOG2), meeting.server.options);
        let making = match self.arenas.take(client, server, down, up) {
            Taken::Rings(clients, servers) => {
                self.share_arena(clients.arena);
                return self.open_joined(&meeting, clients, servers);
            }
            Taken::Pending => true,
            Taken::None => self.make_arena((client, server), (down, up), &options),
        };
        if let Some(attachment) = self.attachment(listener.0) {
            attachment.wait_first(listener.1, waiter);
        }
        let Meeting { connect, at, .. } = meeting;
        let join = Join { listener, at, options, connect };
        if making { self.wait_for_arena(join) } else { self.give_up_join(join) }
    }

    fn open_joined(&mut self, meeting: &Meeting, clients: ArenaRings, servers: ArenaRings) {
        let ends = [(&meeting.client, &meeting.server, clients), (&meeting.server, &meeting.client, servers)];
        // Both ends are in the tables before either is answered.
        for (end, other, rings) in &ends {
            if let Some(attachment) = self.attachments.get_mut(&end.attachment) {
                attachment.requests.remove(&end.request);
                attachment.open_end(end, other, StreamMemory::Arena(*rings));
            }
        }
        let polled = [&meeting.client, &meeting.server]
            .map(|end| self.attachments.get(&end.attachment).is_some_and(|it| it.state.polled));
        let options = [&meeting.client.options, &meeting.server.options];
        let has_lines = self.lines.has(options, polled[0] || polled[1]);
        for ((end, other, rings), peer_polls) in ends.into_iter().zip([polled[1], polled[0]]) {
            let numbers = self.arenas.regions(rings.arena, end.attachment);
            let layout = self.arenas.layout(rings.arena);
            let (Some(numbers), Some(layout)) = (numbers, layout) else { continue };
            if let Some(attachment) = self.attachments.get_mut(&end.attachment) {
                let addrs = (end.addr, other.addr);
                let descriptor =
                    attachment.arena_descriptor(numbers, &layout, peer_polls, &rings, has_lines, addrs);
                attachment.reply_end(end, descriptor);
            }
        }
    }

    /// Keeps a connect until the arena that is being made is ready.
    fn wait_for_arena(&mut self, join: Join) {
        let id = self.joins.begun;
        self.joins.begun += 1;
        let Some(attachment) = self.attachment(join.connect.ticket.attachment) else { return };
        if let Some(waiting) = attachment.requests.get_mut(&join.connect.ticket.request) {
            waiting.what = Wait::Joining { join: id };
            self.joins.waiting.insert(id, join);
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
            let attachment = self.attachments.get_mut(&ticket.attachment);
            if let Some(waiting) =
                attachment.and_then(|attachment| attachment.requests.get_mut(&ticket.request))
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
        for (attachment, slot) in self.queue_again(ids) {
            self.serve(attachment, slot);
        }
    }

    /// Handles the failure to make a pair's arena: another one is tried (`again`), or the connects try another
    /// transport.
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
        let connect = join.connect;
        let ticket = connect.ticket;
        let Some(attachment) = self.attachment(ticket.attachment) else { return };
        let Some(waiting) = attachment.requests.remove(&ticket.request) else { return };
        if allowed(connect.options.transport, TransportKind::Tcp) {
            tracing::info!(to = %connect.to, "no memory to share with that peer: not peer but the next transport");
            let (kind, next) = self.routes.plan(&connect);
            self.start_connect(ticket.attachment, ticket.request, waiting.launch, *connect, kind, next);
        } else {
            attachment.recycle(ticket.slot);
            attachment.reply_result(ticket.request, Err(Error::NoBuffers));
        }
    }

    /// Forgets a connect that waited for an arena and is given up.
    pub(super) fn leave_join(&mut self, attachment_id: AttachmentId, id: u64) {
        let Some(join) = self.joins.waiting.remove(&id) else { return };
        if let Some(attachment) = self.attachment(attachment_id) {
            attachment.recycle(join.connect.ticket.slot);
        }
    }

    /// Puts the joins of a listener that closes back into its backlog, which closes with it.
    pub(super) fn leave_joins_at(&mut self, listener: (AttachmentId, u32)) {
        let ids = self.joins_of(|join| join.listener == listener);
        self.queue_again(ids);
    }
}
