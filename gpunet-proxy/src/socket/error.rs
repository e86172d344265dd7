//! Why calls on sockets of the host program fail, and what to do about it.

use crate::model::error::TooManyLaunches;
use gpu_usermap::cuda::CopyError;
use gpunet_abi::Error;
use std::io;

/// Why a socket could not be opened or used.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::{Error, Options};
/// use gpunet_proxy::socket::SocketError;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// # let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// match attachment.connect_blocking(nobody, Options::DEFAULT) {
///     Ok(socket) => println!("socket {}", socket.handle().raw()),
///     Err(SocketError::Failed(Error::ConnectionRefused)) => println!("nobody listens at {nobody}"),
///     Err(SocketError::TooManyHostSockets) => println!("close a socket first"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The call failed as the same call of a kernel does: [`Error::ConnectionRefused`],
    /// [`Error::AddressInUse`], [`Error::NetworkDown`] and so on. Errors that have a variant of
    /// their own here are never in this one.
    #[error("{0}")]
    Failed(Error),
    /// EMFILE: the socket table of the attachment, or of its user, is full.
    #[error(
        "all socket slots of the attachment are in use, or still closing; raise the setting sockets, or close sooner \
         (under gpunetd the user may also have reached its limit)"
    )]
    TooManySockets,
    /// EMFILE: the host program has as many sockets on this device as it can.
    #[error(
        "all slots of the device for sockets of the host program are in use, or still closing; close sooner"
    )]
    TooManyHostSockets,
    /// ENFILE: the proxy has no file descriptor left.
    #[error("the proxy has no file descriptor left; raise `ulimit -n` where it runs")]
    TooManyFiles,
    /// ENOBUFS: no rings of that size are free.
    #[error(
        "no ring memory is free for these rings; raise the setting shared_rings, or ask for smaller rings (SO_SNDBUF, \
         SO_RCVBUF)"
    )]
    NoBuffers,
    /// EBUSY: the host program's sockets need a launch number, and all are in use.
    #[error(transparent)]
    TooManyLaunches(#[from] TooManyLaunches),
    /// EIO: the device's memory cannot be read or written.
    #[error("cannot access the device's socket table: {0}")]
    Memory(CopyError),
}

impl SocketError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Failed(error) => error.errno(),
            Self::TooManySockets | Self::TooManyHostSockets => Error::TooManySockets.errno(),
            Self::TooManyFiles => Error::TooManyFiles.errno(),
            Self::NoBuffers => Error::NoBuffers.errno(),
            Self::TooManyLaunches(error) => error.errno(),
            Self::Memory(_) => libc::EIO,
        }
    }
}

impl From<Error> for SocketError {
    fn from(error: Error) -> Self {
        match error {
            Error::TooManySockets => Self::TooManySockets,
            Error::TooManyFiles => Self::TooManyFiles,
            Error::NoBuffers => Self::NoBuffers,
            error => Self::Failed(error),
        }
    }
}

impl From<SocketError> for io::Error {
    /// Converts a plain [`SocketError::Failed`] to the system's error of that errno, and others to
    /// an error of the errno's kind that holds them.
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Failed(error) => Self::from_raw_os_error(error.errno()),
            error => Self::new(crate::os::errno::kind(error.errno()), error),
        }
    }
}

/// Why a direction of a socket was not taken or given back, or a message has no place in it.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
/// use gpunet_proxy::socket::DirectionError;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = attachment.connect_blocking(server.local_addr()?, Options::DEFAULT)?;
/// let mut sender = socket.take_send()?;
/// assert!(matches!(socket.take_send(), Err(DirectionError::AlreadyTaken)));
///
/// let ring = sender.capacity();
/// let refused = sender.prepare(ring + 1);
/// assert!(matches!(refused, Err(DirectionError::MessageTooLong { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectionError {
    /// The stream has failed, with what a kernel's call on it fails with.
    #[error("{0}")]
    Failed(Error),
    /// EBADF: the program has no such socket, or a kernel has closed it.
    #[error("the program has no socket of that number, or it was closed")]
    BadHandle,
    /// EINVAL: the program has not taken that direction.
    #[error("the program has not taken that direction of the socket")]
    NotTaken,
    /// EALREADY: the program has the direction.
    #[error("the program has the direction already")]
    AlreadyTaken,
    /// EBUSY: a running launch knows the socket, or may.
    #[error("a launch that runs knows the socket, or may; finish it first")]
    InUseByLaunch,
    /// EBUSY: another queue has operations of the direction; or, when the direction is given back,
    /// any queue has.
    #[error(
        "a queue has operations of this direction under way: wait until they are done, or use one queue alone for a direction"
    )]
    InUseByQueue,
    /// EBUSY: operations of the direction were captured.
    #[error("a graph has operations of this direction: where its next message lies is not known")]
    Captured,
    /// EALREADY: prepared messages lie before the one that a queue is to send or receive.
    #[error(
        "messages that were prepared before are neither published nor posted: they would be published before they are filled"
    )]
    Unpublished,
    /// EINVAL: a message of 0 bytes.
    #[error("a message has at least 1 byte")]
    EmptyMessage,
    /// EMSGSIZE: a prepared message lies in the ring as a whole.
    #[error(
        "the message is longer than the ring: it has {len} bytes, and the ring has room for {room}; send it in parts, or by a queue"
    )]
    MessageTooLong {
        /// Bytes of the message.
        len: u64,
        /// The most bytes that can be in the ring.
        room: u64,
    },
    /// ENOBUFS: the ring has no room beside the messages that are prepared.
    #[error("the ring is full of messages that are prepared and not published, or not consumed")]
    RingFull,
    /// ENOBUFS: the stream's positions, of 61 bits, are used up.
    #[error("the socket's stream has no more positions")]
    NoPositions,
    /// EIO: the device's memory cannot be read or written.
    #[error("cannot access the device's socket table: {0}")]
    Memory(CopyError),
}

impl DirectionError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Failed(error) => error.errno(),
            Self::BadHandle => libc::EBADF,
            Self::NotTaken | Self::EmptyMessage => libc::EINVAL,
            Self::AlreadyTaken | Self::Unpublished => libc::EALREADY,
            Self::InUseByLaunch | Self::InUseByQueue | Self::Captured => libc::EBUSY,
            Self::MessageTooLong { .. } => libc::EMSGSIZE,
            Self::RingFull | Self::NoPositions => libc::ENOBUFS,
            Self::Memory(_) => libc::EIO,
        }
    }
}

impl From<DirectionError> for io::Error {
    /// Converts a plain [`DirectionError::Failed`] to the system's error of that errno, and others
    /// to an error of the errno's kind that holds them.
    fn from(error: DirectionError) -> Self {
        match error {
            DirectionError::Failed(error) => Self::from_raw_os_error(error.errno()),
            error => Self::new(crate::os::errno::kind(error.errno()), error),
        }
    }
}
