//! GPU memory: allocation and copies.

use std::sync::Arc;

use crate::agent::{CHUNK, Release, check_bounds};
use crate::device::Device;
use crate::driver::{CopyError, CudaError};

/// A piece of GPU memory.
///
/// Clones share it. The last drop returns at once; the memory is freed when no launch of the device
/// runs.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// let buffer = gpu.alloc(4096)?;
/// let mut bytes = [1; 16];
/// gpu.read(&buffer, 0, &mut bytes)?;
/// assert_eq!(bytes, [0; 16], "new memory is zeroed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct GpuBuffer {
    inner: Arc<BufferInner>,
}

#[derive(Debug)]
struct BufferInner {
    device: Device,
    address: u64,
    len: usize,
    /// What the last drop leaves to the agent; `None` only during that drop.
    release: Option<Release>,
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            self.device.agent().release(release);
        }
    }
}

impl Device {
    /// Allocates `len` bytes of GPU memory, all zero.
    ///
    /// The driver aligns small allocations to 256 bytes and packs them together; one that is to be
    /// exported as a dma-buf should be a multiple of 2 MiB, the GPU's page size.
    ///
    /// # Errors
    /// [`CudaError`]: out of memory, a length of 0, or a context that a kernel broke.
    pub fn alloc(&self, len: usize) -> Result<GpuBuffer, CudaError> {
        // Owned before it is zeroed: a failure gives it back.
        let buffer = self.alloc_uninit(len)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// As [`alloc`](Self::alloc), but the memory has any bytes: those of an earlier buffer of this
    /// program, too. For memory all of which is written before anybody reads it.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_uninit(&self, len: usize) -> Result<GpuBuffer, CudaError> {
        let address = self.agent().run(move |context| context.driver().mem_alloc(len))??;
        Ok(GpuBuffer::own(self.clone(), address, len, Release::Memory(address)))
    }

    /// Copies `bytes` into a buffer. Blocks until they are there.
    ///
    /// The copy engine does it, also while kernels run; a kernel that reads the range meanwhile
    /// sees any mixture of old and new bytes.
    ///
    /// # Errors
    /// [`CopyError::OutOfBounds`] and [`CopyError::OtherDevice`] are mistakes of the caller and
    /// copy nothing; [`CopyError::Cuda`] comes from the driver and leaves the range undefined.
    pub fn write(&self, buffer: &GpuBuffer, offset: usize, bytes: &[u8]) -> Result<(), CopyError> {
        let address = self.checked(buffer, offset, bytes.len())?;
        self.write_at(address, bytes)
    }

    /// Copies from a buffer into `bytes`. Blocks until they are here.
    ///
    /// It works while kernels run; if one writes the range meanwhile, `bytes` are any mixture of
    /// old and new.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, buffer: &GpuBuffer, offset: usize, bytes: &mut [u8]) -> Result<(), CopyError> {
        let address = self.checked(buffer, offset, bytes.len())?;
        self.read_at(address, bytes)
    }

    /// Reads from checked memory, whose owner the caller holds.
    pub(crate) fn read_at(&self, mut address: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        for chunk in bytes.chunks_mut(CHUNK) {
            let (from, len) = (address, chunk.len());
            let read = self.agent().run(move |context| {
                let (driver, copies) = context.copying();
                copies.read(driver, from, len)
            })??;
            chunk.copy_from_slice(&read);
            address += len as u64;
        }
        Ok(())
    }

    /// Writes to checked memory, whose owner the caller holds.
    pub(crate) fn write_at(&self, mut address: u64, bytes: &[u8]) -> Result<(), CopyError> {
        for chunk in bytes.chunks(CHUNK) {
            let (to, chunk) = (address, chunk.to_vec());
            address += chunk.len() as u64;
            self.agent().run(move |context| {
                let (driver, copies) = context.copying();
                copies.write(driver, to, &chunk)
            })??;
        }
        Ok(())
    }

    fn checked(&self, buffer: &GpuBuffer, offset: usize, len: usize) -> Result<u64, CopyError> {
        if !self.is(buffer.device()) {
            return Err(CopyError::OtherDevice);
        }
        check_bounds(offset, len, buffer.len())?;
        Ok(buffer.ptr() + offset as u64)
    }
}

impl GpuBuffer {
    /// Takes `len` bytes at `address`, which `release` gives back.
    pub(crate) fn own(device: Device, address: u64, len: usize, release: Release) -> Self {
        Self { inner: Arc::new(BufferInner { device, address, len, release: Some(release) }) }
    }

    /// Fills the memory with zeros, and returns when they are there.
    pub(crate) fn zero(&self) -> Result<(), CudaError> {
        let (address, len) = (self.ptr(), self.len());
        self.device().agent().run(move |context| {
            let (driver, copies) = context.copying();
            copies.zero(driver, address, len)
        })?
    }

    /// Returns the GPU's address of the first byte.
    pub fn ptr(&self) -> u64 {
        self.inner.address
    }

    /// Returns the length in bytes, never 0.
    #[allow(clippy::len_without_is_empty, reason = "the driver allocates no empty buffer")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Returns the device that the memory is on.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_include_the_end_and_survive_overflow() {
        assert_eq!(check_bounds(0, 10, 10), Ok(()));
        assert_eq!(check_bounds(10, 0, 10), Ok(()));
        for (offset, len) in [(0, 11), (10, 1), (11, 0), (usize::MAX, 2), (2, usize::MAX)] {
            assert_eq!(check_bounds(offset, len, 10), Err(CopyError::OutOfBounds { offset, len, size: 10 }));
        }
    }
}
