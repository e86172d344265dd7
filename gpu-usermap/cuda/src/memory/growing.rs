//! Addresses of a GPU to which shareable memory comes piece by piece.

#![allow(unsafe_code, reason = "exports a live handle")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::dmabuf::owned;
use super::import::{ImportError, take};
use super::shareable::create;
use crate::agent::{AddressRange, Context, Release, check_bounds};
use crate::device::Device;
use crate::driver::raw::AllocationProperties;
use crate::driver::{CopyError, CudaError};

/// A run of a GPU's addresses of which only the first have memory: it comes in pieces, which can be
/// exported, or come from another process or another GPU.
///
/// Kernels may use the pieces that are there while more come. Its drop returns at once; the memory
/// is unmapped when no launch of the device runs.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::Cuda;
///
/// let cuda = Cuda::load()?;
/// let (owner, user) = (cuda.device(0)?, cuda.device(1)?);
/// let (heap, its) = (owner.reserve(1 << 30)?, user.reserve(1 << 30)?); // takes no memory
/// its.append_imported(heap.append(64 << 20)?, 64 << 20)?;
/// assert_eq!((heap.mapped_len(), its.mapped_len()), (64 << 20, 64 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GrowingBuffer {
    device: Device,
    address: u64,
    len: usize,
    /// `None` only during the drop.
    range: Option<Arc<Mutex<AddressRange>>>,
}

impl Device {
    /// Reserves at least `len` bytes of addresses, which have no memory before
    /// [`GrowingBuffer::append`]. `len` is rounded up to whole pages of the GPU.
    ///
    /// # Errors
    /// [`CudaError`]: a length of 0, a GPU that cannot share ([`can_share`](Self::can_share)), or a
    /// context that a kernel broke.
    pub fn reserve(&self, len: usize) -> Result<GrowingBuffer, CudaError> {
        let range = self.agent().run(move |context| {
            let properties = AllocationProperties::shareable(context.device(), false);
            let granularity = context.driver().memory_granularity(&properties)?;
            let len = len.checked_next_multiple_of(granularity).unwrap_or(usize::MAX);
            AddressRange::reserve(context.driver(), len)
        })??;
        let (device, address, len) = (self.clone(), range.address(), range.len());
        Ok(GrowingBuffer { device, address, len, range: Some(Arc::new(Mutex::new(range))) })
    }
}

fn lock(range: &Mutex<AddressRange>) -> MutexGuard<'_, AddressRange> {
    // What panics under the lock panics before it has changed anything.
    range.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GrowingBuffer {
    /// Adds `len` bytes of this GPU's memory, all zero. Returns a descriptor of it, as
    /// [`ShareableBuffer::export`](crate::ShareableBuffer::export) does.
    ///
    /// # Errors
    /// [`CudaError`]: out of memory, a length of 0 or one that is no multiple of a page, not so
    /// many addresses left, no descriptor free, or a context that a kernel broke. Nothing was added
    /// then.
    pub fn append(&self, len: usize) -> Result<OwnedFd, CudaError> {
        let rdma = self.device.shareable_is_for_network_cards();
        self.change(move |range, context| {
            let before = range.mapped_len();
            let memory = create(context.driver(), context.device(), len, rdma)?;
            let handle = memory.handle();
            let address = range.append(context.driver(), context.device(), memory)?;
            // SAFETY: the range has the handle.
            let exported = unsafe { context.driver().memory_export(handle) }.map(owned);
            let (driver, copies) = context.copying();
            // The driver does not promise that the last owner's bytes are gone.
            let ready = exported.and_then(|fd| copies.zero(driver, address, len).map(|()| fd));
            ready.inspect_err(|_| range.truncate(driver, before))
        })?
    }

    /// Adds memory that was exported, as [`Device::import`] maps it; with the same promises.
    ///
    /// # Errors
    /// [`ImportError`]; also where not so many addresses are left. Nothing was added then.
    pub fn append_imported(&self, fd: OwnedFd, len: usize) -> Result<(), ImportError> {
        self.device.export_check().check(fd.as_fd())?;
        // The descriptor comes back, to be closed here, as in `Device::import`.
        let (_fd, added) = self.change(move |range, context| {
            let added = take(context, fd.as_fd(), len).and_then(|(memory, _)| {
                range.append(context.driver(), context.device(), memory).map_err(ImportError::from)
            });
            (fd, added)
        })?;
        added.map(drop)
    }

    /// Takes the pieces away again that begin at `len` or behind it, and which nobody has used.
    ///
    /// It does not wait for kernels, nor for launches to end.
    ///
    /// # Errors
    /// [`CudaError`]: the context is broken.
    pub fn truncate(&self, len: usize) -> Result<(), CudaError> {
        self.change(move |range, context| range.truncate(context.driver(), len))
    }

    /// Runs `change` on the agent thread.
    fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut AddressRange, &mut Context) -> R + Send + 'static,
    ) -> Result<R, CudaError> {
        let range = self.shared().clone();
        self.device.agent().run(move |context| change(&mut lock(&range), context))
    }

    fn shared(&self) -> &Arc<Mutex<AddressRange>> {
        self.range.as_ref().expect("it is there before the drop")
    }

    /// Returns the GPU's address of the first byte.
    pub fn ptr(&self) -> u64 {
        self.address
    }

    /// Returns the number of addresses: what was asked for, rounded up.
    #[allow(clippy::len_without_is_empty, reason = "the driver reserves no empty range")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns how many bytes have memory, from the first on.
    pub fn mapped_len(&self) -> usize {
        lock(self.shared()).mapped_len()
    }

    /// Returns the device whose kernels may use it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Copies `bytes` to `offset`, as [`Device::write`].
    ///
    /// # Errors
    /// [`CopyError`]; [`CopyError::OutOfBounds`] also where there is no memory yet.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), CopyError> {
        check_bounds(offset, bytes.len(), self.mapped_len())?;
        self.device.write_at(self.address + offset as u64, bytes)
    }

    /// Copies from `offset` into `bytes`, as [`Device::read`].
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), CopyError> {
        check_bounds(offset, bytes.len(), self.mapped_len())?;
        self.device.read_at(self.address + offset as u64, bytes)
    }
}

impl Drop for GrowingBuffer {
    fn drop(&mut self) {
        // No job of the agent has it any more: each was waited for.
        if let Some(range) = self.range.take().and_then(Arc::into_inner) {
            let range = range.into_inner().unwrap_or_else(PoisonError::into_inner);
            self.device.agent().release(Release::AddressRange(range));
        }
    }
}
