//! Peer: both ends on this host, the sender's ring is the receiver's, and no proxy moves a byte.
//!
//! This file is where they meet: listeners by address, and the connects that wait for an accept.
//! Where rings and words of a matched pair lie is decided by who owns the memory (the control
//! plane); the device code does the rest.

use super::{Accepted, Bound, Connect, Connecting, Listen, Transport};
use crate::ids::{AttachmentId, RequestId};
use gpunet_abi::Options;
use gpunet_abi::options::TransportKind;
use gpunet_stream::wait_queue::{WaitKey, WaitQueue};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// Names the connect call of one socket: its attachment, slot and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The attachment of the connecting socket.
    pub attachment: AttachmentId,
    /// Slot of the connecting socket.
    pub slot: u32,
    /// Its generation.
    pub generation: u32,
    /// The connect.
    pub request: RequestId,
}

/// A listener's backlog.
#[derive(Debug, Default)]
struct Queue {
    waiting: WaitQueue<Ticket>,
    backlog: usize,
    /// `[::]` without IPV6_V6ONLY: IPv4 addresses of this host mean it too.
    dual: bool,
}

#[derive(Debug, Default)]
struct Backlogs {
    listeners: HashMap<SocketAddr, Queue>,
    /// Where the connects wait.
    keys: HashMap<Ticket, (SocketAddr, WaitKey)>,
}

/// The peer transport of a proxy: all its attachments meet here.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    backlogs: Rc<RefCell<Backlogs>>,
}

impl Peer {
    /// A transport without listeners.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The listener that a connect to `to` means: that exact address, or the wildcard of its port
    /// when the address is one of this host's.
    fn find(&self, to: SocketAddr) -> Option<SocketAddr> {
        let listeners = &self.backlogs.borrow().listeners;
        if listeners.contains_key(&to) {
            return Some(to);
        }
        let v4 = SocketAddr::new(IpAddr::from([0; 4]), to.port());
        let v6 = SocketAddr::new(IpAddr::from([0; 16]), to.port());
        let wildcard =
            if to.is_ipv6() || listeners.get(&v6).is_some_and(|queue| queue.dual) { v6 } else { v4 };
        let wildcard = if to.is_ipv4() && listeners.contains_key(&v4) { v4 } else { wildcard };
        (listeners.contains_key(&wildcard) && is_local(to.ip())).then_some(wildcard)
    }

    /// Takes a connect out of the backlog it waits in; returns whether it was there.
    pub fn withdraw(&self, ticket: Ticket) -> bool {
        let Backlogs { listeners, keys } = &mut *self.backlogs.borrow_mut();
        let Some((addr, key)) = keys.remove(&ticket) else { return false };
        listeners.get_mut(&addr).is_some_and(|queue| queue.waiting.remove(key).is_some())
    }

    /// Puts a connect that was accepted back where it was: at the head of the backlog at `addr`.
    pub fn put_back(&self, addr: SocketAddr, ticket: Ticket) {
        let Backlogs { listeners, keys } = &mut *self.backlogs.borrow_mut();
        if let Some(queue) = listeners.get_mut(&addr) {
            keys.insert(ticket, (addr, queue.waiting.push_front(ticket)));
        }
    }

    /// The address of the listener in whose backlog a connect waits.
    #[must_use]
    pub fn backlog_of(&self, ticket: Ticket) -> Option<SocketAddr> {
        self.backlogs.borrow().keys.get(&ticket).map(|(addr, _)| *addr)
    }

    /// The connects that wait at `addr`; used when its listener closes.
    #[must_use]
    pub fn waiting_at(&self, addr: SocketAddr) -> Vec<Ticket> {
        let queue = &self.backlogs.borrow().listeners;
        queue.get(&addr).map(|queue| queue.waiting.iter().copied().collect()).unwrap_or_default()
    }

    /// The address of the listener whose backlog a connect to `to` would join.
    #[must_use]
    pub fn listener_for(&self, to: SocketAddr) -> Option<SocketAddr> {
        self.find(to)
    }
}

impl Transport for Peer {
    fn kind(&self) -> TransportKind {
        TransportKind::Peer
    }

