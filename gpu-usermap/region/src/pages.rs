//! One mapping, unmapped on drop.

#![allow(unsafe_code, reason = "mmap and munmap")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::error::RegionError;

/// Private memory that nobody has touched. Nothing is set aside for it.
pub(super) const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// An address range that maps shared pages. It is an address, not a borrow: nothing is read or
/// written through it here.
///
/// It is what regions, registrations and CPU mappings of GPU memory own; programs use those.
///
/// # Examples
/// ```
/// use gpunet_region::PinnedRegion;
///
/// let region = PinnedRegion::create("rings", 4096)?;
/// let again = region.map_again()?;
/// assert_eq!(again.len(), region.len());
/// assert_ne!(again.base(), region.base());
/// # Ok::<(), gpunet_region::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and the type offers no access to the
// bytes.
unsafe impl Send for Pages {}
// SAFETY: as above: `&Pages` gives two integers; who dereferences the address answers for that
// access.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes from the start of `fd`, shared and writable, page tables filled in.
    pub(super) fn shared(fd: BorrowedFd<'_>, len: usize) -> Result<Self, RegionError> {
        Self::from_start(fd, len, libc::MAP_POPULATE)
    }

    /// Maps `len` bytes from the start of `fd`, shared and writable, and touches none of them.
    pub(super) fn untouched(fd: BorrowedFd<'_>, len: usize) -> Result<Self, RegionError> {
        Self::from_start(fd, len, 0)
    }

    fn from_start(fd: BorrowedFd<'_>, len: usize, populate: libc::c_int) -> Result<Self, RegionError> {
        Self::map(fd, 0, len, populate).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM) => RegionError::NoMemory { len, source },
            _ => RegionError::Mmap { len, source },
        })
    }

    /// Maps `len` bytes of `fd` from `offset` on, a whole number of pages, shared and writable,
    /// page tables filled in.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn at(fd: BorrowedFd<'_>, offset: libc::off_t, len: usize) -> io::Result<Self> {
        // Populated, so that the first access from a polling loop does not take a page fault.
        Self::map(fd, offset, len, libc::MAP_POPULATE)
    }

    fn map(fd: BorrowedFd<'_>, offset: libc::off_t, len: usize, populate: libc::c_int) -> io::Result<Self> {
        Self::map_with(len, libc::MAP_SHARED | populate, fd.as_raw_fd(), offset)
    }

    fn map_with(len: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel picks the address, so no existing mapping is replaced; it checks the
        // other arguments.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { base, len })
    }

    /// Reserves `len` bytes of addresses: private memory that nobody has touched.
    pub(super) fn private(len: usize) -> io::Result<Self> {
        Self::map_with(len, PRIVATE, -1, 0)
    }

    /// Returns the address of the first byte, valid until this drops.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "the kernel makes no empty mapping")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `at` made exactly this mapping, nothing else unmaps it, and a user of the address
        // keeps the owner alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
