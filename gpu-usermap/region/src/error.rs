//! Why a region could not be made or mapped.

use std::io;

/// Why [`PinnedRegion::create`](super::PinnedRegion::create) or
/// [`PinnedRegion::from_fd`](super::PinnedRegion::from_fd) failed.
///
/// # Examples
/// ```
/// use gpunet_region::{PinnedRegion, RegionError};
///
/// assert!(matches!(PinnedRegion::create("rings", 0), Err(RegionError::ZeroLength)));
/// assert!(matches!(PinnedRegion::create("rings", 1 << 50), Err(RegionError::NoMemory { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A region of no bytes was asked for, or received.
    #[error("a region cannot have zero bytes")]
    ZeroLength,
    /// The length cannot be mapped in any process.
    #[error("a region of {len} bytes is longer than an address space can map")]
    TooLong {
        /// The length that was asked for.
        len: usize,
    },
    /// The name holds a NUL byte or is longer than the kernel's 249 bytes.
    #[error("{name:?} cannot name a memfd (no NUL byte, at most 249 bytes)")]
    InvalidName {
        /// The name that was asked for.
        name: String,
    },
    /// The process or the system is out of file descriptors.
    #[error("no file descriptor is left for a memfd (see `ulimit -n`): {source}")]
    DescriptorLimit {
        /// EMFILE (this process) or ENFILE (the system).
        r#source: io::Error,
    },
    /// The process may not make files of that length (`RLIMIT_FSIZE`), and the memory is a file.
    #[error(
        "a region of {len} bytes is beyond the limit of file sizes, {limit} bytes: raise it (`ulimit -f`)"
    )]
    FileLimit {
        /// The length that was asked for.
        len: usize,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The memory could not be allocated or mapped.
    #[error("no memory for a region of {len} bytes: {source}")]
    NoMemory {
        /// The region's length.
        len: usize,
        /// ENOMEM or ENOSPC, or how much the machine has available.
        r#source: io::Error,
    },
    /// The kernel refused a call on the memfd for another reason.
    #[error("{call} failed on the memfd: {source}")]
    Memfd {
        /// The system call.
        call: &'static str,
        /// Its error.
        r#source: io::Error,
    },
    /// The descriptor is a directory, a socket, a file on a disk: anything but a memfd.
    #[error("the descriptor is not a memfd (file mode {mode:#o})")]
    NotAMemfd {
        /// `st_mode` of the descriptor.
        mode: u32,
    },
    /// The memfd lacks seals, so that its sender could make an access to it fault.
    #[error(
        "the memfd has seals {present:#x}, and {missing:#x} are missing (shrink 0x2, grow 0x4, seal 0x1)"
    )]
    SealsMissing {
        /// The seals that are set.
        present: u32,
        /// The required seals that are not.
        missing: u32,
    },
    /// The memfd's length is not a whole number of pages.
    #[error("the memfd's {len} bytes are not whole pages of {page} bytes")]
    PartialPage {
        /// The memfd's length.
        len: usize,
        /// The page size.
        page: usize,
    },
    /// Pages of the memfd are not allocated: touching them could fail, or use up this process's
    /// memory.
    #[error("only {allocated} of the memfd's {len} bytes are allocated")]
    Sparse {
        /// The memfd's length.
        len: usize,
        /// Bytes that have memory.
        allocated: u64,
    },
    /// The pages could not be mapped, for a reason other than memory.
    #[error("a shared mapping of {len} bytes failed: {source}")]
    Mmap {
        /// The region's length.
        len: usize,
        /// The error of `mmap`.
        r#source: io::Error,
    },
}
