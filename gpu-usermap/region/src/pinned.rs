//! A sealed, preallocated memfd and its mapping.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::param::page_size;

use super::error::RegionError;
use super::memfd;
use super::pages::Pages;
use super::room::{Promise, check_promised};

/// A sealed, preallocated memfd and one shared mapping of it.
///
/// The region never hands out a slice or a reference: other agents (a GPU, another process) write
/// to it without this process taking part. Readers and writers agree on word types and orderings
/// over the raw address.
///
/// The users of the region pin its pages, when they register it with CUDA or an RDMA card;
/// preallocation means that every page exists before the first access.
///
/// # Trust
/// The seals stop any holder of the descriptor from changing the length. They do not stop one from
/// writing arbitrary bytes, nor from punching a hole (which detaches pages from the GPU's view of
/// them); what is read from a region is untrusted input, and a region is shared only with a process
/// that may lose its own connections by misusing it.
///
/// # Examples
/// Two processes share a region by its descriptor:
///
/// ```
/// use gpunet_region::PinnedRegion;
///
/// let region = PinnedRegion::create("rings", 1 << 20)?;
/// let sent = region.fd().try_clone_to_owned()?; // to another process, over a Unix socket
/// let received = PinnedRegion::from_fd(sent)?;
/// assert_eq!(received.len(), region.len());
/// assert_ne!(received.base(), region.base(), "another mapping of the same pages");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PinnedRegion {
    mapping: Pages,
    fd: OwnedFd,
    /// The memory of the pages that do not exist yet.
    promise: Promise,
}

impl PinnedRegion {
    /// Creates a region of at least `len` bytes, all zero.
    ///
    /// The length is rounded up to whole pages; [`len`](Self::len) returns the result. `name` shows
    /// up in `/proc/*/maps` as `/memfd:name` and need not be unique.
    ///
    /// # Errors
    /// [`RegionError::ZeroLength`], [`RegionError::TooLong`] and [`RegionError::InvalidName`] are
    /// mistakes of the caller; [`RegionError::DescriptorLimit`], [`RegionError::FileLimit`] and
    /// [`RegionError::NoMemory`] (also for more than the machine has available, or a memory cgroup
    /// allows, which is checked first, because the kernel would kill processes rather than refuse)
    /// are exhaustion; the others carry the failed call's error.
    ///
    /// # Examples
    /// ```
    /// use gpunet_region::PinnedRegion;
    ///
    /// let region = PinnedRegion::create("rings", 5000)?;
    /// assert_eq!(region.len() % 4096, 0, "whole pages");
    /// # Ok::<(), gpunet_region::RegionError>(())
    /// ```
    pub fn create(name: &str, len: usize) -> Result<Arc<Self>, RegionError> {
        let len = whole_pages(len)?;
        let promise = Promise::new(len)?;
        let fd = memfd::create(name)?;
        memfd::resize(fd.as_fd(), len)?;
        memfd::preallocate(fd.as_fd(), 0, len)?;
        promise.keep(len);
        memfd::seal(fd.as_fd())?;
        let mapping = Pages::shared(fd.as_fd(), len)?;
        Ok(Arc::new(Self { mapping, fd, promise }))
    }

    /// Creates a region of at least `len` bytes of which only the first `first` exist. For large
    /// regions, whose allocation takes long.
    ///
    /// Nothing may touch the other pages before [`grow`](Self::grow) has made them: where memory
    /// has run out, the access would raise SIGBUS.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    ///
    /// # Examples
    /// ```
    /// use gpunet_region::PinnedRegion;
    ///
    /// let region = PinnedRegion::create_growing("rings", 64 << 20, 4096)?;
    /// // ... the first page can be used already ...
    /// region.grow(4096, region.len())?; // on another thread
    /// # Ok::<(), gpunet_region::RegionError>(())
    /// ```
    pub fn create_growing(name: &str, len: usize, first: usize) -> Result<Arc<Self>, RegionError> {
        let len = whole_pages(len)?;
        let first = whole_pages(first)?.min(len);
        let promise = Promise::new(len)?;
        let fd = memfd::create(name)?;
        memfd::resize(fd.as_fd(), len)?;
        memfd::preallocate(fd.as_fd(), 0, first)?;
        promise.keep(first);
        memfd::seal(fd.as_fd())?;
        let mapping = Pages::untouched(fd.as_fd(), len)?;
        Ok(Arc::new(Self { mapping, fd, promise }))
    }

    /// Allocates the pages from byte `from` up to byte `to`.
    ///
    /// # Errors
    /// As [`create`](Self::create), also when the memory has been taken by others since the region
    /// was made; the pages up to `from` stay.
    pub fn grow(&self, from: usize, to: usize) -> Result<(), RegionError> {
        let to = to.min(self.len());
        if from >= to {
            return Ok(());
        }
        // It was there when the region was made; other processes may have taken it since.
        check_promised(to - from)?;
        memfd::preallocate(self.fd.as_fd(), from, to - from)?;
        self.promise.keep(to - from);
        Ok(())
    }

