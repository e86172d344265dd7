//! Everything in a simulated network, behind one lock.

use super::domain::{Domain, Registry};
use super::event::EventChannel;
use super::settings::{Dice, FabricSettings};
use crate::verbs::{Completion, CompletionStatus, Depth, Op, WorkRequest};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A host of a [`Fabric`](super::Fabric): one process and its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostId(pub(super) usize);

/// What has happened in a network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests posted to send queues.
    pub work_requests: u64,
    /// Messages delivered: writes with immediate data, and sends.
    pub messages: u64,
    /// Inline writes delivered: descriptors put into a table.
    pub table_writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Times that a message found no receive.
    pub rnr: u64,
    /// Times that a request or its acknowledgement was lost.
    pub retries: u64,
    /// Memory regions made, on all hosts.
    pub registrations: u64,
}

/// Everything in a simulated network.
pub(super) struct State {
    pub settings: FabricSettings,
    next_id: u64,
    /// Queue pairs and keys made: their numbers do not depend on timing, unlike `next_id`.
    made_qps: u64,
    made_keys: u32,
    pub hosts: Vec<Host>,
    pub listeners: HashMap<SocketAddr, Listener>,
    /// Connections asked for and not answered, by number.
    pub requests: HashMap<u64, Pending>,
    /// Those that were accepted and whose client has not taken the answer, by the same number.
    pub accepted: HashMap<u64, AcceptedRequest>,
    pub qps: HashMap<u64, Qp>,
    timers: BTreeMap<(Instant, u64), Event>,
    /// The network carries nothing.
    pub partitioned: bool,
    /// Addresses that no RDMA device leads to.
    pub hidden: HashSet<IpAddr>,
    pub counters: Counters,
    /// Answers to give when the lock is open again: wakers run other people's code.
    pub answers: Vec<Answer>,
    /// Memory to let go when the lock is open again, for the same reason.
    pub trash: Vec<Arc<Domain>>,
    pub has_thread: bool,
    pub is_over: bool,
}

/// A machine with one process and one card.
#[derive(Debug)]
pub(super) struct Host {
    pub powered: bool,
    pub registry: Registry,
    pub queue_pairs: usize,
    pub identifiers: usize,
    /// How the next requests end, by order of a test.
    pub orders: VecDeque<CompletionStatus>,
}

pub(super) struct Listener {
    pub number: u64,
    pub host: HostId,
    pub backlog: usize,
    pub queue: VecDeque<u64>,
    pub event: Arc<EventChannel>,
}

/// A connection that was asked for.
pub(super) struct Pending {
    pub host: HostId,
    pub qp: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub private_data: Vec<u8>,
    pub reply: Reply,
    /// The host whose listener has it.
    pub passive: Option<HostId>,
}

/// A connection that was accepted: its accept waits for the client.
pub(super) struct AcceptedRequest {
    pub client: HostId,
    pub server: HostId,
    /// The way of the client's last message.
    pub back: Duration,
    pub reply: Reply,
}

/// Where a connect or accept waits for its answer.
pub(super) type Reply = oneshot::Sender<io::Result<Vec<u8>>>;

/// An answer to a connect or accept.
pub(super) struct Answer {
    pub to: Reply,
    pub what: io::Result<Vec<u8>>,
}

/// What happens later.
pub(super) enum Event {
    /// A queue pair's next request or acknowledgement is due.
    Pump(u64),
    /// A connection request arrives.
    Request(u64),
    /// A connection request was not answered.
    Unanswered(u64),
    /// The client did not take the answer.
    Untaken(u64),
    Answer(Answer),
    /// The notice that `peer` is gone reaches a queue pair.
    Disconnected {
        peer: HostId,
        qp: u64,
    },
    /// The network carries again.
    Restore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Made; its connection is not.
    Init,
    Ready,
    Error,
}

/// A queue pair with its completion queue.
pub(super) struct Qp {
    pub host: HostId,
    pub domain: Arc<Domain>,
    pub depth: Depth,
    pub phase: Phase,
    /// The other end: its host and queue pair.
    pub peer: Option<(HostId, u64)>,
    /// Posted and not completed, in order; the first `delivered` of them are at the peer.
    pub sends: VecDeque<Work>,
    pub delivered: usize,
    /// Send-queue slots in use. As on a card, polling the completion frees one.
    pub send_slots: u32,
    /// Receives posted that no message has taken.
    pub receives: u32,
    pub receive_slots: u32,
    pub completions: VecDeque<Completion>,
    pub armed: bool,
    pub completion_event: Arc<EventChannel>,
    pub disconnected: bool,
    pub connection_event: Arc<EventChannel>,
    pub rnr_timer: Duration,
    /// Nothing is sent before: the peer had no receive, or did not answer.
    pub stalled: Option<Instant>,
    /// The pump is due at this time already.
    pub wake: Option<Instant>,
    pub dice: Dice,
}

