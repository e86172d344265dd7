//! Checks of descriptors before they are used.

use rustix::fs::{FileType, fstat, fstatfs, major};
use std::os::fd::BorrowedFd;

/// `f_type` of a dma-buf ("DMAB").
const DMA_BUF_MAGIC: u64 = 0x444d_4142;
/// The major number of NVIDIA's character devices. Memory that CUDA exports to other processes is a
/// descriptor of one of them.
const NVIDIA_MAJOR: u32 = 195;

/// Returns whether a descriptor is a dma-buf.
pub(crate) fn is_dma_buf(fd: BorrowedFd<'_>) -> bool {
    fstatfs(fd).is_ok_and(|stat| stat.f_type as u64 & 0xffff_ffff == DMA_BUF_MAGIC)
}

/// Returns whether a descriptor can be GPU memory that CUDA exported.
pub(crate) fn is_gpu_export(fd: BorrowedFd<'_>) -> bool {
    fstat(fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && major(stat.st_rdev) == NVIDIA_MAJOR
    })
}
