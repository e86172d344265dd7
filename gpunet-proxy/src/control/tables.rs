//! Who owns which slot, ring and control request of an attachment.

use super::arena::{ArenaRings, Regions};
use super::handshake::Handshakes;
use super::shortage::{SAY_AGAIN, Shortage, Topic};
use super::slots::Slots;
use crate::log_limiter::LogLimiter;
use crate::model::attachment_state::{AttachmentState, Usage};
use crate::model::message::{Answer, Done, Ring, Rings};
use crate::region::first_rings;
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::handle::next_generation;
use gpunet_abi::layout::DeviceLayout;
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::DEVICE;
use gpunet_abi::{Error, Handle};
use gpunet_core::ids::{AttachmentId, RequestId};
use gpunet_core::slab::Slab;
use gpunet_core::transport::{Bound, Connect, Listen};
use gpunet_core::wait_queue::{WaitKey, WaitQueue};
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tracing::Span;

/// One attachment.
pub(super) struct Device {
    pub(super) attached: Arc<AttachmentState>,
    pub(super) slots: Slots,
    /// Requests that have no answer yet, by control slot.
    pub(super) requests: HashMap<u32, Waiting>,
    /// Who gets the replies to requests that came as messages, under numbers beyond the control slots.
    pub(super) answers: HashMap<u32, Answer>,
    pub(super) shared: Slab,
    /// Ring memory in the device's own memory: for streams between two sockets of a GPU (the CPU device
    /// uses `shared`), and for rc where a network card reaches it.
    pub(super) local: Option<Slab>,
    /// No network card has refused the device's memory yet.
    pub(super) card_reaches_device: bool,
    /// The attachment is coming to its end: its sockets are closed for it.
    pub(super) ending: bool,
    /// Its process is gone: nothing is answered, see `daemon::session::leave`.
    pub(super) dead: bool,
    /// Set until they are gone.
    pub(super) detaching: Option<Detaching>,
    /// Numbers of the regions that arenas have in the device's table.
    pub(super) regions: Regions,
    next_peer_port: u16,
    /// Ring memory in the shared region that exists so far, and whether more is being made.
    shared_rings: u64,
    growing: bool,
    ring_bytes: u64,
    /// Bytes of rings that a network card reaches, which the owner's account counts.
    pub(super) registered_bytes: u64,
    /// Descriptors of sockets and streams, which the owner's account counts.
    pub(super) descriptors: u64,
    /// Slots that are in use.
    pub(super) used: usize,
    /// Listeners that have connections which they cannot hand over.
    pub(super) starved: BTreeSet<u32>,
    pub(super) log: LogLimiter<Topic>,
}

/// An attachment that is being closed.
pub(super) struct Detaching {
    /// Who waits for it.
    pub(super) done: Done<()>,
    /// How long streams may deliver what was sent, once all sockets are closed.
    pub(super) bound: Duration,
    /// Set once they are.
    pub(super) delivering: Option<Delivering>,
}

/// All sockets of an attachment are closed, and streams deliver what was sent.
pub(super) struct Delivering {
    /// Ends the wait for streams that do not end.
    pub(super) timeout: JoinHandle<()>,
    /// No stream is left in slots before this one.
    pub(super) from: u32,
}

/// The launch of sockets that their launch left for whoever comes.
pub(super) const NO_LAUNCH: u32 = u32::MAX;

/// One socket slot.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) launch: u32,
    pub(super) role: Role,
    /// When it was taken; `None` while it is free.
    pub(super) since: Option<Instant>,
    /// It is counted in its owner's account.
    pub(super) counted: bool,
    /// So many descriptors are counted for it there, beside those of streams.
    pub(super) descriptors: u8,
    /// Its socket is closed for a launch that has ended: it is not free again before the host says that
    /// no running launch knows the handle.
    pub(super) retiring: bool,
    /// What the log says of its stream is said in here.
    pub(super) span: Option<Span>,
}

/// What a slot is used for.
#[derive(Default)]
pub(super) enum Role {
    /// In the recycling ring, or held by the device and not yet named in a request.
    #[default]
    Free,
    /// An address was taken; no listen or connect yet.
    Bound(Bound),
    /// A listener.
    Listener(Box<Listener>),
    /// A connect or an accept is under way for it.
    Opening,
    /// A stream.
    Stream(Stream),
    /// A socket that was closed for a launch that has ended, and its rings: both stay out of use until
    /// the host releases them.
    Retired(Option<Stream>),
}

/// A listener: one address, several transports.
pub(super) struct Listener {
    pub(super) addr: SocketAddr,
    pub(super) backlogs: Vec<Backlog>,
    pub(super) waiters: WaitQueue<Waiter>,
    pub(super) handshakes: Handshakes,
    pub(super) backlog: u32,
    /// The ready count that the device was shown last.
    pub(super) shown: u64,
    /// The connections that waited then, those included for which there was too little of something.
    pub(super) waiting: u64,
    /// The tasks that watch descriptors, and how to make them watch again.
    pub(super) watches: Vec<(JoinHandle<()>, Arc<Notify>)>,
    /// Serves again after a while, where nobody says that what is lacking is there again.
    pub(super) retry: Option<JoinHandle<()>>,
    /// Keeps the port.
    pub(super) bound: Bound,
}

