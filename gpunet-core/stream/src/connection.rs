//! A proxy-driven stream from open to closed, as a pure state machine.
//!
//! Inputs are the `handle_*` methods: words the device published, what the transport did, a close
//! request, the time. The one output is [`Connection::poll_action`]. The driving rule: after one
//! input, carry out actions until [`Action::Idle`] or the turn's budget is spent.
//!
//! ```text
//! Open --close--> Flushing --all sent--> Draining --peer's EOF--> Done
//!   \--error--> Failed --close--> Done
//! ```
//!
//! Flushing sends what the device published before it closed, bounded by linger. Draining waits for
//! the peer's end of stream: a TCP close with unread input would send RST and destroy data that was
//! accepted for delivery. Draining continues while the peer has not acknowledged everything, up to
//! linger.
//!
//! Where the device is gone without a close ([`Connection::handle_gone`]), Aborting takes the place
//! of both: what was published is sent and acknowledged, within a bound, and then the connection is
//! reset. No end of stream is sent, since the device asked for none.
//!
//! A transport that takes nothing more may still hold what the peer sent before: that is received
//! first, and only then is the error reported.

use crate::flow::{RecvFlow, SendFlow};
use gpunet_abi::position::Violation;
use gpunet_abi::{Error, StreamWord};

/// How long a closed stream waits for the peer's end of stream, in nanoseconds.
pub const DRAIN_NS: u64 = 2_000_000_000;
/// After that, how often it is asked whether the peer has acknowledged everything.
const SETTLE_NS: u64 = 250_000_000;
/// The same for a stream whose device is gone: there is a second for all of it.
const ABORT_SETTLE_NS: u64 = 2_000_000;

/// What the driver is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Offer these ring bytes to the transport, then [`Connection::handle_sent`] or
    /// [`Connection::handle_send_blocked`].
    Send {
        /// Ring position of the first byte.
        position: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Announce the end of sending to the transport, then call [`Connection::handle_shutdown`].
    ShutdownWrite,
    /// Take bytes into this free ring space, then [`Connection::handle_received`],
    /// [`Connection::handle_eof`] or [`Connection::handle_recv_blocked`].
    Receive {
        /// Ring position of the first free byte.
        position: u64,
        /// Number of free bytes.
        len: u64,
    },
    /// Read and discard, then [`Connection::handle_discarded`], [`Connection::handle_eof`] or
    /// [`Connection::handle_recv_blocked`].
    Discard,
    /// Ask the transport what the peer has not acknowledged, then
    /// [`Connection::handle_unacknowledged`].
    Settle,
    /// Close the transport (with a reset if the outcome asks for one) and forget the connection.
    Finish(ConnectionOutcome),
    /// Nothing until the next input.
    Idle,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOutcome {
    /// Bytes that were accepted from the device and not handed to the transport.
    pub unsent: u64,
    /// Reset the transport instead of closing it normally.
    pub reset: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Until all is sent, or `until`. Whatever follows is over at `limit`.
    Flushing {
        until: u64,
        limit: u64,
    },
    /// Until the peer's end of stream, or `until` if all is acknowledged by then; `limit` ends it.
    Draining {
        until: u64,
        limit: u64,
    },
    /// The device is gone: send, wait until the peer has acknowledged (asked again at `ask`),
    /// reset.
    Aborting {
        ask: u64,
        limit: u64,
    },
    Failed,
    Done(ConnectionOutcome),
}

/// How much a stream has moved, and what stands in its rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that the transport took.
    pub sent: u64,
    /// Bytes that the device published and the transport has not taken.
    pub unsent: u64,
    /// Bytes that landed.
    pub received: u64,
    /// Bytes that landed and the device has not consumed.
    pub unread: u64,
}

