//! Physical GPU memory and the addresses where it is mapped: what both ends of shared memory hold.

#![allow(unsafe_code, reason = "maps memory, and gives it back")]

use crate::driver::raw::constants::ERROR_INVALID_VALUE;
use crate::driver::raw::{CUdevice, CUdeviceptr, MemoryHandle};
use crate::driver::{CudaError, Driver, log};

/// Physical memory, the addresses reserved for it alone, and where it is mapped. Merely dropped, it
/// leaks all three.
#[derive(Debug)]
pub(crate) struct PhysicalMemory {
    handle: MemoryHandle,
    len: usize,
    reserved: Option<CUdeviceptr>,
    mapped: Option<CUdeviceptr>,
}

impl PhysicalMemory {
    /// Takes over a handle, which has no address yet.
    pub(crate) fn of(handle: MemoryHandle, len: usize) -> Self {
        Self { handle, len, reserved: None, mapped: None }
    }

    /// Maps the memory at addresses of its own and lets the device use it, and returns the address;
    /// or undoes what was done.
    pub(crate) fn map(mut self, driver: &Driver, device: CUdevice) -> Result<(Self, CUdeviceptr), CudaError> {
        // Alignment 0: the driver aligns to its pages.
        let mapped = driver.address_reserve(self.len, 0).and_then(|address| {
            self.reserved = Some(address);
            // SAFETY: just reserved, so nothing is there.
            unsafe { self.try_map(driver, device, address) }.map(|()| address)
        });
        match mapped {
            Ok(address) => Ok((self, address)),
            Err(error) => {
                self.undo(driver);
                Err(error)
            }
        }
    }

    /// The same, at addresses that are reserved.
    ///
    /// # Safety
    /// They are, and nothing is mapped there.
    pub(crate) unsafe fn map_at(
        mut self,
        driver: &Driver,
        device: CUdevice,
        address: CUdeviceptr,
    ) -> Result<Self, CudaError> {
        // SAFETY: the caller's promise.
        match unsafe { self.try_map(driver, device, address) } {
            Ok(()) => Ok(self),
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
        // SAFETY: nobody was told that there is memory at its addresses.
        log(unsafe { self.release(driver) });
    }

    /// # Safety
    /// The addresses are reserved, and nothing is mapped there.
    unsafe fn try_map(
        &mut self,
        driver: &Driver,
        device: CUdevice,
        address: CUdeviceptr,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; the handle is ours.
        unsafe { driver.memory_map(address, self.len, self.handle) }?;
        self.mapped = Some(address);
        driver.memory_set_access(address, self.len, device)
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
        if let Some(address) = self.mapped {
            // SAFETY: `try_map` mapped this range, and nobody uses it (the caller's promise).
            unsafe { driver.memory_unmap(address, self.len) }?;
        }
        if let Some(address) = self.reserved {
            // SAFETY: `map` reserved this range, and nothing is mapped there any more.
            unsafe { driver.address_free(address, self.len) }?;
        }
        // SAFETY: ours, and `self` is consumed.
        unsafe { driver.memory_release(self.handle) }
    }
}

/// Reserved addresses, of which the first have memory: pieces, one behind the other. Merely
/// dropped, it leaks all.
#[derive(Debug)]
pub(crate) struct AddressRange {
    address: CUdeviceptr,
    len: usize,
    pieces: Vec<PhysicalMemory>,
}

impl AddressRange {
    /// Reserves addresses that have no memory.
    pub(crate) fn reserve(driver: &Driver, len: usize) -> Result<Self, CudaError> {
        Ok(Self { address: driver.address_reserve(len, 0)?, len, pieces: Vec::new() })
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of the first bytes have memory.
    pub(crate) fn mapped_len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Maps memory behind what there is, and lets the device use it; or gives it back, also where
    /// no addresses are left for it. Returns its address.
    pub(crate) fn append(
        &mut self,
        driver: &Driver,
        device: CUdevice,
        memory: PhysicalMemory,
    ) -> Result<CUdeviceptr, CudaError> {
        let end = self.mapped_len();
        if memory.len > self.len - end {
            // The driver might find the addresses behind the range reserved, by another.
            memory.undo(driver);
            return Err(driver.error("cuMemMap beyond the range", ERROR_INVALID_VALUE));
        }
        let address = self.address + end as CUdeviceptr;
        // SAFETY: of the range, which is reserved, behind the last piece (checked).
        self.pieces.push(unsafe { memory.map_at(driver, device, address) }?);
        Ok(address)
    }

    /// Gives back at once the pieces that begin at `len` or behind it, of which nobody was told.
    pub(crate) fn truncate(&mut self, driver: &Driver, len: usize) {
        while self.pieces.last().is_some_and(|last| self.mapped_len() - last.len >= len)
            && let Some(last) = self.pieces.pop()
        {
            last.undo(driver);
        }
    }

    /// Gives all back, as [`PhysicalMemory::release`].
    ///
    /// # Safety
    /// Neither host nor kernels use memory through these addresses any more.
    pub(crate) unsafe fn release(self, driver: &Driver) -> Result<(), CudaError> {
        for piece in self.pieces.into_iter().rev() {
            // SAFETY: the caller's promise.
            unsafe { piece.release(driver) }?;
        }
        // SAFETY: `reserve` reserved this range, and nothing is mapped there any more.
        unsafe { driver.address_free(self.address, self.len) }
    }
}
