//! Drives one stream: carries out what its state machine asks for.

use super::observe;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::{OpenStream, Ring, Rings};
use crate::os::errno;
use gpunet_abi::position::Violation;
use gpunet_abi::region::DEVICE;
use gpunet_abi::{Error, Options, RingSpan, Status, ring};
use gpunet_core::connection::{Action, Connection};
use gpunet_core::futex;
use gpunet_core::memory::SleepingPollers;
use gpunet_core::transport::{StreamIo, Turn};
use std::io;

/// Actions a stream may take in one turn before others get theirs.
pub(super) const BUDGET: usize = 16;
/// Bytes offered or taken by one action: a long copy inside the kernel would hold up the others.
pub(super) const CHUNK: u64 = 256 * 1024;

/// How a stream's turn ended.
pub(super) enum Progress {
    /// Nothing to do until the next input.
    Idle,
    /// The budget is spent, and there is more to do.
    More,
    /// Closed: forget it.
    Finished { undelivered: u64 },
}

/// One driven stream.
pub(super) struct DrivenStream {
    pub(super) connection: Connection,
    /// `None` once the device has broken the rules: the peer got a reset.
    io: Option<Box<dyn StreamIo>>,
    pub(super) generation: u32,
    /// Waits in the ready queue.
    pub(super) queued: bool,
    /// Among the recently active streams, which every turn scans.
    pub(super) recent: bool,
    /// A short read does not mean that nothing is left: the peer's end or urgent data were
    /// announced and will not be announced again.
    pub(super) read_to_empty: bool,
    /// An event told that the transport has failed. It is not told again, and while bytes come the
    /// failure lies behind them.
    pub(super) was_failure_announced: bool,
    /// Which descriptors of the transport had an event since the last turn.
    pub(super) events: [bool; 2],
    /// When it is to be driven again, as the data thread's timers have it.
    pub(super) timer: Option<u64>,
    /// Bytes that the peer had not acknowledged when `io` was dropped.
    lost_in_flight: u64,
    /// The status says that nothing more can be sent.
    no_send_published: bool,
    /// Bytes that must be free before pollers are woken: SO_SNDLOWAT, at most the ring's size.
    send_low: u64,
    /// The send ring had less room, or its reader has left, and pollers have not been told yet that
    /// this has changed.
    became_writable: bool,
    /// The device has shut a direction down, and pollers have not been told yet.
    was_shut: bool,
    /// The device has closed it.
    is_closed: bool,
    /// How long what was sent before a close may take, nanoseconds.
    linger_ns: u64,
    rings: Rings,
    /// The data thread that drives it.
    thread: usize,
    span: tracing::Span,
}

impl DrivenStream {
    pub(super) fn new(opened: OpenStream, thread: usize) -> Self {
        Self {
            connection: Connection::new(opened.rings.send.capacity(), opened.rings.recv.capacity()),
            io: Some(opened.io),
            generation: opened.generation,
            queued: false,
            recent: false,
            read_to_empty: false,
            was_failure_announced: false,
            events: [true; 2],
            timer: None,
            lost_in_flight: 0,
            no_send_published: false,
            send_low: u64::from(opened.send_low).min(opened.rings.send.capacity()),
            became_writable: false,
            was_shut: false,
            is_closed: false,
            linger_ns: opened.linger_ns,
            rings: opened.rings,
            thread,
            span: opened.span,
        }
    }

    /// Reads both words that the device writes.
    pub(super) fn observe_words(&mut self, state: &AttachmentState, slot: u32) {
        let memory = &state.memory;
        let discarded = self.connection.discards();
        let checked = self
            .connection
            .handle_published(observe(memory.published_words(), slot))
            .and_then(|()| self.connection.handle_consumed(observe(memory.consumed_words(), slot)));
        // Of several groups that share the stream, one may poll it and another shut it down.
        self.was_shut |= self.connection.discards() && !discarded;
        if let Err(violation) = checked {
            self.violate(state, slot, violation);
        }
    }

