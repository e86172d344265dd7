//! One driven stream: carries out what its state machine asks for.

use super::observe;
use crate::attached::Attached;
use crate::message::{OpenStream, Ring};
use gpunet_abi::position::Violation;
use gpunet_abi::{Error, RingSpan, Status};
use gpunet_core::connection::{Action, Connection};
use gpunet_core::futex;
use gpunet_core::transport::StreamIo;
use std::io;

/// Actions a stream may take in one turn before others get theirs.
const BUDGET: usize = 16;
/// Bytes offered or taken by one action: a long copy inside the kernel would hold up the others.
const CHUNK: u64 = 256 * 1024;

/// What a turn of a stream ended with.
pub(super) enum Pumped {
    /// Nothing to do until the next input.
    Idle,
    /// The budget is spent, and there is more to do.
    More,
    /// Closed: forget it.
    Finished { undelivered: u64 },
}

/// One driven stream.
pub(super) struct Stream {
    pub(super) connection: Connection,
    pub(super) io: Box<dyn StreamIo>,
    pub(super) generation: u32,
    /// Waits in the ready queue.
    pub(super) queued: bool,
    /// The network announced the peer's end: keep reading until it is seen.
    pub(super) ended: bool,
    send_ring: Ring,
    recv_ring: Ring,
}

impl Stream {
    pub(super) fn new(opened: OpenStream) -> Self {
        Self {
            connection: Connection::new(opened.send_ring.capacity(), opened.recv_ring.capacity()),
            io: opened.io,
            generation: opened.generation,
            queued: false,
            ended: false,
            send_ring: opened.send_ring,
            recv_ring: opened.recv_ring,
        }
    }

    /// Takes in both words the device writes.
    pub(super) fn observe_words(&mut self, attached: &Attached, slot: u32) {
        let memory = &attached.memory;
        let checked = self
            .connection
            .handle_published(observe(memory.published_words(), slot))
            .and_then(|()| self.connection.handle_consumed(observe(memory.consumed_words(), slot)));
        if let Err(violation) = checked {
            self.violate(attached, slot, violation);
        }
    }

    fn violate(&mut self, attached: &Attached, slot: u32, violation: Violation) {
        tracing::warn!(slot, ?violation, "a kernel overwrote a socket's words: the socket gets EPROTO");
        self.fail(attached, slot, Error::Protocol);
        self.io.reset();
    }

    /// Ends the stream with an error and tells the device.
    pub(super) fn fail(&mut self, attached: &Attached, slot: u32, error: Error) {
        if let Some(error) = self.connection.handle_error(error) {
            attached.memory.set_status(slot, Status::open(self.generation).with_error(error));
        }
    }

    /// Carries out actions until there are none or the budget is spent.
    pub(super) fn pump(&mut self, attached: &Attached, slot: u32, now: u64) -> Pumped {
        self.observe_words(attached, slot);
        let (mut landed, mut released) = (false, false);
        let mut result = Pumped::More;
        for _ in 0..BUDGET {
            match self.connection.poll_action(now) {
                Action::Send { position, len } => released |= self.send(attached, slot, position, len),
                Action::ShutdownWrite => {
                    let done = self.io.shutdown_write();
                    self.connection.handle_shutdown(now);
                    if let Err(error) = done {
                        self.fail(attached, slot, errno(&error));
                    }
                }
                Action::Receive { position, len } => {
                    landed |= self.receive(attached, slot, position, len);
                }
                Action::Discard => landed |= self.discard(attached, slot),
                Action::Finish(outcome) => {
                    let late = if outcome.reset { self.io.unacknowledged() } else { 0 };
                    if outcome.reset {
                        self.io.reset();
                    }
                    result = Pumped::Finished { undelivered: outcome.undelivered + late };
                    break;
                }
                Action::Idle => {
                    result = Pumped::Idle;
                    break;
                }
            }
        }
        let memory = &attached.memory;
        if landed {
            futex::wake_if_parked(memory.recv_park(slot));
        }
        if released {
            futex::wake_if_parked(memory.send_park(slot));
        }
        if landed || released {
            memory.bump_epoch();
        }
        result
    }

    fn span(&self, attached: &Attached, ring: Ring, position: u64, len: u64) -> RingSpan {
        attached.memory.span(ring.offset, ring.capacity(), position, len.min(CHUNK))
    }

    fn send(&mut self, attached: &Attached, slot: u32, position: u64, len: u64) -> bool {
        let span = self.span(attached, self.send_ring, position, len);
        match self.io.offer(span) {
            Ok(n) => {
                let word = self.connection.handle_sent(n as u64);
                attached.memory.released(slot).publish(word.0);
                true
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.connection.handle_send_blocked();
                false
            }
            Err(e) => {
                self.fail_after_data(attached, slot, &e);
                false
            }
        }
    }

    fn receive(&mut self, attached: &Attached, slot: u32, position: u64, len: u64) -> bool {
        let span = self.span(attached, self.recv_ring, position, len);
        match self.io.take(span) {
            Ok(0) => {
                let word = self.connection.handle_eof();
                attached.memory.landed(slot).publish(word.0);
                true
            }
            Ok(n) => {
                let word = self.connection.handle_received(n as u64);
                attached.memory.landed(slot).publish(word.0);
                // A short read emptied the socket, and what comes later raises a new event
                // (epoll(7)); only an end that was announced already would raise none.
                if n < span.len() && !self.ended {
                    self.connection.handle_recv_blocked();
                }
                true
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.connection.handle_recv_blocked();
                false
            }
            Err(e) => {
                self.fail(attached, slot, errno(&e));
                false
            }
        }
    }

    /// A failed send does not hide what the peer sent before: it is received first.
    fn fail_after_data(&mut self, attached: &Attached, slot: u32, error: &io::Error) {
        while let Action::Receive { position, len } = {
            self.connection.handle_send_blocked();
            self.connection.handle_ready(true, false);
            self.connection.poll_action(0)
        } {
            let span = self.span(attached, self.recv_ring, position, len);
            match self.io.take(span) {
                Ok(n) if n > 0 => {
                    let word = self.connection.handle_received(n as u64);
                    attached.memory.landed(slot).publish(word.0);
                }
                _ => break,
            }
        }
        self.fail(attached, slot, errno(error));
    }

    fn discard(&mut self, attached: &Attached, slot: u32) -> bool {
        match self.io.discard() {
            Ok(0) => {
                let word = self.connection.handle_eof();
                attached.memory.landed(slot).publish(word.0);
                true
            }
            Ok(_) => false,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.connection.handle_recv_blocked();
                false
            }
            Err(e) => {
                self.fail(attached, slot, errno(&e));
                false
            }
        }
    }
}

/// The errno of an I/O error.
pub(crate) fn errno(error: &io::Error) -> Error {
    match (error.raw_os_error(), error.kind()) {
        (Some(code), _) => Error::from_errno(code),
        (None, io::ErrorKind::ConnectionRefused) => Error::ConnectionRefused,
        (None, io::ErrorKind::AddrInUse) => Error::AddressInUse,
        (None, io::ErrorKind::WouldBlock) => Error::WouldBlock,
        (None, io::ErrorKind::TimedOut) => Error::TimedOut,
        (None, io::ErrorKind::Unsupported) => Error::NotSupported,
        _ => Error::InvalidArgument,
    }
}
