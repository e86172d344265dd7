//! Why GPU memory is not mapped, and why an access was refused.

use std::fmt;
use std::io;
use std::path::PathBuf;

use gpunet_cuda::{DmabufError, DriverVersion, Unavailable};

use super::kind::BackendKind;

/// Linux's internal ENOTSUPP, which drivers let escape to programs; libc has no name for it.
const ENOTSUPP: i32 = 524;

/// A version of the gdrdrv kernel module.
///
/// # Examples
/// ```
/// use gpu_usermap::mapping::GdrdrvVersion;
///
/// assert_eq!(GdrdrvVersion { major: 2, minor: 6 }.to_string(), "2.6");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GdrdrvVersion {
    /// Before the dot.
    pub major: u16,
    /// After it.
    pub minor: u16,
}

impl fmt::Display for GdrdrvVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a way to map GPU memory is not used.
///
/// # Examples
/// ```
/// use gpu_usermap::mapping::{MappingUnavailable, backends};
///
/// for backend in backends() {
///     if let Err(MappingUnavailable::DeviceFileMissing { path }) = backend.usable {
///         println!("load gdrdrv: {} is missing", path.display());
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingUnavailable {
    /// The kernel module's device file is missing.
    #[error("{} is missing (the kernel module is not loaded)", path.display())]
    DeviceFileMissing {
        /// The device file.
        path: PathBuf,
    },
    /// The device file is there and this user may not open it.
    #[error("no permission to open {} for reading and writing", path.display())]
    NoPermission {
        /// The device file.
        path: PathBuf,
    },
    /// The device file could not be opened for another reason.
    #[error("cannot open {}: {kind}", path.display())]
    DeviceFile {
        /// The device file.
        path: PathBuf,
        /// What kind of failure it was.
        kind: io::ErrorKind,
    },
    /// The device file does not answer as gdrdrv does: it is another driver's, or older than
    /// version 2.0.
    #[error("{} does not report gdrdrv's version: {}", path.display(), describe(*errno))]
    NotGdrdrv {
        /// The device file.
        path: PathBuf,
        /// The error of the call.
        errno: i32,
    },
    /// The module is older than this crate's ABI.
    #[error("the gdrdrv module is {found}, {needed} is needed")]
    GdrdrvTooOld {
        /// The module's version.
        found: GdrdrvVersion,
        /// The oldest that would do.
        needed: GdrdrvVersion,
    },
    /// The module no longer serves this crate's ABI.
    #[error("the gdrdrv module {found} serves users of ABI {demanded} and later; this is {ours}")]
    GdrdrvTooNew {
        /// The module's version.
        found: GdrdrvVersion,
        /// The oldest ABI that it serves.
        demanded: GdrdrvVersion,
        /// The ABI that this crate uses.
        ours: GdrdrvVersion,
    },
    /// A call of the module failed.
    #[error("gdrdrv: {call} of {len} bytes at {address:#x} failed: {}{}", describe(*errno), gdrdrv_hint(call, *errno))]
    Gdrdrv {
        /// What was asked for.
        call: &'static str,
        /// The GPU's address, rounded down to its page.
        address: u64,
        /// The length, rounded up to pages.
        len: usize,
        /// The error.
        errno: i32,
    },
    /// The module mapped other memory than was asked for.
    #[error("gdrdrv mapped {found:#x} instead of {asked:#x}")]
    OtherAddress {
        /// What was asked for.
        asked: u64,
        /// What it says it mapped.
        found: u64,
    },
    /// There is no CUDA here.
    #[error("{0}")]
    NoDriver(Unavailable),
    /// The driver is too old.
    #[error("the driver is CUDA {found}, {needed} is needed")]
    DriverTooOld {
        /// The driver's version.
        found: DriverVersion,
        /// The oldest that would do.
        needed: DriverVersion,
    },
    /// The memory could not be exported.
    #[error("{0}")]
    Export(DmabufError),
    /// The exported memory could not be mapped.
    #[error("mmap of {len} bytes of the dma-buf failed: {}", describe(*errno))]
    Mmap {
        /// The length, rounded up to pages.
        len: usize,
        /// The error.
        errno: i32,
    },
    /// The range is empty or not within the buffer.
    #[error("bytes {start}..{end} are not within the buffer of {size} bytes")]
    OutOfBounds {
        /// Where the range starts.
        start: usize,
        /// Where it ends.
        end: usize,
        /// The buffer's length.
        size: usize,
    },
    /// This crate does not know what empties the write-combining buffers of this kind of CPU.
    #[error("no store fence is known for {arch}")]
    NoStoreFence {
        /// The architecture.
        arch: &'static str,
    },
    /// The caller chose another backend.
    #[error("not asked for")]
    NotWanted,
}

