//! Snapshots: what the proxy holds, for operators.

use super::Control;
use super::arena::Arenas;
use super::tables::slots::{Role, Slot};
use super::tables::{AttachmentEntry, StreamEntry, StreamMemory};
use crate::model::message::{Command, Done, StreamCount};
use crate::model::snapshot::{Carried, Client, Placement, Snapshot, Socket, State, Totals, Transport, Wait};
use gpunet_abi::Direction;
use gpunet_abi::layout::LAUNCHES;
use gpunet_abi::options::TransportKind;
use gpunet_abi::position::StreamWord;
use gpunet_abi::region::DEVICE;
use gpunet_abi::waiting;
use gpunet_core::connection::Counts;
use gpunet_core::ids::{AttachmentId, LaunchId};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// How long the data threads may take to report their streams' progress.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Totals of closed streams.
#[derive(Default)]
pub(super) struct Past {
    totals: Totals,
}

impl Past {
    /// Adds a closed stream.
    pub(super) fn add(&mut self, kind: TransportKind, counts: Counts) {
        carry(&mut self.totals, transport(kind), counts.sent, counts.received);
    }

    /// Adds a detached attachment.
    pub(super) fn forget(&mut self, attachment: &AttachmentEntry) {
        let stats = attachment.state.totals.snapshot();
        self.totals.opened += stats.opened;
        // Streams that did not end before it have ended with it.
        self.totals.closed += stats.opened;
        self.totals.undelivered += stats.undelivered;
    }
}

fn carry(totals: &mut Totals, transport: Transport, sent: u64, received: u64) {
    let carried: &mut Carried = match transport {
        Transport::Tcp => &mut totals.tcp,
        Transport::Peer => &mut totals.peer,
        Transport::Rc => &mut totals.rc,
        Transport::None => return,
    };
    // A kernel may report any number for a direct stream. Later streams must still be counted
    // correctly.
    carried.sent = carried.sent.wrapping_add(sent);
    carried.received = carried.received.wrapping_add(received);
}

const fn transport(kind: TransportKind) -> Transport {
    match kind {
        TransportKind::Auto => Transport::None,
        TransportKind::Tcp => Transport::Tcp,
        TransportKind::Peer => Transport::Peer,
        TransportKind::Rc => Transport::Rc,
    }
}

impl Control {
    /// Takes a snapshot, of one user's attachments or of all, and passes it on once the data
    /// threads have reported their streams' progress. Its cost is that of what it shows.
    pub(super) fn take_snapshot(&self, of: Option<u32>, done: Done<Snapshot>) {
        let mut snapshot = self.snapshot(of);
        let (count, mut counts) = mpsc::unbounded_channel();
        for shard in self.threads.links() {
            shard.send(Command::Count { of, done: count.clone() });
        }
        drop(count);
        let pool = self.pool.clone();
        tokio::task::spawn_local(async move {
            let deadline = Instant::now() + TIMEOUT;
            let mut counted = Vec::new();
            while let Ok(Some(counts)) = timeout_at(deadline, counts.recv()).await {
                counted.push(counts);
            }
            pool.run(move || {
                add_progress(&mut snapshot, counted);
                if of.is_some() {
                    // They are of all users.
                    snapshot.totals = Totals::default();
                }
                done(snapshot);
            });
        });
    }

    fn snapshot(&self, of: Option<u32>) -> Snapshot {
        let mut totals = self.past.totals;
        let mut sockets = Vec::new();
        let shown = || self.attachments.iter().filter(|entry| entry.state.is_of(of));
        for attachment in shown() {
            let stats = attachment.state.totals.snapshot();
            totals.opened += stats.opened;
            totals.closed += stats.closed;
            totals.undelivered += stats.undelivered;
            let used = attachment.slots.iter();
            let used =
                used.filter(|(_, entry)| !matches!(entry.role, Role::Free | Role::Prepared | Role::Group(_)));
            sockets.extend(used.map(|(slot, entry)| self.socket(attachment, slot, entry)));
        }
        Snapshot {
            version: Snapshot::VERSION,
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            clients: shown().map(client).collect(),
            sockets,
            totals,
            threads: self.threads.snapshot(),
            waits: shown().flat_map(waits).collect(),
        }
    }

    fn socket(&self, attachment: &AttachmentEntry, slot: u32, entry: &Slot) -> Socket {
        let memory = &attachment.state.memory;
        let mut socket = Socket {
            client: attachment.state.id.0,
            slot,
            generation: entry.generation,
            state: State::Opening,
            transport: Transport::None,
            placement: Placement::None,
            local: None,
            peer: None,
            sent: 0,
            received: 0,
            lines_sent: 0,
            send_queue: 0,
            in_flight: 0,
            recv_queue: 0,
            send_capacity: 0,
            recv_capacity: 0,
            waiting: 0,
            age_ms: entry.since.map_or(0, |since| since.elapsed().as_millis() as u64),
            host: memory.is_host_slot(slot),
            send_taken: false,
            recv_taken: false,
        };
        match &entry.role {
            Role::Free | Role::Opening | Role::Prepared | Role::Group(_) => {}
            Role::Retired(_) => socket.state = State::Closing,
            Role::Bound(bound) => (socket.state, socket.local) = (State::Bound, Some(bound.addr)),
            Role::Listener(listener) => {
                (socket.state, socket.local) = (State::Listen, Some(listener.addr));
                socket.waiting = listener.waiting + attachment.untaken(&listener.ahead).count() as u64;
            }
            Role::Stream(stream) => {
                let is_closed = attachment.is_closed(slot, stream);
                socket.state = if is_closed { State::Closing } else { State::Established };
                socket.transport = transport(stream.transport);
                socket.placement = placement(stream, &self.arenas);
                (socket.local, socket.peer) = (Some(stream.addrs.0), Some(stream.addrs.1));
                let (send, recv) = stream.memory.rings();
                (socket.send_capacity, socket.recv_capacity) = (send.capacity(), recv.capacity());
                // A closed direction no longer counts as taken, whatever its program has stored.
                let is_taken = |direction| !is_closed && memory.is_taken(slot, direction);
                socket.send_taken = is_taken(Direction::Send);
                socket.recv_taken = is_taken(Direction::Recv);
                if stream.partner.is_some() {
                    self.direct(&mut socket, attachment, slot, stream);
                }
            }
        }
        socket
    }

