//! The RDMA stack of one simulated host.

use super::fabric::Fabric;
use super::handshake::{SimHandshake, SimListening};
use super::state::{HostId, State};
use crate::verbs::{Handshake, Listening, Pending, Usage, Verbs};
use std::io;
use std::net::{IpAddr, SocketAddr};

impl Fabric {
    /// A new host.
    #[must_use]
    pub fn host(&self) -> Sim {
        let id = self.0.with(State::add_host);
        Sim { fabric: self.clone(), id }
    }

    /// A new host, behind the trait.
    #[must_use]
    pub fn verbs(&self) -> Box<dyn Verbs> {
        Box::new(self.host())
    }
}

/// The RDMA stack of one host of a [`Fabric`].
///
/// When it is dropped, nothing stays registered for a later connection; connections live on.
#[derive(Debug)]
pub struct Sim {
    fabric: Fabric,
    id: HostId,
}

impl Sim {
    /// Names the host, for faults.
    #[must_use]
    pub fn id(&self) -> HostId {
        self.id
    }

    /// Memory regions made since the start; a connection that finds its memory cached makes none.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        self.fabric.locked(|state| state.hosts[self.id.0].registry.made)
    }

    /// An address of this host for a connection to `to`.
    fn address_to(&self, to: SocketAddr, from: Option<SocketAddr>) -> SocketAddr {
        // Loopback is its own other end. Other addresses are made up: no host can be reached there.
        let made_up = match to.ip() {
            ip if ip.is_loopback() => ip,
            IpAddr::V4(_) => IpAddr::from([10, 0, (self.id.0 >> 8) as u8, self.id.0 as u8]),
            IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, self.id.0 as u16]),
        };
        let ip = from.map(|from| from.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(made_up);
        let port = from.map(|from| from.port()).filter(|port| *port != 0);
        let port = port.unwrap_or_else(|| 49152 + (self.fabric.locked(State::new_id) % 16384) as u16);
        SocketAddr::new(ip, port)
    }
}

impl Verbs for Sim {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> io::Result<Box<dyn Listening>> {
        Ok(Box::new(SimListening::new(&self.fabric, self.id, addr, backlog)?))
    }

    fn resolve(&self, to: SocketAddr, from: Option<SocketAddr>) -> Pending<Box<dyn Handshake>> {
        if self.fabric.locked(|state| state.hidden.contains(&to.ip())) {
            return Box::pin(async { Err(io::ErrorKind::NetworkUnreachable.into()) });
        }
        let local = self.address_to(to, from);
        let handshake = SimHandshake::active(&self.fabric, self.id, local, to);
        Box::pin(async move { Ok(Box::new(handshake) as Box<dyn Handshake>) })
    }

    fn forget(&self, owner: u64) {
        self.fabric.locked(|state| state.forget(self.id, Some(owner)));
    }

    fn usage(&self) -> Usage {
        self.fabric.usage(self.id)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.fabric.locked(|state| {
            state.hosts[self.id.0].registry.closed = true;
            state.forget(self.id, None);
        });
    }
}