/// A request in the send queue. Its chances are drawn when it is posted, so that they depend on the
/// seed and the order of posts and not on time.
pub(super) struct Work {
    pub id: u64,
    pub op: Op,
    /// When it reaches the peer.
    pub due: Instant,
    /// Way of its acknowledgement.
    pub back: Duration,
    /// When its acknowledgement arrives, once it is delivered.
    pub acked: Option<Instant>,
    /// Since when it goes unanswered.
    pub lost: Option<Instant>,
    /// Times it is lost by chance; `u32::MAX` forever.
    pub losses: u32,
}

impl State {
    pub fn new(settings: FabricSettings) -> Self {
        Self {
            settings,
            next_id: 0,
            made_qps: 0,
            made_keys: 0,
            hosts: Vec::new(),
            listeners: HashMap::new(),
            requests: HashMap::new(),
            accepted: HashMap::new(),
            qps: HashMap::new(),
            timers: BTreeMap::new(),
            partitioned: false,
            hidden: HashSet::new(),
            counters: Counters::default(),
            answers: Vec::new(),
            trash: Vec::new(),
            has_thread: false,
            is_over: false,
        }
    }

    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub fn add_host(&mut self) -> HostId {
        let host = Host {
            powered: true,
            registry: Registry::default(),
            queue_pairs: 0,
            identifiers: 0,
            orders: VecDeque::new(),
        };
        self.hosts.push(host);
        HostId(self.hosts.len() - 1)
    }

    /// Returns whether packets travel between the two.
    pub fn carries(&self, a: HostId, b: HostId) -> bool {
        !self.partitioned && self.hosts[a.0].powered && self.hosts[b.0].powered
    }

    /// Draws how long a message of the connection manager takes.
    pub fn draw(&mut self, qp: u64) -> Duration {
        let delay = &self.settings.delay;
        self.qps.get_mut(&qp).map_or(Duration::ZERO, |qp| qp.dice.within(delay))
    }

    /// A key that no other region has; neighbours differ in many bits.
    pub fn new_key(&mut self) -> u32 {
        self.made_keys += 1;
        self.made_keys.wrapping_mul(0x9e37_79b1)
    }

    pub fn schedule(&mut self, at: Instant, event: Event) {
        let tie = self.new_id();
        self.timers.insert((at, tie), event);
    }

    /// Lets an event happen after `delay`; now if that is none.
    pub fn after(&mut self, delay: Duration, event: Event) {
        let now = Instant::now();
        if delay.is_zero() { self.handle(event, now) } else { self.schedule(now + delay, event) }
    }

    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets everything happen that is due.
    pub fn advance(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let event = entry.remove();
            self.handle(event, now);
        }
    }

    fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::Pump(qp) => self.pump(qp, now),
            Event::Request(request) => self.arrive(request),
            Event::Unanswered(request) => self.refuse(request, io::ErrorKind::TimedOut),
            Event::Untaken(request) => self.end_accept(request, io::ErrorKind::TimedOut),
            Event::Answer(answer) => self.answers.push(answer),
            Event::Disconnected { peer, qp } => self.handle_peer_end(peer, qp, now),
            Event::Restore => self.partitioned = false,
        }
    }

    /// Makes a queue pair with all its receives posted.
    pub fn create_qp(&mut self, host: HostId, domain: Arc<Domain>, depth: Depth) -> io::Result<u64> {
        let number = self.new_id();
        self.made_qps += 1;
        let qp = Qp {
            host,
            domain,
            depth,
            phase: Phase::Init,
            peer: None,
            sends: VecDeque::new(),
            delivered: 0,
            send_slots: 0,
            receives: depth.receives,
            receive_slots: depth.receives,
            completions: VecDeque::new(),
            armed: false,
            completion_event: Arc::new(EventChannel::new()?),
            disconnected: false,
            connection_event: Arc::new(EventChannel::new()?),
            rnr_timer: self.settings.rnr_timer,
            stalled: None,
            wake: None,
            dice: Dice::new(self.settings.seed, self.made_qps),
        };
        self.qps.insert(number, qp);
        self.hosts[host.0].queue_pairs += 1;
        Ok(number)
    }

    /// Destroys a queue pair; from here on nothing touches its memory. Returns its peer.
    pub fn destroy_qp(&mut self, number: u64) -> Option<(HostId, u64)> {
        let qp = self.qps.remove(&number)?;
        self.hosts[qp.host.0].queue_pairs -= 1;
        self.release(qp.host, qp.domain);
        qp.peer
    }
}

impl Qp {
    /// Adds a completion; raises the event if one was asked for.
    pub fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
        if self.armed {
            self.armed = false;
            self.completion_event.raise();
        }
    }

    /// Puts a request into the send queue and draws its chances.
    pub fn enqueue(&mut self, request: &WorkRequest, settings: &FabricSettings, now: Instant) {
        let mut due = now + self.dice.within(&settings.delay);
        let back = self.dice.within(&settings.delay);
        if let Some(last) = self.sends.back() {
            due = due.max(last.due);
        }
        let mut losses = 0;
        while losses < 3 && self.dice.hits(settings.loss_per_mille, 1000) {
            losses += 1;
        }
        if self.dice.hits(settings.failure_per_million, 1_000_000) {
            losses = u32::MAX;
        }
        let (id, op) = (request.id, request.op);
        self.sends.push_back(Work { id, op, due, back, acked: None, lost: None, losses });
        self.send_slots += 1;
    }
}
