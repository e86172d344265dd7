//! The numbers of `cuda.h` that this crate uses.

use std::ffi::{c_int, c_uint, c_ulonglong};

use super::types::CUresult;

pub(crate) const SUCCESS: CUresult = 0;
pub(crate) const ERROR_INVALID_VALUE: CUresult = 1;
pub(crate) const ERROR_NOT_FOUND: CUresult = 500;
pub(crate) const ERROR_NOT_READY: CUresult = 600;
pub(crate) const ERROR_NOT_PERMITTED: CUresult = 800;
pub(crate) const ERROR_NOT_SUPPORTED: CUresult = 801;

/// The handles of the default streams, beside 0, which is the legacy one as well.
pub(crate) const STREAM_LEGACY: usize = 1;
pub(crate) const STREAM_PER_THREAD: usize = 2;
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
pub(crate) const STREAM_CAPTURE_STATUS_NONE: c_uint = 0;
pub(crate) const STREAM_CAPTURE_MODE_RELAXED: c_uint = 2;
pub(crate) const STREAM_WAIT_VALUE_GEQ: c_uint = 0;
pub(crate) const STREAM_WRITE_VALUE_DEFAULT: c_uint = 0;
pub(crate) const MEMORY_OPERATION_WAIT_VALUE_64: c_uint = 4;
pub(crate) const MEMORY_OPERATION_WRITE_VALUE_64: c_uint = 5;

pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;

pub(crate) const HOST_ALLOC_PORTABLE: c_uint = 1;
pub(crate) const HOST_REGISTER_PORTABLE: c_uint = 1;
pub(crate) const HOST_REGISTER_DEVICEMAP: c_uint = 2;

pub(crate) const ALLOCATION_TYPE_PINNED: c_uint = 1;
pub(crate) const ALLOCATION_GRANULARITY_MINIMUM: c_uint = 0;
pub(crate) const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: c_uint = 1;
pub(crate) const LOCATION_TYPE_DEVICE: c_uint = 1;
pub(crate) const ACCESS_READ_WRITE: c_uint = 3;

pub(crate) const RANGE_HANDLE_DMA_BUF_FD: c_uint = 1;
pub(crate) const RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE: c_ulonglong = 1;

pub(crate) const POINTER_ATTRIBUTE_MEMORY_TYPE: c_uint = 2;
pub(crate) const POINTER_SYNC_MEMOPS: c_uint = 6;
pub(crate) const POINTER_ATTRIBUTE_BUFFER_ID: c_uint = 7;
pub(crate) const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_uint = 9;
pub(crate) const POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE: c_uint = 10;
pub(crate) const POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: c_uint = 14;

pub(crate) const IPC_LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

pub(crate) const FLUSH_TARGET_CURRENT_CONTEXT: c_uint = 0;
pub(crate) const FLUSH_TO_OWNER: c_uint = 100;
pub(crate) const FLUSH_TO_ALL_DEVICES: c_uint = 200;

pub(crate) const LOADING_MODE_LAZY: c_uint = 2;

pub(crate) const LIMIT_STACK_SIZE: c_uint = 0;

pub(crate) const JIT_THREADS_PER_BLOCK: c_uint = 1;
pub(crate) const JIT_ERROR_LOG_BUFFER: c_uint = 5;
pub(crate) const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
pub(crate) const JIT_INPUT_PTX: c_uint = 1;

pub(crate) const FUNC_MAX_THREADS_PER_BLOCK: c_uint = 0;
pub(crate) const FUNC_SHARED_SIZE_BYTES: c_uint = 1;
pub(crate) const FUNC_LOCAL_SIZE_BYTES: c_uint = 3;
pub(crate) const FUNC_NUM_REGS: c_uint = 4;
pub(crate) const FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_uint = 8;

