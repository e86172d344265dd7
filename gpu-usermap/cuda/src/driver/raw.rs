//! The first layer: the driver's functions by name, its handle types, its constants.
//!
//! Signatures and numbers are those of `cuda.h` (CUDA 12.8; they have not changed since the named
//! versions). A result is a plain integer here: see [the crate](crate) for why cudarc's enum is not
//! used.

#![allow(unsafe_code, reason = "the driver's library and its C signatures")]

pub(crate) mod constants;
mod memory_operation;
mod types;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::ManuallyDrop;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::error::Unavailable;

pub(crate) use memory_operation::MemoryOperation;
pub use types::IpcHandle;
pub(crate) use types::{
    CUdevice, CUdeviceptr, CUresult, ContextHandle, EventHandle, FunctionHandle, LinkHandle, ModuleHandle,
    StreamHandle,
};
pub(crate) use virtual_memory::{AccessDescriptor, AllocationProperties, MemoryHandle};

macro_rules! api {
    (
        required { $($name:ident = $symbol:literal ($($argument:ty),*);)* }
        optional { $($late:ident = $late_symbol:literal ($($late_argument:ty),*);)* }
        streams { $($stream:ident = $stream_symbol:literal ($($stream_argument:ty),*);)* }
    ) => {
        /// The driver's functions. An optional one is `None` where the driver is older than it.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> CUresult,)*
            $(pub(crate) $late: Option<unsafe extern "C" fn($($late_argument),*) -> CUresult>,)*
            /// All of them, or the name of the first that the driver lacks.
            pub(crate) streams: Result<StreamCalls, &'static str>,
            /// The device that the driver opens for every descriptor it exports.
            pub(crate) exported: &'static CStr,
        }

        /// The functions for streams, of which none is used unless all are there.
        #[derive(Clone, Copy)]
        pub(crate) struct StreamCalls {
            $(pub(crate) $stream: unsafe extern "C" fn($($stream_argument),*) -> CUresult,)*
        }

        impl StreamCalls {
            fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the symbol is the driver's function of that name, whose C signature
                    // is the one declared.
                    $($stream: unsafe { library.get($stream_symbol) }
                        .ok()
                        .and_then(|found| *found)
                        .ok_or($stream_symbol.to_str().unwrap_or("(unnamed)"))?,)*
                })
            }
        }

        impl Api {
            fn resolve(library: &Library) -> Result<Self, Unavailable> {
                Ok(Self {
                    // SAFETY: the symbol is the driver's function of that name, whose C signature
                    // is the one declared.
                    $($name: unsafe { library.get($symbol) }
                        .ok()
                        .and_then(|found| *found)
                        .ok_or(Unavailable::Symbol { symbol: $symbol.to_str().unwrap_or("(unnamed)") })?,)*
                    // SAFETY: as above.
                    $($late: unsafe { library.get($late_symbol) }.ok().and_then(|found| *found),)*
                    streams: StreamCalls::resolve(library),
                    exported: c"/dev/nvidiactl",
                })
            }

            /// Every function fails, and nothing optional exists: what the tests' driver starts
            /// from.
            #[cfg(any(test, feature = "fake"))]
            pub(crate) fn refusing() -> Self {
                Self {
                    $($name: {
                        unsafe extern "C" fn refuse($(_: $argument),*) -> CUresult {
                            constants::ERROR_NOT_SUPPORTED
                        }
                        refuse
                    },)*
                    $($late: None,)*
                    streams: Err("(any)"),
                    exported: c"/dev/nvidiactl",
                }
            }
        }
    };
}

