//! What can go wrong, and why a transfer did not take the short way.

use std::io;
use std::sync::Arc;

/// Why a channel could not be opened, or a transfer did not succeed.
///
/// # Examples
/// ```
/// use gpunet_channel::{Channel, ChannelOptions};
///
/// let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// let error = Channel::connect(closed, &ChannelOptions::default()).unwrap_err();
/// assert_eq!(error.errno(), 111, "ECONNREFUSED");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The caller's array or argument is invalid. Nothing was sent or received.
    #[error("{0}")]
    Invalid(String),
    /// The other end did not accept the channel or the transfer. After a transfer that was not
    /// accepted the channel goes on.
    #[error("the other end refused: {reason}")]
    Refused {
        /// The errno that the other end gave.
        errno: i32,
        /// Its sentence.
        reason: String,
    },
    /// What arrived does not fit what the caller asked for. The other end was told, and the channel
    /// goes on.
    #[error("{0}")]
    Mismatch(String),
    /// The other end does not speak this protocol, or breaks it.
    #[error("the other end does not follow the protocol: {0}")]
    Protocol(String),
    /// The bytes that arrived are not those that were sent.
    #[error("the checksum of the bytes from {offset} on is wrong")]
    Checksum {
        /// Where the piece with the wrong bytes begins.
        offset: u64,
    },
    /// A connection failed, or the transfer took longer than it was given.
    #[error("{what}: {source} ({moved} of {total} bytes were through)")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// How many bytes of the transfer this end has sent or received.
        moved: u64,
        /// How many bytes the transfer has.
        total: u64,
        /// The system's error.
        r#source: Arc<io::Error>,
    },
    /// The GPU's driver refused a copy.
    #[error("{0}")]
    Cuda(String),
    /// An earlier transfer failed in the middle, and the channel with it.
    #[error("the channel is broken: {0}")]
    Broken(String),
}

impl ChannelError {
    /// Returns the errno that says it best.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Invalid(_) => libc::EINVAL,
            Self::Refused { errno, .. } => *errno,
            Self::Mismatch(_) => libc::EMSGSIZE,
            Self::Protocol(_) => libc::EPROTO,
            Self::Checksum { .. } => libc::EBADMSG,
            Self::Failed { source, .. } => errno_of(source),
            Self::Cuda(_) => libc::EIO,
            Self::Broken(_) => libc::EPIPE,
        }
    }

    pub(crate) fn failed(what: &'static str, source: io::Error) -> Self {
        Self::Failed { what, moved: 0, total: 0, source: Arc::new(source) }
    }

    /// Adds how far the transfer has come.
    pub(crate) fn at(self, came: u64, of: u64) -> Self {
        match self {
            Self::Failed { what, source, .. } => Self::Failed { what, moved: came, total: of, source },
            other => other,
        }
    }

    /// Whether the transfer can end with it and leave both ends at the same place.
    pub(crate) fn leaves_the_channel(&self) -> bool {
        matches!(self, Self::Invalid(_) | Self::Refused { .. } | Self::Mismatch(_))
    }
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> Self {
        Self::new(Self::from_raw_os_error(error.errno()).kind(), error)
    }
}

pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::UnexpectedEof => libc::ECONNRESET,
        io::ErrorKind::WriteZero | io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        _ => libc::EIO,
    })
}

/// Why the bytes of a transfer went through the connections, and were not copied once from memory
/// to memory.
///
/// # Examples
/// ```
/// use gpunet_channel::Reason;
///
/// assert_eq!(Reason::OtherMachine.to_string(), "the two ends are on different machines");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// The transfer is small.
    Small = 1,
    /// The boot ids differ.
    OtherMachine = 2,
    /// The effective users differ.
    OtherUser = 3,
    /// The local socket cannot be reached or does not answer: another network namespace.
    OtherNamespace = 4,
    /// The process of the other end has no number here: another namespace of processes.
    HiddenProcess = 5,
    /// The kernel does not let this process read the other's memory (seccomp, ptrace_scope).
    NotPermitted = 6,
    /// A checksum was asked for, which a copy does not have.
    ChecksumAsked = 7,
    /// The sender's memory is a GPU's, the receiver's is not, and the receiver has no GPU by which
    /// it could copy ([`ChannelOptions::device`](crate::ChannelOptions::device)).
    MixedMemory = 8,
    /// One end has switched it off.
    SwitchedOff = 9,
    /// Both ends are in one process, in which memory of CUDA cannot be opened a second time.
    SameProcess = 10,
    /// The driver does not export the memory.
    NotExported = 11,
    /// The driver does not open what was exported.
    NotOpened = 12,
    /// A launch runs on the receiving GPU, and the call to open memory would wait for it.
    LaunchRuns = 13,
    /// The copy failed before it was known to be whole.
    CopyFailed = 14,
    /// A reason that this version does not know.
    Unknown = 255,
}

impl Reason {
    pub(crate) const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Small,
            2 => Self::OtherMachine,
            3 => Self::OtherUser,
            4 => Self::OtherNamespace,
            5 => Self::HiddenProcess,
            6 => Self::NotPermitted,
            7 => Self::ChecksumAsked,
            8 => Self::MixedMemory,
            9 => Self::SwitchedOff,
            10 => Self::SameProcess,
            11 => Self::NotExported,
            12 => Self::NotOpened,
            13 => Self::LaunchRuns,
            14 => Self::CopyFailed,
            _ => Self::Unknown,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Small => "the transfer is small",
            Self::OtherMachine => "the two ends are on different machines",
            Self::OtherUser => "the two ends belong to different users",
            Self::OtherNamespace => "the two ends are in different network namespaces",
            Self::HiddenProcess => "the other end's process is not visible here",
            Self::NotPermitted => "the kernel does not permit to read the other process's memory",
            Self::ChecksumAsked => "a checksum was asked for",
            Self::MixedMemory => "the memory is a GPU's, and the receiver has none",
            Self::SwitchedOff => "it is switched off",
            Self::SameProcess => "both ends are in one process",
            Self::NotExported => "the driver does not export the memory",
            Self::NotOpened => "the driver does not open the exported memory",
            Self::LaunchRuns => "a launch runs on the receiving GPU",
            Self::CopyFailed => "the copy failed",
            Self::Unknown => "for a reason that this version does not know",
        })
    }
}
