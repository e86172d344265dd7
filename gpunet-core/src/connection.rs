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
//! accepted for delivery.

use crate::flow::{RecvFlow, SendFlow};
use gpunet_abi::position::Violation;
use gpunet_abi::{Error, StreamWord};

/// How long a closed stream waits for the peer's end of stream, in nanoseconds.
pub const DRAIN_NS: u64 = 2_000_000_000;

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
    /// Tell the transport that no more will be sent, then [`Connection::handle_shutdown`].
    ShutdownWrite,
    /// Take bytes into this free ring space, then [`Connection::handle_received`],
    /// [`Connection::handle_eof`] or [`Connection::handle_recv_blocked`].
    Receive {
        /// Ring position of the first free byte.
        position: u64,
        /// Number of free bytes.
        len: u64,
    },
    /// Read and throw away, then [`Connection::handle_eof`] or [`Connection::handle_recv_blocked`].
    Discard,
    /// Close the transport (with a reset if it says so) and forget the connection.
    Finish(Outcome),
    /// Nothing until the next input.
    Idle,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that were accepted from the device and not handed to the transport.
    pub undelivered: u64,
    /// Reset the transport instead of closing it in good order.
    pub reset: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Flushing { until: u64 },
    Draining { until: u64 },
    Failed,
    Done(Outcome),
}

