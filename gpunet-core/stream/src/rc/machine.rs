//! Both directions, and what belongs to neither: shutdown, control messages, keep-alive. `post`
//! says in which order the machine wants things posted.

mod post;

use super::hello::{Capabilities, Hello, Remote};
use super::message::{CONTROL_LIMIT, Message};
use super::receiver::Receiver;
use super::sender::{SendRing, Sender};
use super::violation::Violation;
use super::work::Sge;
use std::collections::VecDeque;

/// How messages travel, which is a property of each end's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As immediate data of an RDMA write (InfiniBand, RoCE).
    Immediate,
    /// As a send of 4 bytes behind the RDMA write (iWARP, which has no immediate data).
    Send,
}

/// This end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How messages travel.
    pub variant: Variant,
    /// Where data is sent from: address, and bytes (a power of two).
    pub send_ring: (u64, u64),
    /// Where data comes in, with its key; bytes a power of two.
    pub recv_ring: Remote,
    /// Send-queue slots for data.
    pub sends: u32,
    /// Receives that the peer knows of; [`Config::SPARE_RECEIVES`] more are posted.
    pub receives: u16,
    /// Nanoseconds without a sign of life from the peer's host after which one is requested.
    pub keepalive: u64,
}

impl Config {
    /// Receives for control messages, which take no credit: those of the protocol, and as many
    /// again for a peer that is quick.
    pub const SPARE_RECEIVES: u32 = 2 * CONTROL_LIMIT;
    /// Send-queue slots for control messages.
    pub const SPARE_SENDS: u32 = CONTROL_LIMIT;

    /// The greeting for the peer, given where its descriptors go.
    #[must_use]
    pub fn hello(&self, table: Remote) -> Hello {
        Hello {
            big_endian: cfg!(target_endian = "big"),
            credits: self.receives,
            table,
            area: self.recv_ring,
            gpunet: Some(Capabilities::OURS),
        }
    }
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer broke the protocol.
    Protocol(Violation),
    /// The peer's process ended, or it gave the connection up.
    Reset,
    /// The peer's host does not answer.
    Unreachable,
    /// The peer has closed: nothing can be sent any more. It ends an orderly stream only if data
    /// was under way then.
    Closed,
    /// The local device failed, with a status of its own.
    Device,
}

/// A request in the send queue.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    data: u32,
    control: bool,
    /// A failure of this one means nothing: the peer may be gone by then.
    last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    Wanted,
    Sent,
}

/// One connection.
#[derive(Debug)]
pub struct Machine {
    variant: Variant,
    sends: u32,
    keepalive: u64,
    peer: Hello,
    sender: Sender,
    receiver: Receiver,
    in_flight: VecDeque<InFlight>,
    control_in_flight: u32,
    /// iWARP: the send that follows the write posted last.
    follow: Option<(u32, InFlight)>,
    /// Data may be posted up to here.
    offered: u64,
    shutdown: Ending,
    disconnect: Ending,
    reset: Ending,
    /// The peer has ended its sending direction.
    peer_shut: bool,
    /// The peer has stopped receiving.
    peer_gone: bool,
    failure: Option<Failure>,
    /// When the peer's host last showed a sign of life.
    alive_at: u64,
    /// Since when requests are under way without a sign of life.
    waiting_since: u64,
}

impl Machine {
    /// A connection just established, at `now` (nanoseconds of any monotonic clock).
    #[must_use]
    pub fn new(config: &Config, peer: Hello, now: u64) -> Self {
        let ring = SendRing { address: config.send_ring.0, len: config.send_ring.1 };
        let all = (config.sends + CONTROL_LIMIT) as usize;
        Self {
            variant: config.variant,
            sends: config.sends,
            keepalive: config.keepalive,
            sender: Sender::new(ring, peer.area, peer.credits),
            receiver: Receiver::new(config.recv_ring, config.receives, peer.table.len),
            peer,
            in_flight: VecDeque::with_capacity(all),
            control_in_flight: 0,
            follow: None,
            offered: 0,
            shutdown: Ending::No,
            disconnect: Ending::No,
            reset: Ending::No,
            peer_shut: false,
            peer_gone: false,
            failure: None,
            alive_at: now,
            waiting_since: now,
        }
    }

