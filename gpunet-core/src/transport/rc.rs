//! Rc: reliable connections over RDMA, set up by rdma_cm, in the protocol of librdmacm's rsockets.
//!
//! The peer's network card writes straight into this end's receive ring, and this end's card reads
//! straight from its send ring; the proxy posts requests and polls completions. What is posted and
//! what completions mean is the business of the state machine, [`crate::rc`]; how a card is
//! reached, that of [`crate::verbs`]. This file makes connections, `stream` drives one, and
//! `visibility` says when what a card has written may be announced.

mod stream;
mod visibility;

use super::{Accepted, Bound, Connect, Connecting, Listen, Opened, Opening, Transport};
use crate::verbs::{Depth, Handshake, Keys, Listening, Memory, Table, Verbs};
use gpunet_abi::Options;
use gpunet_abi::options::TransportKind;
use gpunet_stream::rc::{Config, Hello, Remote, Variant};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc as Shared;
use std::time::Duration;
use stream::RcIo;

/// Settings of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcSettings {
    /// An idle connection asks this often whether the peer's host is alive: a host that has lost
    /// its power sends no sign. Default 2 s; the answer to a host that is gone takes as long again
    /// as the network card retries (about 8 s).
    pub keepalive: Duration,
}

impl Default for RcSettings {
    fn default() -> Self {
        Self { keepalive: Duration::from_secs(2) }
    }
}

/// The rc transport over some verbs.
#[derive(Clone)]
pub struct Rc {
    verbs: Shared<dyn Verbs>,
    settings: RcSettings,
}

impl Rc {
    /// The transport over these verbs.
    #[must_use]
    pub fn new(verbs: Shared<dyn Verbs>, settings: RcSettings) -> Self {
        Self { verbs, settings }
    }

    /// The verbs it uses.
    #[must_use]
    pub fn verbs(&self) -> &dyn Verbs {
        &*self.verbs
    }
}

impl Transport for Rc {
    fn kind(&self) -> TransportKind {
        TransportKind::Rc
    }

    fn listen(&self, bound: &Bound, backlog: u32) -> io::Result<Box<dyn Listen>> {
        let listening = self.verbs.listen(bound.addr, backlog.max(1))?;
        Ok(Box::new(RcListening {
            listening,
            settings: self.settings,
            request: None,
            v6_only: bound.addr.is_ipv6() && bound.options.has(Options::V6ONLY),
        }))
    }

    fn connect(&self, request: Connect) -> Connecting {
        let Some(memory) = request.memory.clone() else { return Connecting::Elsewhere(request) };
        // The port is TCP's and stays there; a device is chosen by the address alone.
        let from = request.from.as_ref().map(|bound| bound.addr.ip());
        let from = from.filter(|ip| !ip.is_unspecified()).map(|ip| (ip, 0).into());
        let resolving = self.verbs.resolve(request.to, from);
        let settings = self.settings;
        Connecting::Pending(Box::pin(async move {
            let mut handshake = resolving.await?;
            let (config, hello) = prepare(&mut *handshake, &memory, &settings)?;
            let (local, peer) = (handshake.local(), handshake.peer());
            let (endpoint, private_data) = handshake.connect(&hello.encode()).await?;
            let theirs = Hello::decode(&private_data).map_err(not_rsocket)?;
            let io = RcIo::new(endpoint, &config, theirs)?;
            Ok(Opened { kind: TransportKind::Rc, io: Box::new(io), local, peer })
        }))
    }
}

struct RcListening {
    listening: Box<dyn Listening>,
    settings: RcSettings,
    /// The request to be answered next. Those behind it wait in the kernel, where they are fewer
    /// than the backlog, and are not shown once their client has gone.
    request: Option<(Box<dyn Handshake>, Hello)>,
    v6_only: bool,
}

impl RcListening {
    /// Reads the next request; refuses those that are none of an rsocket peer.
    fn read(&mut self) {
        while self.request.is_none()
            && let Ok(request) = self.listening.next()
        {
            // rdma_cm hands IPv4 clients of an IPv6 wildcard over, whatever the socket's options
            // are.
            let unwanted = self.v6_only && request.handshake.peer().ip().to_canonical().is_ipv4();
            match Hello::decode(&request.private_data) {
                Ok(hello) if !unwanted => self.request = Some((request.handshake, hello)),
                Ok(_) => request.handshake.reject(),
                Err(error) => {
                    tracing::debug!(peer = %request.handshake.peer(), %error, "a request that is none of an rsocket");
                    request.handshake.reject();
                }
            }
        }
    }
}

impl Listen for RcListening {
    fn kind(&self) -> TransportKind {
        TransportKind::Rc
    }

    fn accept(&mut self) -> io::Result<Accepted> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn ready(&mut self) -> u64 {
        0
    }

    fn has_request(&mut self) -> bool {
        self.read();
        self.request.is_some()
    }

    fn answer(&mut self, memory: &Memory) -> io::Result<Opening> {
        self.read();
        let (mut handshake, theirs) = self.request.take().ok_or(io::ErrorKind::WouldBlock)?;
        let (local, peer) = (handshake.local(), handshake.peer());
        let (config, hello) = match prepare(&mut *handshake, memory, &self.settings) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.request = Some((handshake, theirs));
                return Err(error);
            }
        };
        let accepting = handshake.accept(&hello.encode());
        Ok(Box::pin(async move {
            let io = RcIo::new(accepting.await?, &config, theirs)?;
            Ok(Opened { kind: TransportKind::Rc, io: Box::new(io), local, peer })
        }))
    }

    fn refuse(&mut self) {
        self.read();
        if let Some((handshake, _)) = self.request.take() {
            handshake.reject();
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.listening.readiness())
    }
}

/// Registers the memory and makes the queue pair; returns this end's configuration and its
/// greeting.
fn prepare(
    handshake: &mut dyn Handshake,
    memory: &Memory,
    settings: &RcSettings,
) -> io::Result<(Config, Hello)> {
    let variant = if handshake.device().iwarp { Variant::Send } else { Variant::Immediate };
    let most = handshake.device().max_depth.saturating_sub(2 * Config::SPARE_RECEIVES);
    let sends = depth_for(memory.send_ring.len).min(most);
    let receives = depth_for(memory.recv_ring.len).min(most);
    let depth = Depth { sends: sends + Config::SPARE_SENDS, receives: receives + Config::SPARE_RECEIVES };
    let Keys { recv_rkey, table_address, table_rkey } = handshake.prepare(memory, depth)?;
    let config = Config {
        variant,
        send_ring: (memory.send_ring.address, memory.send_ring.len),
        recv_ring: Remote {
            address: memory.recv_ring.address,
            rkey: recv_rkey,
            len: memory.recv_ring.len as u32,
        },
        sends,
        receives: receives as u16,
        keepalive: settings.keepalive.as_nanos() as u64,
    };
    let hello = config.hello(Remote { address: table_address, rkey: table_rkey, len: Table::ENTRIES as u32 });
    Ok((config, hello))
}

/// Work requests for a ring of that size: 512 bytes each, between 16 and librdmacm's 384.
fn depth_for(ring: u64) -> u32 {
    (ring / 512).clamp(16, 384) as u32
}

fn not_rsocket(error: gpunet_stream::rc::BadHello) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, format!("the listener is no rsocket: {error}"))
}
