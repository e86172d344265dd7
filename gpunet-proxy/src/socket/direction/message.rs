//! Messages of a taken direction, and how far it has come.

use super::hold::Hold;
use gpunet_abi::{Error, Gate, Prepared, RingSpan, Trigger};
use std::sync::Arc;

/// A message to send: its place in the ring, and what kernels and queues do with it.
#[derive(Clone, Copy, Debug)]
pub struct SendMessage {
    /// The message as a kernel's parameter; kernels derive the rest from it, and the messages that
    /// follow.
    pub prepared: Prepared,
    /// Where it lies, in the device's address space. To be written once `room` has passed.
    pub span: RingSpan,
    /// Passes once the ring has room for the message.
    pub room: Gate,
    /// Publishes the message, and all before it.
    pub post: Trigger,
    /// Passes once the message is released: see [`Prepared::done`].
    pub done: Gate,
}

/// A message to receive: its place in the ring, and what kernels and queues do with it.
#[derive(Clone, Copy, Debug)]
pub struct RecvMessage {
    /// The message as a kernel's parameter; kernels derive the rest from it, and the messages that
    /// follow.
    pub prepared: Prepared,
    /// Where it lies, in the device's address space. To be read once `arrived` has passed.
    pub span: RingSpan,
    /// Passes once the whole message has landed.
    pub arrived: Gate,
    /// Gives the message's bytes back to the peer, and all before it, once it is read.
    pub consume: Trigger,
}

/// How far a taken direction has come, and why it has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DirectionOutcome {
    /// Bytes since the stream was opened: of a sender those that the peer, or the proxy, has
    /// released; of a receiver those that have landed. Between two devices it is what a gate or
    /// trigger has found last.
    pub position: u64,
    /// Why the direction has ended; `None` while it is open. [`Error::NoData`], when the peer has
    /// ended the stream without a failure; [`Error::BrokenPipe`], when the peer has stopped
    /// reading.
    pub error: Option<Error>,
}

/// A message that a queue sends or receives.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) message: Prepared,
    /// Bytes in the ring.
    pub(crate) capacity: u64,
    pub(super) hold: Arc<Hold>,
}

impl Appended {
    /// The direction, which stays taken until the message is done.
    pub(crate) const fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }
}
