//! Direct streams: joins a waiting accept and a waiting connect of one device.
//!
//! The sender's ring is the receiver's, and the words of each end are those the other polls. After
//! the two replies the proxy has no part in the stream until one end closes.

use super::Control;
use super::books::{Device, Role, Stream, Wait, Waiter};
use crate::message::Rings;
use gpunet_abi::control::Reply;
use gpunet_abi::{Error, Options};
use gpunet_core::transport::peer::Ticket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One end of a pair.
struct End {
    slot: u32,
    request: (u32, u64),
    options: Options,
    addr: SocketAddr,
}

impl Control {
    pub(super) fn pair(&mut self, device_id: u32, listener_slot: u32, waiter: &Waiter, ticket: Ticket) {
        let Some(device) = self.device(device_id) else { return };
        let Role::Listener(listener) = &device.slots[listener_slot as usize].role else { return };
        let (accept_options, at) = (listener.bound.options, listener.addr);
        let connector = device.requests.iter().find_map(|(&control, waiting)| match waiting.what {
            Wait::Queued { slot, options, from, to } if slot == ticket.slot => {
                Some((control, waiting.seq, options, from, to))
            }
            _ => None,
        });
        let Some((control, seq, options, from, to)) = connector else {
            // The connect was given up in this very moment: the accept waits on.
            return device.wait_first(listener_slot, *waiter);
        };
        // A wildcard listener is reached at the address that was asked for.
        let asked = if at.ip().is_unspecified() { to.ip() } else { at.ip() };
        let server_addr = SocketAddr::new(host_ip(asked), at.port());
        let client_addr = from.unwrap_or_else(|| SocketAddr::new(server_addr.ip(), device.peer_port()));
        let client = End { slot: ticket.slot, request: (control, seq), options, addr: client_addr };
        let server = End {
            slot: waiter.target,
            request: (waiter.control, waiter.seq),
            options: accept_options,
            addr: server_addr,
        };
        // Each direction has one ring: the larger of what its two ends asked for.
        let up = options.send_log2.max(accept_options.recv_log2);
        let down = options.recv_log2.max(accept_options.send_log2);
        match device.take_rings(device.direct_region(), up, down) {
            Some(clients) => {
                let servers = Rings { send: clients.recv, recv: clients.send, ..clients };
                device.open_end(&client, server.slot, clients);
                device.open_end(&server, client.slot, servers);
                device.reply_end(&client, &server, clients);
                device.reply_end(&server, &client, servers);
            }
            None => {
                device.peer.put_back(at, ticket);
                device.recycle(server.slot);
                device.reply_result(server.request.0, server.request.1, Err(Error::NoBuffers));
            }
        }
    }
}

impl Device {
    /// Enters one end in the books.
    fn open_end(&mut self, end: &End, partner: u32, rings: Rings) {
        let book = &mut self.slots[end.slot as usize];
        book.role = Role::Stream(Stream {
            rings,
            linger_ms: end.options.linger_ms,
            closed: false,
            partner: Some(partner),
            final_positions: None,
        });
        self.attached.memory.open_line(end.slot, book.generation);
        self.attached.totals.open();
    }

    /// Answers one end's request. Both ends stand in the books by now.
    fn reply_end(&mut self, end: &End, other: &End, rings: Rings) {
        let mut reply = Reply::new(0, 0);
        reply.descriptor = self.direct_descriptor(end.slot, other.slot, rings, (end.addr, other.addr));
        self.reply(end.request.0, end.request.1, &reply);
    }

    /// The slot of the listener that a peer connect to `to` means.
    pub(super) fn listener_slot(&self, to: SocketAddr) -> Option<u32> {
        self.peer_listeners.get(&self.peer.listener_for(to)?).copied()
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
