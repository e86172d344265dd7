//! Driver calls about memory whose physical part and whose addresses are separate, and which can be
//! shared.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::Driver;
use crate::driver::error::CudaError;
use crate::driver::raw::constants::{
    ALLOCATION_GRANULARITY_MINIMUM, ERROR_NOT_SUPPORTED, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
};
use crate::driver::raw::{AccessDescriptor, AllocationProperties, CUdevice, CUdeviceptr, MemoryHandle};

impl Driver {
    /// Returns the first of these calls that the driver lacks.
    pub(crate) fn missing_virtual_memory_call(&self) -> Option<&'static str> {
        let api = &self.api;
        [
            ("cuMemCreate", api.mem_create.is_some()),
            ("cuMemRelease", api.mem_release.is_some()),
            ("cuMemAddressReserve", api.mem_address_reserve.is_some()),
            ("cuMemAddressFree", api.mem_address_free.is_some()),
            ("cuMemMap", api.mem_map.is_some()),
            ("cuMemUnmap", api.mem_unmap.is_some()),
            ("cuMemSetAccess", api.mem_set_access.is_some()),
            ("cuMemExportToShareableHandle", api.mem_export.is_some()),
            ("cuMemImportFromShareableHandle", api.mem_import.is_some()),
            ("cuMemGetAllocationGranularity", api.mem_granularity.is_some()),
            ("cuMemGetAllocationPropertiesFromHandle", api.mem_properties.is_some()),
        ]
        .into_iter()
        .find_map(|(call, there)| (!there).then_some(call))
    }

    /// The device that every exported descriptor is open on.
    pub(crate) const fn exported(&self) -> &'static CStr {
        self.api.exported
    }

    pub(super) fn have<F>(&self, call: &'static str, function: Option<F>) -> Result<F, CudaError> {
        function.ok_or_else(|| self.error(call, ERROR_NOT_SUPPORTED))
    }

    /// Returns what sizes of such memory must be a multiple of, in bytes.
    pub(crate) fn memory_granularity(&self, properties: &AllocationProperties) -> Result<usize, CudaError> {
        let call = "cuMemGetAllocationGranularity";
        let get = self.have(call, self.api.mem_granularity)?;
        let mut bytes: usize = 0;
        // SAFETY: reads the structure and writes one size_t.
        self.check(call, unsafe { get(&mut bytes, properties, ALLOCATION_GRANULARITY_MINIMUM) })?;
        // A granularity of 0 would be a fault of the driver; sizes are divided by it.
        if bytes == 0 { Err(self.error(call, super::SUCCESS)) } else { Ok(bytes) }
    }

    /// Allocates physical memory, which has no address yet.
    pub(crate) fn memory_create(
        &self,
        len: usize,
        properties: &AllocationProperties,
    ) -> Result<MemoryHandle, CudaError> {
        let call = "cuMemCreate";
        let create = self.have(call, self.api.mem_create)?;
        let mut handle = MemoryHandle(0);
        // SAFETY: reads the structure and writes one handle; a length that is no multiple or too
        // much is an error.
        self.check(call, unsafe { create(&mut handle, len, properties, 0) })?;
        Ok(handle)
    }

    /// Gives a handle up. Its memory stays while it is mapped, here or in other processes.
    ///
    /// # Safety
    /// `handle` came from [`memory_create`](Self::memory_create) or
    /// [`memory_import`](Self::memory_import), and is not used afterwards.
    pub(crate) unsafe fn memory_release(&self, handle: MemoryHandle) -> Result<(), CudaError> {
        let call = "cuMemRelease";
        let release = self.have(call, self.api.mem_release)?;
        // SAFETY: the caller's promise.
        self.check(call, unsafe { release(handle) })
    }

    /// Reserves `len` bytes of the process's addresses, at a multiple of `alignment`.
    pub(crate) fn address_reserve(&self, len: usize, alignment: usize) -> Result<CUdeviceptr, CudaError> {
        let call = "cuMemAddressReserve";
        let reserve = self.have(call, self.api.mem_address_reserve)?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; the driver picks it, and checks the numbers.
        self.check(call, unsafe { reserve(&mut address, len, alignment, 0, 0) })?;
        Ok(address)
    }

    /// # Safety
    /// The range is what one [`address_reserve`](Self::address_reserve) returned, nothing is mapped
    /// there, and nothing uses it afterwards.
    pub(crate) unsafe fn address_free(&self, address: CUdeviceptr, len: usize) -> Result<(), CudaError> {
        let call = "cuMemAddressFree";
        let free = self.have(call, self.api.mem_address_free)?;
        // SAFETY: the caller's promise.
        self.check(call, unsafe { free(address, len) })
    }

    /// Maps the first `len` bytes of memory. No device may access them yet.
    ///
    /// # Safety
    /// The range is reserved and nothing is mapped there; `handle` is live.
    pub(crate) unsafe fn memory_map(
        &self,
        address: CUdeviceptr,
        len: usize,
        handle: MemoryHandle,
    ) -> Result<(), CudaError> {
        let call = "cuMemMap";
        let map = self.have(call, self.api.mem_map)?;
        // SAFETY: the caller's promise; the driver checks `len` against the memory's size.
        self.check(call, unsafe { map(address, len, 0, handle, 0) })
    }

    /// # Safety
    /// The range is what one [`memory_map`](Self::memory_map) mapped, and neither host nor kernels
    /// use it afterwards.
    pub(crate) unsafe fn memory_unmap(&self, address: CUdeviceptr, len: usize) -> Result<(), CudaError> {
        let call = "cuMemUnmap";
        let unmap = self.have(call, self.api.mem_unmap)?;
        // SAFETY: the caller's promise.
        self.check(call, unsafe { unmap(address, len) })
    }

    /// Lets `device` read and write mapped memory. It fails if the device cannot reach it (no
    /// NVLink, no peer access over PCIe).
    pub(crate) fn memory_set_access(
        &self,
        address: CUdeviceptr,
        len: usize,
        device: CUdevice,
    ) -> Result<(), CudaError> {
        let call = "cuMemSetAccess";
        let set = self.have(call, self.api.mem_set_access)?;
        let descriptor = AccessDescriptor::read_write(device);
        // SAFETY: reads one structure; the driver looks the range up in its own table.
        self.check(call, unsafe { set(address, len, &descriptor, 1) })
    }

    /// Makes a descriptor that other processes can import, and which the caller owns.
    ///
    /// # Safety
    /// `handle` is live.
    pub(crate) unsafe fn memory_export(&self, handle: MemoryHandle) -> Result<c_int, CudaError> {
        let call = "cuMemExportToShareableHandle";
        let export = self.have(call, self.api.mem_export)?;
        let mut fd: c_int = -1;
        // SAFETY: for this handle type the driver writes one int; the handle is live.
        let code = unsafe { export((&raw mut fd).cast(), handle, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) };
        self.check(call, code)?;
        Ok(fd)
    }

    /// Takes memory that was exported, here or in another process. The descriptor stays the
    /// caller's.
    pub(crate) fn memory_import(&self, fd: BorrowedFd<'_>) -> Result<MemoryHandle, CudaError> {
        let call = "cuMemImportFromShareableHandle";
        let import = self.have(call, self.api.mem_import)?;
        let mut handle = MemoryHandle(0);
        // The descriptor travels in the pointer itself: that is the driver's convention.
        let number: *mut c_void = ptr::without_provenance_mut(fd.as_raw_fd().cast_unsigned() as usize);
        // SAFETY: writes one handle; the descriptor is open, and its kind is for the driver's
        // kernel module to check.
        self.check(call, unsafe { import(&mut handle, number, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) })?;
        Ok(handle)
    }

    /// # Safety
    /// `handle` is live.
    pub(crate) unsafe fn memory_properties(
        &self,
        handle: MemoryHandle,
    ) -> Result<AllocationProperties, CudaError> {
        let call = "cuMemGetAllocationPropertiesFromHandle";
        let get = self.have(call, self.api.mem_properties)?;
        let mut properties = AllocationProperties::empty();
        // SAFETY: writes the structure; the handle is live.
        self.check(call, unsafe { get(&mut properties, handle) })?;
        Ok(properties)
    }
}
