//! Why a call of the facade failed, and what to do about it.

use super::config::BadConfig;
use crate::os::descriptors::hint;
use crate::os::errno;
use gpu_usermap::RegionError;
use gpu_usermap::cuda::{CopyError, CudaError};
use gpunet_abi::layout::LAUNCHES;
use std::io;
use std::path::PathBuf;

/// Makes `?` convert errors that have an errno to [`io::Error`]: one of the errno's kind, which
/// holds the error itself.
macro_rules! into_io_error {
    ($($error:ty),*) => {$(
        impl From<$error> for std::io::Error {
            /// Converts to an error of the errno's kind that holds this one.
            fn from(error: $error) -> Self {
                Self::new($crate::os::errno::kind(error.errno()), error)
            }
        }
    )*};
}
pub(crate) use into_io_error;

into_io_error!(EmbedError, DaemonError, OpenError, AttachError, TooManyLaunches, AllocError, SnapshotError);

/// Why a proxy could not be started.
///
/// # Examples
/// ```
/// use gpunet_proxy::{Config, EmbedError, embed};
///
/// let refused = embed(Config { data_threads: 17, ..Config::small() });
/// assert!(matches!(refused, Err(EmbedError::Config(bad)) if bad.setting == "data_threads"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

impl EmbedError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Config(_) => libc::EINVAL,
            Self::Start { source, .. } => errno::of(source),
        }
    }
}

/// Why a daemon does not serve this program.
///
/// # Examples
/// ```
/// use gpunet_proxy::{Config, DaemonError, attach};
/// use std::path::Path;
///
/// let refused = attach(Path::new("/run/nobody/gpunetd.sock"), Config::small());
/// assert!(matches!(refused, Err(DaemonError::NotThere { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// No daemon listens there.
    #[error("no daemon at {}: {source}; start gpunetd, or name the path it listens at", path.display())]
    NotThere {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The socket cannot be used.
    #[error("cannot reach the daemon at {}: {source}{hint}", path.display(), hint = hint(.source))]
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
        /// The reason, in the daemon's words.
        reason: String,
    },
    /// The daemon speaks another version of the protocol.
    #[error(
        "the daemon speaks version {daemon} of the attach protocol, this program {program}: update the older one"
    )]
    Version {
        /// The daemon's.
        daemon: u32,
        /// This program's.
        program: u32,
    },
    /// What listens there does not follow the protocol.
    #[error("what listens at {} is not gpunetd: {what}", path.display())]
    Strange {
        /// Where.
        path: PathBuf,
        /// How it broke the protocol.
        what: String,
    },
    /// The daemon closed the connection, or did not answer.
    #[error("the daemon at {} gave no answer: {source}", path.display())]
    Silent {
        /// Where.
        path: PathBuf,
        /// The system's answer.
        r#source: io::Error,
    },
    /// This process has reached its limit of file descriptors.
    #[error("no file descriptor is left for what the daemon passes: {source}{hint}", hint = hint(.source))]
    NoDescriptor {
        /// EMFILE.
        r#source: io::Error,
    },
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] BadConfig),
}

impl DaemonError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotThere { source, .. }
            | Self::Connect { source, .. }
            | Self::Silent { source, .. }
            | Self::NoDescriptor { source } => errno::of(source),
            Self::Refused { errno, .. } => *errno,
            Self::Version { .. } => libc::EPROTONOSUPPORT,
            Self::Strange { .. } => libc::EPROTO,
            Self::Config(_) => libc::EINVAL,
        }
    }
}

/// Why [`Proxy::snapshot`](crate::Proxy::snapshot) has no answer.
///
/// # Examples
/// ```
/// use gpunet_proxy::SnapshotError;
///
/// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
/// match proxy.snapshot() {
///     Ok(snapshot) => println!("{} attachments", snapshot.clients.len()),
///     Err(SnapshotError::Daemon(error)) => eprintln!("the daemon has ended: {error}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// ENETDOWN: the proxy in this process has stopped.
    #[error("the proxy has stopped, so it holds nothing; open a new one")]
    Stopped,
    /// ETIMEDOUT: the control thread of the proxy in this process does not answer.
    #[error("the proxy does not answer: the machine is overloaded")]
    NoAnswer,
    /// The daemon cannot be asked, or refuses.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

impl SnapshotError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Stopped => libc::ENETDOWN,
            Self::NoAnswer => libc::ETIMEDOUT,
            Self::Daemon(error) => error.errno(),
        }
    }
}