/// The connections that wait at a listener by one transport.
pub(super) struct Backlog {
    pub(super) listen: Box<dyn Listen>,
    /// What there was too little of for them, when somebody last accepted.
    pub(super) short: Option<Shortage>,
}

/// An accept that waits.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub(super) request: RequestId,
    pub(super) target: u32,
    pub(super) launch: u32,
}

/// A stream, driven by a data thread or direct.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) memory: StreamMemory,
    pub(super) linger_ms: i32,
    /// The device's part is over; the slot comes back when the rest is.
    pub(super) closed: bool,
    /// A direct stream's other end.
    pub(super) partner: Option<Partner>,
    /// A direct stream: bytes sent and consumed at close; `None` until then, and of a stream that its
    /// kernel left behind.
    pub(super) final_positions: Option<(u64, u64)>,
    /// This end's address and the other's.
    pub(super) addrs: Option<(SocketAddr, SocketAddr)>,
    pub(super) transport: TransportKind,
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
    pub(super) device: AttachmentId,
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// A request without an answer.
pub(super) struct Waiting {
    pub(super) seq: u64,
    pub(super) launch: u32,
    pub(super) what: Wait,
}

/// What a request waits for.
pub(super) enum Wait {
    /// A connection at a listener.
    Accept { listener: u32, place: WaitKey },
    /// A driven stream that is being opened. Dropping the sender gives it up; the attempt then says
    /// when its rings are free.
    Attempt { _stop: oneshot::Sender<()> },
    /// A connect in a peer listener's backlog.
    Queued { slot: u32, wish: Box<Connect> },
    /// A connect or an accept that waits for memory that both attachments share.
    Joining { join: u64 },
    /// A connect for which there is no ring memory yet.
    Deferred { request: Box<Request> },
    /// A data thread's answer.
    Query,
}

impl Device {
    pub(super) fn new(attached: Arc<AttachmentState>) -> Self {
        let memory = &attached.memory;
        let (geometry, layout) = (memory.geometry(), memory.layout());
        let local = (geometry.device_rings > 0).then(|| {
            let device = DeviceLayout::new(geometry);
            Slab::new(device.rings, geometry.device_rings)
        });
        let shared_rings = first_rings(geometry);
        let growing = shared_rings < geometry.shared_rings;
        let shared = Slab::new(layout.rings, shared_rings);
        let ring_bytes = shared.free_bytes() + local.as_ref().map_or(0, Slab::free_bytes);
        Self {
            slots: Slots::new(geometry.sockets as usize),
            requests: HashMap::new(),
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
            starved: BTreeSet::new(),
            log: LogLimiter::new(SAY_AGAIN),
            regions: Regions::default(),
            ending: false,
            dead: false,
            detaching: None,
            next_peer_port: 49152,
            attached,
        }
    }

    /// There is ring memory up to `rings` now; `last`: and that is all.
    pub(super) fn extend_shared(&mut self, rings: u64, last: bool) {
        let before = self.shared.free_bytes();
        self.shared.extend(self.shared_rings, rings);
        self.ring_bytes += self.shared.free_bytes() - before;
        (self.shared_rings, self.growing) = (rings, !last);
    }

    /// Bytes of ring memory in that region, those that are still being made included.
    pub(super) fn ring_memory(&self, region: u8) -> u64 {
        let geometry = self.attached.memory.geometry();
        match region {
            DEVICE if self.local.is_some() => geometry.device_rings,
            _ if self.growing => geometry.shared_rings,
            _ => self.shared_rings,
        }
    }

    /// Says whether more ring memory is being made.
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

