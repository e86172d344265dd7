//! What the control plane keeps for an attachment, a listener and a stream.
//!
//! | file | what it is |
//! |---|---|
//! | `slots` | the socket slots: what they are used for, how they are taken and given back |
//! | `pending` | requests that have no answer yet, and how they get one |
//! | `shortage` | which resources can run out, which errno a device gets, and what is logged |
//! | `ahead`, `handshakes` | connections that a listener has accepted before it was asked; clients that become connections |
//! | `regions` | the numbers of a device's regions; rings in arenas |

pub(super) mod ahead;
pub(super) mod handshakes;
pub(super) mod pending;
pub(super) mod regions;
pub(super) mod shortage;
pub(super) mod slots;

use crate::model::attachment_state::{AttachmentState, Usage, first_rings};
use crate::model::message::{Answer, Done, Ring, Rings};
use crate::os::log_limiter::LogLimiter;
use ahead::Ahead;
use gpunet_abi::Link;
use gpunet_abi::layout::DeviceLayout;
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::{DEVICE, SHARED};
use gpunet_core::ids::{AttachmentId, HostRequestId, LaunchId, RequestId, SocketId};
use gpunet_core::slab::Slab;
use gpunet_core::transport::{Bound, Listen};
use gpunet_core::wait_queue::WaitQueue;
use handshakes::Handshakes;
use pending::PendingRequest;
use regions::{ArenaRings, Regions};
use shortage::{LOG_INTERVAL, Shortage, Topic};
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// An attachment: its sockets, requests and ring memory.
pub(super) struct AttachmentEntry {
    pub(super) state: Arc<AttachmentState>,
    pub(super) slots: Slots,
    /// Requests that have no answer yet.
    pub(super) requests: BTreeMap<RequestId, PendingRequest>,
    /// Where the replies to the host program's requests go.
    pub(super) answers: HashMap<HostRequestId, Answer>,
    pub(super) shared: Slab,
    /// Ring memory in the device's own memory: for streams between two sockets of a GPU (the CPU
    /// device uses `shared`), and for rc where a network card reaches it.
    pub(super) local: Option<Slab>,
    /// No network card has refused the device's memory yet.
    pub(super) card_reaches_device: bool,
    /// The attachment is coming to its end: its sockets are closed for it.
    pub(super) ending: bool,
    /// Its process is gone: nothing is answered. See `daemon::session::teardown`.
    pub(super) dead: bool,
    /// Set while the attachment detaches.
    pub(super) detaching: Option<Detaching>,
    /// The region numbers of the device's table, for arenas.
    pub(super) regions: Regions,
    next_peer_port: u16,
    /// Ring memory in the shared region that exists so far, and whether more is being allocated.
    shared_rings: u64,
    growing: bool,
    ring_bytes: u64,
    /// Bytes of rings that a network card reaches, which the owner's account counts.
    pub(super) registered_bytes: u64,
    /// Descriptors of sockets and streams, which the owner's account counts.
    pub(super) descriptors: u64,
    /// Slots that are in use.
    pub(super) used: usize,
    /// Slots that listeners hold for connections to come.
    pub(super) prepared: usize,
    /// Listeners with connections that cannot be accepted for lack of something.
    pub(super) starved: BTreeSet<u32>,
    pub(super) log: LogLimiter<Topic>,
}

/// An attachment that is being closed.
pub(super) struct Detaching {
    /// Called when it has ended.
    pub(super) done: Done<()>,
    /// How long streams may deliver what was sent after all sockets are closed.
    pub(super) bound: Duration,
    /// Set once all sockets are closed.
    pub(super) delivering: Option<Delivering>,
}

/// All sockets of an attachment are closed, and its streams deliver what was sent.
pub(super) struct Delivering {
    /// Stops waiting for streams that do not end.
    pub(super) timeout: JoinHandle<()>,
    /// Slots before this one no longer have a stream.
    pub(super) from: u32,
}

/// A listener: one address, several transports.
pub(super) struct ListenerEntry {
    pub(super) addr: SocketAddr,
    pub(super) backlogs: Vec<Backlog>,
    pub(super) waiters: WaitQueue<Waiter>,
    pub(super) handshakes: Handshakes,
    pub(super) ahead: Ahead,
    pub(super) backlog: u32,
    /// The ready count that the device was shown last.
    pub(super) shown: u64,
    /// The connections that waited then, including those that could not be accepted for lack of
    /// something.
    pub(super) waiting: u64,
    /// The tasks that watch descriptors, and what re-arms each.
    pub(super) watches: Vec<(JoinHandle<()>, Arc<Notify>)>,
    /// Serves again after a while, when no event announces the end of the shortage.
    pub(super) retry: Option<JoinHandle<()>>,
    /// The backlog that the next accept is served from, if a connection waits there:
    /// [`ListenerEntry::next_backlog`].
    pub(super) turn: usize,
    /// Keeps the port.
    pub(super) bound: Bound,
}

/// The connections that wait at a listener by one transport.
pub(super) struct Backlog {
    pub(super) listen: Box<dyn Listen>,
    /// The resource that was short at the last accept.
    pub(super) short: Option<Shortage>,
}

