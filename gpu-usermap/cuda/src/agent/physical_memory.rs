//! Physical GPU memory at addresses of its own: what both ends of shared memory hold.

#![allow(unsafe_code, reason = "maps memory, and gives it back")]

use crate::driver::raw::{CUdevice, CUdeviceptr, MemoryHandle};
use crate::driver::{CudaError, Driver, log};

/// Physical memory, the addresses reserved for it, and whether it is mapped there. Merely dropped,
/// it leaks all three.
#[derive(Debug)]
pub(crate) struct PhysicalMemory {
    handle: MemoryHandle,
    len: usize,
    reserved: Option<CUdeviceptr>,
    mapped: bool,
}

impl PhysicalMemory {
    /// Takes over a handle, which has no address yet.
    pub(crate) fn of(handle: MemoryHandle, len: usize) -> Self {
        Self { handle, len, reserved: None, mapped: false }
    }

    /// Maps the memory and lets the device use it, and returns the address; or undoes what was
    /// done.
    pub(crate) fn map(mut self, driver: &Driver, device: CUdevice) -> Result<(Self, CUdeviceptr), CudaError> {
        match self.try_map(driver, device) {
            Ok(address) => Ok((self, address)),
            Err(error) => {
                self.undo(driver);
                Err(error)
            }
        }
    }

    /// Gives back at once what nobody has been told of.
    ///
    /// It does not wait for kernels: unlike `cuMemFree`, these calls return under a kernel that
    /// fills the GPU (see [the crate](crate#under-a-running-kernel)). If it were put off, a peer
    /// that sends bad lengths could pile up memory of its own here until the launches end.
    pub(crate) fn undo(self, driver: &Driver) {
        // SAFETY: no address of it has left the agent thread.
        log(unsafe { self.release(driver) });
    }

    fn try_map(&mut self, driver: &Driver, device: CUdevice) -> Result<CUdeviceptr, CudaError> {
        // Alignment 0: the driver aligns to its pages.
        let address = driver.address_reserve(self.len, 0)?;
        self.reserved = Some(address);
        // SAFETY: just reserved, so nothing is there; the handle is ours.
        unsafe { driver.memory_map(address, self.len, self.handle) }?;
        self.mapped = true;
        driver.memory_set_access(address, self.len, device)?;
        Ok(address)
    }

    /// Returns the handle, which lives as long as this.
    pub(crate) fn handle(&self) -> MemoryHandle {
        self.handle
    }

    /// Gives back what there is, the last made first. After a failure the rest is leaked: it may
    /// still be in use.
    ///
    /// # Safety
    /// Neither host nor kernels use the memory through these addresses any more.
    pub(crate) unsafe fn release(self, driver: &Driver) -> Result<(), CudaError> {
        if let Some(address) = self.reserved {
            if self.mapped {
                // SAFETY: `try_map` mapped this range, and nobody uses it (the caller's promise).
                unsafe { driver.memory_unmap(address, self.len) }?;
            }
            // SAFETY: `try_map` reserved this range, and nothing is mapped there any more.
            unsafe { driver.address_free(address, self.len) }?;
        }
        // SAFETY: ours, and `self` is consumed.
        unsafe { driver.memory_release(self.handle) }
    }
}
