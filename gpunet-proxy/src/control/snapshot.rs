//! What the proxy holds, for people.

use super::Control;
use super::arena::Arenas;
use super::tables::{Device, Role, Slot, Stream, StreamMemory};
use crate::model::message::{Command, Done, StreamCount};
use crate::model::snapshot::{Carried, Client, Placement, Snapshot, Socket, State, Totals, Transport};
use gpunet_abi::options::TransportKind;
use gpunet_abi::position::StreamWord;
use gpunet_abi::region::DEVICE;
use gpunet_core::connection::Counts;
use gpunet_core::ids::AttachmentId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long the data threads may take to say how far their streams are.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What streams that are gone have carried.
#[derive(Default)]
pub(super) struct Past {
    totals: Totals,
}

impl Past {
    /// A stream is gone.
    pub(super) fn add(&mut self, kind: TransportKind, counts: Counts) {
        carry(&mut self.totals, transport(kind), counts.sent, counts.received);
    }

    /// An attachment is gone.
    pub(super) fn forget(&mut self, device: &Device) {
        let stats = device.attached.totals.snapshot();
        self.totals.opened += stats.opened;
        // Those that did not end before it have ended with it.
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
    carried.sent += sent;
    carried.received += received;
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
    /// Passes on what there is at this moment, once the data threads have said how far their streams are.
    pub(super) fn take_snapshot(&self, done: Done<Snapshot>) {
        let mut snapshot = self.snapshot();
        let (count, counts) = crossbeam_channel::unbounded();
        for shard in &self.shards {
            shard.send(Command::Count { done: count.clone() });
        }
        drop(count);
        tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + TIMEOUT;
            let mut streams = HashMap::new();
            while let Ok(counted) = counts.recv_deadline(deadline) {
                streams
                    .extend(counted.into_iter().map(|c: StreamCount| ((c.device, c.slot, c.generation), c)));
            }
            for socket in &mut snapshot.sockets {
                if let Some(count) =
                    streams.get(&(AttachmentId(socket.client), socket.slot, socket.generation))
                {
                    driven(socket, count);
                }
                carry(&mut snapshot.totals, socket.transport, socket.sent, socket.received);
            }
            done(snapshot);
        });
    }

    fn snapshot(&self) -> Snapshot {
        let mut totals = self.past.totals;
        let mut sockets = Vec::new();
        for device in self.devices.values() {
            let stats = device.attached.totals.snapshot();
            totals.opened += stats.opened;
            totals.closed += stats.closed;
            totals.undelivered += stats.undelivered;
            let used = device.slots.iter().filter(|(_, entry)| !matches!(entry.role, Role::Free));
            sockets.extend(used.map(|(slot, entry)| self.socket(device, slot, entry)));
        }
        Snapshot {
            version: Snapshot::VERSION,
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            clients: self.devices.values().map(client).collect(),
            sockets,
            totals,
        }
    }

    fn socket(&self, device: &Device, slot: u32, entry: &Slot) -> Socket {
        let mut socket = Socket {
            client: device.attached.id.0,
            slot,
            generation: entry.generation,
            state: State::Opening,
            transport: Transport::None,
            placement: Placement::None,
            local: None,
            peer: None,
            sent: 0,
            received: 0,
            send_queue: 0,
            in_flight: 0,
            recv_queue: 0,
            send_capacity: 0,
            recv_capacity: 0,
            waiting: 0,
            age_ms: entry.since.map_or(0, |since| since.elapsed().as_millis() as u64),
        };
        match &entry.role {
            Role::Free | Role::Opening => {}
            Role::Retired(_) => socket.state = State::Closing,
            Role::Bound(bound) => (socket.state, socket.local) = (State::Bound, Some(bound.addr)),
            Role::Listener(listener) => {
                (socket.state, socket.local) = (State::Listen, Some(listener.addr));
                socket.waiting = listener.waiting;
            }
            Role::Stream(stream) => {
                socket.state = if stream.closed { State::Closing } else { State::Established };
                socket.transport = transport(stream.transport);
                socket.placement = placement(stream, &self.arenas);
                (socket.local, socket.peer) = stream.addrs.unzip();
                let (send, recv) = stream.memory.rings();
                (socket.send_capacity, socket.recv_capacity) = (send.capacity(), recv.capacity());
                if stream.partner.is_some() {
                    self.direct(&mut socket, device, slot, stream);
                }
            }
        }
        socket
    }

    /// What a direct stream's devices show of it now and then: a hint, which nobody acts on.
    fn direct(&self, socket: &mut Socket, device: &Device, slot: u32, stream: &Stream) {
        let (sent, consumed) = shown(device, slot, stream);
        let partner = stream.partner.and_then(|partner| {
            let device = self.devices.get(&partner.device)?;
            let entry = device.slots.get(partner.slot as usize)?;
            match &entry.role {
                Role::Stream(stream) if entry.generation == partner.generation => {
                    Some((shown(device, partner.slot, stream), stream.closed))
                }
                _ => None,
            }
        });
        let ((peer_sent, peer_consumed), peer_closed) = partner.unwrap_or(((consumed, sent), true));
        // The two ends show their totals at different times.
        socket.sent = sent.max(peer_consumed);
        socket.received = consumed.max(peer_sent);
        socket.in_flight = (socket.sent - peer_consumed).min(socket.send_capacity);
        socket.recv_queue = (socket.received - consumed).min(socket.recv_capacity);
        if peer_closed && socket.state == State::Established {
            socket.state = State::RecvClosed;
        }
    }
}

/// Bytes that a direct stream's device has sent and consumed, as it showed last, or as it closed with.
fn shown(device: &Device, slot: u32, stream: &Stream) -> (u64, u64) {
    let memory = &device.attached.memory;
    let word = |value: u64| StreamWord(value).position();
    stream.final_positions.unwrap_or_else(|| {
        (
            word(memory.published_words().get(slot as usize).peek()),
            word(memory.consumed_words().get(slot as usize).peek()),
        )
    })
}

fn placement(stream: &Stream, arenas: &Arenas) -> Placement {
    match &stream.memory {
        StreamMemory::Own(rings) if rings.region == DEVICE => Placement::Device,
        StreamMemory::Arena(rings) if arenas.is_on_gpus(rings.arena) => Placement::P2p,
        StreamMemory::Own(_) | StreamMemory::Arena(_) => Placement::Pinned,
    }
}

/// What a data thread knows of a stream.
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

fn client(device: &Device) -> Client {
    let (attached, usage) = (&device.attached, device.usage());
    let totals = attached.totals.snapshot();
    Client {
        id: attached.id.0,
        pid: attached.client.pid,
        uid: attached.client.uid,
        command: attached.client.command.clone(),
        device: attached.client.device.clone(),
        since_ms: attached.since.elapsed().as_millis() as u64,
        sockets: usage.sockets as u32,
        ring_bytes: usage.ring_bytes,
        ring_bytes_used: usage.ring_bytes - usage.free_ring_bytes,
        opened: totals.opened,
        closed: totals.closed,
        undelivered: totals.undelivered,
    }
}
