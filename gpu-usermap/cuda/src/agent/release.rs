//! What dropped handles leave to be given back, once no kernel runs.

#![allow(unsafe_code, reason = "frees, unregistrations and unloads")]

use std::mem::ManuallyDrop;

use gpunet_region::Pages;

use super::physical_memory::{AddressRange, PhysicalMemory};
use crate::driver::raw::{CUdeviceptr, ModuleHandle};
use crate::driver::{CudaError, Driver};

/// One thing to give back. Its last handle is gone: only a running kernel can still use it.
#[derive(Debug)]
pub(crate) enum Release {
    /// Memory of `cuMemAlloc`.
    Memory(CUdeviceptr),
    /// Memory with addresses of its own, or as much of it as was made before a failure.
    PhysicalMemory(PhysicalMemory),
    /// Addresses, and the memory that is there.
    AddressRange(AddressRange),
    /// A registered mapping. It is unmapped only after it was unregistered: a `Release` that is
    /// merely dropped leaks it, since its addresses may still be pinned for the GPU.
    Registration(ManuallyDrop<Pages>),
    /// A mapping of an allocation of another process.
    Foreign(CUdeviceptr),
    /// A loaded module.
    Module(ModuleHandle),
}

impl Release {
    /// Gives the thing back. The driver may wait for all work of the context, so the caller made
    /// sure that there is none.
    pub(crate) fn perform(self, driver: &Driver) -> Result<(), CudaError> {
        match self {
            // SAFETY: the one owner was dropped, no launch of this device runs (the caller's duty),
            // and `self` is consumed.
            Self::Memory(address) => unsafe { driver.mem_free(address) },
            // SAFETY: as above.
            Self::PhysicalMemory(memory) => unsafe { memory.release(driver) },
            // SAFETY: as above.
            Self::AddressRange(range) => unsafe { range.release(driver) },
            // SAFETY: as above.
            Self::Foreign(address) => unsafe { driver.ipc_close(address) },
            // SAFETY: as above.
            Self::Module(module) => unsafe { driver.module_unload(module) },
            Self::Registration(mapping) => {
                // SAFETY: as above.
                unsafe { driver.host_unregister(mapping.base()) }?;
                drop(ManuallyDrop::into_inner(mapping));
                Ok(())
            }
        }
    }
}
