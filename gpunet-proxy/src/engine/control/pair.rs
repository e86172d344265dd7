//! Direct streams: puts a waiting accept and a waiting connect together.
//!
//! The sender's ring is the receiver's, and each end writes the words that the other polls. After
//! the two replies the proxy has no part in the stream until one end closes. Here both ends are
//! sockets of one device; `join` has those of two.

use super::Control;
use super::at::At;
use super::tables::shortage::Shortage;
use super::tables::slots::Role;
use super::tables::{AttachmentEntry, Partner, StreamEntry, StreamMemory, Waiter};
use crate::model::message::Rings;
use gpunet_abi::control::{Descriptor, Reply};
use gpunet_abi::options::{AUTO_RING, MIN_RING_LOG2, TransportKind};
use gpunet_abi::{Error, Options};
use gpunet_core::ids::{AttachmentId, RequestId, SocketId};
use gpunet_core::transport::Connect;
use gpunet_core::transport::peer::Ticket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One end of a pair.
pub(super) struct End {
    /// Its name for the other end.
    pub(super) partner: Partner,
    pub(super) request: RequestId,
    pub(super) options: Options,
    pub(super) addr: SocketAddr,
}

/// A connect and an accept that belong together.
pub(super) struct Pairing {
    pub(super) client: End,
    pub(super) server: End,
    /// The connect.
    pub(super) connect: Box<Connect>,
    /// The listener's address.
    pub(super) at: SocketAddr,
}

impl Pairing {
    /// log2 of the rings towards the server and towards the client: each direction has one ring,
    /// the larger of what its two ends asked for, `chosen` where neither did.
    pub(super) fn sizes(&self, chosen: u8) -> (u8, u8) {
        ring_sizes(&self.client.options, &self.server.options, chosen)
    }
}

/// log2 of the rings of a direct stream, towards the server and towards the client; `chosen` where
/// neither end names one.
pub(super) fn ring_sizes(client: &Options, server: &Options, chosen: u8) -> (u8, u8) {
    let larger = |a: u8, b: u8| match a.max(b) {
        AUTO_RING => chosen,
        asked => asked,
    };
    (larger(client.send_log2, server.recv_log2), larger(client.recv_log2, server.send_log2))
}

impl At<'_> {
    /// An accept and a connect have met at a listener.
    ///
    /// # Errors
    /// What there is too little of for them: both wait where they were.
    pub(super) fn pair(
        &mut self,
        listener_slot: u32,
        waiter: &Waiter,
        ticket: Ticket,
    ) -> Result<(), Shortage> {
        let Some(pairing) = self.pairing(listener_slot, waiter, ticket) else {
            // The connect was just given up: the accept waits on.
            self.wait_first(listener_slot, *waiter);
            return Ok(());
        };
        if ticket.attachment != self.state.id {
            self.join(listener_slot, *waiter, pairing);
            return Ok(());
        }
        let Pairing { client, server, at, .. } = &pairing;
        let has_lines = self.control.has_lines([&client.options, &server.options], self.state.polled);
        let (asked, least) = (pairing.sizes(AUTO_RING), pairing.sizes(MIN_RING_LOG2));
        let (region, sizes) = (self.direct_region(), pairing.sizes(self.direct_ring()));
        match self.take_up_to(region, sizes, asked) {
            Some(clients) => {
                let servers = Rings { send: clients.recv, recv: clients.send, ..clients };
                self.open_end(client, server, StreamMemory::Own(clients));
                self.open_end(server, client, StreamMemory::Own(servers));
                for (end, other, rings) in [(client, server, clients), (server, client, servers)] {
                    let addrs = (end.addr, other.addr);
                    let (slot, partner) = (end.partner.socket.slot, other.partner.socket.slot);
                    let descriptor = self.direct_descriptor(slot, partner, rings, has_lines, addrs);
                    self.reply_end(end, descriptor);
                }
            }
            // They would not fit into empty ring memory either, and connects behind this one would
            // wait for ever.
            None if !self.could_hold(region, least.0, least.1) => {
                self.wait_first(listener_slot, *waiter);
                self.cancel(client.request, Error::NoBuffers);
            }
            None => {
                let (at, shortage) = (*at, self.no_rings(region));
                self.warn(shortage, format_args!("accepts at {at} wait"), None);
                self.wait_first(listener_slot, *waiter);
                self.control.peer.put_back(at, ticket);
                return Err(shortage);
            }
        }
        Ok(())
    }

    /// Collects the two ends; `None` if the connect no longer waits.
    fn pairing(&mut self, listener_slot: u32, waiter: &Waiter, ticket: Ticket) -> Option<Pairing> {
        let listener = self.slots.listener(listener_slot)?;
        let (accept_options, at) = (listener.bound.options, listener.addr);
        let (attachment, target) = (self.state.id, self.slots.id(waiter.target));
        let connector = self.control.attachments.get_mut(ticket.attachment)?;
        let connect = Box::new(connector.queued(ticket)?.clone());
        // A wildcard listener has the address that was asked for.
        let asked = if at.ip().is_unspecified() { connect.to.ip() } else { at.ip() };
        let server_addr = SocketAddr::new(host_ip(asked), at.port());
        let from = connect.from.as_ref().map(|bound| bound.addr);
        let client_addr = from.unwrap_or_else(|| SocketAddr::new(server_addr.ip(), connector.peer_port()));
        let client = End {
            partner: Partner {
                attachment: ticket.attachment,
                socket: SocketId { slot: ticket.slot, generation: ticket.generation },
            },
            request: ticket.request,
            options: connect.options,
            addr: client_addr,
        };
        let server = End {
            partner: Partner { attachment, socket: target },
            request: waiter.request,
            options: accept_options,
            addr: server_addr,
        };
        Some(Pairing { client, server, connect, at })
    }

    /// Returns whether the rings of a direct stream fit, if the connect would meet a listener of
    /// this attachment.
    pub(super) fn could_meet(&self, connect: &Connect) -> bool {
        let at = self.control.listener_at(connect.to).filter(|at| at.0 == self.state.id);
        at.and_then(|at| self.slots.listener(at.1)).is_none_or(|listener| {
            let (up, down) = ring_sizes(&connect.options, &listener.bound.options, MIN_RING_LOG2);
            self.could_hold(self.direct_region(), up, down)
        })
    }
}

impl Control {
    /// The listener that a peer connect to `to` would meet.
    pub(super) fn listener_at(&self, to: SocketAddr) -> Option<(AttachmentId, u32)> {
        self.peer_listeners.get(&self.peer.listener_for(to)?).copied()
    }
}

impl AttachmentEntry {
    /// Enters one end in the table of slots.
    pub(super) fn open_end(&mut self, end: &End, other: &End, memory: StreamMemory) {
        let SocketId { slot, generation } = end.partner.socket;
        self.slots[slot].role = Role::Stream(StreamEntry {
            memory,
            linger_ms: end.options.linger_ms,
            closed: false,
            thread: None,
            partner: Some(other.partner),
            final_positions: None,
            addrs: (end.addr, other.addr),
            transport: TransportKind::Peer,
        });
        self.state.memory.open_line(slot, generation);
        self.enter_span(slot, TransportKind::Peer, (end.addr, other.addr));
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
