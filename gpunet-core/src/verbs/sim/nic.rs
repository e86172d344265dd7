//! The card: carries the requests of a queue pair to its peer, in order, and completes them.

use super::domain::{Domain, Target};
use super::memory;
use super::state::{Event, HostId, Phase, Qp, State};
use crate::verbs::{Completion, CompletionStatus, Op, Source, WorkRequest};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// IBV_WC_LOC_PROT_ERR: the request names memory that is not its own.
const LOCAL_PROTECTION: CompletionStatus = CompletionStatus::Other(4);

/// What became of one attempt to carry a request over.
enum Outcome {
    Delivered,
    /// No answer.
    Lost,
    /// The peer had no receive; it may be tried again at this time.
    NotReady(Instant),
    Failed(CompletionStatus),
    /// The peer's card refused it, and gives the connection up.
    Refused,
    /// iWARP: the connection underneath is gone.
    Closed,
}

impl State {
    /// Takes a request into the send queue.
    pub fn post(&mut self, number: u64, request: &WorkRequest, now: Instant) -> io::Result<()> {
        let Some(qp) = self.qps.get_mut(&number) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if qp.send_slots == qp.depth.sends {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "the send queue is full"));
        }
        if self.settings.iwarp && matches!(request.op, Op::Write { immediate: Some(_), .. }) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "iWARP has no immediate data"));
        }
        self.counters.work_requests += 1;
        if qp.phase == Phase::Error {
            qp.send_slots += 1;
            qp.complete(Completion::Sent { id: request.id, status: CompletionStatus::Flushed });
            return Ok(());
        }
        qp.enqueue(request, &self.settings, now);
        self.pump(number, now);
        Ok(())
    }

    /// Posts a receive.
    pub fn post_receive(&mut self, number: u64) -> io::Result<()> {
        let Some(qp) = self.qps.get_mut(&number) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if qp.receive_slots == qp.depth.receives {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "the receive queue is full"));
        }
        qp.receive_slots += 1;
        if qp.phase == Phase::Error {
            qp.complete(Completion::Flushed);
        } else {
            qp.receives += 1;
        }
        Ok(())
    }

    /// Does everything that a queue pair can do by now, and asks to be called again for the rest.
    pub fn pump(&mut self, number: u64, now: Instant) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.wake = qp.wake.filter(|at| *at > now);
        }
        loop {
            self.take_acknowledgements(number, now);
            let Some(qp) = self.qps.get_mut(&number) else { return };
            if qp.phase != Phase::Ready {
                return;
            }
            let start =
                qp.sends.get(qp.delivered).map(|work| qp.stalled.map_or(work.due, |at| at.max(work.due)));
            if start.is_some_and(|at| at <= now) {
                let outcome = self.attempt(number, now);
                self.conclude(number, outcome, now);
                continue;
            }
            let ack = qp.sends.front().and_then(|work| work.acked);
            let Some(next) = start.into_iter().chain(ack).min() else { return };
            if qp.wake.is_none_or(|at| next < at) {
                qp.wake = Some(next);
                self.schedule(next, Event::Pump(number));
            }
            return;
        }
    }

    fn take_acknowledgements(&mut self, number: u64, now: Instant) {
        while let Some(qp) = self.qps.get(&number) {
            let Some(work) = qp.sends.front().filter(|work| work.acked.is_some_and(|at| at <= now)) else {
                return;
            };
            let (id, lost) = (work.id, work.lost.unwrap_or(now));
            let reachable = qp.peer.is_some_and(|(peer, _)| self.carries(qp.host, peer));
            if !reachable && now >= lost + self.settings.retry_time {
                self.fail(number, 0, CompletionStatus::RetryExceeded);
                return;
            }
            let Some(qp) = self.qps.get_mut(&number) else { return };
            if reachable {
                qp.sends.pop_front();
                qp.delivered -= 1;
                qp.complete(Completion::Sent { id, status: CompletionStatus::Success });
            } else if let Some(work) = qp.sends.front_mut() {
                work.lost = Some(lost);
                work.acked = Some(now + self.settings.ack_timeout);
                self.counters.retries += 1;
            }
        }
    }

    fn conclude(&mut self, number: u64, outcome: Outcome, now: Instant) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let index = qp.delivered;
        match outcome {
            Outcome::Delivered => {
                let before = index.checked_sub(1).and_then(|last| qp.sends[last].acked);
                let work = &mut qp.sends[index];
                let ack = now + work.back;
                work.lost = None;
                work.acked = Some(before.map_or(ack, |before| ack.max(before)));
                qp.delivered += 1;
                qp.stalled = None;
            }
            Outcome::Lost => {
                let lost = *qp.sends[index].lost.get_or_insert(now);
                let last = lost + self.settings.retry_time;
                if now >= last {
                    self.fail(number, index, CompletionStatus::RetryExceeded);
                } else {
                    qp.stalled = Some(last.min(now + self.settings.ack_timeout));
                    self.counters.retries += 1;
                }
            }
            Outcome::NotReady(again) => {
                qp.stalled = Some(again);
                self.counters.rnr += 1;
            }
            Outcome::Failed(status) => self.fail(number, index, status),
            Outcome::Refused => {
                let peer = qp.peer;
                self.fail(number, index, CompletionStatus::RemoteRefused);
                if let Some((_, peer)) = peer {
                    self.flush(peer);
                }
            }
            Outcome::Closed => self.fail(number, index, CompletionStatus::Flushed),
        }
    }

    /// Tries to carry the next request over.
    fn attempt(&mut self, number: u64, now: Instant) -> Outcome {
        let iwarp = self.settings.iwarp;
        let Some(qp) = self.qps.get_mut(&number) else { return Outcome::Closed };
        let (host, domain) = (qp.host, qp.domain.clone());
        let work = &mut qp.sends[qp.delivered];
        let op = work.op;
        match self.hosts[host.0].orders.pop_front() {
            Some(CompletionStatus::Success) | None => {}
            Some(CompletionStatus::RemoteRefused) => return Outcome::Refused,
            Some(status) => return Outcome::Failed(status),
        }
        if !is_own(&domain, &op) {
            return Outcome::Failed(LOCAL_PROTECTION);
        }
        let Some((peer_host, peer)) = qp.peer else { return Outcome::Lost };
        if work.losses > 0 {
            work.losses -= u32::from(work.losses != u32::MAX);
            return Outcome::Lost;
        }
        if !self.carries(host, peer_host) {
            return Outcome::Lost;
        }
        let Some(peer) = self.qps.get_mut(&peer).filter(|peer| peer.phase == Phase::Ready) else {
            return if iwarp { Outcome::Closed } else { Outcome::Lost };
        };
        if message_of(&op).is_some() && peer.receives == 0 {
            return if iwarp { Outcome::Refused } else { Outcome::NotReady(now + peer.rnr_timer) };
        }
        let Some(len) = carry(&domain, &peer.domain, &op) else { return Outcome::Refused };
        self.counters.bytes += u64::from(len);
        self.counters.table_writes += u64::from(matches!(op, Op::Write { from: Source::Inline(_), .. }));
        if let Some(message) = message_of(&op) {
            self.counters.messages += 1;
            peer.receives -= 1;
            let len = match op {
                Op::Send { .. } if iwarp => None,
                Op::Send { .. } => Some(4),
                Op::Write { .. } => Some(len),
            };
            peer.complete(Completion::Received { message, len });
        }
        Outcome::Delivered
    }

    /// Ends the request at `index` with an error, and with it the queue pair. Those before it were
    /// acknowledged, or it would not have come to its turn.
    fn fail(&mut self, number: u64, index: usize, status: CompletionStatus) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        for _ in 0..index {
            if let Some(work) = qp.sends.pop_front() {
                qp.complete(Completion::Sent { id: work.id, status: CompletionStatus::Success });
            }
        }
        if let Some(work) = qp.sends.pop_front() {
            qp.complete(Completion::Sent { id: work.id, status });
        }
        let (host, peer) = (qp.host, qp.peer);
        self.flush(number);
        if self.settings.iwarp {
            // A queue pair in error closes the TCP connection underneath, and both ends notice.
            self.end_of_stream(number);
            if let Some((peer_host, peer)) = peer.filter(|(peer, _)| self.carries(host, *peer)) {
                debug_assert!(self.qps.get(&peer).is_none_or(|qp| qp.host == peer_host));
                self.end_of_stream(peer);
            }
        }
    }

    fn end_of_stream(&mut self, number: u64) {
        self.flush(number);
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.disconnected = true;
            qp.connection_event.raise();
        }
    }

    /// Puts a queue pair into the error state: everything posted comes back flushed.
    fn flush(&mut self, number: u64) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.phase = Phase::Error;
        qp.delivered = 0;
        while let Some(work) = qp.sends.pop_front() {
            qp.complete(Completion::Sent { id: work.id, status: CompletionStatus::Flushed });
        }
        for _ in 0..std::mem::take(&mut qp.receives) {
            qp.complete(Completion::Flushed);
        }
    }

    /// Tells a queue pair that its peer has gone, unless the word cannot reach it.
    pub fn handle_peer_end(&mut self, peer: HostId, number: u64, now: Instant) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if !self.hosts[peer.0].powered || !self.hosts[qp.host.0].powered {
            return;
        }
        if self.partitioned {
            self.schedule(now + self.settings.ack_timeout, Event::Disconnected { peer, qp: number });
            return;
        }
        qp.disconnected = true;
        qp.connection_event.raise();
        if self.settings.iwarp {
            self.flush(number);
        }
    }
}