    /// Says whether the device can just have taken that slot: it is free, and the generation is the
    /// one that follows its last. A request made of garbage hardly ever passes.
    pub(super) fn is_fresh(&self, slot: u32, generation: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|entry| {
            matches!(entry.role, Role::Free) && next_generation(entry.generation) == generation
        })
    }

    /// Takes back a slot for which nothing was opened.
    pub(super) fn refuse_slot(&mut self, slot: u32, generation: u32) {
        if self.is_fresh(slot, generation) {
            self.slots[slot as usize].generation = generation;
            self.recycle(slot);
        }
    }

    /// Retires a slot for which gsocket was called and nothing else; returns whether it is one.
    pub(super) fn retire_fresh(&mut self, socket: Handle) -> bool {
        if !self.is_fresh(socket.slot(), socket.generation()) {
            return false;
        }
        let entry = &mut self.slots[socket.slot() as usize];
        (entry.generation, entry.retiring) = (socket.generation(), true);
        entry.role = Role::Retired(None);
        entry.since = Some(Instant::now());
        self.used += 1;
        true
    }

    /// Returns whether kernels may still know a stream that has ended: its own handle, or that of its other
    /// end on this device, which polls the words of this slot.
    pub(super) fn is_retiring(&self, slot: u32, stream: &Stream) -> bool {
        let retiring = |slot: u32| self.slots.get(slot as usize).filter(|entry| entry.retiring);
        let other = stream.partner.filter(|partner| partner.device == self.attached.id);
        let other = other.and_then(|partner| {
            retiring(partner.slot).filter(|entry| entry.generation == partner.generation)
        });
        retiring(slot).is_some() || other.is_some()
    }

    /// The retired stream that is this end, on this device.
    pub(super) fn retired(&self, end: Partner) -> Option<Stream> {
        let entry = self.slots.get(end.slot as usize)?;
        match entry.role {
            Role::Retired(stream) if end.device == self.attached.id && entry.generation == end.generation => {
                stream
            }
            _ => None,
        }
    }

    /// Notes that a request waits.
    pub(super) fn wait(&mut self, id: RequestId, launch: u32, what: Wait) {
        self.requests.insert(id.control, Waiting { seq: id.seq, launch, what });
    }

    /// Says whether the request of that number still waits.
    pub(super) fn waits(&self, id: RequestId) -> bool {
        self.waiting(id).is_some()
    }

    /// That request, if it waits.
    pub(super) fn waiting(&self, id: RequestId) -> Option<&Waiting> {
        self.requests.get(&id.control).filter(|waiting| waiting.seq == id.seq)
    }

    /// Answers a control request.
    pub(super) fn reply(&mut self, id: RequestId, reply: &Reply) {
        self.requests.remove(&id.control);
        match self.answers.remove(&id.control) {
            Some(answer) => answer(reply),
            None if !self.dead && id.control < self.attached.memory.geometry().controls => {
                self.attached.memory.write_reply(id.control, id.seq, reply);
            }
            None => {}
        }
    }

    /// Answers a control request with an error, or with plain success.
    pub(super) fn reply_result(&mut self, id: RequestId, result: Result<(), Error>) {
        let errno = result.map_or_else(|e| e.errno() as u32, |()| 0);
        self.reply(id, &Reply::new(errno, 0));
    }

    /// Returns whether all slots are in use.
    pub(super) fn is_full(&self) -> bool {
        self.used == self.slots.len()
    }

    /// Marks a slot as being opened for that generation and launch.
    pub(super) fn opening(&mut self, slot: u32, generation: u32, launch: u32) -> Role {
        let entry = &mut self.slots[slot as usize];
        (entry.generation, entry.launch) = (generation, launch);
        std::mem::replace(&mut entry.role, Role::Opening)
    }

    /// Opens the span of a new stream.
    pub(super) fn enter_span(
        &mut self,
        slot: u32,
        kind: TransportKind,
        addrs: (SocketAddr, SocketAddr),
    ) -> Span {
        let (client, process) = (self.attached.id.0, self.attached.client.pid);
        let (local, peer) = addrs;
        // Shown wherever a warning is: what it is about stands here.
        let span = tracing::warn_span!("connection", client, process, slot, ?kind, %local, %peer);
        span.in_scope(|| tracing::debug!("open"));
        self.slots[slot as usize].span = Some(span.clone());
        span
    }

    /// Says that a stream closed before its peer had so many bytes.
    pub(super) fn warn_undelivered(&self, slot: u32, undelivered: u64) {
        let span = self.slots.get(slot as usize).and_then(|entry| entry.span.as_ref());
        if let (Some(span), true) = (span, undelivered > 0) {
            span.in_scope(|| tracing::warn!(undelivered, "closed before everything was delivered"));
        }
    }

    /// Makes a slot without rings free again, or retires it.
    pub(super) fn recycle(&mut self, slot: u32) {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        if entry.retiring {
            entry.role = Role::Retired(None);
            return;
        }
        entry.role = Role::Free;
        if entry.since.take().is_some() {
            self.used -= 1;
        }
        if let Some(span) = entry.span.take() {
            span.in_scope(|| tracing::debug!("closed"));
        }
        if let (Some(account), true) = (&self.attached.account, std::mem::take(&mut entry.counted)) {
            account.give_socket();
        }
        let descriptors = std::mem::take(&mut entry.descriptors);
        if descriptors > 0 {
            self.give_descriptors(descriptors.into());
        }
        self.attached.memory.recycle(slot);
    }

    /// Says whether a listener stands in that slot.
    pub(super) fn is_listener(&self, slot: u32) -> bool {
        matches!(self.slots[slot as usize].role, Role::Listener(_))
    }

    /// A port number for the connecting end of a direct stream, which has no TCP socket of its own.
    pub(super) fn peer_port(&mut self) -> u16 {
        let port = self.next_peer_port;
        self.next_peer_port = if port == u16::MAX { 49152 } else { port + 1 };
        port
    }
}
