//! Memory that several devices of a host share, as one of them has it mapped.

use crate::os::descriptors::hint;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{CopyError, Device, GrowingBuffer, ImportedBuffer, Registration, ShareableBuffer};
use gpu_usermap::region::RegionMapping;
use gpunet_abi::Word;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory grows by at least this much: a system call for each small piece would cost more than the
/// pages.
const GROWTH: usize = 64 << 20;

/// Memory in the device's address space.
#[derive(Debug)]
pub(crate) enum MappedMemory {
    /// Of the CPU device. Its descriptor is closed: a team of many members in one process would
    /// have too many.
    Cpu(RegionMapping),
    /// The CPU device's own memory. The number says how many of its first bytes exist.
    Growing(Arc<PinnedRegion>, Mutex<usize>),
    /// Pinned memory as a GPU has it. Its drop waits until no kernel runs.
    Registered(Registration, usize),
    /// This GPU's own memory, which others map. Its drop waits, too.
    Provided(ShareableBuffer),
    /// Another GPU's memory. Its drop waits, too.
    Imported(ImportedBuffer),
    /// Memory of this GPU or of another, which comes piece by piece. Its drop waits, too.
    Pieces(GrowingBuffer),
}

impl MappedMemory {
    /// Maps pinned memory, a sealed memfd, a second time, with a lifetime of its own.
    ///
    /// # Errors
    /// What the system or CUDA says.
    pub(crate) fn pinned(device: Option<&Device>, fd: OwnedFd) -> Result<Self, String> {
        let region = PinnedRegion::from_fd(fd).map_err(|error| error.to_string())?;
        match device {
            Some(device) => Self::registered(device, region),
            None => Self::mapping(region).map(|(memory, _)| memory),
        }
    }

    /// As [`MappedMemory::pinned`], of a region that no other process has yet. Also returns a
    /// descriptor of it.
    ///
    /// # Errors
    /// What the system or CUDA says.
    pub(crate) fn of_region(
        device: Option<&Device>,
        region: Arc<PinnedRegion>,
    ) -> Result<(Self, OwnedFd), String> {
        let Some(device) = device else { return Self::mapping(region) };
        let copied = region.fd().try_clone_to_owned();
        let fd = copied.map_err(|error| format!("{error}{}", hint(&error)))?;
        Ok((Self::registered(device, region)?, fd))
    }

    /// Reserves addresses of the CPU device, and returns them with a descriptor. Almost no memory
    /// exists before [`grow`](Self::grow).
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn growing(name: &str, len: usize) -> Result<(Self, OwnedFd), String> {
        let region = PinnedRegion::create_growing(name, len, 1).map_err(|error| error.to_string())?;
        let copied = region.fd().try_clone_to_owned();
        let fd = copied.map_err(|error| format!("{error}{}", hint(&error)))?;
        Ok((Self::Growing(region, Mutex::new(0)), fd))
    }

    /// Maps memory that another process has made in this way. No agent accesses the part that does
    /// not exist yet.
    ///
    /// # Errors
    /// What the system or CUDA says.
    pub(crate) fn of_growing(device: Option<&Device>, fd: OwnedFd) -> Result<Self, String> {
        let region = PinnedRegion::from_trusted_fd(fd).map_err(|error| error.to_string())?;
        match device {
            // It pins all of it, so that all exists then.
            Some(device) => Self::registered(device, region),
            None => Self::mapping(region).map(|(memory, _)| memory),
        }
    }

    /// Addresses of a GPU to which memory comes in pieces, from this GPU or from another.
    ///
    /// # Errors
    /// What CUDA says.
    pub(crate) fn in_pieces(device: &Device, len: usize) -> Result<Self, String> {
        device.reserve(len).map(Self::Pieces).map_err(|error| error.to_string())
    }

    /// A GPU's memory that comes in pieces.
    pub(crate) const fn pieces(&self) -> Option<&GrowingBuffer> {
        if let Self::Pieces(buffer) = self { Some(buffer) } else { None }
    }

    /// How far memory grows so that its first `len` bytes exist.
    pub(crate) fn grown_for(&self, len: usize) -> usize {
        len.next_multiple_of(GROWTH).min(self.len())
    }