    /// Looks whether the device has closed it; returns whether it has since the last look. What it
    /// has published is read afterwards, and the options that it has set are in the thread's queue.
    pub(super) fn look_for_close(&mut self, state: &AttachmentState, slot: u32) -> bool {
        !self.is_closed && {
            self.is_closed = state.memory.is_closed(slot, self.generation);
            self.is_closed
        }
    }

    /// Closes it for the control plane; if the device has closed it before, as the device would.
    pub(super) fn close(&mut self, state: &AttachmentState, slot: u32, now: u64, linger_ns: u64) {
        if !self.observe_close(state, slot, now) {
            self.connection.handle_close(now, linger_ns);
        }
    }

    /// Ends it for a device that is gone.
    pub(super) fn abandon(&mut self, state: &AttachmentState, slot: u32, now: u64, bound_ns: u64) {
        self.observe_close(state, slot, now);
        self.connection.handle_gone(now, bound_ns);
    }

    /// Takes in all that the device has written; returns whether it has closed the stream.
    fn observe_close(&mut self, state: &AttachmentState, slot: u32, now: u64) -> bool {
        self.look_for_close(state, slot);
        self.observe_words(state, slot);
        if self.is_closed {
            self.connection.handle_close(now, self.linger_ns);
        }
        self.is_closed
    }

    fn violate(&mut self, state: &AttachmentState, slot: u32, violation: Violation) {
        let what = "a kernel overwrote a socket's words: the socket gets EPROTO";
        self.span.in_scope(|| tracing::warn!(?violation, "{what}"));
        self.fail(state, slot, Error::Protocol);
        // The words can no longer be trusted: reset the connection now.
        if let Some(mut io) = self.io.take() {
            self.lost_in_flight = io.unacknowledged();
            io.reset();
        }
    }

