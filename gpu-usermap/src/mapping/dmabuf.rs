//! Mappings by `mmap` of an exported dma-buf.
//!
//! The driver exports the range, the kernel maps the descriptor, and the descriptor is closed: the
//! mapping keeps the dma-buf alive.
//!
//! `DMA_BUF_IOCTL_SYNC`, with which users of dma-bufs bracket CPU accesses, is not called. It is
//! for exporters whose memory the CPU caches without coherence: it runs the exporter's cache
//! maintenance. NVIDIA's exporter has none (its `dma_buf_ops` in open-gpu-kernel-modules name
//! neither `begin_cpu_access` nor `end_cpu_access`), because GPU memory is mapped uncached and
//! write-combining, or coherent; the call would be a trip to the kernel for nothing. What orders
//! accesses are the CPU's fences ([`Mapping`]).

use std::ops::Range;
use std::os::fd::AsFd;

use gpunet_cuda::{Device, DeviceAttribute, DmabufRoute, DriverVersion, GpuBuffer};
use gpunet_region::Pages;
use rustix::param::page_size;

use super::error::MappingUnavailable;
use super::kind::BackendKind;
use super::view::{Mapping, MemoryType, Owner};

/// From this driver on an exported dma-buf can be mapped by the CPU (GDRCopy 2.6's README and
/// `cuda_wrapper.c`); before, `mmap` fails with ENOTSUPP (seen with 13.0).
const NEEDED: DriverVersion = DriverVersion::new(13, 3);

/// Checks that a driver can do it.
pub(super) fn check_version(found: DriverVersion) -> Result<(), MappingUnavailable> {
    if found < NEEDED {
        return Err(MappingUnavailable::DriverTooOld { found, needed: NEEDED });
    }
    Ok(())
}

/// Maps `range` of `buffer`, which the caller checked.
pub(super) fn map(buffer: &GpuBuffer, range: Range<usize>) -> Result<Mapping, MappingUnavailable> {
    let device = buffer.device();
    check_version(device.cuda().driver_version())?;
    let start = range.start;
    let exported =
        buffer.export_dmabuf_range(range, DmabufRoute::Default).map_err(MappingUnavailable::Export)?;
    let pages = map_pages(exported.fd.as_fd(), exported.offset + exported.len)?;
    // The driver decides it and does not tell; this is GDRCopy's rule.
    let memory_type = if is_coherent(device) { MemoryType::Cached } else { MemoryType::WriteCombining };
    let owner =
        Owner { pages, pin: None, buffer: Some(buffer.clone()), kind: BackendKind::DmaBuf, memory_type };
    Ok(Mapping::new(owner, exported.offset, start, exported.len))
}

/// Returns whether CPU and GPU share a coherent link, so that the CPU may cache GPU memory (Grace
/// Hopper).
fn is_coherent(device: &Device) -> bool {
    device.attribute(DeviceAttribute::PageableMemoryAccessUsesHostPageTables).is_ok_and(|value| value != 0)
}

/// Maps the pages that hold the first `len` bytes of a dma-buf.
pub(super) fn map_pages(fd: std::os::fd::BorrowedFd<'_>, len: usize) -> Result<Pages, MappingUnavailable> {
    let len = len.next_multiple_of(page_size());
    Pages::at(fd, 0, len)
        .map_err(|error| MappingUnavailable::Mmap { len, errno: error.raw_os_error().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_driver_13_3() {
        let old = check_version(DriverVersion::new(13, 0)).expect_err("too old");
        assert_eq!(old.to_string(), "the driver is CUDA 13.0, 13.3 is needed");
        assert_eq!(check_version(DriverVersion::new(13, 3)), Ok(()));
        assert_eq!(check_version(DriverVersion::new(14, 0)), Ok(()));
    }
}