/// Error of [`map`](super::map): each backend with its reason, in the order in which they were
/// tried.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::mapping::{BackendChoice, map};
///
/// # let buffer = gpu_usermap::cuda::Cuda::load()?.device(0)?.alloc(4096)?;
/// if let Err(refused) = map(&buffer, 0..4096, BackendChoice::Auto) {
///     for (kind, why) in &refused.reasons {
///         println!("{kind}: {why}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("GPU memory is not mapped: {}", display_reasons(.reasons))]
pub struct NotMapped {
    /// The reasons.
    pub reasons: Vec<(BackendKind, MappingUnavailable)>,
}

fn display_reasons(reasons: &[(BackendKind, MappingUnavailable)]) -> String {
    reasons.iter().map(|(kind, reason)| format!("{kind}: {reason}")).collect::<Vec<_>>().join("; ")
}

fn describe(errno: i32) -> String {
    match errno {
        ENOTSUPP => format!("not supported (errno {ENOTSUPP}): the kernel module has no mmap of dma-bufs"),
        _ => io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn gdrdrv_hint(call: &str, errno: i32) -> &'static str {
    match errno {
        libc::ENOMEM => " (no room in BAR1: see `nvidia-smi -q -d MEMORY`)",
        libc::EINVAL if call.starts_with("pin") => {
            " (not memory of cuMemAlloc, or a GPU without GPUDirect RDMA)"
        }
        // The module keeps each open file to the process that opened it.
        libc::EACCES | libc::EPERM => {
            " (the module serves only the process that opened it: was this one forked?)"
        }
        _ => "",
    }
}

/// Why an access through a mapping was refused. The caller is at fault; nothing was accessed.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::mapping::AccessError;
///
/// # fn store(mut mapping: gpu_usermap::mapping::Mapping) {
/// assert!(matches!(mapping.store_u64(4, 1), Err(AccessError::Misaligned { .. })));
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The bytes are not within the mapping.
    #[error("bytes {offset}..+{len} are not within the {size} bytes of the mapping")]
    OutOfBounds {
        /// Where the access was to start.
        offset: usize,
        /// How many bytes it has.
        len: usize,
        /// The mapping's length.
        size: usize,
    },
    /// A word is not aligned to its size.
    #[error("the GPU address {address:#x} of a word is not a multiple of 8")]
    Misaligned {
        /// The word's address on the GPU.
        address: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(errno: i32) -> String {
        MappingUnavailable::Gdrdrv { call: "pinning", address: 0x1_0000, len: 65536, errno }.to_string()
    }

    #[test]
    fn the_usual_errors_come_with_what_to_look_at() {
        assert!(pin(libc::ENOMEM).contains("BAR1"), "{}", pin(libc::ENOMEM));
        assert!(pin(libc::EINVAL).contains("cuMemAlloc"), "{}", pin(libc::EINVAL));
        assert!(pin(libc::EPERM).contains("forked"), "{}", pin(libc::EPERM));
        let mmap = MappingUnavailable::Mmap { len: 4096, errno: ENOTSUPP }.to_string();
        assert!(mmap.contains("524") && mmap.contains("no mmap"), "{mmap}");
    }

    #[test]
    fn all_reasons_are_told() {
        let reasons = vec![
            (BackendKind::Gdrdrv, MappingUnavailable::DeviceFileMissing { path: "/dev/gdrdrv".into() }),
            (BackendKind::DmaBuf, MappingUnavailable::NotWanted),
        ];
        assert_eq!(
            NotMapped { reasons }.to_string(),
            "GPU memory is not mapped: gdrdrv: /dev/gdrdrv is missing (the kernel module is not loaded); \
             dma-buf mmap: not asked for"
        );
    }
}