    fn io(&mut self) -> io::Result<&mut dyn StreamIo> {
        match &mut self.io {
            Some(io) => Ok(&mut **io),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        self.lost_in_flight + self.io.as_ref().map_or(0, |io| io.unacknowledged())
    }

    /// Bytes that the device sent and the peer's side has not acknowledged.
    pub(super) fn undelivered(&self) -> u64 {
        self.connection.unsent() + self.unacknowledged()
    }

    pub(super) fn set_options(&mut self, options: &Options, linger_ns: u64) -> io::Result<()> {
        self.linger_ns = linger_ns;
        let send_low = u64::from(options.low_water().0).min(self.rings.send.capacity());
        if std::mem::replace(&mut self.send_low, send_low) != send_low {
            // By the new mark, bytes that were released in the meantime may be what a poller waits
            // for.
            self.became_writable = true;
        }
        self.io()?.set_options(options)
    }

    /// Ends the stream with an error and tells the device.
    pub(super) fn fail(&mut self, state: &AttachmentState, slot: u32, error: Error) {
        if let Some(error) = self.connection.handle_error(error) {
            self.tell(state, slot, error);
        }
    }

    fn tell(&self, state: &AttachmentState, slot: u32, error: Error) {
        self.span.in_scope(|| tracing::debug!(%error, "failed"));
        state.memory.set_status(slot, Status::open(self.generation).with_error(error));
    }

    /// Carries out actions until there are none or the budget is spent. Adds to `sleepers` whom the
    /// caller has to wake.
    pub(super) fn drive(
        &mut self,
        state: &AttachmentState,
        slot: u32,
        now: u64,
        sleepers: &mut SleepingPollers,
    ) -> Progress {
        self.observe_words(state, slot);
        if self.is_closed {
            self.connection.handle_close(now, self.linger_ns);
        }
        let (mut landed, mut released) = (false, self.turn(state, slot, now));
        let mut result = Progress::More;
        for _ in 0..BUDGET {
            match self.connection.poll_action(now) {
                Action::Send { position, len } => released |= self.send(state, slot, position, len),
                Action::ShutdownWrite => {
                    let done = self.io().and_then(|io| io.shutdown_write());
                    self.connection.handle_shutdown(now);
                    self.was_shut = true;
                    if let Err(error) = done {
                        self.fail(state, slot, errno::from_io(&error));
                    }
                }
                Action::Receive { position, len } => {
                    if self.receive(state, slot, position, len) {
                        landed = true;
                        // At once: the block copies this while the next bytes are read.
                        futex::wake_if_parked(state.memory.recv_park(slot));
                    }
                }
                Action::Settle => {
                    let bytes = self.unacknowledged();
                    self.connection.handle_unacknowledged(now, bytes);
                }
                Action::Discard => {
                    if self.discard(state, slot) {
                        landed = true;
                        futex::wake_if_parked(state.memory.recv_park(slot));
                    }
                }
                Action::Finish(outcome) => {
                    let mut undelivered = outcome.unsent;
                    if outcome.reset {
                        undelivered += self.unacknowledged();
                        if let Some(io) = &mut self.io {
                            io.reset();
                        }
                    }
                    if self.io.as_mut().is_some_and(|io| !io.close(now)) {
                        result = Progress::Idle;
                        break;
                    }
                    result = Progress::Finished { undelivered };
                    break;
                }
                Action::Idle => {
                    result = Progress::Idle;
                    break;
                }
            }
        }
        // Before the peer's end is read, the transport is not asked: it would forget the failure.
        if self.was_failure_announced && self.connection.reads_no_more() {
            self.was_failure_announced = false;
            let failure = self.io().ok().and_then(|io| io.failure());
            if let Some(error) = failure.and_then(|e| self.connection.handle_send_error(errno::from_io(&e))) {
                self.tell(state, slot, error);
            }
        }
        // The ring is full of what came before the error.
        let is_behind = self.connection.pending_error().is_some()
            || (self.was_failure_announced && self.connection.is_open());
        let memory = &state.memory;
        if matches!(result, Progress::Idle) && is_behind && !self.no_send_published {
            // Senders need not wait for that.
            self.no_send_published = true;
            self.connection.handle_no_send();
            memory.set_status(slot, Status::open(self.generation).with(Status::NO_SEND));
        }
        if released {
            futex::wake_if_parked(memory.send_park(slot));
        }
        let (writable, shut) =
            (std::mem::take(&mut self.became_writable), std::mem::take(&mut self.was_shut));
        // A closed one nobody polls.
        if !self.is_closed && (landed || writable || shut) {
            sleepers.add(memory.announce_change(slot, Some(self.thread)));
        }
        result
    }

    /// Lets the transport make progress; returns whether ring memory was released.
    fn turn(&mut self, state: &AttachmentState, slot: u32, now: u64) -> bool {
        let (consumed, discards) = (self.connection.consumed(), self.connection.discards());
        let events = std::mem::take(&mut self.events);
        let Some(io) = &mut self.io else { return false };
        let ready = io.turn(&Turn { now, events, consumed, discards });
        self.connection.handle_ready(ready.readable, ready.writable);
        self.read_to_empty |= ready.ended;
        self.was_failure_announced |= ready.failed;
        self.release(state, slot)
    }

    /// Publishes ring memory that the transport is done with; returns whether there was any.
    fn release(&mut self, state: &AttachmentState, slot: u32) -> bool {
        match self.io.as_mut().map_or(0, |io| io.completed()) {
            0 => false,
            n => {
                let word = self.connection.handle_released(n);
                let memory = &state.memory;
                let (released, published) =
                    (memory.released(slot), memory.published_words().get(slot as usize));
                let room = (self.send_low, self.rings.send.capacity());
                // Pollers are woken only for a ring that had too little room: each needless look at
                // a socket costs a GPU a bus round trip.
                self.became_writable |= ring::give_room(released, word, n, published, room) || word.end();
                true
            }
        }
    }

    /// Returns whether [`DrivenStream::poll_transport`] can find anything.
    pub(super) fn is_pollable(&self) -> bool {
        self.io.as_ref().is_some_and(|io| io.is_pollable())
    }

    /// Returns whether the transport has something to do, without a system call.
    pub(super) fn poll_transport(&mut self) -> bool {
        self.io.as_mut().is_some_and(|io| io.poll())
    }

    /// When it wants to be driven again, whatever else happens.
    pub(super) fn deadline(&self) -> Option<u64> {
        let io = self.io.as_ref().and_then(|io| io.deadline());
        match (self.connection.deadline(), io) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn span(&self, state: &AttachmentState, ring: Ring, position: u64, len: u64) -> RingSpan {
        let len = len.min(CHUNK);
        match &state.card {
            // Addresses for a network card: the proxy itself may not reach them.
            Some(card) if self.rings.region == DEVICE => {
                RingSpan::new((card.address + ring.offset) as *mut u8, ring.capacity(), position, len)
            }
            _ => state.memory.span(ring.offset, ring.capacity(), position, len),
        }
    }

    fn send(&mut self, state: &AttachmentState, slot: u32, position: u64, len: u64) -> bool {
        // gpunet-bench measures the time of this event. With no subscriber it costs one load.
        tracing::trace!(target: "gpunet_proxy::data", slot, len, "saw");
        let span = self.span(state, self.rings.send, position, len);
        match self.io().and_then(|io| io.offer(span)) {
            Ok(n) => {
                self.connection.handle_sent(n as u64);
                self.release(state, slot)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.connection.handle_send_blocked();
                false
            }
            Err(e) => {
                if let Some(error) = self.connection.handle_send_error(errno::from_io(&e)) {
                    self.tell(state, slot, error);
                }
                false
            }
        }
    }

    fn receive(&mut self, state: &AttachmentState, slot: u32, position: u64, len: u64) -> bool {
        let span = self.span(state, self.rings.recv, position, len);
        match self.io().and_then(|io| io.take(span)) {
            // After a failed send this is no orderly end.
            Ok(0) if self.connection.pending_error().is_some() => {
                self.fail_pending(state, slot);
                false
            }
            Ok(0) => {
                let word = self.connection.handle_eof();
                state.memory.landed(slot).publish(word.0);
                true
            }
            Ok(n) => {
                let word = self.connection.handle_received(n as u64);
                state.memory.landed(slot).publish(word.0);
                tracing::trace!(target: "gpunet_proxy::data", slot, len = n, "landed");
                // A short read emptied the socket, and what comes later raises a new event
                // (epoll(7)); only an end that was announced already would raise none.
                if n < span.len() && !self.read_to_empty {
                    self.connection.handle_recv_blocked();
                }
                true
            }
            Err(_) if self.connection.pending_error().is_some() => {
                self.fail_pending(state, slot);
                false
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.connection.handle_recv_blocked();
                false
            }
            Err(e) => {
                self.fail(state, slot, errno::from_io(&e));
                false
            }
        }
    }

    fn fail_pending(&mut self, state: &AttachmentState, slot: u32) {
        if let Some(error) = self.connection.pending_error() {
            self.fail(state, slot, error);
        }
    }

    fn discard(&mut self, state: &AttachmentState, slot: u32) -> bool {
        match self.io().and_then(|io| io.discard()) {
            Ok(0) => {
                let word = self.connection.handle_eof();
                state.memory.landed(slot).publish(word.0);
                true
            }
            Ok(_) => {
                self.connection.handle_discarded();
                false
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.connection.handle_recv_blocked();
                false
            }
            Err(e) => {
                self.fail(state, slot, errno::from_io(&e));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_and_socket_slots_are_told_apart() {
        for code in [libc::EMFILE, libc::ENFILE] {
            assert_eq!(errno::from_io(&io::Error::from_raw_os_error(code)), Error::TooManyFiles);
        }
        assert_eq!(
            (Error::TooManyFiles.errno(), Error::TooManySockets.errno()),
            (libc::ENFILE, libc::EMFILE)
        );
        assert_eq!(errno::from_io(&io::Error::from_raw_os_error(libc::EADDRINUSE)), Error::AddressInUse);
    }
}
