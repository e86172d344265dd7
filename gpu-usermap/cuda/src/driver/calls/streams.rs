//! Driver calls about streams and events.

use std::ffi::{c_uint, c_void};

use super::{Driver, StreamState};
use crate::driver::error::{CudaError, log};
use crate::driver::raw::constants::{
    ERROR_INVALID_VALUE, ERROR_NOT_READY, EVENT_DISABLE_TIMING, POINTER_ATTRIBUTE_MEMORY_TYPE,
    STREAM_CAPTURE_MODE_RELAXED, STREAM_CAPTURE_STATUS_NONE, STREAM_WAIT_VALUE_GEQ,
    STREAM_WRITE_VALUE_DEFAULT, SUCCESS,
};
use crate::driver::raw::{
    CUdeviceptr, ContextHandle, EventHandle, MemoryOperation, StreamCalls, StreamHandle,
};

/// The driver, where it has all calls for streams.
#[derive(Clone, Copy)]
pub(crate) struct Streams<'a> {
    driver: &'a Driver,
    calls: &'a StreamCalls,
}

/// Keeps a context current on this thread, and the thread's calls out of captures that go on
/// elsewhere, until it drops.
pub(crate) struct Entered<'a> {
    streams: Streams<'a>,
    capture_mode: c_uint,
}

impl Driver {
    /// # Errors
    /// The name of a call that the driver lacks.
    pub(crate) fn streams(&self) -> Result<Streams<'_>, &'static str> {
        match &self.api.streams {
            Ok(calls) => Ok(Streams { driver: self, calls }),
            Err(missing) => Err(missing),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        log(self.streams.exchange_capture_mode(self.capture_mode).map(|_| ()));
        let mut context = ContextHandle::NULL;
        // SAFETY: writes one handle, and restores the stack of contexts as it was before `enter`.
        let code = unsafe { (self.streams.calls.pop_context)(&mut context) };
        log(self.streams.driver.check("cuCtxPopCurrent", code));
    }
}

impl<'a> Streams<'a> {
    /// Makes a context current on this thread for as long as the result lives.
    ///
    /// # Safety
    /// `context` is live, and stays so until the result drops; it does so on this thread, in the
    /// order opposite to others.
    pub(crate) unsafe fn enter(self, context: ContextHandle) -> Result<Entered<'a>, CudaError> {
        // SAFETY: the caller's promise.
        self.driver.check("cuCtxPushCurrent", unsafe { (self.calls.push_context)(context) })?;
        // The mode in which the driver starts a thread is 0: a failure leaves it so.
        let capture_mode = self.exchange_capture_mode(STREAM_CAPTURE_MODE_RELAXED).unwrap_or(0);
        Ok(Entered { streams: self, capture_mode })
    }

    /// Sets how this thread's calls relate to captures, and returns how they did before.
    pub(crate) fn exchange_capture_mode(self, mode: c_uint) -> Result<c_uint, CudaError> {
        let mut mode = mode;
        // SAFETY: reads and writes one enum.
        let code = unsafe { (self.calls.exchange_capture_mode)(&mut mode) };
        self.driver.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(mode)
    }

    /// # Safety
    /// `stream` is live, and none of the default streams.
    pub(crate) unsafe fn context_of(self, stream: StreamHandle) -> Result<ContextHandle, CudaError> {
        let mut context = ContextHandle::NULL;
        // SAFETY: the caller's promise; writes one handle.
        let code = unsafe { (self.calls.get_context)(stream, &mut context) };
        self.driver.check("cuStreamGetCtx", code)?;
        Ok(context)
    }

    /// # Safety
    /// `stream` is live.
    pub(crate) unsafe fn is_capturing(self, stream: StreamHandle) -> Result<bool, CudaError> {
        let mut status = STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the caller's promise; writes one enum.
        let code = unsafe { (self.calls.is_capturing)(stream, &mut status) };
        self.driver.check("cuStreamIsCapturing", code)?;
        // An invalidated capture is one that has not ended.
        Ok(status != STREAM_CAPTURE_STATUS_NONE)
    }

    /// Waits until all work of `stream` is done.
    ///
    /// # Safety
    /// `stream` is live.
    pub(crate) unsafe fn synchronize(self, stream: StreamHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver.check("cuStreamSynchronize", unsafe { (self.calls.synchronize)(stream) })
    }