    /// Takes in a message and, where the device counts them, the bytes that came with it.
    ///
    /// A [`Message::Credits`] may announce an area: the driver then looks at the entry
    /// [`Machine::expected_entry`] of its table and calls [`Machine::handle_area`].
    ///
    /// # Errors
    /// The [`Violation`], which also ends the connection.
    pub fn handle_message(
        &mut self,
        bits: u32,
        written: Option<u32>,
        now: u64,
    ) -> Result<Message, Violation> {
        self.alive_at = now;
        let result = self.take_message(bits, written);
        if let Err(violation) = result {
            self.handle_failure(Failure::Protocol(violation));
        }
        result
    }

    fn take_message(&mut self, bits: u32, written: Option<u32>) -> Result<Message, Violation> {
        let message = Message::decode(bits)?;
        match message {
            Message::Data(claimed) => {
                if self.peer_shut {
                    return Err(Violation::AfterEnd);
                }
                if let Some(written) = written
                    && written != claimed
                {
                    return Err(Violation::Length { claimed, written });
                }
                self.receiver.handle_data(claimed)?;
            }
            Message::Credits(limit) => self.sender.handle_limit(limit)?,
            Message::Shutdown => self.peer_shut = true,
            Message::Disconnect => (self.peer_shut, self.peer_gone) = (true, true),
            Message::Reset => self.handle_failure(Failure::Reset),
            Message::Ignored { counted: true } => self.receiver.handle_counted()?,
            Message::Ignored { counted: false } => {}
        }
        Ok(message)
    }

    /// The entry of the local table where the peer's next area appears.
    #[must_use]
    pub const fn expected_entry(&self) -> usize {
        self.sender.expected_entry()
    }

    /// Takes in an area that appeared there.
    ///
    /// # Errors
    /// The [`Violation`], which also ends the connection.
    pub fn handle_area(&mut self, area: Sge) -> Result<(), Violation> {
        let area = Remote { address: area.address, rkey: area.rkey, len: area.len };
        let result = self.sender.handle_area(area);
        if let Err(violation) = result {
            self.handle_failure(Failure::Protocol(violation));
        }
        result
    }

    /// Notes that the oldest request in the send queue has completed.
    pub fn handle_sent(&mut self, now: u64) {
        self.alive_at = now;
        let Some(done) = self.in_flight.pop_front() else { return };
        self.sender.handle_completed(done.data);
        self.control_in_flight -= u32::from(done.control);
    }

    /// Notes that the oldest request in the send queue has failed.
    pub fn handle_send_failed(&mut self, failure: Failure) {
        let Some(failed) = self.in_flight.pop_front() else { return };
        // When both ends disconnect at once, one of the messages finds no queue pair. That is a
        // failure for data. If the peer has announced that it has stopped receiving, the data was
        // sent too late.
        if self.peer_gone && !failed.control {
            self.handle_failure(Failure::Closed);
        } else if !(failed.last || self.peer_gone || (self.is_over() && failed.control)) {
            self.handle_failure(failure);
        }
        // Nothing is posted after this, so the count of control messages is not read again.
        debug_assert!(self.has_stopped());
    }

    /// Notes that the peer's host lives.
    pub const fn handle_alive(&mut self, now: u64) {
        self.alive_at = now;
    }

    /// Notes that the bytes before `position` of the incoming stream are free again.
    pub const fn handle_consumed(&mut self, position: u64) {
        self.receiver.handle_consumed(position);
    }

