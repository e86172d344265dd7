//! Directions of a socket that the host program has taken from the kernels, and the messages that
//! it places in them.
//!
//! | module | holds |
//! |---|---|
//! | `message` | [`SendMessage`], [`RecvMessage`], [`DirectionOutcome`] |
//! | `taken` | where the next message lies |
//! | `hold` | the right to a direction: the lock in the device's table |
//! | `posting` | how far queues will certainly publish it |
//! | `positions` | its words, and the other end's |
//! | `settled` | what kernels find when they get it back |

mod hold;
mod message;
mod positions;
mod posting;
mod settled;
mod taken;

pub(crate) use hold::Hold;
pub(super) use hold::Holder;
pub(crate) use message::Appended;
pub use message::{DirectionOutcome, RecvMessage, SendMessage};

use super::{DirectionError, Socket};
use crate::model::ids::QueueId;
use gpunet_abi::Direction;
use taken::Taken;

/// The sending direction of a socket, taken by the host program.
///
/// The program places messages in the direction's ring ([`Sender::prepare`]); kernels and queues
/// fill and publish them. Kernels that send by the socket's handle meanwhile get EALREADY. Dropping
/// it gives the direction back, as [`Sender::give_back`] does.
///
/// # Examples
/// A kernel fills a message and publishes it; here a thread of the CPU device stands for it:
///
/// ```
/// use gpunet_proxy::abi::Options;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = attachment.connect_blocking(server.local_addr()?, Options::DEFAULT)?;
/// let mut sender = socket.take_send()?;
/// let message = sender.prepare(64)?;
/// // Kernel parameters: message.prepared, message.post, message.room, message.done.
/// assert_eq!(message.span.len(), 64);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sender(Taken);

/// The receiving direction of a socket, taken by the host program. As [`Sender`].
#[derive(Debug)]
pub struct Receiver(Taken);

impl Socket {
    /// Takes the sending direction from the kernels.
    ///
    /// # Errors
    /// [`DirectionError::InUseByLaunch`], when a launch that is running knows the socket, or may:
    /// finish it first. [`DirectionError::AlreadyTaken`]. [`DirectionError::BadHandle`], when a
    /// kernel has closed the socket.
    pub fn take_send(&self) -> Result<Sender, DirectionError> {
        Taken::take(self, Direction::Send).map(Sender)
    }

    /// Takes the receiving direction from the kernels.
    ///
    /// # Errors
    /// As [`Socket::take_send`].
    pub fn take_recv(&self) -> Result<Receiver, DirectionError> {
        Taken::take(self, Direction::Recv).map(Receiver)
    }
}

impl Sender {
    /// The direction.
    pub(crate) fn hold(&self) -> &Hold {
        &self.0.hold
    }

    /// Places a message for a queue.
    pub(crate) fn append<T, E: From<DirectionError>>(
        &mut self,
        len: usize,
        queue: QueueId,
        captures: bool,
        submit: impl FnOnce(Appended) -> Result<T, E>,
    ) -> Result<T, E> {
        self.0.append(len as u64, queue, captures, submit)
    }

    /// Reserves `len` bytes of the ring for the next message.
    ///
    /// Messages are prepared ahead: as many as the ring holds may wait to be published. Published
    /// in the order in which they were prepared, a later one publishes all before it. A message
    /// lies behind those that were prepared, and behind all that is published: wait for kernels
    /// that play messages of their own ([`Prepared::nth`]) before the next one.
    ///
    /// [`Prepared::nth`]: gpunet_abi::Prepared::nth
    ///
    /// # Errors
    /// [`DirectionError::RingFull`], when what is prepared and not published would not fit into the
    /// ring; [`DirectionError::MessageTooLong`]; [`DirectionError::EmptyMessage`];
    /// [`DirectionError::Captured`]; [`DirectionError::Failed`] with the stream's failure.
    pub fn prepare(&mut self, len: usize) -> Result<SendMessage, DirectionError> {
        let (prepared, span) = self.0.place(len as u64)?;
        let (room, post) = (prepared.room(self.capacity() as u64), prepared.trigger());
        Ok(SendMessage { prepared, span, room, post, done: prepared.done() })
    }

    /// Bytes in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.hold.half.capacity as usize
    }

    /// Returns how far the direction has come, and why it has ended. An error stays.
    ///
    /// # Errors
    /// When the device's memory cannot be read.
    pub fn outcome(&self) -> Result<DirectionOutcome, DirectionError> {
        self.0.hold.outcome()
    }

    /// Gives the direction back to the kernels. Messages that were prepared and not published are
    /// void.
    ///
    /// # Errors
    /// [`DirectionError::InUseByLaunch`], when a launch that is running knows the socket;
    /// [`DirectionError::InUseByQueue`], when a queue has operations of the direction. It stays
    /// taken until those are done, and [`Socket::take_send`] gives it again.
    pub fn give_back(self) -> Result<(), DirectionError> {
        self.0.give_back()
    }
}

impl Receiver {
    /// The direction.
    pub(crate) fn hold(&self) -> &Hold {
        &self.0.hold
    }

    /// Places a message for a queue.
    pub(crate) fn append<T, E: From<DirectionError>>(
        &mut self,
        len: usize,
        queue: QueueId,
        captures: bool,
        submit: impl FnOnce(Appended) -> Result<T, E>,
    ) -> Result<T, E> {
        self.0.append(len as u64, queue, captures, submit)
    }

    /// Names the next `len` bytes of the stream as a message to come.
    ///
    /// # Errors
    /// [`DirectionError::RingFull`], when the ring has no room for it beside what is prepared and
    /// not consumed. Over rc the ring counts as smaller by a quarter, or by 64 KiB if that is less:
    /// the rest comes only after some is consumed. Otherwise as [`Sender::prepare`].
    pub fn prepare(&mut self, len: usize) -> Result<RecvMessage, DirectionError> {
        let (prepared, span) = self.0.place(len as u64)?;
        Ok(RecvMessage { prepared, span, arrived: prepared.arrived(), consume: prepared.trigger() })
    }

    /// Bytes in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.hold.half.capacity as usize
    }

    /// How far the direction has come. Sticky: once it has an error it keeps one.
    ///
    /// # Errors
    /// When the device's memory cannot be read.
    pub fn outcome(&self) -> Result<DirectionOutcome, DirectionError> {
        self.0.hold.outcome()
    }

    /// Gives the direction back to the kernels. What has landed and was not consumed is theirs.
    ///
    /// # Errors
    /// As [`Sender::give_back`].
    pub fn give_back(self) -> Result<(), DirectionError> {
        self.0.give_back()
    }
}