pub(crate) const DEVICE_MAX_THREADS_PER_BLOCK: c_int = 1;
pub(crate) const DEVICE_MULTIPROCESSOR_COUNT: c_int = 16;
pub(crate) const DEVICE_COMPUTE_MODE: c_int = 20;
pub(crate) const DEVICE_PCI_BUS_ID: c_int = 33;
pub(crate) const DEVICE_PCI_DEVICE_ID: c_int = 34;
pub(crate) const DEVICE_PCI_DOMAIN_ID: c_int = 50;
pub(crate) const DEVICE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub(crate) const DEVICE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub(crate) const DEVICE_HOST_NATIVE_ATOMIC_SUPPORTED: c_int = 86;
pub(crate) const DEVICE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: c_int = 91;
pub(crate) const DEVICE_HOST_REGISTER_SUPPORTED: c_int = 99;
pub(crate) const DEVICE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: c_int = 100;
pub(crate) const DEVICE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 102;
pub(crate) const DEVICE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: c_int = 103;
pub(crate) const DEVICE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: c_int = 110;
pub(crate) const DEVICE_GPU_DIRECT_RDMA_SUPPORTED: c_int = 116;
pub(crate) const DEVICE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: c_int = 117;
pub(crate) const DEVICE_GPU_DIRECT_RDMA_WRITES_ORDERING: c_int = 118;
/// For the functions that end in `_v2`. Attributes 92 to 94 are about the older ones, and say 0
/// where these work.
pub(crate) const DEVICE_CAN_USE_64_BIT_STREAM_MEM_OPS: c_int = 122;
pub(crate) const DEVICE_DMA_BUF_SUPPORTED: c_int = 124;

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::{
        self, CUdevice_attribute as Device, CUfunction_attribute as Func, CUjit_option as Jit,
    };

    use super::*;

    #[test]
    fn results_flags_and_options_are_those_of_cuda_h() {
        assert_eq!(SUCCESS, sys::CUresult::CUDA_SUCCESS as u32);
        assert_eq!(ERROR_INVALID_VALUE, sys::CUresult::CUDA_ERROR_INVALID_VALUE as u32);
        assert_eq!(ERROR_NOT_FOUND, sys::CUresult::CUDA_ERROR_NOT_FOUND as u32);
        assert_eq!(ERROR_NOT_READY, sys::CUresult::CUDA_ERROR_NOT_READY as u32);
        assert_eq!(ERROR_NOT_SUPPORTED, sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32);
        assert_eq!(STREAM_NON_BLOCKING, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32);
        assert_eq!(HOST_ALLOC_PORTABLE, sys::CU_MEMHOSTALLOC_PORTABLE);
        assert_eq!(HOST_REGISTER_PORTABLE, sys::CU_MEMHOSTREGISTER_PORTABLE);
        assert_eq!(HOST_REGISTER_DEVICEMAP, sys::CU_MEMHOSTREGISTER_DEVICEMAP);
        assert_eq!(
            RANGE_HANDLE_DMA_BUF_FD,
            sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD as u32
        );
        assert_eq!(LOADING_MODE_LAZY, sys::CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING as u32);
        assert_eq!(JIT_THREADS_PER_BLOCK, Jit::CU_JIT_THREADS_PER_BLOCK as u32);
        assert_eq!(JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER as u32);
        assert_eq!(JIT_ERROR_LOG_BUFFER_SIZE_BYTES, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32);
        assert_eq!(JIT_INPUT_PTX, sys::CUjitInputType::CU_JIT_INPUT_PTX as u32);
    }

    #[test]
    fn numbers_for_streams_are_those_of_cuda_h() {
        use sys::{
            CUstreamBatchMemOpType as Operation, CUstreamCaptureMode as Mode,
            CUstreamCaptureStatus as Status, CUstreamWaitValue_flags as Wait,
            CUstreamWriteValue_flags as Write,
        };
        assert_eq!(ERROR_NOT_PERMITTED, sys::CUresult::CUDA_ERROR_NOT_PERMITTED as u32);
        assert_eq!(STREAM_CAPTURE_STATUS_NONE, Status::CU_STREAM_CAPTURE_STATUS_NONE as u32);
        assert_eq!(STREAM_CAPTURE_MODE_RELAXED, Mode::CU_STREAM_CAPTURE_MODE_RELAXED as u32);
        assert_eq!(STREAM_WAIT_VALUE_GEQ, Wait::CU_STREAM_WAIT_VALUE_GEQ as u32);
        assert_eq!(STREAM_WRITE_VALUE_DEFAULT, Write::CU_STREAM_WRITE_VALUE_DEFAULT as u32);
        assert_eq!(MEMORY_OPERATION_WAIT_VALUE_64, Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64 as u32);
        assert_eq!(MEMORY_OPERATION_WRITE_VALUE_64, Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64 as u32);
        assert_eq!(EVENT_DISABLE_TIMING, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32);
    }

    #[test]
    fn numbers_for_network_cards_are_those_of_cuda_h() {
        use sys::{
            CUflushGPUDirectRDMAWritesScope as Scope, CUflushGPUDirectRDMAWritesTarget as Target,
            CUmemRangeFlags as Flags, CUpointer_attribute as Pointer,
        };
        assert_eq!(
            RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE,
            Flags::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE as u64
        );
        assert_eq!(POINTER_ATTRIBUTE_MEMORY_TYPE, Pointer::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32);
        assert_eq!(POINTER_SYNC_MEMOPS, Pointer::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as u32);
        assert_eq!(POINTER_ATTRIBUTE_BUFFER_ID, Pointer::CU_POINTER_ATTRIBUTE_BUFFER_ID as u32);
        assert_eq!(POINTER_ATTRIBUTE_DEVICE_ORDINAL, Pointer::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32);
        assert_eq!(
            POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE,
            Pointer::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as u32
        );
        assert_eq!(
            POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
            Pointer::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES as u32
        );
        assert_eq!(
            IPC_LAZY_ENABLE_PEER_ACCESS,
            sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32
        );
        assert_eq!(
            FLUSH_TARGET_CURRENT_CONTEXT,
            Target::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX as u32
        );
        assert_eq!(FLUSH_TO_OWNER, Scope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER as u32);
        assert_eq!(FLUSH_TO_ALL_DEVICES, Scope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES as u32);
    }

    #[test]
    fn numbers_for_virtual_memory_are_those_of_cuda_h() {
        use sys::{
            CUmemAccess_flags as Access, CUmemAllocationGranularity_flags as Granularity,
            CUmemAllocationHandleType as Handle, CUmemAllocationType as Type, CUmemLocationType as Location,
        };
        assert_eq!(ALLOCATION_TYPE_PINNED, Type::CU_MEM_ALLOCATION_TYPE_PINNED as u32);
        assert_eq!(ALLOCATION_GRANULARITY_MINIMUM, Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM as u32);
        assert_eq!(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, Handle::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0);
        assert_eq!(LOCATION_TYPE_DEVICE, Location::CU_MEM_LOCATION_TYPE_DEVICE as u32);
        assert_eq!(ACCESS_READ_WRITE, Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32);
    }

    #[test]
    fn limits_are_those_of_cuda_h() {
        assert_eq!(LIMIT_STACK_SIZE, sys::CUlimit::CU_LIMIT_STACK_SIZE as u32);
    }

    #[test]
    fn function_attributes_are_those_of_cuda_h() {
        assert_eq!(FUNC_MAX_THREADS_PER_BLOCK, Func::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32);
        assert_eq!(FUNC_SHARED_SIZE_BYTES, Func::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32);
        assert_eq!(FUNC_LOCAL_SIZE_BYTES, Func::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as u32);
        assert_eq!(FUNC_NUM_REGS, Func::CU_FUNC_ATTRIBUTE_NUM_REGS as u32);
        assert_eq!(
            FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            Func::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32
        );
    }

    #[test]
    fn device_attributes_are_those_of_cuda_h() {
        for (ours, theirs) in [
            (DEVICE_MAX_THREADS_PER_BLOCK, Device::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            (DEVICE_MULTIPROCESSOR_COUNT, Device::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            (DEVICE_COMPUTE_MODE, Device::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE),
            (DEVICE_PCI_BUS_ID, Device::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
            (DEVICE_PCI_DEVICE_ID, Device::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
            (DEVICE_PCI_DOMAIN_ID, Device::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            (DEVICE_COMPUTE_CAPABILITY_MAJOR, Device::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            (DEVICE_COMPUTE_CAPABILITY_MINOR, Device::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            (DEVICE_HOST_NATIVE_ATOMIC_SUPPORTED, Device::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED),
            (
                DEVICE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                Device::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            ),
            (DEVICE_HOST_REGISTER_SUPPORTED, Device::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
            (
                DEVICE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
                Device::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
            ),
            (
                DEVICE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                Device::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            ),
            (
                DEVICE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                Device::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            ),
            (
                DEVICE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                Device::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            ),
            (DEVICE_GPU_DIRECT_RDMA_SUPPORTED, Device::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
            (
                DEVICE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
                Device::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
            ),
            (
                DEVICE_GPU_DIRECT_RDMA_WRITES_ORDERING,
                Device::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
            ),
            (DEVICE_CAN_USE_64_BIT_STREAM_MEM_OPS, Device::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
            (DEVICE_DMA_BUF_SUPPORTED, Device::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
        ] {
            assert_eq!(ours, theirs as c_int, "{theirs:?}");
        }
    }
}