/// One proxy-driven stream.
#[derive(Debug)]
pub struct Connection {
    send: SendFlow,
    recv: RecvFlow,
    phase: Phase,
    readable: bool,
    writable: bool,
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
        }
    }

    /// Takes in the device's `published` word.
    ///
    /// # Errors
    /// The [`Violation`]; the caller then fails the connection with EPROTO.
    pub fn handle_published(&mut self, word: StreamWord) -> Result<(), Violation> {
        match self.phase {
            Phase::Open => self.send.handle_published(word),
            _ => Ok(()),
        }
    }

    /// Takes in the device's `consumed` word.
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

    /// Notes that the transport took `n` bytes; returns the `released` word to publish.
    pub const fn handle_sent(&mut self, n: u64) -> StreamWord {
        self.send.handle_sent(n)
    }

    /// Notes that the transport takes nothing at present.
    pub const fn handle_send_blocked(&mut self) {
        self.writable = false;
    }

    /// Notes that the transport was told of the end of sending.
    pub const fn handle_shutdown(&mut self, now: u64) {
        self.send.handle_shutdown();
        if let Phase::Flushing { .. } = self.phase {
            self.phase = Phase::Draining { until: now + DRAIN_NS };
        }
    }

    /// Notes `n` received bytes; returns the `landed` word to publish.
    pub const fn handle_received(&mut self, n: u64) -> StreamWord {
        self.recv.handle_received(n)
    }

    /// Notes the peer's end of stream; returns the `landed` word to publish.
    pub const fn handle_eof(&mut self) -> StreamWord {
        self.recv.handle_eof()
    }

    /// Notes that the transport has nothing at present.
    pub const fn handle_recv_blocked(&mut self) {
        self.readable = false;
    }

    /// Ends the stream with an error of the transport, or of the device (EPROTO).
    ///
    /// Returns the error to report in the socket's status; `None` when the device is past caring.
    pub const fn handle_error(&mut self, error: Error) -> Option<Error> {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Failed;
                Some(error)
            }
            Phase::Flushing { .. } | Phase::Draining { .. } => {
                self.phase = Phase::Done(Outcome { undelivered: self.send.pending().1, reset: true });
                None
            }
            Phase::Failed | Phase::Done(_) => None,
        }
    }

    /// The device closed the socket, or it is reaped. What was published so far is still sent,
    /// for at most `linger` nanoseconds; 0 resets the connection.
    pub const fn handle_close(&mut self, now: u64, linger: u64) {
        match self.phase {
            Phase::Open if linger > 0 => {
                self.send.finish();
                self.phase = if self.send.is_shut() {
                    Phase::Draining { until: now + DRAIN_NS }
                } else {
                    Phase::Flushing { until: now.saturating_add(linger) }
                };
            }
            Phase::Open | Phase::Failed => {
                self.phase = Phase::Done(Outcome { undelivered: self.send.pending().1, reset: true });
            }
            _ => {}
        }
    }

    /// Says when [`Connection::poll_action`] wants to be asked again, whatever else happens.
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::Flushing { until } | Phase::Draining { until } => Some(until),
            _ => None,
        }
    }

    /// Bytes published by the device that the transport has not taken yet.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.send.pending().1
    }

    /// Says what to do next.
    #[must_use]
    pub const fn poll_action(&self, now: u64) -> Action {
        match self.phase {
            Phase::Done(outcome) => Action::Finish(outcome),
            Phase::Failed => Action::Idle,
            Phase::Open => match self.sending() {
                Action::Idle => self.receiving(),
                action => action,
            },
            Phase::Flushing { until } => {
                if now >= until {
                    return Action::Finish(Outcome { undelivered: self.send.pending().1, reset: true });
                }
                match self.sending() {
                    Action::Idle => self.discarding(),
                    action => action,
                }
            }
            Phase::Draining { until } => {
                if self.recv.is_ended() || now >= until {
                    return Action::Finish(Outcome { undelivered: 0, reset: false });
                }
                self.discarding()
            }
        }
    }

    const fn sending(&self) -> Action {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Connection {
        Connection::new(4096, 4096)
    }

    #[test]
    fn bytes_go_out_and_come_in_as_the_transport_allows() {
        let mut c = open();
        assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
        c.handle_recv_blocked();
        assert_eq!(c.poll_action(0), Action::Idle);
        c.handle_published(StreamWord::at(100)).unwrap();
        assert_eq!(c.poll_action(0), Action::Send { position: 0, len: 100 });
        assert_eq!(c.handle_sent(60), StreamWord::at(60));
        c.handle_send_blocked();
        assert_eq!(c.poll_action(0), Action::Idle);
        c.handle_ready(false, true);
        assert_eq!(c.poll_action(0), Action::Send { position: 60, len: 40 });
    }

    #[test]
    fn close_flushes_shuts_down_drains_and_ends() {
        let mut c = open();
        c.handle_published(StreamWord::at(10).with_fin()).unwrap();
        c.handle_close(0, 1000);
        assert_eq!(c.poll_action(1), Action::Send { position: 0, len: 10 });
        c.handle_sent(10);
        assert_eq!(c.poll_action(1), Action::ShutdownWrite);
        c.handle_shutdown(5);
        assert_eq!(c.poll_action(6), Action::Discard);
        c.handle_recv_blocked();
        assert_eq!((c.poll_action(6), c.deadline()), (Action::Idle, Some(5 + DRAIN_NS)));
        c.handle_eof();
        assert_eq!(c.poll_action(7), Action::Finish(Outcome { undelivered: 0, reset: false }));
    }

    #[test]
    fn a_peer_that_never_reads_is_reset_when_linger_ends_and_the_loss_is_reported() {
        let mut c = open();
        c.handle_published(StreamWord::at(10)).unwrap();
        c.handle_close(0, 1000);
        c.handle_send_blocked();
        c.handle_recv_blocked();
        assert_eq!(c.poll_action(999), Action::Idle);
        assert_eq!(c.poll_action(1000), Action::Finish(Outcome { undelivered: 10, reset: true }));
    }

    #[test]
    fn linger_zero_resets_at_once() {
        let mut c = open();
        c.handle_published(StreamWord::at(3)).unwrap();
        c.handle_close(0, 0);
        assert_eq!(c.poll_action(0), Action::Finish(Outcome { undelivered: 3, reset: true }));
    }

    #[test]
    fn an_error_is_told_once_and_the_slot_waits_for_close() {
        let mut c = open();
        assert_eq!(c.handle_error(Error::ConnectionReset), Some(Error::ConnectionReset));
        assert_eq!(c.handle_error(Error::BrokenPipe), None);
        assert_eq!(c.poll_action(0), Action::Idle);
        c.handle_close(0, 1000);
        assert!(matches!(c.poll_action(0), Action::Finish(Outcome { reset: true, .. })));
    }

    #[test]
    fn half_close_keeps_the_other_direction_running() {
        let mut c = open();
        c.handle_published(StreamWord::at(0).with_fin()).unwrap();
        assert_eq!(c.poll_action(0), Action::ShutdownWrite);
        c.handle_shutdown(0);
        assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
        c.handle_received(4096);
        assert_eq!(c.poll_action(0), Action::Idle, "ring full");
        c.handle_consumed(StreamWord::at(4000)).unwrap();
        assert_eq!(c.poll_action(0), Action::Receive { position: 4096, len: 4000 });
        c.handle_eof();
        assert_eq!(c.poll_action(0), Action::Idle);
    }
}
