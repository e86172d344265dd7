//! The second layer: one method per driver call, with a result instead of a code.
//!
//! Methods that take a handle, an address or a host pointer are unsafe: the driver trusts them. The
//! rest only fail.
//!
//! | file | holds |
//! |---|---|
//! | `code` | modules, functions, linking, launches |
//! | `exchange` | allocations that others made, and their handles for other processes |
//! | `memory` | allocation, registration, copies, export |
//! | `virtual_memory` | memory with addresses of its own, which can be shared |
//! | `streams` | streams and events |

#![allow(unsafe_code, reason = "calls into the CUDA driver")]

mod code;
mod exchange;
mod memory;
mod streams;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

pub(crate) use code::LinkLog;
pub(crate) use streams::Streams;

use super::error::CudaError;
use super::raw::constants::{
    ERROR_NOT_READY, LIMIT_STACK_SIZE, LOADING_MODE_LAZY, STREAM_NON_BLOCKING, SUCCESS,
};
use super::raw::{Api, CUdevice, CUresult, ContextHandle, StreamHandle};
use super::version::DriverVersion;

/// The driver's functions, wrapped.
pub(crate) struct Driver {
    api: Api,
}

/// What a stream is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    Idle,
    Busy,
}

impl Driver {
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    fn check(&self, call: &'static str, code: CUresult) -> Result<(), CudaError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// Makes the error for `code`, with the driver's name of it.
    pub(crate) fn error(&self, call: &'static str, code: CUresult) -> CudaError {
        let mut text: *const c_char = ptr::null();
        // SAFETY: the driver writes one pointer into `text`; any code is a legal question.
        let known = unsafe { (self.api.get_error_name)(code, &mut text) };
        let name = if known == SUCCESS && !text.is_null() {
            // SAFETY: on success the driver returns a NUL-terminated string of its own constant
            // data.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            "an error code that the driver does not name".to_owned()
        };
        CudaError { call, code, name }
    }

    pub(crate) fn init(&self) -> Result<(), CudaError> {
        // Threads that the driver starts take none of the program's signals either.
        let _inherited = gpunet_region::threads::BlockedSignals::new();
        // SAFETY: takes no memory of ours; the flags must be 0.
        self.check("cuInit", unsafe { (self.api.init)(0) })
    }

    pub(crate) fn version(&self) -> Result<DriverVersion, CudaError> {
        let mut version: c_int = 0;
        // SAFETY: writes one int.
        self.check("cuDriverGetVersion", unsafe { (self.api.driver_get_version)(&mut version) })?;
        Ok(DriverVersion(version.unsigned_abs()))
    }

    pub(crate) fn loading_is_lazy(&self) -> Option<bool> {
        let query = self.api.module_get_loading_mode?;
        let mut mode: c_uint = 0;
        // SAFETY: writes one int-sized enum.
        self.check("cuModuleGetLoadingMode", unsafe { query(&mut mode) }).ok()?;
        Some(mode == LOADING_MODE_LAZY)
    }

    pub(crate) fn device_count(&self) -> Result<u32, CudaError> {
        let mut count: c_int = 0;
        // SAFETY: writes one int.
        self.check("cuDeviceGetCount", unsafe { (self.api.device_get_count)(&mut count) })?;
        Ok(count.unsigned_abs())
    }

    pub(crate) fn device_get(&self, ordinal: u32) -> Result<CUdevice, CudaError> {
        // Beyond c_int there is no device either; the driver says so.
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let mut device: CUdevice = 0;
        // SAFETY: writes one int.
        self.check("cuDeviceGet", unsafe { (self.api.device_get)(&mut device, ordinal) })?;
        Ok(device)
    }

    pub(crate) fn device_name(&self, device: CUdevice) -> Result<String, CudaError> {
        // Long enough for every product name; the driver cuts a longer one.
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: writes at most 255 bytes and a NUL; the driver checks the device number.
        self.check("cuDeviceGetName", unsafe { (self.api.device_get_name)(text.as_mut_ptr(), 255, device) })?;
        // SAFETY: the array was zero, its last byte still is: a NUL ends the text within it.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Ok(text.to_string_lossy().into_owned())
    }

    pub(crate) fn device_attribute(&self, device: CUdevice, attribute: c_int) -> Result<i32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: writes one int; the driver checks the attribute and the device number.
        self.check("cuDeviceGetAttribute", unsafe {
            (self.api.device_get_attribute)(&mut value, attribute, device)
        })?;
        Ok(value)
    }

