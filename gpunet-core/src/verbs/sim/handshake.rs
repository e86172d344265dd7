//! Handshakes and listeners: the control thread's handles of connections to be.

use super::cm::{self, PRIVATE_DATA};
use super::domain::Domain;
use super::endpoint::SimEndpoint;
use super::event::EventChannel;
use super::fabric::Fabric;
use super::hold::{Hold, RequestSide};
use super::state::{HostId, Pending, State};
use crate::verbs::{
    Depth, DeviceInfo, Endpoint, Handshake, Keys, Listening, Memory, Pending as Later, Request,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A connection on its way.
pub(super) struct SimHandshake {
    hold: Hold,
    local: SocketAddr,
    peer: SocketAddr,
    device: DeviceInfo,
    prepared: Option<Arc<Domain>>,
}

impl SimHandshake {
    /// A handshake whose request is still to be made.
    pub fn active(fabric: &Fabric, host: HostId, local: SocketAddr, peer: SocketAddr) -> Self {
        Self::new(fabric, host, local, peer, None)
    }

    fn new(
        fabric: &Fabric,
        host: HostId,
        local: SocketAddr,
        peer: SocketAddr,
        request: Option<RequestSide>,
    ) -> Self {
        let device = fabric.locked(|state| {
            state.hosts[host.0].identifiers += 1;
            DeviceInfo {
                name: format!("sim{}", host.0),
                iwarp: state.settings.iwarp,
                max_depth: state.settings.max_depth,
            }
        });
        let hold = Hold { fabric: fabric.clone(), host, qp: None, request };
        Self { hold, local, peer, device, prepared: None }
    }

    /// The queue pair and its domain, if all is there to connect with this private data.
    fn ready(&self, private_data: &[u8]) -> io::Result<(u64, Arc<Domain>)> {
        if private_data.len() > PRIVATE_DATA {
            let text = "more private data than a request or an answer holds";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match (self.hold.qp, &self.prepared) {
            (Some(qp), Some(domain)) => Ok((qp, domain.clone())),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the handshake was not prepared")),
        }
    }
}

impl Handshake for SimHandshake {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn prepare(&mut self, memory: &Memory, depth: Depth) -> io::Result<Keys> {
        if self.prepared.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the handshake is prepared already"));
        }
        let host = self.hold.host;
        let (qp, domain) = self.hold.fabric.locked(|state| {
            let domain = state.register(host, memory, depth)?;
            match state.create_qp(host, domain.clone(), depth) {
                Ok(qp) => Ok((qp, domain)),
                Err(error) => {
                    state.release(host, domain);
                    Err(error)
                }
            }
        })?;
        let keys = domain.keys;
        self.hold.qp = Some(qp);
        self.prepared = Some(domain);
        Ok(keys)
    }

    fn connect(mut self: Box<Self>, private_data: &[u8]) -> Later<(Box<dyn Endpoint>, Vec<u8>)> {
        let (qp, domain) = match self.ready(private_data) {
            Ok(ready) => ready,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let (reply, answer) = cm::reply();
        let pending = Pending {
            host: self.hold.host,
            qp,
            from: self.local,
            to: self.peer,
            private_data: private_data.to_vec(),
            reply,
            passive: None,
        };
        let number = self.hold.fabric.locked(|state| state.request(pending));
        self.hold.request = Some(RequestSide::Active(number));
        Box::pin(async move {
            let answer = answer.await.map_err(|_| io::ErrorKind::ConnectionAborted)??;
            self.hold.request = None;
            self.hold.fabric.locked(|state| state.take_answer(number));
            let endpoint = SimEndpoint::new(self.hold, domain)?;
            Ok((Box::new(endpoint) as Box<dyn Endpoint>, answer))
        })
    }

    fn accept(mut self: Box<Self>, private_data: &[u8]) -> Later<Box<dyn Endpoint>> {
        let (qp, domain) = match self.ready(private_data) {
            Ok(ready) => ready,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let Some(RequestSide::Passive(number)) = self.hold.request.take() else {
            return Box::pin(async { Err(io::ErrorKind::InvalidInput.into()) });
        };
        let (reply, answer) = cm::reply();
        let host = self.hold.host;
        self.hold.fabric.locked(|state| state.accept(host, number, qp, private_data, reply));
        Box::pin(async move {
            answer.await.map_err(|_| io::ErrorKind::ConnectionAborted)??;
            Ok(Box::new(SimEndpoint::new(self.hold, domain)?) as Box<dyn Endpoint>)
        })
    }

    fn reject(self: Box<Self>) {}
}

/// A listener.
pub(super) struct SimListening {
    fabric: Fabric,
    host: HostId,
    addr: SocketAddr,
    number: u64,
    event: Arc<EventChannel>,
}

impl SimListening {
    pub fn new(fabric: &Fabric, host: HostId, addr: SocketAddr, backlog: u32) -> io::Result<Self> {
        let (number, event) = fabric.locked(|state| state.listen(host, addr, backlog))?;
        Ok(Self { fabric: fabric.clone(), host, addr, number, event })
    }
}

impl Listening for SimListening {
    fn next(&mut self) -> io::Result<Request> {
        let request = self.fabric.locked(|state| state.next_request(self.addr, self.number));
        let (number, local, peer, private_data) = request.ok_or(io::ErrorKind::WouldBlock)?;
        let handshake =
            SimHandshake::new(&self.fabric, self.host, local, peer, Some(RequestSide::Passive(number)));
        Ok(Request { handshake: Box::new(handshake), private_data })
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for SimListening {
    fn drop(&mut self) {
        let (host, addr, number) = (self.host, self.addr, self.number);
        self.fabric.locked(|state: &mut State| {
            state.close_listener(addr, number);
            state.hosts[host.0].identifiers -= 1;
        });
    }
}