    fn listen(&self, bound: &Bound, backlog: u32) -> io::Result<Box<dyn Listen>> {
        let listeners = &mut self.backlogs.borrow_mut().listeners;
        if listeners.contains_key(&bound.addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let dual =
            bound.addr.is_ipv6() && bound.addr.ip().is_unspecified() && !bound.options.has(Options::V6ONLY);
        let queue = Queue { waiting: WaitQueue::default(), backlog: backlog.max(1) as usize, dual };
        listeners.insert(bound.addr, queue);
        Ok(Box::new(PeerListening { addr: bound.addr, backlogs: self.backlogs.clone() }))
    }

    fn connect(&self, request: Connect) -> Connecting {
        let Some(addr) = self.find(request.to) else {
            return Connecting::Elsewhere(request);
        };
        let Backlogs { listeners, keys } = &mut *self.backlogs.borrow_mut();
        match listeners.get_mut(&addr) {
            Some(queue) if queue.waiting.len() < queue.backlog => {
                keys.insert(request.ticket, (addr, queue.waiting.push_back(request.ticket)));
                Connecting::Queued
            }
            // A full backlog refuses, as Linux does for Unix-domain sockets.
            _ => Connecting::Pending(Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })),
        }
    }
}

struct PeerListening {
    addr: SocketAddr,
    backlogs: Rc<RefCell<Backlogs>>,
}

impl Listen for PeerListening {
    fn kind(&self) -> TransportKind {
        TransportKind::Peer
    }

    fn accept(&mut self) -> io::Result<Accepted> {
        let Backlogs { listeners, keys } = &mut *self.backlogs.borrow_mut();
        let waiting = listeners.get_mut(&self.addr).and_then(|queue| queue.waiting.pop_front());
        let ticket = waiting.ok_or(io::ErrorKind::WouldBlock)?;
        keys.remove(&ticket);
        Ok(Accepted::Direct(ticket))
    }

    fn ready(&mut self) -> u64 {
        self.backlogs.borrow().listeners.get(&self.addr).map_or(0, |queue| queue.waiting.len() as u64)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for PeerListening {
    fn drop(&mut self) {
        let Backlogs { listeners, keys } = &mut *self.backlogs.borrow_mut();
        for ticket in listeners.remove(&self.addr).iter().flat_map(|queue| queue.waiting.iter()) {
            keys.remove(ticket);
        }
    }
}

/// Returns whether `ip` is an address of this host: whether a socket can be bound to it.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || (!ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tcp;

    fn ticket(slot: u32) -> Ticket {
        Ticket {
            attachment: AttachmentId(1),
            slot,
            generation: 1,
            request: RequestId::Device { control: 7, seq: 1 },
        }
    }

    fn wish(to: SocketAddr, slot: u32) -> Connect {
        Connect { to, from: None, options: Options::DEFAULT, ticket: ticket(slot), memory: None }
    }

    #[test]
    fn connects_queue_in_order_and_can_be_withdrawn() {
        let peer = Peer::new();
        let bound = tcp::bind("127.0.0.1:0".parse().unwrap(), Options::DEFAULT).unwrap();
        let addr = bound.addr;
        assert!(matches!(peer.connect(wish(addr, 1)), Connecting::Elsewhere(_)));
        let mut listening = peer.listen(&bound, 8).unwrap();
        for slot in 1..=3 {
            assert!(matches!(peer.connect(wish(addr, slot)), Connecting::Queued));
        }
        assert_eq!(listening.ready(), 3);
        assert_eq!((peer.backlog_of(ticket(2)), peer.backlog_of(ticket(4))), (Some(addr), None));
        assert!(peer.withdraw(ticket(1)));
        assert!(matches!(listening.accept(), Ok(Accepted::Direct(Ticket { slot: 2, .. }))));
        assert!(!peer.withdraw(ticket(2)), "it was accepted");
        peer.put_back(addr, ticket(2));
        assert!(matches!(listening.accept(), Ok(Accepted::Direct(Ticket { slot: 2, .. }))));
        drop(listening);
        assert!(!peer.withdraw(ticket(3)) && peer.backlogs.borrow().keys.is_empty());
        assert!(matches!(peer.connect(wish(addr, 4)), Connecting::Elsewhere(_)));
    }

    #[test]
    fn a_wildcard_listener_answers_for_every_local_address() {
        let peer = Peer::new();
        let bound = tcp::bind("0.0.0.0:0".parse().unwrap(), Options::DEFAULT).unwrap();
        let port = bound.addr.port();
        let _listening = peer.listen(&bound, 1).unwrap();
        assert!(peer.listener_for(SocketAddr::from(([127, 0, 0, 9], port))).is_some());
        assert!(peer.listener_for(SocketAddr::from(([192, 0, 2, 1], port))).is_none(), "not ours");
    }
}
