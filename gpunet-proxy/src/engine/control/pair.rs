//! Direct streams: puts a waiting accept and a waiting connect together.
//!
//! The sender's ring is the receiver's, and each end writes the words that the other polls. After the two replies
//! the proxy has no part in the stream until one end closes. Here both ends are sockets of one device; `join` has
//! those of two.

use super::Control;
use super::tables::pending::{PendingRequest, Wait};
use super::tables::shortage::Shortage;
use super::tables::slots::Role;
use super::tables::{AttachmentEntry, Partner, StreamEntry, StreamMemory, Waiter};
use crate::model::message::Rings;
use gpunet_abi::control::{Descriptor, Reply};
use gpunet_abi::options::{AUTO_RING, MIN_RING_LOG2, TransportKind};
use gpunet_abi::{Error, Options};
use gpunet_core::ids::{AttachmentId, RequestId};
use gpunet_core::transport::Connect;
use gpunet_core::transport::peer::Ticket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One end of a pair.
pub(super) struct End {
    pub(super) attachment: AttachmentId,
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) request: RequestId,
    pub(super) options: Options,
    pub(super) addr: SocketAddr,
}

impl End {
    pub(super) const fn partner(&self) -> Partner {
        Partner { attachment: self.attachment, slot: self.slot, generation: self.generation }
    }
}

/// A connect and an accept that belong together.
pub(super) struct Meeting {
    pub(super) client: End,
    pub(super) server: End,
    /// The connect.
    pub(super) connect: Box<Connect>,
    /// The listener's address.
    pub(super) at: SocketAddr,
}

impl Meeting {
    /// log2 of the rings towards the server and towards the client: each direction has one ring, the
    /// larger of what its two ends asked for, `chosen` where neither did.
    pub(super) fn sizes(&self, chosen: u8) -> (u8, u8) {
        ring_sizes(&self.client.options, &self.server.options, chosen)
    }
}

/// log2 of the rings of a direct stream, towards the server and towards the client; `chosen` where neither end names
/// one.
pub(super) fn ring_sizes(client: &Options, server: &Options, chosen: u8) -> (u8, u8) {
    let larger = |a: u8, b: u8| match a.max(b) {
        AUTO_RING => chosen,
        asked => asked,
    };
    (larger(client.send_log2, server.recv_log2), larger(client.recv_log2, server.send_log2))
}

impl Control {
    /// An accept and a connect have met at a listener.
    ///
    /// # Errors
    /// What there is too little of for them: both wait where they were.
    pub(super) fn pair(
        &mut self,
        attachment_id: AttachmentId,
        listener_slot: u32,
        waiter: &Waiter,
        ticket: Ticket,
    ) -> Result<(), Shortage> {
        let Some(meeting) = self.meet(attachment_id, listener_slot, waiter, ticket) else {
            // The connect was just given up: the accept waits on.
            if let Some(attachment) = self.attachment(attachment_id) {
                attachment.wait_first(listener_slot, *waiter);
            }
            return Ok(());
        };
        if ticket.attachment != attachment_id {
            self.join((attachment_id, listener_slot), *waiter, meeting);
            return Ok(());
        }
        let lines = self.lines;
        let Some(attachment) = self.attachment(attachment_id) else { return Ok(()) };
        let Meeting { client, server, at, .. } = &meeting;
        let has_lines = lines.has([&client.options, &server.options], attachment.state.polled);
        let (asked, least) = (meeting.sizes(AUTO_RING), meeting.sizes(MIN_RING_LOG2));
        let sizes = meeting.sizes(attachment.direct_ring());
        match attachment.take_up_to(attachment.direct_region(), sizes, asked) {
            Some(clients) => {
                let servers = Rings { send: clients.recv, recv: clients.send, ..clients };
                attachment.open_end(client, server, StreamMemory::Own(clients));
                attachment.open_end(server, client, StreamMemory::Own(servers));
                for (end, other, rings) in [(client, server, clients), (server, client, servers)] {
                    let addrs = (end.addr, other.addr);
                    let descriptor =
                        attachment.direct_descriptor(end.slot, other.slot, rings, has_lines, addrs);
                    attachment.reply_end(end, descriptor);
                }
            }
            // They would not fit into empty ring memory either: whoever waits behind would wait for ever.
            None if !attachment.could_hold(attachment.direct_region(), least.0, least.1) => {
                attachment.wait_first(listener_slot, *waiter);
                self.cancel(ticket.attachment, client.request, Error::NoBuffers);
            }
            None => {
                let (at, shortage) = (*at, attachment.no_rings(attachment.direct_region()));
                attachment.warn(shortage, format_args!("accepts at {at} wait"), None);
                attachment.wait_first(listener_slot, *waiter);
                self.peer.put_back(at, ticket);
                return Err(shortage);
            }
        }
        Ok(())
    }