    /// The progress of a direct stream as its devices publish it now and then: a hint, which
    /// nothing depends on.
    fn direct(&self, socket: &mut Socket, attachment: &AttachmentEntry, slot: u32, stream: &StreamEntry) {
        let (sent, consumed) = shown(attachment, slot, stream);
        let partner = stream.partner.and_then(|partner| {
            let attachment = self.attachments.get(partner.attachment)?;
            let stream = attachment.slots.stream(partner.socket)?;
            Some((shown(attachment, partner.socket.slot, stream), stream.closed))
        });
        let ((peer_sent, peer_consumed), peer_closed) = partner.unwrap_or(((consumed, sent), true));
        // The two ends publish their totals at different times.
        socket.sent = sent.max(peer_consumed);
        socket.received = consumed.max(peer_sent);
        socket.lines_sent = attachment.state.memory.lines_sent_words().get(slot as usize).peek();
        socket.in_flight = (socket.sent - peer_consumed).min(socket.send_capacity);
        socket.recv_queue = (socket.received - consumed).min(socket.recv_capacity);
        if peer_closed && socket.state == State::Established {
            socket.state = State::RecvClosed;
        }
    }
}

/// Bytes that a direct stream's device has sent and consumed, as last published or as of its close.
fn shown(attachment: &AttachmentEntry, slot: u32, stream: &StreamEntry) -> (u64, u64) {
    let memory = &attachment.state.memory;
    let word = |value: u64| StreamWord(value).position();
    stream.final_positions.unwrap_or_else(|| {
        (
            word(memory.published_words().get(slot as usize).peek()),
            word(memory.consumed_words().get(slot as usize).peek()),
        )
    })
}

fn placement(stream: &StreamEntry, arenas: &Arenas) -> Placement {
    match &stream.memory {
        StreamMemory::Own(rings) if rings.region == DEVICE => Placement::Device,
        StreamMemory::Arena(rings) if arenas.is_on_gpus(rings.arena) => Placement::P2p,
        StreamMemory::Own(_) | StreamMemory::Arena(_) => Placement::Pinned,
    }
}

/// Fills in what the data threads report of their streams.
fn add_progress(snapshot: &mut Snapshot, counted: Vec<Vec<StreamCount>>) {
    let named = |count: StreamCount| ((count.attachment, count.slot, count.generation), count);
    let streams: HashMap<_, _> = counted.into_iter().flatten().map(named).collect();
    for socket in &mut snapshot.sockets {
        if let Some(count) = streams.get(&(AttachmentId(socket.client), socket.slot, socket.generation)) {
            driven(socket, count);
        }
        carry(&mut snapshot.totals, socket.transport, socket.sent, socket.received);
    }
}

/// Fills in what a data thread reports of a stream.
fn driven(socket: &mut Socket, count: &StreamCount) {
    let Counts { sent, unsent, received, unread } = count.counts;
    (socket.sent, socket.send_queue, socket.received) = (sent, unsent, received);
    (socket.in_flight, socket.recv_queue) = (count.in_flight, unread);
    if socket.state == State::Established {
        socket.state = match count.ended {
            (false, false) => State::Established,
            (false, true) => State::RecvClosed,
            (true, _) => State::SendClosed,
        };
    }
}

/// What the blocks of an attachment show that they wait for. Hints: a kernel may store anything.
fn waits(attachment: &AttachmentEntry) -> Vec<Wait> {
    let mut waits = Vec::new();
    for launch in 0..LAUNCHES {
        let words = attachment.state.memory.waiting_words(LaunchId(launch));
        let shown = (0..waiting::BLOCKS)
            .filter_map(|number| waiting::unpack(words.get(number as usize).peek(), number));
        waits.extend(shown.map(|shown| Wait {
            client: attachment.state.id.0,
            launch,
            block: shown.block,
            call: shown.call.name().to_owned(),
            slot: shown.slot,
            waited_us: shown.waited_ns / 1000,
        }));
    }
    waits
}

fn client(attachment: &AttachmentEntry) -> Client {
    let (state, usage) = (&attachment.state, attachment.usage());
    let totals = state.totals.snapshot();
    Client {
        id: state.id.0,
        pid: state.client.pid,
        uid: state.client.uid,
        command: state.client.command.clone(),
        device: state.client.device.clone(),
        since_ms: state.since.elapsed().as_millis() as u64,
        sockets: usage.sockets as u32,
        ring_bytes: usage.ring_bytes,
        ring_bytes_used: usage.ring_bytes - usage.free_ring_bytes,
        opened: totals.opened,
        closed: totals.closed,
        undelivered: totals.undelivered,
    }
}