/// One proxy-driven stream.
#[derive(Debug)]
pub struct Connection {
    send: SendFlow,
    recv: RecvFlow,
    phase: Phase,
    readable: bool,
    writable: bool,
    /// Why the transport takes nothing more; reported once what it still holds was received.
    send_error: Option<Error>,
    /// Senders know that nothing more can be sent.
    sends_in_vain: bool,
    /// The last bytes that moved were sent: those that come in are next, so that neither direction
    /// waits for the other.
    receives_next: bool,
}

impl Connection {
    /// A stream just opened, over rings of these sizes in bytes.
    #[must_use]
    pub const fn new(send_capacity: u64, recv_capacity: u64) -> Self {
        Self {
            send: SendFlow::new(send_capacity),
            recv: RecvFlow::new(recv_capacity),
            phase: Phase::Open,
            readable: true,
            writable: true,
            send_error: None,
            sends_in_vain: false,
            receives_next: false,
        }
    }

    /// Takes in the device's `published` word.
    ///
    /// # Errors
    /// The [`Violation`]; the caller then fails the connection with EPROTO.
    pub fn handle_published(&mut self, word: StreamWord) -> Result<(), Violation> {
        match self.phase {
            Phase::Open if self.sends_in_vain => self.send.handle_published_in_vain(word),
            Phase::Open => self.send.handle_published(word),
            _ => Ok(()),
        }
    }

    /// Takes in the device's `consumed` word. One that is ahead of what landed is no violation once
    /// the peer's end of stream has landed, and counts as far as that.
    ///
    /// # Errors
    /// The [`Violation`]; the caller then fails the connection with EPROTO.
    pub fn handle_consumed(&mut self, word: StreamWord) -> Result<(), Violation> {
        match self.phase {
            Phase::Open => self.recv.handle_consumed(word),
            _ => Ok(()),
        }
    }

    /// Notes that the transport may take or give bytes again.
    pub const fn handle_ready(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Notes that the transport took `n` bytes. Their ring memory may still be in use.
    pub const fn handle_sent(&mut self, n: u64) {
        self.receives_next = true;
        self.send.handle_sent(n);
    }

    /// Notes that the transport has done with the memory of `n` bytes it took; returns the
    /// `released` word to publish.
    pub const fn handle_released(&mut self, n: u64) -> StreamWord {
        self.send.handle_released(n)
    }

    /// Position up to which the device has consumed what came in.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.recv.consumed()
    }

