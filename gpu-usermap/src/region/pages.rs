//! One shared mapping of a descriptor's pages, unmapped on drop.

#![allow(unsafe_code, reason = "mmap and munmap")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::error::RegionError;

/// An address range that maps shared pages. It is an address, not a borrow: nothing is read or written through it here.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and the type offers no access to the bytes.
unsafe impl Send for Pages {}
// SAFETY: as above: `&Pages` gives two integers; who dereferences the address answers for that access.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes from the start of `fd`, shared and writable, page tables filled in.
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: usize) -> Result<Self, RegionError> {
        Self::from_start(fd, len, libc::MAP_POPULATE)
    }

    /// Maps `len` bytes from the start of `fd`, shared and writable, and touches none of them.
    pub(crate) fn untouched(fd: BorrowedFd<'_>, len: usize) -> Result<Self, RegionError> {
        Self::from_start(fd, len, 0)
    }

    fn from_start(fd: BorrowedFd<'_>, len: usize, populate: libc::c_int) -> Result<Self, RegionError> {
        Self::map(fd, 0, len, populate).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM) => RegionError::NoMemory { len, source },
            _ => RegionError::Mmap { len, source },
        })
    }

    /// Maps `len` bytes of `fd` from `offset` on, a whole number of pages, as [`shared`](Self::shared) does.
    pub(crate) fn at(fd: BorrowedFd<'_>, offset: libc::off_t, len: usize) -> io::Result<Self> {
        // Populated, so that the first access from a polling loop does not take a page fault.
        Self::map(fd, offset, len, libc::MAP_POPULATE)
    }

    fn map(fd: BorrowedFd<'_>, offset: libc::off_t, len: usize, populate: libc::c_int) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | populate;
        // SAFETY: the kernel picks the address, so no existing mapping is replaced; it checks the other arguments.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Addresses that no longer map shared memory, but private zeroed memory: a thread that still reads there sees
/// zeros. Dropping it unmaps them.
///
/// # Examples
/// ```
/// use gpu_usermap::PinnedRegion;
/// use std::sync::Arc;
///
/// let region = Arc::try_unwrap(PinnedRegion::create("rings", 4096)?).expect("the only owner");
/// let vacated = region.vacate()?;
/// // ... once no thread uses the addresses any more ...
/// drop(vacated);
/// # Ok::<(), gpu_usermap::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Vacated {
    _plain: Pages,
}

impl Pages {
    /// Gives up the shared pages and keeps the addresses.
    pub(crate) fn vacate(self) -> io::Result<Vacated> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces exactly the range that this mapping owns. Who still uses the address finds zeroed memory,
        // which is within the bounds of what any other agent could have written there.
        let base = unsafe { libc::mmap(self.base.as_ptr().cast(), self.len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Vacated { _plain: self })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `at` made exactly this mapping, nothing else unmaps it, and a user of the address keeps the owner alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
