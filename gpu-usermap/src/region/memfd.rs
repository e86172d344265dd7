//! The system calls on a memfd, one function each.

#![allow(unsafe_code, reason = "system calls that std does not wrap")]

use std::ffi::{CString, c_int, c_uint};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::error::RegionError;

/// The seals of a region: its length is fixed, and no holder can add a seal (of writing, say) later.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf takes a constant and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Linux has no machine on which this query fails; 4 KiB is the smallest page it runs with.
    usize::try_from(size).unwrap_or(4096)
}

pub(super) fn create(name: &str) -> Result<OwnedFd, RegionError> {
    let c_name = CString::new(name).map_err(|_| RegionError::InvalidName { name: name.to_owned() })?;
    let base = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Since Linux 6.3 a memfd says whether it may be executed, and vm.memfd_noexec=2 demands it; older kernels reject the flag.
    let open = |flags: c_uint| {
        // SAFETY: `c_name` is NUL-terminated and outlives the call.
        let fd = unsafe { libc::memfd_create(c_name.as_ptr(), flags) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
    };
    let opened = match open(base | libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(base),
        other => other,
    };
    match opened {
        // SAFETY: the kernel just returned this descriptor, and nobody else owns it.
        Ok(fd) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Err(source) => Err(match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => RegionError::DescriptorLimit { source },
            Some(libc::ENOMEM) => RegionError::NoMemory { len: 0, source },
            // Only the name can be at fault once the flags are those of every kernel since 3.17.
            Some(libc::EINVAL) => RegionError::InvalidName { name: name.to_owned() },
            _ => RegionError::Memfd { call: "memfd_create", source },
        }),
    }
}

pub(super) fn resize(fd: BorrowedFd<'_>, len: usize) -> Result<(), RegionError> {
    let size = libc::off_t::try_from(len).map_err(|_| RegionError::TooLong { len })?;
    // SAFETY: `fd` is open for the borrow; the call touches no memory.
    let done = retried(|| unsafe { libc::ftruncate(fd.as_raw_fd(), size) });
    done.map_err(|source| memory_error("ftruncate", len, source))
}

/// Allocates every page of a part now: a later lack of memory would be a SIGBUS in the first to touch the page.
pub(super) fn preallocate(fd: BorrowedFd<'_>, from: usize, len: usize) -> Result<(), RegionError> {
    let size = |len| libc::off_t::try_from(len).map_err(|_| RegionError::TooLong { len });
    let (start, size) = (size(from)?, size(len)?);
    // SAFETY: as in `resize`.
    let done = retried(|| unsafe { libc::fallocate(fd.as_raw_fd(), 0, start, size) });
    done.map_err(|source| memory_error("fallocate", len, source))
}

pub(super) fn seal(fd: BorrowedFd<'_>) -> Result<(), RegionError> {
    // SAFETY: F_ADD_SEALS takes an integer.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) };
    if done < 0 {
        return Err(RegionError::Memfd { call: "fcntl(F_ADD_SEALS)", source: io::Error::last_os_error() });
    }
    Ok(())
}

/// Checks that `fd` is a memfd with the seals and (if `whole`) all the pages of a region, and returns its length.
pub(super) fn checked_len(fd: BorrowedFd<'_>, whole: bool) -> Result<usize, RegionError> {
    let stat = fstat(fd)?;
    // SAFETY: F_GET_SEALS takes no argument.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    // Only shared-memory files have seals; a file on a disk, a pipe or a socket gives EINVAL.
    if seals < 0 || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(RegionError::NotAMemfd { mode: stat.st_mode });
    }
    let missing = SEALS & !seals;
    if missing != 0 {
        return Err(RegionError::SealsMissing {
            present: seals.cast_unsigned(),
            missing: missing.cast_unsigned(),
        });
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

fn fstat(fd: BorrowedFd<'_>) -> Result<libc::stat, RegionError> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is writable memory of the right type.
    if unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(RegionError::Memfd { call: "fstat", source: io::Error::last_os_error() });
    }
    // SAFETY: the call succeeded, so the kernel filled the whole structure.
    Ok(unsafe { stat.assume_init() })
}

fn retried(call: impl Fn() -> c_int) -> io::Result<()> {
    loop {
        if call() == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn memory_error(call: &'static str, len: usize, source: io::Error) -> RegionError {
    match source.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC | libc::EFBIG) => RegionError::NoMemory { len, source },
        _ => RegionError::Memfd { call, source },
    }
}
