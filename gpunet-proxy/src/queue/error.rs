//! Why an operation of a queue was not enqueued, or a queue has failed, and what to do about it.

use crate::model::error::TooManyLaunches;
use crate::socket::DirectionError;
use crate::team::TeamError;
use gpu_usermap::cuda::NoStreamMemoryOperations;
use gpunet_abi::Error;
use gpunet_abi::team::{MAX_VALUE, Rank, Signal};
use std::io;

/// The first operation of a queue that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Which one: 0 for the first that was enqueued.
    pub operation: u64,
    /// Why.
    pub error: Error,
    /// Bytes of it that were sent or received before. Of a short message that was reset, a queue on
    /// a CUDA stream counts none.
    pub bytes: u64,
}

/// Why a call of a queue failed.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
/// use gpunet_proxy::queue::{Queue, QueueError};
/// use gpunet_proxy::socket::DirectionError;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = attachment.connect_blocking(server.local_addr()?, Options::DEFAULT)?;
/// let mut sender = socket.take_send()?;
/// let prepared = sender.prepare(64)?; // lies before what the queue is to send
///
/// let message = attachment.alloc(5)?;
/// let mut queue = Queue::cpu(&attachment)?;
/// // SAFETY: the queue is done with it below.
/// match queue.send(&mut sender, unsafe { message.buffer() }) {
///     Err(QueueError::Direction(DirectionError::Unpublished)) => queue.post(&[prepared.post])?,
///     result => result?,
/// }
/// queue.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The direction of a socket that the operation uses does not allow it.
    #[error(transparent)]
    Direction(#[from] DirectionError),
    /// An operation has failed: what [`Queue::synchronize`](super::Queue::synchronize) and
    /// [`Done`](super::Done) return. The errno is the operation's.
    #[error("operation {} of the queue failed: {}", .0.operation, .0.error)]
    Failed(Failure),
    /// ECANCELED: the queue or its attachment has ended before the operation was done.
    #[error("the queue, or its attachment, ended before the operation was done")]
    Canceled,
    /// EAGAIN: the CUDA stream holds as many operations as it can, and none has passed for a
    /// second.
    #[error(
        "the stream holds {enqueued} operations, and none has passed for a second: let what they wait for happen before \
         you enqueue more"
    )]
    StreamFull {
        /// Operations of the driver on the stream.
        enqueued: u64,
    },
    /// EDEADLK: the queue would wait for a trigger that it releases only behind that wait.
    #[error(
        "the queue waits for position {position} of this direction at a gate that was enqueued before, and would release it \
         only behind that wait: post first, then wait; or let a kernel release the trigger"
    )]
    Deadlock {
        /// The position that the gate waits for.
        position: u64,
    },
    /// EBUSY: another queue has barriers or collectives of the team.
    #[error(
        "another queue has barriers or collectives of this team under way, and the two have no order: use one queue for \
         them, or wait until the other is done"
    )]
    CollectiveInUse,
    /// ECONNRESET: a member of the team has died, or the team is broken for another reason.
    #[error(transparent)]
    TeamBroken(TeamError),
    /// EINVAL: a member that the team does not have.
    #[error("there is no member {member} in a team of {size}")]
    NoSuchMember {
        /// Its rank.
        member: Rank,
        /// Members of the team.
        size: u32,
    },
    /// EINVAL: a signal that the team does not have.
    #[error("there is no signal {} in a team with {signals}", signal.0)]
    NoSuchSignal {
        /// Its number.
        signal: Signal,
        /// Signals of the team.
        signals: u32,
    },
    /// EINVAL: a value that no signal can have.
    #[error("the value of a signal is at most {MAX_VALUE}, and not {0}")]
    ValueTooLarge(u64),
    /// EINVAL: the sources do not fit into the destination, or are not whole elements.
    #[error("{count} times {len} bytes do not fit into {room}, in whole elements of {element}")]
    WrongLength {
        /// How many sources the destination receives.
        count: usize,
        /// Bytes of a source.
        len: usize,
        /// Bytes of the destination.
        room: usize,
        /// Bytes of an element.
        element: usize,
    },
    /// EINVAL: the source of an all-to-all does not have a part for each member.
    #[error("a source of {len} bytes does not have a whole number of elements for each of {size} members")]
    Indivisible {
        /// Bytes of the source.
        len: usize,
        /// Members of the team.
        size: u32,
    },
    /// EINVAL: the team's memory is not on the device of the queue.
    #[error("the queue is not of the device with which the member has joined")]
    OtherDevice,
    /// EINVAL: a direction is of a socket of another attachment.
    #[error(
        "the direction is of another attachment than the queue: make the queue of the socket's attachment"
    )]
    OtherAttachment,
    /// EINVAL: a message was not started on this queue.
    #[error("a message that is to be finished was not started on this queue")]
    NotStarted,
    /// EINVAL: settings that no queue can have.
    #[error("a queue copies fragments of at least 1 byte, and 1 to 64 of them at a time")]
    Settings,
    /// EOPNOTSUPP: [`Queue::cpu`](super::Queue::cpu) is for the CPU device, and
    /// [`Queue::cuda`](super::Queue::cuda) for CUDA devices.
    #[error("the attachment is of another kind of device: Queue::cpu is for the CPU, Queue::cuda for a GPU")]
    WrongAttachment,
    /// EOPNOTSUPP: the CUDA stream is being captured.
    #[error(
        "the stream is being captured, and a graph would repeat {operation} with the same positions and values: capture \
         send and recv only"
    )]
    NotCapturable {
        /// The operation.
        operation: &'static str,
    },
    /// EOPNOTSUPP: the CUDA stream is being captured, and messages were started before.
    #[error(
        "messages that were started are not finished, and a graph cannot wait for them: finish them before the capture"
    )]
    Unfinished,
    /// EOPNOTSUPP: the operation needs memory that the device reaches.
    #[error("this operation does not reach pageable memory: use memory of the device, or pin it")]
    Pageable,
    /// EOPNOTSUPP: [`Queue::start_send`](super::Queue::start_send) and
    /// [`Queue::start_recv`](super::Queue::start_recv) where operations are kernels.
    #[error("the direction's operations are kernels, which nothing runs beside: use send and recv")]
    NoStart,
    /// EOPNOTSUPP: [`Queue::check`](super::Queue::check) where operations are kernels.
    #[error(
        "the queue's operations are kernels, which do not know how it has fared: ask for its outcome when they are done"
    )]
    NoCheck,
    /// EOPNOTSUPP: the environment does not allow stream memory operations.
    #[error(transparent)]
    NoStreamMemoryOperations(NoStreamMemoryOperations),
    /// EBUSY: the GPU has no connection left for a stream that may wait.
    #[error(
        "{queues} queues are open, and a stream of one more that waits could hold up another for ever: the GPU has \
         {connections} connections for streams; end queues, or set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts"
    )]
    TooManyQueues {
        /// Queues that are open.
        queues: u32,
        /// The GPU's connections for streams.
        connections: u32,
    },
    /// EBUSY: the host program's sockets need a launch number, and all are in use.
    #[error(transparent)]
    TooManyLaunches(#[from] TooManyLaunches),
    /// The operating system refuses a thread. The errno is the system's.
    #[error("the system refuses a thread for a queue: {0}; raise the limits of threads and memory")]
    Thread(io::Error),
    /// EIO: the device, its driver or its memory refuses.
    #[error(transparent)]
    Device(Box<dyn std::error::Error + Send + Sync>),
}

