//! GPU memory: allocation, copies, export.

#![allow(unsafe_code, reason = "takes ownership of an exported descriptor")]

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use super::copies::CHUNK;
use super::device::{Device, DeviceAttribute};
use super::error::CudaError;
use super::release::Release;

/// Owns a piece of GPU memory.
///
/// Clones share it. The last drop returns at once; the memory is freed when no launch of the device runs.
#[derive(Debug, Clone)]
pub struct GpuBuffer {
    inner: Arc<BufferInner>,
}

#[derive(Debug)]
struct BufferInner {
    device: Device,
    address: u64,
    len: usize,
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        self.device.agent().release(Release::Memory(self.address));
    }
}

/// Says why a copy was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The range is not within the memory.
    #[error("bytes {offset}..+{len} are not within the {size} bytes of the memory")]
    OutOfBounds {
        /// Where the copy was to start.
        offset: usize,
        /// How many bytes were to be copied.
        len: usize,
        /// The size of the memory.
        size: usize,
    },
    /// The memory belongs to another device handle.
    #[error("the memory belongs to another device than the one asked to copy")]
    OtherDevice,
    /// The module has no such global, or not with this name.
    #[error(transparent)]
    Symbol(#[from] super::module::SymbolError),
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Says why GPU memory could not be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmabufError {
    /// The driver has no dma-buf export (older than 11.7).
    #[error("the CUDA driver {version} has no dma-buf export (11.7 is needed)")]
    DriverTooOld {
        /// The driver's version.
        version: super::DriverVersion,
    },
    /// The device reports that it does not support it, e.g. because the proprietary kernel module is loaded.
    #[error("the device does not support dma-buf export (it needs the open GPU kernel modules)")]
    Unsupported,
    /// A dma-buf holds whole pages, and the buffer is none.
    #[error(
        "the buffer of {len} bytes at {address:#x} is not whole pages of {page} bytes; allocate a multiple of 2 MiB to export"
    )]
    NotWholePages {
        /// Address of the buffer.
        address: u64,
        /// Length of the buffer.
        len: usize,
        /// The host's page size.
        page: usize,
    },
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl Device {
    /// Allocates `len` bytes of GPU memory, all zero.
    ///
    /// The driver aligns small allocations to 256 bytes and packs them together; one that is to be exported as a dma-buf should be a
    /// multiple of 2 MiB, the GPU's page size.
    ///
    /// # Errors
    /// [`CudaError`]: out of memory, a length of 0, or a context that a kernel broke.
    pub fn alloc(&self, len: usize) -> Result<GpuBuffer, CudaError> {
        let address = self.agent().run(move |context| context.driver().mem_alloc(len))??;
        // Owned before it is zeroed: a failure gives it back.
        let buffer = GpuBuffer { inner: Arc::new(BufferInner { device: self.clone(), address, len }) };
        self.agent().run(move |context| {
            let (driver, copies) = context.copying();
            copies.zero(driver, address, len)
        })??;
        Ok(buffer)
    }

    /// Copies `bytes` into a buffer, and returns when they are there.
    ///
    /// It goes through the copy engine and works while kernels run; a kernel that reads the range meanwhile sees old and new bytes
    /// in any mixture.
    ///
    /// # Errors
    /// [`CopyError::OutOfBounds`] and [`CopyError::OtherDevice`] are misuse and copy nothing; [`CopyError::Cuda`] comes from
    /// the driver and leaves the range undefined.
    pub fn write(&self, buffer: &GpuBuffer, offset: usize, bytes: &[u8]) -> Result<(), CopyError> {
        let address = self.checked(buffer, offset, bytes.len())?;
        self.write_at(address, bytes)
    }

    /// Copies from a buffer into `bytes`, and returns when they are here.
    ///
    /// It works while kernels run; what one writes meanwhile is seen in any mixture.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, buffer: &GpuBuffer, offset: usize, bytes: &mut [u8]) -> Result<(), CopyError> {
        let mut address = self.checked(buffer, offset, bytes.len())?;
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
    pub(super) fn write_at(&self, mut address: u64, bytes: &[u8]) -> Result<(), CopyError> {
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

/// Checks that `offset..offset + len` lies within `size` bytes.
pub(super) fn check_bounds(offset: usize, len: usize, size: usize) -> Result<(), CopyError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(CopyError::OutOfBounds { offset, len, size }),
    }
}

impl GpuBuffer {
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

    /// Exports the memory as a dma-buf, which a network card's driver can register.
    ///
    /// The descriptor keeps the physical memory alive; keep the buffer as well, for as long as a card may write to it, so that the
    /// address range stays its own.
    ///
    /// # Errors
    /// [`DmabufError`]: the driver or the device cannot, or the buffer is not whole pages.
    pub fn export_dmabuf(&self) -> Result<OwnedFd, DmabufError> {
        let (device, address, len) = (&self.inner.device, self.inner.address, self.inner.len);
        let too_old = || DmabufError::DriverTooOld { version: device.cuda().driver_version() };
        if !device.cuda().driver().exports_dmabuf() {
            return Err(too_old());
        }
        if device.attribute(DeviceAttribute::DmaBuf)? == 0 {
            return Err(DmabufError::Unsupported);
        }
        let page = crate::region::page_size();
        if !len.is_multiple_of(page) || !address.is_multiple_of(page as u64) {
            return Err(DmabufError::NotWholePages { address, len, page });
        }
        let fd = device
            .agent()
            .run(move |context| context.driver().dmabuf_fd(address, len))?
            .ok_or_else(too_old)??;
        // SAFETY: the driver made this descriptor for us, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // A child process has no business with GPU memory. A failure leaves a working descriptor.
        // SAFETY: F_SETFD takes an integer.
        unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(fd)
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