    /// Notes that the connection is gone, with or without a message from the peer.
    pub fn handle_disconnected(&mut self) {
        let all_sent = self.is_over() || self.has_ended();
        let has_data = self.in_flight.iter().any(|request| !request.control);
        if all_sent && has_data {
            // The completions of data under way show whether the peer had all of it before it went.
            return;
        }
        let was_gone = std::mem::replace(&mut self.peer_gone, true);
        if was_gone && has_data {
            // The card tries for seconds yet, and a full ring waits for its answer.
            self.handle_failure(Failure::Closed);
        } else if !(was_gone || all_sent) {
            self.handle_failure(Failure::Reset);
        }
    }

    /// Ends the connection; the first reason stays.
    pub fn handle_failure(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Allows data to be posted up to `position` of the outgoing stream.
    pub fn offer(&mut self, position: u64) {
        self.offered = self.offered.max(position);
    }

    /// Queues the message that announces the end of data, behind the data that was offered.
    pub fn shutdown(&mut self) {
        if self.shutdown == Ending::No {
            self.shutdown = Ending::Wanted;
        }
    }

    /// Queues the message that the connection is over, behind what was posted.
    pub fn disconnect(&mut self) {
        if self.disconnect == Ending::No {
            self.disconnect = Ending::Wanted;
        }
    }

    /// Queues the message that the connection is given up, if the peer understands it.
    pub fn reset(&mut self) {
        if self.peer.gpunet.is_some_and(|can| can.reset) && self.reset == Ending::No {
            self.reset = Ending::Wanted;
        }
    }

    /// Returns whether everything that was asked for has been sent, and has arrived or failed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let sent = [self.shutdown, self.disconnect, self.reset].iter().all(|e| *e != Ending::Wanted);
        let idle = self.in_flight.is_empty() && self.follow.is_none();
        let sent = sent || self.is_over() || self.has_ended();
        self.failure.is_some() || self.peer_gone || (sent && idle)
    }

    /// The last message of all has been sent; none may follow, or the peer would not take it.
    fn has_ended(&self) -> bool {
        self.disconnect == Ending::Sent || self.reset == Ending::Sent
    }

    /// Both directions have ended: an rsocket peer takes no further messages, but messages that are
    /// under way must still arrive.
    fn is_over(&self) -> bool {
        self.peer_shut && self.shutdown == Ending::Sent
    }

    /// Returns whether nothing is posted any more: the connection has failed, or one end has sent
    /// its last message.
    fn has_stopped(&self) -> bool {
        self.failure.is_some() || self.peer_gone || self.is_over() || self.has_ended()
    }

    /// Returns whether an offer would be accepted, at least in part.
    #[must_use]
    pub fn may_send(&self) -> bool {
        !self.has_stopped() && self.has_slot() && self.sender.may_send()
    }

    /// Since when requests are under way without a sign of life; `None` if none are.
    #[must_use]
    pub fn waiting_since(&self) -> Option<u64> {
        (!self.in_flight.is_empty()).then(|| self.waiting_since.max(self.alive_at))
    }

    /// When [`Machine::poll`] wants to be asked again, whatever else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        // What is under way fails by itself if the peer's host does not answer.
        let idle = self.in_flight.is_empty() && !self.has_stopped();
        idle.then(|| self.alive_at.saturating_add(self.keepalive))
    }

    /// Position behind the last byte posted.
    #[must_use]
    pub const fn posted(&self) -> u64 {
        self.sender.posted()
    }

    /// Position behind the last byte that has arrived at the peer.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.sender.completed()
    }

    /// Position behind the last byte that has come in.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.receiver.received()
    }

    /// Returns whether the peer has ended its stream.
    #[must_use]
    pub const fn is_peer_shut(&self) -> bool {
        self.peer_shut
    }

    /// Returns whether the peer is a gpunet.
    #[must_use]
    pub const fn is_peer_gpunet(&self) -> bool {
        self.peer.gpunet.is_some()
    }

    /// Why nothing can be sent any more, if so.
    #[must_use]
    pub fn send_failure(&self) -> Option<Failure> {
        self.failure.or(self.peer_gone.then_some(Failure::Closed))
    }

    /// Why the connection has ended, if by a failure.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        self.failure
    }
}

#[cfg(test)]
mod tests;