impl QueueError {
    /// What the device's driver, or its memory, has said.
    pub(super) fn device(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Device(Box::new(error))
    }

    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Direction(error) => error.errno(),
            Self::Failed(failure) => failure.error.errno(),
            Self::Canceled => libc::ECANCELED,
            Self::StreamFull { .. } => libc::EAGAIN,
            Self::Deadlock { .. } => libc::EDEADLK,
            Self::CollectiveInUse | Self::TooManyQueues { .. } => libc::EBUSY,
            Self::TooManyLaunches(error) => error.errno(),
            Self::TeamBroken(_) => libc::ECONNRESET,
            Self::NoSuchMember { .. }
            | Self::NoSuchSignal { .. }
            | Self::ValueTooLarge(_)
            | Self::WrongLength { .. }
            | Self::Indivisible { .. }
            | Self::OtherDevice
            | Self::OtherAttachment
            | Self::NotStarted
            | Self::Settings => libc::EINVAL,
            Self::WrongAttachment
            | Self::NotCapturable { .. }
            | Self::Unfinished
            | Self::Pageable
            | Self::NoStart
            | Self::NoCheck
            | Self::NoStreamMemoryOperations(_) => libc::EOPNOTSUPP,
            Self::Thread(error) => crate::os::errno::of(error),
            Self::Device(_) => libc::EIO,
        }
    }
}

impl From<QueueError> for io::Error {
    /// Converts to an error of the errno's kind that holds this one; the direction's, as it does.
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Direction(error) => error.into(),
            error => Self::new(crate::os::errno::kind(error.errno()), error),
        }
    }
}