    /// Makes the first `len` bytes exist. Those of memory that does not grow do.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn grow(&self, len: usize) -> Result<(), String> {
        if let Self::Growing(region, grown) = self {
            // Nothing that is done under the lock panics.
            let mut grown = grown.lock().unwrap_or_else(PoisonError::into_inner);
            let to = self.grown_for(len);
            region.grow(*grown, to).map_err(|error| error.to_string())?;
            *grown = to.max(*grown);
        }
        Ok(())
    }

    fn mapping(region: Arc<PinnedRegion>) -> Result<(Self, OwnedFd), String> {
        let (mapping, fd) = PinnedRegion::into_parts(region).ok_or("somebody else has the region")?;
        Ok((Self::Cpu(mapping), fd))
    }

    fn registered(device: &Device, region: Arc<PinnedRegion>) -> Result<Self, String> {
        let len = region.len();
        let registration = device.register(region).map_err(|error| error.to_string())?;
        Ok(Self::Registered(registration, len))
    }

    /// Maps another GPU's memory, which its owner has exported.
    ///
    /// # Errors
    /// What CUDA says.
    pub(crate) fn imported(device: Option<&Device>, fd: OwnedFd, len: u64) -> Result<Self, String> {
        let device = device.ok_or("the CPU device maps no GPU memory")?;
        let buffer = device.import(fd, len as usize).map_err(|error| error.to_string())?;
        Ok(Self::Imported(buffer))
    }

    /// The address in the device's address space.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::Cpu(mapping) => mapping.base().as_ptr() as u64,
            Self::Growing(region, _) => region.base().as_ptr() as u64,
            Self::Registered(registration, _) => registration.device_ptr(),
            Self::Provided(buffer) => buffer.ptr(),
            Self::Imported(buffer) => buffer.ptr(),
            Self::Pieces(buffer) => buffer.ptr(),
        }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Cpu(mapping) => mapping.len(),
            Self::Growing(region, _) => region.len(),
            Self::Registered(_, len) => *len,
            Self::Provided(buffer) => buffer.len(),
            Self::Imported(buffer) => buffer.len(),
            Self::Pieces(buffer) => buffer.len(),
        }
    }

    /// Where this process has pinned memory; `None` for a GPU's.
    fn host(&self) -> Option<*mut u8> {
        match self {
            Self::Cpu(mapping) => Some(mapping.base().as_ptr()),
            Self::Growing(region, _) => Some(region.base().as_ptr()),
            Self::Registered(registration, _) => Some(registration.region().base().as_ptr()),
            Self::Provided(_) | Self::Imported(_) | Self::Pieces(_) => None,
        }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`CopyError`], when CUDA fails.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), CopyError> {
        self.check(offset, bytes.len());
        match self {
            Self::Provided(buffer) => buffer.device().write(buffer.buffer(), offset, bytes),
            Self::Imported(buffer) => buffer.device().write(buffer.buffer(), offset, bytes),
            Self::Pieces(buffer) => buffer.write(offset, bytes),
            Self::Cpu(_) | Self::Growing(..) | Self::Registered(..) => {
                if let Some(base) = self.host() {
                    // SAFETY: inside the mapping (checked), which lives as long as `self`; `bytes`
                    // is the caller's memory and does not overlap it. Others may write there at the
                    // same time: bytes are numbers, whatever comes out.
                    unsafe {
                        base.wrapping_add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
                    };
                }
                Ok(())
            }
        }
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// # Errors
    /// [`CopyError`], when CUDA fails.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), CopyError> {
        self.check(offset, bytes.len());
        match self {
            Self::Provided(buffer) => buffer.device().read(buffer.buffer(), offset, bytes),
            Self::Imported(buffer) => buffer.device().read(buffer.buffer(), offset, bytes),
            Self::Pieces(buffer) => buffer.read(offset, bytes),
            Self::Cpu(_) | Self::Growing(..) | Self::Registered(..) => {
                if let Some(base) = self.host() {
                    let from = base.wrapping_add(offset).cast_const();
                    // SAFETY: as in `write`.
                    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
                }
                Ok(())
            }
        }
    }

    /// The word at `offset`, where this process has pinned memory; `None` for a GPU's.
    ///
    /// # Panics
    /// Panics if the word is not inside the memory, or not aligned.
    pub(crate) fn host_word(&self, offset: u64) -> Option<Word> {
        let at = offset as usize;
        self.check(at, 8);
        assert!(at.is_multiple_of(8), "an unaligned word");
        let base = self.host()?;
        // SAFETY: inside the mapping and aligned (checked); everybody accesses the word atomically.
        // The callers use it while they keep the memory.
        Some(unsafe { Word::from_ptr(base.wrapping_add(at).cast()) })
    }

    /// Publishes a word at `offset`, which this process alone writes. Kernels may be polling it.
    ///
    /// # Errors
    /// [`CopyError`], when CUDA fails.
    ///
    /// # Panics
    /// Panics if the word is not inside the memory, or not aligned.
    pub(crate) fn publish(&self, offset: u64, value: u64) -> Result<(), CopyError> {
        match self.host_word(offset) {
            Some(word) => word.publish(value),
            None => self.write(offset as usize, &value.to_le_bytes())?,
        }
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len()), "outside the memory");
    }
}