    /// Maps a region that its creator may still be growing. The creator is trusted to follow the
    /// rules of [`create_growing`](Self::create_growing).
    ///
    /// # Errors
    /// As [`from_fd`](Self::from_fd).
    pub fn from_trusted_fd(fd: OwnedFd) -> Result<Arc<Self>, RegionError> {
        let len = Self::check_growing(fd.as_fd())?;
        let mapping = Pages::untouched(fd.as_fd(), len)?;
        Ok(Arc::new(Self { mapping, fd, promise: Promise::none() }))
    }

    /// Maps a region that was made elsewhere, from its descriptor.
    ///
    /// The descriptor usually comes from another process and is checked, not trusted: it must be a
    /// memfd that is sealed against shrinking, growing and further sealing, of a whole number of
    /// pages, all of them allocated. Nothing is allocated here: a peer that sends a large sparse
    /// file must not use up this process's memory.
    ///
    /// # Errors
    /// [`RegionError::NotAMemfd`], [`RegionError::SealsMissing`], [`RegionError::ZeroLength`],
    /// [`RegionError::PartialPage`] and [`RegionError::Sparse`] mean that the peer sent something
    /// else; [`RegionError::NoMemory`] means that this process has no address space left.
    ///
    /// # Examples
    /// ```
    /// use gpunet_region::{PinnedRegion, RegionError};
    /// use std::os::fd::OwnedFd;
    ///
    /// let socket = std::os::unix::net::UnixDatagram::unbound()?;
    /// let refused = PinnedRegion::from_fd(OwnedFd::from(socket));
    /// assert!(matches!(refused, Err(RegionError::NotAMemfd { .. })));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_fd(fd: OwnedFd) -> Result<Arc<Self>, RegionError> {
        let len = Self::check(fd.as_fd())?;
        let mapping = Pages::shared(fd.as_fd(), len)?;
        Ok(Arc::new(Self { mapping, fd, promise: Promise::none() }))
    }

    /// Checks a descriptor as [`from_fd`](Self::from_fd) does, and returns the length of its
    /// region. It maps and closes nothing.
    ///
    /// # Errors
    /// As [`from_fd`](Self::from_fd).
    ///
    /// # Examples
    /// ```
    /// use gpunet_region::PinnedRegion;
    ///
    /// let region = PinnedRegion::create("rings", 4096)?;
    /// assert_eq!(PinnedRegion::check(region.fd())?, 4096);
    /// # Ok::<(), gpunet_region::RegionError>(())
    /// ```
    pub fn check(fd: BorrowedFd<'_>) -> Result<usize, RegionError> {
        Self::checked(fd, true)
    }

    /// The same for a descriptor of a region that its creator may still be growing.
    ///
    /// # Errors
    /// As [`from_fd`](Self::from_fd), without [`RegionError::Sparse`].
    pub fn check_growing(fd: BorrowedFd<'_>) -> Result<usize, RegionError> {
        Self::checked(fd, false)
    }

    fn checked(fd: BorrowedFd<'_>, whole: bool) -> Result<usize, RegionError> {
        let len = memfd::checked_len(fd, whole)?;
        if len.is_multiple_of(page_size()) {
            Ok(len)
        } else {
            Err(RegionError::PartialPage { len, page: page_size() })
        }
    }

    /// Returns the address of the first byte in this process, page-aligned and valid as long as the
    /// region lives.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Returns the length in bytes, a whole number of pages and never 0.
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns the descriptor, to be sent to another process and opened there with
    /// [`from_fd`](Self::from_fd).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes a region apart: its mapping, which needs no descriptor, and its descriptor. `None` if
    /// the region has another owner.
    ///
    /// A process that has many regions mapped and passes none of them on can close their
    /// descriptors so.
    ///
    /// # Examples
    /// ```
    /// use gpunet_region::PinnedRegion;
    ///
    /// let region = PinnedRegion::create("rings", 4096)?;
    /// let (mapping, descriptor) = PinnedRegion::into_parts(region).expect("nobody else has it");
    /// drop(descriptor);
    /// assert_eq!(mapping.len(), 4096);
    /// # Ok::<(), gpunet_region::RegionError>(())
    /// ```
    pub fn into_parts(region: Arc<Self>) -> Option<(RegionMapping, OwnedFd)> {
        Arc::into_inner(region)
            .map(|Self { mapping, fd, promise }| (RegionMapping { mapping, _promise: promise }, fd))
    }

    /// Makes a further mapping of the same pages at another address, for an owner with its own
    /// lifetime.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`] means that this process has no address space left.
    pub fn map_again(&self) -> Result<Pages, RegionError> {
        Pages::shared(self.fd.as_fd(), self.mapping.len())
    }
}

/// The mapping of a [`PinnedRegion`] without its descriptor.
#[derive(Debug)]
pub struct RegionMapping {
    mapping: Pages,
    _promise: Promise,
}

impl RegionMapping {
    /// Returns the address of the first byte in this process, page-aligned and valid as long as the
    /// mapping lives.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Returns the length in bytes, a whole number of pages and never 0.
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }
}

impl AsFd for PinnedRegion {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

pub(super) fn whole_pages(len: usize) -> Result<usize, RegionError> {
    if len == 0 {
        return Err(RegionError::ZeroLength);
    }
    // File sizes are signed, and a mapping may not exceed isize::MAX (pointer arithmetic on it
    // would overflow).
    len.checked_next_multiple_of(page_size())
        .filter(|&rounded| isize::try_from(rounded).is_ok())
        .ok_or(RegionError::TooLong { len })
}