    /// Collects the two ends; `None` if the connect does not wait any more.
    pub(super) fn meet(
        &mut self,
        attachment_id: AttachmentId,
        listener_slot: u32,
        waiter: &Waiter,
        ticket: Ticket,
    ) -> Option<Meeting> {
        let attachment = self.attachment(attachment_id)?;
        let entry = attachment.slots.get(listener_slot as usize)?;
        let Role::Listener(listener) = &entry.role else { return None };
        let (accept_options, at) = (listener.bound.options, listener.addr);
        let generation = attachment.slots.get(waiter.target as usize)?.generation;
        let connector = self.attachment(ticket.attachment)?;
        let connect = match connector.requests.get(&ticket.request)? {
            PendingRequest { what: Wait::Queued { connect, .. }, .. } if connect.ticket == ticket => {
                connect.clone()
            }
            _ => return None,
        };
        // A wildcard listener has the address that was asked for.
        let asked = if at.ip().is_unspecified() { connect.to.ip() } else { at.ip() };
        let server_addr = SocketAddr::new(host_ip(asked), at.port());
        let from = connect.from.as_ref().map(|bound| bound.addr);
        let client_addr = from.unwrap_or_else(|| SocketAddr::new(server_addr.ip(), connector.peer_port()));
        let client = End {
            attachment: ticket.attachment,
            slot: ticket.slot,
            generation: ticket.generation,
            request: ticket.request,
            options: connect.options,
            addr: client_addr,
        };
        let server = End {
            attachment: attachment_id,
            slot: waiter.target,
            generation,
            request: waiter.request,
            options: accept_options,
            addr: server_addr,
        };
        Some(Meeting { client, server, connect, at })
    }

    /// Returns whether the rings of a direct stream fit, if the connect would meet a listener of its own
    /// attachment.
    pub(super) fn could_meet(&self, connect: &Connect) -> bool {
        let at = self.listener_at(connect.to).filter(|at| at.0 == connect.ticket.attachment);
        let Some((attachment, slot)) = at.and_then(|(id, slot)| Some((self.attachments.get(&id)?, slot)))
        else {
            return true;
        };
        let Some(Role::Listener(listener)) = attachment.slots.get(slot as usize).map(|entry| &entry.role)
        else {
            return true;
        };
        let (up, down) = ring_sizes(&connect.options, &listener.bound.options, MIN_RING_LOG2);
        attachment.could_hold(attachment.direct_region(), up, down)
    }

    /// The listener that a peer connect to `to` would meet.
    pub(super) fn listener_at(&self, to: SocketAddr) -> Option<(AttachmentId, u32)> {
        self.peer_listeners.get(&self.peer.listener_for(to)?).copied()
    }
}

impl AttachmentEntry {
    /// Enters one end in the table of slots.
    pub(super) fn open_end(&mut self, end: &End, other: &End, memory: StreamMemory) {
        let entry = &mut self.slots[end.slot as usize];
        entry.role = Role::Stream(StreamEntry {
            memory,
            linger_ms: end.options.linger_ms,
            closed: false,
            thread: None,
            partner: Some(other.partner()),
            final_positions: None,
            addrs: (end.addr, other.addr),
            transport: TransportKind::Peer,
        });
        self.state.memory.open_line(end.slot, self.slots[end.slot as usize].generation);
        self.enter_span(end.slot, TransportKind::Peer, (end.addr, other.addr));
        self.state.totals.open();
    }

    /// Answers one end's request. Both ends are in the tables by now.
    pub(super) fn reply_end(&mut self, end: &End, descriptor: Descriptor) {
        let mut reply = Reply::new(0, 0);
        reply.descriptor = descriptor;
        self.reply(end.request, &reply);
    }
}

/// The address a wildcard listener answers from.
fn host_ip(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
