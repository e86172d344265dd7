//! Why something cannot be had, and what to do about it.

use super::config::BadConfig;
use crate::descriptors::hint;
use crate::device_memory::AllocError;
use gpu_usermap::RegionError;
use gpu_usermap::cuda::CopyError;
use gpunet_abi::layout::LAUNCHES;
use std::io;
use std::path::PathBuf;

/// Why a proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The operating system refused a thread, an epoll set or an eventfd.
    #[error("cannot start the proxy: the system refuses {what}: {source}{hint}", hint = hint(.source))]
    Start {
        /// What was to be started.
        what: &'static str,
        /// The system's answer.
        r#source: io::Error,
    },
}

/// Why a daemon does not serve this program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Nobody listens there.
    #[error("no daemon at {}: {source}; start gpunetd, or name the path it listens at", path.display())]
    NotThere {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The socket cannot be used.
    #[error("cannot reach the daemon at {}: {source}", path.display())]
    Connect {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The daemon refused.
    #[error("the daemon refuses: {reason}")]
    Refused {
        /// The reason as a number.
        errno: i32,
        /// The reason, in its words.
        reason: String,
    },
    /// It is of another version.
    #[error(
        "the daemon speaks version {daemon} of the attach protocol, this program {program}: update the older one"
    )]
    Version {
        /// The daemon's.
        daemon: u32,
        /// This program's.
        program: u32,
    },
    /// Whoever listens there does not keep to the protocol.
    #[error("what listens at {} is no gpunetd: {what}", path.display())]
    Strange {
        /// Where.
        path: PathBuf,
        /// What it did.
        what: String,
    },
    /// It closed the connection, or did not answer.
    #[error("the daemon at {} gave no answer: {source}", path.display())]
    Silent {
        /// Where.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// A setting cannot be.
    #[error(transparent)]
    Config(#[from] BadConfig),
}

impl From<DaemonError> for io::Error {
    /// Of the kind that the system's answer has, if it was the system's.
    fn from(error: DaemonError) -> Self {
        let kind = match &error {
            DaemonError::NotThere { source, .. }
            | DaemonError::Connect { source, .. }
            | DaemonError::Silent { source, .. } => source.kind(),
            DaemonError::Refused { errno, .. } => Self::from_raw_os_error(*errno).kind(),
            DaemonError::Version { .. } => io::ErrorKind::Unsupported,
            DaemonError::Strange { .. } => io::ErrorKind::InvalidData,
            DaemonError::Config(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A daemon is there, and does not serve this program.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// None is there, and none could be started in this program.
    #[error(transparent)]
    Embed(#[from] EmbedError),
}

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No pinned memory of that size.
    #[error("cannot make the shared region ({bytes} bytes): {source}{hint}", hint = region_hint(.source))]
    Region {
        /// Size asked for.
        bytes: u64,
        /// The system's answer.
        r#source: RegionError,
    },
    /// The proxy was stopped.
    #[error("the proxy has stopped")]
    Stopped,
    /// The region is shorter than its layout.
    #[error("the shared region is too short for its layout")]
    Layout,
    /// CUDA could not register the region.
    #[error("CUDA cannot register the shared region: {0}")]
    Register(gpu_usermap::cuda::RegisterError),
    /// The device has no room for its part of the sockets.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// All launch numbers of the attachment are in use.
    #[error(transparent)]
    TooMany(#[from] TooManyLaunches),
    /// A host's sockets among those of a GPU.
    #[error("a host program cannot share a GPU's sockets; make its own with Proxy::host")]
    HostOnGpu,
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}{hint}", hint = hint(.0))]
    Thread(std::io::Error),
    /// Rings of rc streams cannot lie where the settings want them.
    #[error("rings of rc streams: {0}; set Config::placement to auto")]
    Placement(String),
    /// CUDA could not copy the launch contexts.
    #[error("CUDA cannot copy to the device: {0}")]
    Copy(CopyError),
    /// The operating system refused the descriptors that wake data threads.
    #[error("cannot make a doorbell: {0}; see `ulimit -n`")]
    Doorbell(std::io::Error),
    /// The daemon is not there any more, or does not give this program an attachment.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// What to do about it, where the failure does not say so itself.
fn region_hint(error: &RegionError) -> &'static str {
    match error {
        RegionError::DescriptorLimit { .. } => "",
        _ => "; ask for less ring memory in Config",
    }
}

/// All launch numbers are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LAUNCHES} launches are running on this attachment; finish one first")]
pub struct TooManyLaunches;