/// Why [`open`](crate::open) failed.
///
/// # Examples
/// ```
/// use gpunet_proxy::{Config, DaemonError, OpenError, open};
///
/// # let nobody = std::path::Path::new("/run/nobody/gpunetd.sock");
/// match open(Some(nobody), Config::small()) {
///     Ok(proxy) => println!("{:?}", proxy.daemon()),
///     Err(OpenError::Daemon(DaemonError::Refused { reason, .. })) => eprintln!("the daemon refuses: {reason}"),
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A daemon listens there, and does not serve this program.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// No daemon listens there, and no proxy could be started in this process.
    #[error(transparent)]
    Embed(#[from] EmbedError),
}

impl OpenError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Daemon(error) => error.errno(),
            Self::Embed(error) => error.errno(),
        }
    }
}

/// Why a device could not be attached.
///
/// # Examples
/// ```
/// use gpunet_proxy::{AttachError, Config, embed};
///
/// # let proxy = embed(Config::small())?;
/// match proxy.attach_cpu() {
///     Ok(attachment) => println!("{} has sockets", attachment.device_name()),
///     Err(AttachError::Region { bytes, .. }) => eprintln!("no {bytes} bytes: try Config::small()"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The system does not give pinned memory of that size.
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
    /// [`Attachment::host`](crate::Attachment::host) on a GPU.
    #[error("a host program cannot share a GPU's sockets; make sockets of its own on the CPU device")]
    HostOnGpu,
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}{hint}", hint = hint(.0))]
    Thread(std::io::Error),
    /// The rings of rc streams cannot lie where the settings ask for them.
    #[error("rings of rc streams: {0}; set the setting placement to auto")]
    Placement(String),
    /// CUDA could not copy the launch contexts.
    #[error("CUDA cannot copy to the device: {0}")]
    Copy(CopyError),
    /// The operating system refused the descriptors that wake data threads.
    #[error("cannot make a doorbell: {0}{hint}", hint = hint(.0))]
    Doorbell(std::io::Error),
    /// The daemon has ended, or refuses the attachment.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

impl AttachError {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Region { source: RegionError::FileLimit { .. }, .. } => libc::EFBIG,
            Self::Region { source: error @ RegionError::Memfd { source, .. }, .. } if is_forbidden(error) => {
                errno::of(source)
            }
            Self::Region { .. } => libc::ENOMEM,
            Self::Alloc(error) => error.errno(),
            Self::Stopped => libc::ENETDOWN,
            Self::TooMany(error) => error.errno(),
            Self::HostOnGpu | Self::Placement(_) => libc::EOPNOTSUPP,
            Self::Thread(error) | Self::Doorbell(error) => errno::of(error),
            Self::Daemon(error) => error.errno(),
            Self::Layout | Self::Register(_) | Self::Copy(_) => libc::EIO,
        }
    }
}

/// Returns whether a filter refused the system call, however little memory was asked for.
fn is_forbidden(error: &RegionError) -> bool {
    let RegionError::Memfd { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

/// Returns what to do about it, where the error does not say so itself.
fn region_hint(error: &RegionError) -> &'static str {
    match error {
        RegionError::DescriptorLimit { .. } => "",
        error if is_forbidden(error) => "; allow the call, which a container's seccomp profile may refuse",
        RegionError::FileLimit { .. } => ", or ask for less ring memory (setting shared_rings)",
        _ => "; ask for less ring memory (setting shared_rings)",
    }
}

/// All launch numbers are in use.
///
/// # Examples
/// ```
/// use gpunet_proxy::TooManyLaunches;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let tokens = (0..64).map(|_| attachment.token()).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(attachment.token().err(), Some(TooManyLaunches));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LAUNCHES} launches are running on this attachment; finish one first")]
pub struct TooManyLaunches;

impl TooManyLaunches {
    /// Returns the Linux errno, positive: EBUSY.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        libc::EBUSY
    }
}

/// Why a device has no memory of that size.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let error = attachment.alloc(isize::MAX as usize).unwrap_err();
/// assert!(error.to_string().contains("this machine does not have them"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The CPU device: this machine has no such memory, or this process may not have it.
    #[error(
        "cannot allocate {len} bytes of memory for kernels on the CPU: this machine does not have them, or the memory \
         cgroup of this process does not allow them"
    )]
    Host {
        /// Bytes that were asked for.
        len: usize,
    },
    /// A GPU: CUDA does not give it.
    #[error("cannot allocate {len} bytes of GPU memory: {source}")]
    Cuda {
        /// Bytes that were asked for.
        len: usize,
        /// The driver's answer.
        r#source: CudaError,
    },
}

impl AllocError {
    /// Returns the Linux errno, positive: ENOMEM.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        libc::ENOMEM
    }
}