    /// How much the stream has moved so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        let (sent, unsent) = self.send.pending();
        let (received, unread) = self.recv.landed();
        Counts { sent, unsent, received, unread }
    }

    /// Returns whether the device has finished sending, and whether the peer has.
    #[must_use]
    pub const fn ended(&self) -> (bool, bool) {
        (self.send.is_shut(), self.recv.is_ended())
    }

    /// Returns whether the device has not closed the stream, and nothing has ended it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Returns whether the peer of an open stream has ended its own, so that nothing is read any
    /// more: unless the device sends, no call tells that the transport has failed.
    #[must_use]
    pub const fn reads_no_more(&self) -> bool {
        self.is_open() && self.recv.is_ended()
    }

    /// Returns whether what comes in is discarded.
    #[must_use]
    pub const fn discards(&self) -> bool {
        self.recv.reader_left() || !matches!(self.phase, Phase::Open)
    }

    /// Notes that the transport takes nothing at present.
    pub const fn handle_send_blocked(&mut self) {
        self.writable = false;
    }

    /// Records that the end of sending was announced to the transport.
    pub const fn handle_shutdown(&mut self, now: u64) {
        self.send.handle_shutdown();
        if let Phase::Flushing { until, limit } = self.phase {
            self.phase = draining(now, until, limit);
        }
    }

    /// Notes `n` received bytes; returns the `landed` word to publish.
    pub const fn handle_received(&mut self, n: u64) -> StreamWord {
        self.receives_next = false;
        self.recv.handle_received(n)
    }

    /// Notes that bytes were read and discarded.
    pub const fn handle_discarded(&mut self) {
        self.receives_next = false;
    }

    /// Notes the peer's end of stream; returns the `landed` word to publish.
    pub const fn handle_eof(&mut self) -> StreamWord {
        self.recv.handle_eof()
    }

    /// Notes that the transport has nothing at present.
    pub const fn handle_recv_blocked(&mut self) {
        self.readable = false;
    }

    /// Notes that the transport failed while sending. What the peer sent before is still received:
    /// the driver continues, and when the transport gives nothing more it passes
    /// [`Connection::pending_error`] to [`Connection::handle_error`].
    ///
    /// Returns the error to report at once, when there is nothing left to receive.
    pub const fn handle_send_error(&mut self, error: Error) -> Option<Error> {
        match self.phase {
            Phase::Open if !self.recv.is_ended() && !self.recv.reader_left() => {
                self.send_error = Some(error);
                self.sends_in_vain = true;
                self.readable = true;
                None
            }
            _ => self.handle_error(error),
        }
    }

    /// Notes that senders are about to be told that nothing more can be sent. Those that waited for
    /// room go on without it, and what they publish beyond it is no violation.
    pub const fn handle_no_send(&mut self) {
        self.sends_in_vain = true;
    }

    /// Why the transport takes nothing more, if that is still to be reported.
    #[must_use]
    pub const fn pending_error(&self) -> Option<Error> {
        match self.phase {
            Phase::Open => self.send_error,
            _ => None,
        }
    }

    /// Notes how many bytes the peer has not acknowledged, at a time when draining could end.
    pub const fn handle_unacknowledged(&mut self, now: u64, bytes: u64) {
        if let Phase::Aborting { limit, .. } = self.phase {
            self.phase = if bytes == 0 || now >= limit {
                Phase::Done(ConnectionOutcome { unsent: self.send.pending().1, reset: true })
            } else {
                Phase::Aborting { ask: min(now.saturating_add(ABORT_SETTLE_NS), limit), limit }
            };
        }
        if let Phase::Draining { until, limit } = self.phase {
            self.phase = if bytes == 0 {
                Phase::Done(ConnectionOutcome { unsent: 0, reset: false })
            } else if now >= limit {
                Phase::Done(ConnectionOutcome { unsent: 0, reset: true })
            } else {
                Phase::Draining { until: min(until.saturating_add(SETTLE_NS), limit), limit }
            };
        }
    }

    /// Ends the stream with an error of the transport, or of the device (EPROTO).
    ///
    /// Returns the error to report in the socket's status; `None` when the device no longer needs
    /// it.
    pub const fn handle_error(&mut self, error: Error) -> Option<Error> {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Failed;
                Some(error)
            }
            Phase::Flushing { .. } | Phase::Draining { .. } | Phase::Aborting { .. } => {
                self.phase = Phase::Done(ConnectionOutcome { unsent: self.send.pending().1, reset: true });
                None
            }
            Phase::Failed | Phase::Done(_) => None,
        }
    }

    /// The device closed the socket, or it is reaped. What was published so far is still sent,
    /// for at most `linger` nanoseconds; 0 resets the connection.
    pub const fn handle_close(&mut self, now: u64, linger: u64) {
        match self.phase {
            Phase::Open if linger > 0 && self.send_error.is_none() => {
                self.send.finish();
                let until = now.saturating_add(linger);
                let limit = u64::MAX;
                self.phase = if self.send.is_shut() {
                    draining(now, until, limit)
                } else {
                    Phase::Flushing { until, limit }
                };
            }
            Phase::Open | Phase::Failed => {
                self.phase = Phase::Done(ConnectionOutcome { unsent: self.send.pending().1, reset: true });
            }
            _ => {}
        }
    }

    /// The device is gone and has closed nothing: what it published so far is sent, and the
    /// connection is reset once the peer has acknowledged it, at the latest after `bound`
    /// nanoseconds. What was closed before ends as it would have, within the same bound.
    pub const fn handle_gone(&mut self, now: u64, bound: u64) {
        let limit = now.saturating_add(bound);
        self.phase = match self.phase {
            Phase::Open if self.send_error.is_none() => Phase::Aborting { ask: now, limit },
            Phase::Open | Phase::Failed => {
                Phase::Done(ConnectionOutcome { unsent: self.send.pending().1, reset: true })
            }
            Phase::Flushing { until, limit: old } => {
                Phase::Flushing { until: min(until, limit), limit: min(old, limit) }
            }
            Phase::Draining { until, limit: old } => {
                Phase::Draining { until: min(until, limit), limit: min(old, limit) }
            }
            Phase::Aborting { ask, limit: old } => {
                Phase::Aborting { ask: min(ask, limit), limit: min(old, limit) }
            }
            Phase::Done(outcome) => Phase::Done(outcome),
        };
    }

    /// Returns when [`Connection::poll_action`] wants to be asked again, whatever else happens.
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::Flushing { until, .. } | Phase::Draining { until, .. } => Some(until),
            // While there is something to send, the transport's readiness decides when to continue.
            Phase::Aborting { limit, .. } if self.send.pending().1 > 0 => Some(limit),
            Phase::Aborting { ask, .. } => Some(ask),
            _ => None,
        }
    }

    /// Bytes published by the device that the transport has not taken yet.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.send.pending().1
    }

    /// Returns what to do next.
    #[must_use]
    pub const fn poll_action(&self, now: u64) -> Action {
        match self.phase {
            Phase::Done(outcome) => Action::Finish(outcome),
            Phase::Failed => Action::Idle,
            Phase::Open if self.receives_next => match self.receiving() {
                Action::Idle => self.sending(),
                action => action,
            },
            Phase::Open => match self.sending() {
                Action::Idle => self.receiving(),
                action => action,
            },
            Phase::Flushing { until, .. } => {
                if now >= until {
                    return Action::Finish(ConnectionOutcome { unsent: self.send.pending().1, reset: true });
                }
                match self.sending() {
                    Action::Idle => self.discarding(),
                    action => action,
                }
            }
            Phase::Aborting { ask, limit } => match self.sending() {
                _ if now >= limit => Action::Settle,
                Action::Idle if self.send.pending().1 > 0 => self.discarding(),
                Action::Idle if now >= ask => Action::Settle,
                Action::Idle => self.discarding(),
                action => action,
            },
            Phase::Draining { until, .. } => {
                if self.recv.is_ended() {
                    return Action::Finish(ConnectionOutcome { unsent: 0, reset: false });
                }
                if now >= until { Action::Settle } else { self.discarding() }
            }
        }
    }

    const fn sending(&self) -> Action {
        if self.send_error.is_some() {
            return Action::Idle;
        }
        let (position, len) = self.send.pending();
        if len > 0 && self.writable {
            Action::Send { position, len }
        } else if self.send.wants_shutdown() {
            Action::ShutdownWrite
        } else {
            Action::Idle
        }
    }

    const fn receiving(&self) -> Action {
        if self.recv.reader_left() {
            return self.discarding();
        }
        let (position, len) = self.recv.space();
        if len > 0 && self.readable { Action::Receive { position, len } } else { Action::Idle }
    }

    const fn discarding(&self) -> Action {
        if self.readable && !self.recv.is_ended() { Action::Discard } else { Action::Idle }
    }
}

/// Draining from `now` on. A peer that does not acknowledge what it was sent has time until
/// `linger`, if that is later than the usual end; nothing continues after `limit`.
const fn draining(now: u64, linger: u64, limit: u64) -> Phase {
    let until = min(now.saturating_add(DRAIN_NS), limit);
    Phase::Draining { until, limit: if linger > until { min(linger, limit) } else { until } }
}

const fn min(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests;
