//! Why RDMA cannot be used, and the errors that need more than an errno.

use std::io;

/// Why RDMA cannot be used on this machine, and what would change that. It is a fact to report,
/// not a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// A library is not installed, or does not load.
    #[error(
        "{name} does not load ({reason}): install the package {package} (and ibverbs-providers, the drivers \
         of the network cards)"
    )]
    Library {
        /// Its file name.
        name: &'static str,
        /// The Debian package that has it.
        package: &'static str,
        /// The dynamic loader's message.
        reason: String,
    },
    /// A library is too old.
    #[error("{library} has no {symbol}: it is too old, rdma-core 23 or later is needed")]
    Symbol {
        /// The missing function.
        symbol: &'static str,
        /// The library.
        library: &'static str,
    },
    /// The kernel shows no RDMA device.
    #[error(
        "no RDMA device ({reason}): load the card's driver and the modules ib_uverbs and rdma_cm (rdma_ucm); \
         without a card, rdma_rxe makes a software device: rdma link add rxe0 type rxe netdev eth0"
    )]
    NoDevice {
        /// Which call found none.
        reason: String,
    },
    /// The device files are closed to this user.
    #[error("no permission to open {path}: let this user read and write the files in /dev/infiniband")]
    Permission {
        /// The file.
        path: String,
    },
    /// Something else failed.
    #[error("{call} failed: {reason}")]
    Failed {
        /// The function.
        call: &'static str,
        /// The system's text.
        reason: String,
    },
}

impl Unavailable {
    /// Classifies a failed call that opened `path`.
    pub(super) fn from_call(call: &'static str, path: &str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::Permission { path: path.to_owned() },
            // librdmacm: ENODEV without /dev/infiniband/rdma_cm; libibverbs: ENOSYS without
            // ib_uverbs.
            Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS | libc::ENXIO) => {
                Self::NoDevice { reason: format!("{call}: {error}") }
            }
            _ => Self::Failed { call, reason: error.to_string() },
        }
    }
}

/// Memory could not be locked for the network card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot lock {bytes} bytes for the network card (ibv_reg_mr: out of memory); the locked-memory limit \
     (RLIMIT_MEMLOCK) is {}: raise it with `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service",
    limit.map_or_else(|| "not set".to_owned(), |bytes| format!("{bytes} bytes"))
)]
pub(super) struct LockedMemory {
    /// What was to be registered.
    pub bytes: u64,
    /// The limit.
    pub limit: Option<u64>,
}

impl LockedMemory {
    pub(super) fn error(bytes: u64) -> io::Error {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        io::Error::new(io::ErrorKind::OutOfMemory, Self { bytes, limit })
    }
}

/// Makes an error of an errno.
pub(super) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Makes a result of a call that returns 0, or -1 with errno (librdmacm).
pub(super) fn check(returned: i32) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a result of a call that returns 0 or an errno, of either sign (libibverbs: siw's is
/// negative).
pub(super) fn check_code(returned: i32) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        // Some providers return -1 and leave the number in errno.
        -1 => Err(io::Error::last_os_error()),
        code => Err(errno(code.saturating_abs())),
    }
}
