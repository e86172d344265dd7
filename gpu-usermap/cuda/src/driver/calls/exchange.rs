//! Driver calls about allocations that somebody else in the program has made, and about those of
//! other processes.

use std::ptr;

use super::Driver;
use crate::driver::error::CudaError;
use crate::driver::raw::constants::IPC_LAZY_ENABLE_PEER_ACCESS;
use crate::driver::raw::{CUdeviceptr, IpcHandle, MemoryHandle};

impl Driver {
    /// Returns where the allocation begins in which an address lies, and its length.
    pub(crate) fn address_range(&self, address: CUdeviceptr) -> Result<(CUdeviceptr, usize), CudaError> {
        let call = "cuMemGetAddressRange";
        let get = self.have(call, self.api.mem_address_range)?;
        let (mut base, mut len) = (0, 0);
        // SAFETY: writes one address and one length; the driver looks the address up in its own
        // table.
        self.check(call, unsafe { get(&mut base, &mut len, address) })?;
        Ok((base, len))
    }

    /// Returns the physical memory that is mapped at an address, as one more handle to be released.
    pub(crate) fn memory_retain(&self, address: CUdeviceptr) -> Result<MemoryHandle, CudaError> {
        let call = "cuMemRetainAllocationHandle";
        let retain = self.have(call, self.api.mem_retain)?;
        let mut handle = MemoryHandle(0);
        // SAFETY: writes one handle; the driver looks the address up in its own table.
        self.check(call, unsafe { retain(&mut handle, ptr::without_provenance_mut(address as usize)) })?;
        Ok(handle)
    }

    /// Returns the name of the allocation at `base` for other processes.
    pub(crate) fn ipc_handle(&self, base: CUdeviceptr) -> Result<IpcHandle, CudaError> {
        let call = "cuIpcGetMemHandle";
        let get = self.have(call, self.api.ipc_get_handle)?;
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: writes one structure; the driver looks the address up in its own table.
        self.check(call, unsafe { get(&mut handle, base) })?;
        Ok(handle)
    }

    /// Maps an allocation of another process, for the current context.
    pub(crate) fn ipc_open(&self, handle: IpcHandle) -> Result<CUdeviceptr, CudaError> {
        let call = "cuIpcOpenMemHandle";
        let open = self.have(call, self.api.ipc_open_handle)?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; the driver checks the handle, whoever made it.
        self.check(call, unsafe { open(&mut address, handle, IPC_LAZY_ENABLE_PEER_ACCESS) })?;
        Ok(address)
    }

    /// # Safety
    /// `address` came from [`ipc_open`](Self::ipc_open) in the current context, was not closed, and
    /// neither host nor kernels use the memory there afterwards.
    pub(crate) unsafe fn ipc_close(&self, address: CUdeviceptr) -> Result<(), CudaError> {
        let call = "cuIpcCloseMemHandle";
        let close = self.have(call, self.api.ipc_close_handle)?;
        // SAFETY: the caller's promise.
        self.check(call, unsafe { close(address) })
    }
}
