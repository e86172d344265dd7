//! Driver calls about memory: allocation, registration, copies, export.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::{self, NonNull};

use super::Driver;
use crate::driver::error::CudaError;
use crate::driver::raw::constants::{
    FLUSH_TARGET_CURRENT_CONTEXT, HOST_ALLOC_PORTABLE, HOST_REGISTER_DEVICEMAP, HOST_REGISTER_PORTABLE,
    POINTER_SYNC_MEMOPS, RANGE_HANDLE_DMA_BUF_FD,
};
use crate::driver::raw::{CUdeviceptr, StreamHandle};

impl Driver {
    pub(crate) fn mem_alloc(&self, len: usize) -> Result<CUdeviceptr, CudaError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; a length of 0 or too much memory is an error.
        self.check("cuMemAlloc", unsafe { (self.api.mem_alloc)(&mut address, len) })?;
        Ok(address)
    }

    /// # Safety
    /// `address` came from [`mem_alloc`](Self::mem_alloc), was not freed, and neither host nor
    /// kernels use it afterwards.
    pub(crate) unsafe fn mem_free(&self, address: CUdeviceptr) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemFree", unsafe { (self.api.mem_free)(address) })
    }

    /// Allocates pinned host memory.
    pub(crate) fn host_alloc(&self, len: usize) -> Result<NonNull<u8>, CudaError> {
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: writes one pointer.
        self.check("cuMemHostAlloc", unsafe {
            (self.api.mem_host_alloc)(&mut memory, len, HOST_ALLOC_PORTABLE)
        })?;
        NonNull::new(memory.cast()).ok_or_else(|| self.error("cuMemHostAlloc", super::SUCCESS))
    }

    /// # Safety
    /// `memory` came from [`host_alloc`](Self::host_alloc), was not freed, and nothing uses it
    /// afterwards.
    pub(crate) unsafe fn host_free(&self, memory: NonNull<u8>) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemFreeHost", unsafe { (self.api.mem_free_host)(memory.as_ptr().cast()) })
    }

    /// Pins `len` bytes at `base` and makes them visible to every context of the process.
    ///
    /// # Safety
    /// The range is mapped memory of this process and stays mapped until
    /// [`host_unregister`](Self::host_unregister).
    pub(crate) unsafe fn host_register(&self, base: NonNull<u8>, len: usize) -> Result<(), CudaError> {
        let flags = HOST_REGISTER_PORTABLE | HOST_REGISTER_DEVICEMAP;
        // SAFETY: the caller's promise.
        let code = unsafe { (self.api.mem_host_register)(base.as_ptr().cast(), len, flags) };
        self.check("cuMemHostRegister", code)
    }

    /// # Safety
    /// `base` was registered and not yet unregistered, and no kernel uses the range afterwards.
    pub(crate) unsafe fn host_unregister(&self, base: NonNull<u8>) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemHostUnregister", unsafe { (self.api.mem_host_unregister)(base.as_ptr().cast()) })
    }

    /// Returns the address at which kernels of the current context see registered host memory.
    pub(crate) fn host_device_pointer(&self, base: NonNull<u8>) -> Result<CUdeviceptr, CudaError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; the driver looks `base` up in its own table and does not
        // touch it.
        let code = unsafe { (self.api.mem_host_get_device_pointer)(&mut address, base.as_ptr().cast(), 0) };
        self.check("cuMemHostGetDevicePointer", code)?;
        Ok(address)
    }

    /// # Safety
    /// `len` bytes are readable at `from` and unchanged until the stream is idle; `to` is `len`
    /// bytes of live GPU memory.
    pub(crate) unsafe fn copy_to_device(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        len: usize,
        stream: StreamHandle,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.api.memcpy_htod_async)(to, from.cast(), len, stream) };
        self.check("cuMemcpyHtoDAsync", code)
    }

    /// # Safety
    /// `len` bytes are writable at `to` and untouched until the stream is idle; `from` is `len`
    /// bytes of live GPU memory.
    pub(crate) unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        len: usize,
        stream: StreamHandle,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.api.memcpy_dtoh_async)(to.cast(), from, len, stream) };
        self.check("cuMemcpyDtoHAsync", code)
    }

    /// Returns whether the driver has the call behind [`dmabuf_fd`](Self::dmabuf_fd).
    pub(crate) fn exports_dmabuf(&self) -> bool {
        self.api.mem_get_handle_for_address_range.is_some()
    }

    /// Makes a dma-buf of GPU memory and returns its descriptor, which the caller owns; `None`
    /// where the driver is too old.
    pub(crate) fn dmabuf_fd(
        &self,
        address: CUdeviceptr,
        len: usize,
        flags: c_ulonglong,
    ) -> Option<Result<c_int, CudaError>> {
        let export = self.api.mem_get_handle_for_address_range?;
        let mut fd: c_int = -1;
        // SAFETY: for this handle type the driver writes one int; it checks that the range is one
        // of its allocations.
        let code = unsafe { export((&raw mut fd).cast(), address, len, RANGE_HANDLE_DMA_BUF_FD, flags) };
        Some(self.check("cuMemGetHandleForAddressRange", code).map(|()| fd))
    }

    /// Makes synchronous copies of the allocation at `address` complete before they return; `None`
    /// where the driver is too old.
    pub(crate) fn sync_memops(&self, address: CUdeviceptr) -> Option<Result<(), CudaError>> {
        let set = self.api.pointer_set_attribute?;
        let yes: c_uint = 1;
        // SAFETY: the driver reads one unsigned int, which this attribute's value is, and looks the
        // address up in its own table.
        let code = unsafe { set((&raw const yes).cast(), POINTER_SYNC_MEMOPS, address) };
        Some(self.check("cuPointerSetAttribute", code))
    }

    /// Waits until other devices' writes to the current context's memory are visible in `scope`;
    /// `None` where the driver is too old.
    pub(crate) fn flush_rdma_writes(&self, scope: c_uint) -> Option<Result<(), CudaError>> {
        let flush = self.api.flush_gpu_direct_rdma_writes?;
        // SAFETY: takes two numbers, which the driver checks.
        let code = unsafe { flush(FLUSH_TARGET_CURRENT_CONTEXT, scope) };
        Some(self.check("cuFlushGPUDirectRDMAWrites", code))
    }
}
