//! The system calls on a memfd, one function each.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::error::RegionError;

/// The seals of a region: its length is fixed, and no holder can add a seal (of writing, say)
/// later.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

pub(super) fn create(name: &str) -> Result<OwnedFd, RegionError> {
    let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Since Linux 6.3 a memfd says whether it may be executed, and vm.memfd_noexec=2 demands it;
    // older kernels reject the flag.
    let opened = match fs::memfd_create(name, base | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => fs::memfd_create(name, base),
        other => other,
    };
    opened.map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE => RegionError::DescriptorLimit { source: errno.into() },
        Errno::NOMEM => RegionError::NoMemory { len: 0, source: errno.into() },
        // Only the name can be at fault once the flags are those of every kernel since 3.17.
        Errno::INVAL => RegionError::InvalidName { name: name.to_owned() },
        _ => RegionError::Memfd { call: "memfd_create", source: errno.into() },
    })
}

pub(super) fn resize(fd: BorrowedFd<'_>, len: usize) -> Result<(), RegionError> {
    let size = file_offset(len)?;
    // Beyond the limit the kernel raises SIGXFSZ, which ends the process unless the program handles
    // it.
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|&limit| size > limit) {
        return Err(RegionError::FileLimit { len, limit });
    }
    retry_on_intr(|| fs::ftruncate(fd, size)).map_err(|errno| memory_error("ftruncate", len, errno))
}

/// Allocates every page of a part now: a later lack of memory would be a SIGBUS in the first to
/// touch the page.
///
/// The part lies within the file's length, so the limit of file sizes does not count here.
pub(super) fn preallocate(fd: BorrowedFd<'_>, from: usize, len: usize) -> Result<(), RegionError> {
    let (start, size) = (file_offset(from)?, file_offset(len)?);
    retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), start, size))
        .map_err(|errno| memory_error("fallocate", len, errno))
}

pub(super) fn seal(fd: BorrowedFd<'_>) -> Result<(), RegionError> {
    fs::fcntl_add_seals(fd, SEALS)
        .map_err(|errno| RegionError::Memfd { call: "fcntl(F_ADD_SEALS)", source: errno.into() })
}

/// Checks that `fd` is a memfd with the seals and (if `whole`) all the pages of a region, and
/// returns its length.
pub(super) fn checked_len(fd: BorrowedFd<'_>, whole: bool) -> Result<usize, RegionError> {
    let stat = fs::fstat(fd).map_err(|errno| RegionError::Memfd { call: "fstat", source: errno.into() })?;
    // Only shared-memory files have seals; a file on a disk, a pipe or a socket gives EINVAL.
    let present = match fs::fcntl_get_seals(fd) {
        Ok(seals) if FileType::from_raw_mode(stat.st_mode).is_file() => seals,
        _ => return Err(RegionError::NotAMemfd { mode: stat.st_mode }),
    };
    let missing = SEALS - present;
    if !missing.is_empty() {
        return Err(RegionError::SealsMissing { present: present.bits(), missing: missing.bits() });
    }
    let len = match usize::try_from(stat.st_size) {
        Ok(0) | Err(_) => return Err(RegionError::ZeroLength),
        Ok(len) => len,
    };
    // st_blocks counts units of 512 bytes on every file system.
    let allocated = stat.st_blocks.unsigned_abs().saturating_mul(512);
    if whole && allocated < len as u64 {
        return Err(RegionError::Sparse { len, allocated });
    }
    Ok(len)
}

/// Returns `len` as the kernel takes it: as a signed number.
fn file_offset(len: usize) -> Result<u64, RegionError> {
    i64::try_from(len).map(i64::unsigned_abs).map_err(|_| RegionError::TooLong { len })
}

fn memory_error(call: &'static str, len: usize, errno: Errno) -> RegionError {
    match errno {
        // Lowered after the check, and the thread blocks SIGXFSZ.
        Errno::FBIG => {
            RegionError::FileLimit { len, limit: getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX) }
        }
        Errno::NOMEM | Errno::NOSPC => RegionError::NoMemory { len, source: errno.into() },
        _ => RegionError::Memfd { call, source: errno.into() },
    }
}
