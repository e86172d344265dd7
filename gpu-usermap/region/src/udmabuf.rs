//! A region as a dma-buf, by the kernel's udmabuf device.

#![allow(unsafe_code, reason = "one ioctl, and the descriptor it returns")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::pinned::PinnedRegion;

/// `struct udmabuf_create` of linux/udmabuf.h.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `UDMABUF_CREATE`: `_IOW('u', 0x42, struct udmabuf_create)`.
const CREATE: libc::Ioctl = 0x4018_7542;
/// `UDMABUF_FLAGS_CLOEXEC`.
const CLOEXEC: u32 = 1;

impl PinnedRegion {
    /// Exports the region as a dma-buf. It stands for GPU memory on machines without a GPU: drivers
    /// take it the same way.
    ///
    /// # Errors
    /// No `/dev/udmabuf` (Linux 4.20 with CONFIG_UDMABUF, as root or in group kvm); EINVAL also for
    /// more than the module's `size_limit_mb` (64 MiB by default).
    ///
    /// # Examples
    /// ```no_run
    /// let region = gpunet_region::PinnedRegion::create("rings", 2 << 20)?;
    /// let dmabuf = region.export_dmabuf()?;
    /// # drop(dmabuf);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn export_dmabuf(&self) -> io::Result<OwnedFd> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/udmabuf")?;
        let memfd = self.fd().as_raw_fd().cast_unsigned();
        let create = Create { memfd, flags: CLOEXEC, offset: 0, size: self.len() as u64 };
        // SAFETY: the structure of this call, which it only reads.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), CREATE, &raw const create) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made by the call, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