    pub(crate) fn device_total_memory(&self, device: CUdevice) -> Result<usize, CudaError> {
        let mut bytes: usize = 0;
        // SAFETY: writes one size_t; the driver checks the device number.
        self.check("cuDeviceTotalMem", unsafe { (self.api.device_total_mem)(&mut bytes, device) })?;
        Ok(bytes)
    }

    /// Returns the device's identity: the same in every process, and for a part of a GPU (MIG) the
    /// part's own.
    pub(crate) fn device_uuid(&self, device: CUdevice) -> Result<[u8; 16], CudaError> {
        let mut uuid = [0; 16];
        // The first version gives the whole GPU's for a part.
        let (call, get) = match self.api.device_get_uuid_v2 {
            Some(get) => ("cuDeviceGetUuid_v2", get),
            None => ("cuDeviceGetUuid", self.api.device_get_uuid),
        };
        // SAFETY: writes 16 bytes; the driver checks the device number.
        self.check(call, unsafe { get(&mut uuid, device) })?;
        Ok(uuid)
    }

    pub(crate) fn primary_context_retain(&self, device: CUdevice) -> Result<ContextHandle, CudaError> {
        let mut context = ContextHandle::NULL;
        // SAFETY: writes one handle.
        self.check("cuDevicePrimaryCtxRetain", unsafe {
            (self.api.primary_ctx_retain)(&mut context, device)
        })?;
        Ok(context)
    }

    /// # Safety
    /// One retain of `device` is given up, and nothing made in its context is used on that account
    /// afterwards.
    pub(crate) unsafe fn primary_context_release(&self, device: CUdevice) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuDevicePrimaryCtxRelease", unsafe { (self.api.primary_ctx_release)(device) })
    }

    /// # Safety
    /// `context` is a live context, and stays so while it is current here.
    pub(crate) unsafe fn context_set_current(&self, context: ContextHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuCtxSetCurrent", unsafe { (self.api.ctx_set_current)(context) })
    }

    pub(crate) fn current_device(&self) -> Result<CUdevice, CudaError> {
        let mut device: CUdevice = 0;
        // SAFETY: writes one int; without a current context it fails.
        self.check("cuCtxGetDevice", unsafe { (self.api.ctx_get_device)(&mut device) })?;
        Ok(device)
    }

    /// Returns how many bytes of stack each thread of the current context can have.
    pub(crate) fn stack_limit(&self) -> Result<usize, CudaError> {
        let mut bytes = 0;
        // SAFETY: writes one size.
        self.check("cuCtxGetLimit", unsafe { (self.api.ctx_get_limit)(&mut bytes, LIMIT_STACK_SIZE) })?;
        Ok(bytes)
    }

    /// Sets how many bytes of stack each thread of the current context can have, and sets the
    /// memory aside at once.
    pub(crate) fn set_stack_limit(&self, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: takes two numbers.
        self.check("cuCtxSetLimit", unsafe { (self.api.ctx_set_limit)(LIMIT_STACK_SIZE, bytes) })
    }

    /// Returns the numerically lowest, which is the most urgent, stream priority.
    pub(crate) fn most_urgent_priority(&self) -> Result<c_int, CudaError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two ints.
        let code = unsafe { (self.api.ctx_get_stream_priority_range)(&mut least, &mut greatest) };
        self.check("cuCtxGetStreamPriorityRange", code)?;
        Ok(greatest)
    }

    /// Makes a stream without order towards the null stream.
    pub(crate) fn stream_create(&self, priority: c_int) -> Result<StreamHandle, CudaError> {
        let mut stream = StreamHandle::NULL;
        // SAFETY: writes one handle; the driver clamps the priority.
        let code = unsafe { (self.api.stream_create)(&mut stream, STREAM_NON_BLOCKING, priority) };
        self.check("cuStreamCreateWithPriority", code)?;
        Ok(stream)
    }

    /// # Safety
    /// `stream` came from [`stream_create`](Self::stream_create), was not destroyed, and is not
    /// used afterwards.
    pub(crate) unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuStreamDestroy", unsafe { (self.api.stream_destroy)(stream) })
    }

    /// Returns whether all work of `stream` is done. A context's sticky error comes out here.
    ///
    /// # Safety
    /// `stream` is live: it came from [`stream_create`](Self::stream_create), or from a caller who
    /// vouches for it.
    pub(crate) unsafe fn stream_query(&self, stream: StreamHandle) -> Result<StreamState, CudaError> {
        // SAFETY: the caller's promise.
        match unsafe { (self.api.stream_query)(stream) } {
            SUCCESS => Ok(StreamState::Idle),
            ERROR_NOT_READY => Ok(StreamState::Busy),
            code => Err(self.error("cuStreamQuery", code)),
        }
    }
}