api! {
    required {
        init = c"cuInit"(c_uint);
        driver_get_version = c"cuDriverGetVersion"(*mut c_int);
        get_error_name = c"cuGetErrorName"(CUresult, *mut *const c_char);
        device_get_count = c"cuDeviceGetCount"(*mut c_int);
        device_get = c"cuDeviceGet"(*mut CUdevice, c_int);
        device_get_name = c"cuDeviceGetName"(*mut c_char, c_int, CUdevice);
        device_get_attribute = c"cuDeviceGetAttribute"(*mut c_int, c_int, CUdevice);
        device_get_uuid = c"cuDeviceGetUuid"(*mut [u8; 16], CUdevice);
        device_total_mem = c"cuDeviceTotalMem_v2"(*mut usize, CUdevice);
        primary_ctx_retain = c"cuDevicePrimaryCtxRetain"(*mut ContextHandle, CUdevice);
        primary_ctx_release = c"cuDevicePrimaryCtxRelease_v2"(CUdevice);
        ctx_set_current = c"cuCtxSetCurrent"(ContextHandle);
        ctx_get_device = c"cuCtxGetDevice"(*mut CUdevice);
        ctx_get_limit = c"cuCtxGetLimit"(*mut usize, c_uint);
        ctx_set_limit = c"cuCtxSetLimit"(c_uint, usize);
        ctx_get_stream_priority_range = c"cuCtxGetStreamPriorityRange"(*mut c_int, *mut c_int);
        mem_alloc = c"cuMemAlloc_v2"(*mut CUdeviceptr, usize);
        mem_free = c"cuMemFree_v2"(CUdeviceptr);
        mem_host_alloc = c"cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        mem_free_host = c"cuMemFreeHost"(*mut c_void);
        mem_host_register = c"cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        mem_host_unregister = c"cuMemHostUnregister"(*mut c_void);
        mem_host_get_device_pointer = c"cuMemHostGetDevicePointer_v2"(*mut CUdeviceptr, *mut c_void, c_uint);
        memcpy_htod_async = c"cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, StreamHandle);
        memcpy_dtoh_async = c"cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, StreamHandle);
        stream_create = c"cuStreamCreateWithPriority"(*mut StreamHandle, c_uint, c_int);
        stream_destroy = c"cuStreamDestroy_v2"(StreamHandle);
        stream_query = c"cuStreamQuery"(StreamHandle);
        module_load_data = c"cuModuleLoadDataEx"(*mut ModuleHandle, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
        module_unload = c"cuModuleUnload"(ModuleHandle);
        module_get_function = c"cuModuleGetFunction"(*mut FunctionHandle, ModuleHandle, *const c_char);
        module_get_global = c"cuModuleGetGlobal_v2"(*mut CUdeviceptr, *mut usize, ModuleHandle, *const c_char);
        func_get_attribute = c"cuFuncGetAttribute"(*mut c_int, c_uint, FunctionHandle);
        func_set_attribute = c"cuFuncSetAttribute"(FunctionHandle, c_uint, c_int);
        occupancy = c"cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, FunctionHandle, c_int, usize);
        launch_kernel = c"cuLaunchKernel"(FunctionHandle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamHandle, *mut *mut c_void, *mut *mut c_void);
        link_create = c"cuLinkCreate_v2"(c_uint, *mut c_uint, *mut *mut c_void, *mut LinkHandle);
        link_add_data = c"cuLinkAddData_v2"(LinkHandle, c_uint, *mut c_void, usize, *const c_char, c_uint, *mut c_uint, *mut *mut c_void);
        link_complete = c"cuLinkComplete"(LinkHandle, *mut *mut c_void, *mut usize);
        link_destroy = c"cuLinkDestroy"(LinkHandle);
    }
    optional {
        // 4.1
        mem_address_range = c"cuMemGetAddressRange_v2"(*mut CUdeviceptr, *mut usize, CUdeviceptr);
        ipc_get_handle = c"cuIpcGetMemHandle"(*mut IpcHandle, CUdeviceptr);
        ipc_open_handle = c"cuIpcOpenMemHandle_v2"(*mut CUdeviceptr, IpcHandle, c_uint);
        ipc_close_handle = c"cuIpcCloseMemHandle"(CUdeviceptr);
        // 6.0
        pointer_set_attribute = c"cuPointerSetAttribute"(*const c_void, c_uint, CUdeviceptr);
        // 10.2: in every driver that is new enough for this crate, and still asked for, so that a
        // stripped one says what it lacks
        mem_create = c"cuMemCreate"(*mut MemoryHandle, usize, *const AllocationProperties, c_ulonglong);
        mem_release = c"cuMemRelease"(MemoryHandle);
        mem_address_reserve = c"cuMemAddressReserve"(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        mem_address_free = c"cuMemAddressFree"(CUdeviceptr, usize);
        mem_map = c"cuMemMap"(CUdeviceptr, usize, usize, MemoryHandle, c_ulonglong);
        mem_unmap = c"cuMemUnmap"(CUdeviceptr, usize);
        mem_set_access = c"cuMemSetAccess"(CUdeviceptr, usize, *const AccessDescriptor, usize);
        mem_export = c"cuMemExportToShareableHandle"(*mut c_void, MemoryHandle, c_uint, c_ulonglong);
        mem_import = c"cuMemImportFromShareableHandle"(*mut MemoryHandle, *mut c_void, c_uint);
        mem_granularity = c"cuMemGetAllocationGranularity"(*mut usize, *const AllocationProperties, c_uint);
        mem_properties = c"cuMemGetAllocationPropertiesFromHandle"(*mut AllocationProperties, MemoryHandle);
        // 11.0
        mem_retain = c"cuMemRetainAllocationHandle"(*mut MemoryHandle, *mut c_void);
        func_get_module = c"cuFuncGetModule"(*mut ModuleHandle, FunctionHandle);
        // 11.3
        flush_gpu_direct_rdma_writes = c"cuFlushGPUDirectRDMAWrites"(c_uint, c_uint);
        // 11.4
        device_get_uuid_v2 = c"cuDeviceGetUuid_v2"(*mut [u8; 16], CUdevice);
        // 11.7
        mem_get_handle_for_address_range = c"cuMemGetHandleForAddressRange"(*mut c_void, CUdeviceptr, usize, c_uint, c_ulonglong);
        module_get_loading_mode = c"cuModuleGetLoadingMode"(*mut c_uint);
        // 12.4
        func_load = c"cuFuncLoad"(FunctionHandle);
        module_get_function_count = c"cuModuleGetFunctionCount"(*mut c_uint, ModuleHandle);
        module_enumerate_functions = c"cuModuleEnumerateFunctions"(*mut FunctionHandle, c_uint, ModuleHandle);
        func_get_param_info = c"cuFuncGetParamInfo"(FunctionHandle, usize, *mut usize, *mut usize);
    }
    streams {
        // 11.7. The names without `_v2` are other functions, which need an option of the kernel
        // module and answer 801 without it.
        wait_value = c"cuStreamWaitValue64_v2"(StreamHandle, CUdeviceptr, u64, c_uint);
        write_value = c"cuStreamWriteValue64_v2"(StreamHandle, CUdeviceptr, u64, c_uint);
        write_value_32 = c"cuStreamWriteValue32_v2"(StreamHandle, CUdeviceptr, u32, c_uint);
        batch = c"cuStreamBatchMemOp_v2"(StreamHandle, c_uint, *mut MemoryOperation, c_uint);
        // 10.1 and older
        copy = c"cuMemcpyAsync"(CUdeviceptr, CUdeviceptr, usize, StreamHandle);
        pointer_attribute = c"cuPointerGetAttribute"(*mut c_void, c_uint, CUdeviceptr);
        host_function = c"cuLaunchHostFunc"(StreamHandle, unsafe extern "C" fn(*mut c_void), *mut c_void);
        synchronize = c"cuStreamSynchronize"(StreamHandle);
        is_capturing = c"cuStreamIsCapturing"(StreamHandle, *mut c_uint);
        exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode"(*mut c_uint);
        get_context = c"cuStreamGetCtx"(StreamHandle, *mut ContextHandle);
        push_context = c"cuCtxPushCurrent_v2"(ContextHandle);
        pop_context = c"cuCtxPopCurrent_v2"(*mut ContextHandle);
        event_create = c"cuEventCreate"(*mut EventHandle, c_uint);
        event_record = c"cuEventRecord"(EventHandle, StreamHandle);
        wait_event = c"cuStreamWaitEvent"(StreamHandle, EventHandle, c_uint);
        event_query = c"cuEventQuery"(EventHandle);
        event_destroy = c"cuEventDestroy_v2"(EventHandle);
    }
}

impl Api {
    /// Opens the first of `names` that the dynamic loader finds, and looks up every function.
    pub(crate) fn open(names: &[&str]) -> Result<Self, Unavailable> {
        let mut reason = None;
        for name in names {
            // SAFETY: loading the driver library runs its initialisers, which is what is asked for.
            match unsafe { Library::open(Some(*name), RTLD_NOW | RTLD_LOCAL) } {
                // Never closed: the driver's threads and exit handlers live in it.
                Ok(library) => return Self::resolve(&ManuallyDrop::new(library)),
                Err(libloading::Error::DlOpen { source }) => _ = reason.get_or_insert(source.to_string()),
                Err(_) => {}
            }
        }
        Err(Unavailable::Library { reason: reason.unwrap_or_else(|| "no reason given".to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_reason_and_no_panic() {
        let missing = Api::open(&["libgpunet-no-such-library.so.1"]).err();
        assert!(
            matches!(&missing, Some(Unavailable::Library { reason }) if reason.contains("libgpunet-no-such")),
            "{missing:?}"
        );
    }

    #[test]
    fn a_missing_symbol_is_named_and_no_panic() {
        let missing = Api::open(&["libc.so.6"]).err();
        assert_eq!(missing, Some(Unavailable::Symbol { symbol: "cuInit" }));
    }

    #[test]
    fn a_library_without_stream_calls_names_the_first() {
        // SAFETY: the C library runs no further initialisers.
        let library = unsafe { Library::open(Some("libc.so.6"), RTLD_NOW | RTLD_LOCAL) }.expect("libc");
        assert_eq!(StreamCalls::resolve(&library).err(), Some("cuStreamWaitValue64_v2"));
    }
}