impl Qp {
    /// Takes the next completion out, and with it frees its place in the queue.
    pub fn poll(&mut self) -> Option<Completion> {
        let completion = self.completions.pop_front()?;
        match completion {
            Completion::Sent { .. } => self.send_slots -= 1,
            Completion::Received { .. } | Completion::Flushed => self.receive_slots -= 1,
        }
        Some(completion)
    }
}

/// The message that takes a receive at the peer.
fn message_of(op: &Op) -> Option<u32> {
    match *op {
        Op::Write { immediate, .. } => immediate,
        Op::Send { message } => Some(message),
    }
}

/// Returns whether the pieces to send lie in the connection's send ring.
fn is_own(domain: &Domain, op: &Op) -> bool {
    let Op::Write { from: Source::Ring(pieces), .. } = op else { return true };
    let mut pieces = pieces.iter().filter(|(_, len)| *len > 0);
    pieces.all(|(at, len)| domain.send.offset_of(*at, u64::from(*len)).is_some())
}

/// Moves the bytes of a request whose pieces are its own; `None` when the peer's keys do not open
/// the place they go to. Returns how many there were.
fn carry(from: &Arc<Domain>, peer: &Arc<Domain>, op: &Op) -> Option<u32> {
    let Op::Write { from: source, to, rkey, .. } = *op else { return Some(0) };
    match source {
        Source::Nothing => Some(0),
        Source::Inline(bytes) => {
            put(&peer.open(rkey, to, 16)?, 0, &bytes);
            Some(16)
        }
        Source::Ring(pieces) => {
            let total = pieces.iter().map(|(_, len)| u64::from(*len)).sum();
            if total == 0 {
                return Some(0);
            }
            let target = peer.open(rkey, to, total)?;
            let mut done = 0;
            for (address, len) in pieces.into_iter().filter(|(_, len)| *len > 0) {
                let at = from.send.offset_of(address, u64::from(len))?;
                match target {
                    Target::Ring(ring, start) => {
                        memory::copy(&from.send, at, ring, start + done, len as usize);
                    }
                    Target::Table(..) => {
                        let mut bytes = vec![0; len as usize];
                        memory::read(&from.send, at, &mut bytes);
                        put(&target, done, &bytes);
                    }
                }
                done += u64::from(len);
            }
            Some(total as u32)
        }
    }
}

fn put(target: &Target<'_>, offset: u64, bytes: &[u8]) {
    match *target {
        Target::Ring(ring, start) => memory::write(ring, start + offset, bytes),
        Target::Table(table, start) => memory::write_table(table, start + offset, bytes),
    }
}
