//! The structures of the virtual memory calls, laid out as in `cuda.h`.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use super::constants::{
    ACCESS_READ_WRITE, ALLOCATION_TYPE_PINNED, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, LOCATION_TYPE_DEVICE,
};
use super::types::CUdevice;

/// `CUmemGenericAllocationHandle`: physical memory, a number of the driver.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryHandle(pub(crate) u64);

/// `CUmemLocation`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: c_uint,
    pub(crate) id: c_int,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: c_uint,
    handle_types: c_uint,
    pub(crate) location: Location,
    windows_security: *mut c_void,
    compression: u8,
    /// Whether network cards may reach the memory.
    rdma_capable: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl AllocationProperties {
    /// Returns the properties of memory of `device` that can be exported as a file descriptor.
    pub(crate) fn shareable(device: CUdevice, rdma_capable: bool) -> Self {
        Self {
            kind: ALLOCATION_TYPE_PINNED,
            handle_types: HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: Location { kind: LOCATION_TYPE_DEVICE, id: device },
            rdma_capable: rdma_capable.into(),
            ..Self::empty()
        }
    }

    /// All zero, for the driver to fill in.
    pub(crate) fn empty() -> Self {
        Self {
            kind: 0,
            handle_types: 0,
            location: Location { kind: 0, id: 0 },
            windows_security: ptr::null_mut(),
            compression: 0,
            rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// Returns whether it is ordinary memory of a GPU.
    pub(crate) fn is_device_memory(&self) -> bool {
        self.kind == ALLOCATION_TYPE_PINNED && self.location.kind == LOCATION_TYPE_DEVICE
    }
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessDescriptor {
    location: Location,
    flags: c_uint,
}

impl AccessDescriptor {
    /// Lets `device` read and write.
    pub(crate) fn read_write(device: CUdevice) -> Self {
        Self { location: Location { kind: LOCATION_TYPE_DEVICE, id: device }, flags: ACCESS_READ_WRITE }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys::{
        CUmemAccessDesc_st, CUmemAllocationProp_st, CUmemAllocationProp_st__bindgen_ty_1 as Flags,
        CUmemGenericAllocationHandle, CUmemLocation_st,
    };

    use super::*;

    #[test]
    fn structures_are_laid_out_as_in_cuda_h() {
        assert_eq!(size_of::<MemoryHandle>(), size_of::<CUmemGenericAllocationHandle>());
        assert_eq!(size_of::<Location>(), size_of::<CUmemLocation_st>());
        assert_eq!(offset_of!(Location, id), offset_of!(CUmemLocation_st, id));
        assert_eq!(size_of::<AccessDescriptor>(), size_of::<CUmemAccessDesc_st>());
        assert_eq!(offset_of!(AccessDescriptor, flags), offset_of!(CUmemAccessDesc_st, flags));

        assert_eq!(size_of::<AllocationProperties>(), size_of::<CUmemAllocationProp_st>());
        let flags = offset_of!(CUmemAllocationProp_st, allocFlags);
        for (ours, theirs) in [
            (offset_of!(AllocationProperties, kind), offset_of!(CUmemAllocationProp_st, type_)),
            (
                offset_of!(AllocationProperties, handle_types),
                offset_of!(CUmemAllocationProp_st, requestedHandleTypes),
            ),
            (offset_of!(AllocationProperties, location), offset_of!(CUmemAllocationProp_st, location)),
            (
                offset_of!(AllocationProperties, windows_security),
                offset_of!(CUmemAllocationProp_st, win32HandleMetaData),
            ),
            (offset_of!(AllocationProperties, compression), flags + offset_of!(Flags, compressionType)),
            (offset_of!(AllocationProperties, rdma_capable), flags + offset_of!(Flags, gpuDirectRDMACapable)),
            (offset_of!(AllocationProperties, usage), flags + offset_of!(Flags, usage)),
        ] {
            assert_eq!(ours, theirs);
        }
    }
}
