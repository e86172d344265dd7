//! GPU memory as a dma-buf: a descriptor that other drivers take.

#![allow(unsafe_code, reason = "takes ownership of an exported descriptor")]

use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::buffer::GpuBuffer;
use crate::device::DeviceAttribute;
use crate::driver::raw::constants::{
    ERROR_INVALID_VALUE, ERROR_NOT_SUPPORTED, RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE,
};
use crate::driver::{CudaError, DriverVersion};

/// GPU memory that other drivers can reach: a network card's (`ibv_reg_dmabuf_mr`), or the kernel's
/// `mmap`.
///
/// A dma-buf holds whole host pages, so it may begin before the bytes that were asked for and end
/// after them. What else lies in those pages belongs to other buffers: register and map `len` bytes
/// from `offset`, and nothing else.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// let buffer = gpu.alloc(2 << 20)?;
/// let dmabuf = buffer.export_dmabuf()?;
/// println!("register {} bytes from {} of {:?}", dmabuf.len, dmabuf.offset, dmabuf.fd);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DmaBuf {
    /// The descriptor. It keeps the physical memory alive, but not the GPU's addresses of it: keep
    /// the buffer as well.
    pub fd: OwnedFd,
    /// Where in the dma-buf the bytes begin, in bytes; less than a host page.
    pub offset: usize,
    /// How many bytes were asked for.
    pub len: usize,
}

/// The hardware path over which the users of a dma-buf reach the GPU.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{DmabufError, DmabufRoute};
///
/// # let buffer = gpunet_cuda::Cuda::load()?.device(0)?.alloc(2 << 20)?;
/// let dmabuf = match buffer.export_dmabuf_range(0..1 << 20, DmabufRoute::Pcie) {
///     Err(DmabufError::RouteUnsupported) => buffer.export_dmabuf_range(0..1 << 20, DmabufRoute::Default)?,
///     exported => exported?,
/// };
/// # drop(dmabuf);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DmabufRoute {
    /// The driver's choice: PCIe, except on machines where CPU and GPU share a coherent link (Grace
    /// Hopper).
    #[default]
    Default,
    /// PCIe also there (`CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`, CUDA 12.8). Machines without
    /// a choice refuse it: an H200 behind PCIe answers `CUDA_ERROR_NOT_SUPPORTED`.
    Pcie,
}

/// Why GPU memory could not be exported.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::DmabufError;
///
/// # let buffer = gpunet_cuda::Cuda::load()?.device(0)?.alloc(2 << 20)?;
/// match buffer.export_dmabuf() {
///     Err(DmabufError::Unsupported) => println!("load the open GPU kernel modules"),
///     exported => drop(exported?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmabufError {
    /// The driver has no dma-buf export (older than 11.7).
    #[error("the CUDA driver {version} has no dma-buf export (11.7 is needed)")]
    DriverTooOld {
        /// The driver's version.
        version: DriverVersion,
    },
    /// The device reports that it does not support it, e.g. because the proprietary kernel module
    /// is loaded.
    #[error("the device does not support dma-buf export (it needs the open GPU kernel modules)")]
    Unsupported,
    /// The machine has no second path to the GPU that could be chosen.
    #[error("the device does not offer a choice of the path (only coherent machines do)")]
    RouteUnsupported,
    /// A dma-buf holds whole pages, the bytes are none, and the driver does not export what else
    /// lies in their pages.
    #[error(
        "the {len} bytes at {address:#x} are not whole pages of {page} bytes; allocate a multiple of 2 MiB to export"
    )]
    NotWholePages {
        /// Address of the bytes.
        address: u64,
        /// How many they are.
        len: usize,
        /// The host's page size.
        page: usize,
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
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl GpuBuffer {
    /// Exports the memory as a dma-buf, which a network card's driver can register.
    ///
    /// Keep the buffer for as long as a card may write to it, so that the address range stays its
    /// own. A buffer of a multiple of 2 MiB has its pages to itself.
    ///
    /// # Errors
    /// [`DmabufError`]: the driver or the device cannot, or the driver does not export partial
    /// pages.
    pub fn export_dmabuf(&self) -> Result<DmaBuf, DmabufError> {
        self.export_dmabuf_range(0..self.len(), DmabufRoute::Default)
    }

    /// Exports a part of the memory, given in bytes from its start, over a chosen path.
    ///
    /// # Errors
    /// As [`export_dmabuf`](Self::export_dmabuf); [`DmabufError::OutOfBounds`] and
    /// [`DmabufError::RouteUnsupported`] besides.
    pub fn export_dmabuf_range(
        &self,
        range: Range<usize>,
        route: DmabufRoute,
    ) -> Result<DmaBuf, DmabufError> {
        let Range { start, end } = range;
        if start >= end || end > self.len() {
            return Err(DmabufError::OutOfBounds { start, end, size: self.len() });
        }
        let device = self.device();
        let too_old = || DmabufError::DriverTooOld { version: device.cuda().driver_version() };
        if !device.cuda().driver().exports_dmabuf() {
            return Err(too_old());
        }
        if device.attribute(DeviceAttribute::DmaBuf)? == 0 {
            return Err(DmabufError::Unsupported);
        }
        let (address, len, page) = (self.ptr() + start as u64, end - start, rustix::param::page_size());
        let (from, offset, whole) = whole_pages(address, len, page);
        let flags = match route {
            DmabufRoute::Default => 0,
            DmabufRoute::Pcie => RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE,
        };
        let exported = device
            .agent()
            .run(move |context| context.driver().dmabuf_fd(from, whole, flags))?
            .ok_or_else(too_old)?;
        match exported {
            Ok(fd) => Ok(DmaBuf { fd: owned(fd), offset, len }),
            Err(error) if error.code == ERROR_INVALID_VALUE && whole != len => {
                Err(DmabufError::NotWholePages { address, len, page })
            }
            Err(error) if error.code == ERROR_NOT_SUPPORTED && route == DmabufRoute::Pcie => {
                Err(DmabufError::RouteUnsupported)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Rounds a range outwards: the first page's address, the range's offset in it, and the length of
/// all pages.
fn whole_pages(address: u64, len: usize, page: usize) -> (u64, usize, usize) {
    let from = address - address % page as u64;
    let offset = (address - from) as usize;
    (from, offset, (offset + len).next_multiple_of(page))
}

/// Takes a descriptor that the driver just made, and has it closed on exec.
pub(crate) fn owned(fd: std::ffi::c_int) -> OwnedFd {
    // SAFETY: the driver made this descriptor for us, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // A child process has no business with GPU memory. A failure leaves a working descriptor.
    // SAFETY: F_SETFD takes an integer.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    fd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_rounded_outwards_to_pages() {
        assert_eq!(whole_pages(0x20_0000, 0x20_0000, 4096), (0x20_0000, 0, 0x20_0000));
        assert_eq!(whole_pages(0x20_0100, 256, 4096), (0x20_0000, 0x100, 4096));
        assert_eq!(whole_pages(0x20_0ff8, 16, 4096), (0x20_0000, 0xff8, 8192));
        assert_eq!(whole_pages(0x20_1000, 1, 65536), (0x20_0000, 0x1000, 65536));
    }
}