    /// # Safety
    /// `stream` is live, and `address` the device's address of a word that stays mapped until the
    /// operation has passed.
    pub(crate) unsafe fn wait_geq(
        self,
        stream: StreamHandle,
        address: CUdeviceptr,
        value: u64,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.calls.wait_value)(stream, address, value, STREAM_WAIT_VALUE_GEQ) };
        self.driver.check("cuStreamWaitValue64", code)
    }

    /// # Safety
    /// As [`wait_geq`](Self::wait_geq), and the word may be written.
    pub(crate) unsafe fn write(
        self,
        stream: StreamHandle,
        address: CUdeviceptr,
        value: u64,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.calls.write_value)(stream, address, value, STREAM_WRITE_VALUE_DEFAULT) };
        self.driver.check("cuStreamWriteValue64", code)
    }

    /// # Safety
    /// As [`write`](Self::write), of a word of 4 bytes.
    pub(crate) unsafe fn write_32(
        self,
        stream: StreamHandle,
        address: CUdeviceptr,
        value: u32,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.calls.write_value_32)(stream, address, value, STREAM_WRITE_VALUE_DEFAULT) };
        self.driver.check("cuStreamWriteValue32", code)
    }

    /// # Safety
    /// As [`wait_geq`](Self::wait_geq) and [`write`](Self::write), for each operation.
    pub(crate) unsafe fn batch(
        self,
        stream: StreamHandle,
        operations: &mut [MemoryOperation],
    ) -> Result<(), CudaError> {
        // More than fit are more than the driver takes.
        let count = c_uint::try_from(operations.len()).unwrap_or(c_uint::MAX);
        // SAFETY: the caller's promise; the driver reads `count` operations before it returns; no
        // flags are defined.
        let code = unsafe { (self.calls.batch)(stream, count, operations.as_mut_ptr(), 0) };
        self.driver.check("cuStreamBatchMemOp", code)
    }

    /// # Safety
    /// `stream` is live; `len` bytes at both device addresses stay mapped until the copy has
    /// passed, and those at `to` may be written.
    pub(crate) unsafe fn copy(
        self,
        stream: StreamHandle,
        to: CUdeviceptr,
        from: CUdeviceptr,
        len: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver.check("cuMemcpyAsync", unsafe { (self.calls.copy)(to, from, len, stream) })
    }

    /// Returns whether the driver knows the memory at an address: of a GPU, managed, or pinned.
    pub(crate) fn knows(self, address: CUdeviceptr) -> Result<bool, CudaError> {
        let mut kind: c_uint = 0;
        // SAFETY: this attribute is one integer; the driver looks the address up and does not use
        // it.
        let code = unsafe {
            (self.calls.pointer_attribute)((&raw mut kind).cast(), POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        };
        match code {
            SUCCESS => Ok(kind != 0),
            ERROR_INVALID_VALUE => Ok(false),
            code => Err(self.driver.error("cuPointerGetAttribute", code)),
        }
    }

    /// Returns a pointer attribute that is a number of 32 or 64 bits.
    pub(crate) fn pointer_number(self, attribute: c_uint, address: CUdeviceptr) -> Result<u64, CudaError> {
        let mut number: u64 = 0;
        // SAFETY: the callers' attributes have at most 64 bits, of which the lower come first; the
        // driver looks the address up and does not use it.
        let code = unsafe { (self.calls.pointer_attribute)((&raw mut number).cast(), attribute, address) };
        self.driver.check("cuPointerGetAttribute", code)?;
        Ok(number)
    }

    /// # Safety
    /// `stream` is live and not capturing; `function` may be called with `data` once, on any
    /// thread, at any time after this.
    pub(crate) unsafe fn host_function(
        self,
        stream: StreamHandle,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.calls.host_function)(stream, function, data) };
        self.driver.check("cuLaunchHostFunc", code)
    }

    /// Makes an event in the current context that only says whether it has passed.
    pub(crate) fn event_create(self) -> Result<EventHandle, CudaError> {
        let mut event = EventHandle::NULL;
        // SAFETY: writes one handle.
        let code = unsafe { (self.calls.event_create)(&mut event, EVENT_DISABLE_TIMING) };
        self.driver.check("cuEventCreate", code)?;
        Ok(event)
    }

    /// Puts an event behind all work of `stream`.
    ///
    /// # Safety
    /// `event` and `stream` are live and of one context, and the stream is not capturing.
    pub(crate) unsafe fn event_record(
        self,
        event: EventHandle,
        stream: StreamHandle,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver.check("cuEventRecord", unsafe { (self.calls.event_record)(event, stream) })
    }

    /// Lets all later work of `stream` wait until what `event` was recorded behind has passed.
    ///
    /// # Safety
    /// `event` and `stream` are live, and the stream is not capturing.
    pub(crate) unsafe fn wait_event(self, stream: StreamHandle, event: EventHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; no flags.
        self.driver.check("cuStreamWaitEvent", unsafe { (self.calls.wait_event)(stream, event, 0) })
    }

    /// Returns whether an event has passed; one that was never recorded has.
    ///
    /// # Safety
    /// `event` is live.
    pub(crate) unsafe fn event_query(self, event: EventHandle) -> Result<StreamState, CudaError> {
        // SAFETY: the caller's promise.
        match unsafe { (self.calls.event_query)(event) } {
            SUCCESS => Ok(StreamState::Idle),
            ERROR_NOT_READY => Ok(StreamState::Busy),
            code => Err(self.driver.error("cuEventQuery", code)),
        }
    }

    /// # Safety
    /// `event` is live, and not used afterwards.
    pub(crate) unsafe fn event_destroy(self, event: EventHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.driver.check("cuEventDestroy", unsafe { (self.calls.event_destroy)(event) })
    }
}