impl Backlog {
    /// Returns whether an accept may get a connection of it.
    pub(super) fn may_serve(&mut self) -> bool {
        self.short.is_none() && self.listen.may_be_ready()
    }
}

/// An accept that waits.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub(super) request: RequestId,
    pub(super) target: u32,
    pub(super) launch: LaunchId,
    /// How many connections the device had taken that were accepted ahead.
    pub(super) taken: u64,
}

/// A stream, driven by a data thread or direct.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamEntry {
    pub(super) memory: StreamMemory,
    pub(super) linger_ms: i32,
    /// It was closed by a request, or for its device; the slot comes back when the rest has ended.
    /// A driven stream that its device has closed, `AttachmentEntry::is_closed` finds.
    pub(super) closed: bool,
    /// The data thread that moves its bytes; `None` of a direct stream.
    pub(super) thread: Option<Assignment>,
    /// A direct stream's other end.
    pub(super) partner: Option<Partner>,
    /// A direct stream: bytes sent and consumed at close; `None` until then, and of a stream that
    /// its kernel left behind.
    pub(super) final_positions: Option<(u64, u64)>,
    /// This end's address and the other's.
    pub(super) addrs: (SocketAddr, SocketAddr),
    pub(super) transport: TransportKind,
}

/// A stream's data thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) thread: u32,
    /// Which assignment it is, of all. Ports are used again, numbers are not.
    pub(super) number: u64,
}

impl Assignment {
    /// How a device refers to a stream of that thread.
    pub(super) const fn link(self) -> Link {
        Link::driven(self.thread)
    }
}

/// Where a stream's rings lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamMemory {
    /// In the attachment's own memory.
    Own(Rings),
    /// In an arena that it shares with its partner's attachment.
    Arena(ArenaRings),
}

impl StreamMemory {
    /// The rings to send from and to receive into.
    pub(super) const fn rings(&self) -> (Ring, Ring) {
        match self {
            Self::Own(rings) => (rings.send, rings.recv),
            Self::Arena(rings) => (rings.send, rings.recv),
        }
    }
}

/// A direct stream's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partner {
    pub(super) attachment: AttachmentId,
    pub(super) socket: SocketId,
}
impl AttachmentEntry {
    pub(super) fn new(state: Arc<AttachmentState>) -> Self {
        let memory = &state.memory;
        let (geometry, layout) = (memory.geometry(), memory.layout());
        let local = (geometry.device_rings > 0).then(|| {
            let layout = DeviceLayout::new(geometry);
            Slab::new(layout.rings, geometry.device_rings)
        });
        let shared_rings = first_rings(geometry);
        let growing = shared_rings < geometry.shared_rings;
        let shared = Slab::new(layout.rings, shared_rings);
        let ring_bytes = shared.free_bytes() + local.as_ref().map_or(0, Slab::free_bytes);
        Self {
            slots: Slots::new(geometry.slots() as usize),
            requests: BTreeMap::new(),
            answers: HashMap::new(),
            shared,
            local,
            card_reaches_device: true,
            ring_bytes,
            registered_bytes: 0,
            descriptors: 0,
            shared_rings,
            growing,
            used: 0,
            prepared: 0,
            starved: BTreeSet::new(),
            log: LogLimiter::new(LOG_INTERVAL),
            regions: Regions::default(),
            ending: false,
            dead: false,
            detaching: None,
            next_peer_port: 49152,
            state,
        }
    }

    /// Extends the ring memory of the shared region to `rings` bytes; `last` if this is the last
    /// extension.
    pub(super) fn extend_shared(&mut self, rings: u64, last: bool) {
        let before = self.shared.free_bytes();
        self.shared.extend(self.shared_rings, rings);
        self.ring_bytes += self.shared.free_bytes() - before;
        (self.shared_rings, self.growing) = (rings, !last);
    }

    /// Bytes of ring memory in that region, including those that are still being allocated.
    pub(super) fn ring_memory(&self, region: u8) -> u64 {
        let geometry = self.state.memory.geometry();
        match region {
            DEVICE if self.local.is_some() => geometry.device_rings,
            _ if self.growing => geometry.shared_rings,
            _ => self.shared_rings,
        }
    }

    /// Bytes of it that are free, those that are still being allocated among them.
    pub(super) fn free_ring_memory(&self, region: u8) -> u64 {
        match &self.local {
            Some(local) if region == DEVICE => local.free_bytes(),
            _ => self.shared.free_bytes() + self.ring_memory(SHARED).saturating_sub(self.shared_rings),
        }
    }

    /// Returns whether more ring memory is being allocated.
    pub(super) const fn is_growing(&self) -> bool {
        self.growing
    }

    /// What the attachment holds.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            sockets: self.used,
            requests: self.requests.len(),
            ring_bytes: self.ring_bytes,
            free_ring_bytes: self.shared.free_bytes() + self.local.as_ref().map_or(0, Slab::free_bytes),
        }
    }

    /// A port number for the connecting end of a direct stream, which has no TCP socket of its own.
    pub(super) fn peer_port(&mut self) -> u16 {
        let port = self.next_peer_port;
        self.next_peer_port = if port == u16::MAX { 49152 } else { port + 1 };
        port
    }
}
