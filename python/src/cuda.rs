//! What the launch surface needs of CUDA itself: the context that a program uses, and an event by
//! which the end of its own launches is known. The driver is opened at run time.

use crate::error;
use gpu_usermap::cuda::{Cuda, Device};
use libloading::Library;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

/// CUDA_SUCCESS.
const SUCCESS: c_int = 0;
/// CUDA_ERROR_NOT_READY: what an event says before its time.
const NOT_READY: c_int = 600;
/// CUDA_ERROR_INVALID_VALUE.
const INVALID_VALUE: c_int = 1;
/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.
const DEVICE_ORDINAL: c_int = 9;
/// CU_EVENT_DISABLE_TIMING.
const DISABLE_TIMING: c_uint = 2;

macro_rules! driver {
    ($($name:ident: $symbol:literal = fn($($argument:ty),*);)*) => {
        /// The functions of the driver.
        struct Driver {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Never closed: the functions stay valid.
            _library: Library,
        }

        impl Driver {
            fn open() -> Result<Self, libloading::Error> {
                // SAFETY: CUDA's driver, whose initialisers have no condition.
                let library = unsafe { Library::new("libcuda.so.1") }?;
                $(
                    // SAFETY: the type is that of the driver's header.
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol) }?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

driver! {
    device_get: b"cuDeviceGet" = fn(*mut c_int, c_int);
    primary_retain: b"cuDevicePrimaryCtxRetain" = fn(*mut *mut c_void, c_int);
    primary_release: b"cuDevicePrimaryCtxRelease_v2" = fn(c_int);
    current: b"cuCtxGetCurrent" = fn(*mut *mut c_void);
    push: b"cuCtxPushCurrent_v2" = fn(*mut c_void);
    pop: b"cuCtxPopCurrent_v2" = fn(*mut *mut c_void);
    event_create: b"cuEventCreate" = fn(*mut *mut c_void, c_uint);
    event_record: b"cuEventRecord" = fn(*mut c_void, *mut c_void);
    event_query: b"cuEventQuery" = fn(*mut c_void);
    event_destroy: b"cuEventDestroy_v2" = fn(*mut c_void);
    stream_wait_event: b"cuStreamWaitEvent" = fn(*mut c_void, *mut c_void, c_uint);
    stream_is_capturing: b"cuStreamIsCapturing" = fn(*mut c_void, *mut c_int);
    pointer_attribute: b"cuPointerGetAttribute" = fn(*mut c_void, c_int, u64);
    error_name: b"cuGetErrorName" = fn(c_int, *mut *const c_char);
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

fn driver() -> PyResult<&'static Driver> {
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = Driver::open().map_err(|error| error::cuda(format!("no usable CUDA driver: {error}")))?;
    Ok(DRIVER.get_or_init(|| driver))
}

/// What the driver calls an error.
fn name_of(driver: &Driver, code: c_int) -> String {
    let mut name = std::ptr::null();
    // SAFETY: room for a pointer; the text is the driver's and stays.
    let found = unsafe { (driver.error_name)(code, &raw mut name) };
    if found != SUCCESS || name.is_null() {
        return format!("CUDA error {code}");
    }
    // SAFETY: a C string of the driver.
    format!("{} ({code})", unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

fn check(driver: &Driver, call: &str, code: c_int) -> PyResult<()> {
    match code {
        SUCCESS => Ok(()),
        _ => Err(error::cuda(format!("{call} failed: {}", name_of(driver, code)))),
    }
}

/// A context of the program: the primary one of a device, or the one that is current.
#[derive(Clone, Debug)]
pub(crate) struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: *mut c_void,
    /// The device whose primary context it is, which is held.
    held: Option<c_int>,
}

// SAFETY: a context's handle is used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Some(device), Some(driver)) = (self.held, DRIVER.get()) {
            // SAFETY: retained once by `Context::primary`.
            unsafe { (driver.primary_release)(device) };
        }
    }
}

impl Context {
    /// The context that a program means: the primary one of an ordinal, or of a device of torch,
    /// CuPy, Numba or cuda.core; `None`: the current one, and without one that of device 0.
    pub(crate) fn of(device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let ordinal = device.map_or(Ok(None), ordinal_of)?;
        // It says what is missing, and initialises the driver.
        Cuda::load().map_err(error::cuda)?;
        ordinal.map_or_else(Self::current, Self::primary)
    }

    fn current() -> PyResult<Self> {
        let (driver, mut handle) = (driver()?, null_mut());
        // SAFETY: room for a pointer.
        check(driver, "cuCtxGetCurrent", unsafe { (driver.current)(&raw mut handle) })?;
        if handle.is_null() {
            return Self::primary(0);
        }
        Ok(Self(Arc::new(Inner { handle, held: None })))
    }

    /// The primary context of a device.
    pub(crate) fn primary(ordinal: c_int) -> PyResult<Self> {
        let (driver, mut device, mut handle) = (driver()?, 0, null_mut());
        // SAFETY: room for a number.
        check(driver, &format!("device {ordinal}: cuDeviceGet"), unsafe {
            (driver.device_get)(&raw mut device, ordinal)
        })?;
        // SAFETY: room for a pointer; a device of the driver.
        check(driver, "cuDevicePrimaryCtxRetain", unsafe {
            (driver.primary_retain)(&raw mut handle, device)
        })?;
        Ok(Self(Arc::new(Inner { handle, held: Some(device) })))
    }

    /// The device in this context.
    pub(crate) fn device(&self) -> PyResult<Device> {
        let cuda = Cuda::load().map_err(error::cuda)?;
        // SAFETY: live: a primary context that is held, or the program's own, whose life
        // docs/python.md makes the program's duty.
        unsafe { Device::from_raw_context(&cuda, self.0.handle) }.map_err(error::cuda)
    }

    /// Makes a call with the context current.
    fn enter<R>(&self, call: impl FnOnce(&Driver) -> R) -> PyResult<R> {
        let driver = driver()?;
        // SAFETY: a live context.
        check(driver, "cuCtxPushCurrent", unsafe { (driver.push)(self.0.handle) })?;
        let result = call(driver);
        let mut popped = null_mut();
        // SAFETY: room for a pointer; it was pushed above.
        unsafe { (driver.pop)(&raw mut popped) };
        Ok(result)
    }

    /// Returns whether a stream is being captured.
    pub(crate) fn is_capturing(&self, stream: u64) -> PyResult<bool> {
        let mut status = 0;
        self.enter(|driver| {
            // SAFETY: a stream of the context: the program's promise; room for a number.
            check(driver, "cuStreamIsCapturing", unsafe {
                (driver.stream_is_capturing)(stream as *mut c_void, &raw mut status)
            })
        })??;
        Ok(status != 0)
    }

    /// The number of the device on which memory is; `None`: CUDA knows no such memory.
    pub(crate) fn device_of(&self, address: u64) -> PyResult<Option<u32>> {
        let mut ordinal = 0_u32;
        self.enter(|driver| {
            // SAFETY: room for a number; the driver only looks the address up.
            let code =
                unsafe { (driver.pointer_attribute)((&raw mut ordinal).cast(), DEVICE_ORDINAL, address) };
            match code {
                INVALID_VALUE => Ok(None),
                code => check(driver, "cuPointerGetAttribute", code).map(|()| Some(ordinal)),
            }
        })?
    }

    /// Makes an event for [`Event::record`]: before kernels run, for which the driver may wait.
    pub(crate) fn event(&self) -> PyResult<Event> {
        let mut event = null_mut();
        self.enter(|driver| {
            // SAFETY: room for a pointer; a context is current.
            check(driver, "cuEventCreate", unsafe { (driver.event_create)(&raw mut event, DISABLE_TIMING) })
        })??;
        Ok(Event { context: self.clone(), event })
    }
}

/// The end of what was launched on a stream.
#[derive(Debug)]
pub(crate) struct Event {
    context: Context,
    event: *mut c_void,
}

// SAFETY: an event's handle is used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Marks what is on the stream now.
    pub(crate) fn record(&self, stream: u64) -> PyResult<()> {
        self.context.enter(|driver| {
            // SAFETY: a live event; a stream of the context, or one of the default streams: the
            // program's promise.
            check(driver, "cuEventRecord", unsafe {
                (driver.event_record)(self.event, stream as *mut c_void)
            })
        })?
    }

    /// Lets what is put on a stream from now on wait for what was marked.
    pub(crate) fn hold_up(&self, stream: u64) -> PyResult<()> {
        self.context.enter(|driver| {
            // SAFETY: a live event; a stream of the context: the program's promise.
            check(driver, "cuStreamWaitEvent", unsafe {
                (driver.stream_wait_event)(stream as *mut c_void, self.event, 0)
            })
        })?
    }

    /// Returns whether all of that is done.
    ///
    /// # Errors
    /// What CUDA calls the fault of a kernel.
    pub(crate) fn is_done(&self) -> Result<bool, String> {
        let Some(driver) = DRIVER.get() else { return Ok(true) };
        // SAFETY: a live event.
        match unsafe { (driver.event_query)(self.event) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(name_of(driver, code)),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(driver) = DRIVER.get() {
            // SAFETY: made by `Context::event`, destroyed once; the driver waits for nothing.
            unsafe { (driver.event_destroy)(self.event) };
        }
    }
}

/// The number of a device; `None`: the current one.
fn ordinal_of(device: &Bound<'_, PyAny>) -> PyResult<Option<c_int>> {
    if device.is_none() {
        return Ok(None);
    }
    if device.is_instance_of::<PyInt>() {
        return device.extract().map(Some);
    }
    for name in ["index", "device_id", "id"] {
        match device.getattr(name) {
            // torch.device("cuda").
            Ok(ordinal) if ordinal.is_none() => return Ok(None),
            Ok(ordinal) if ordinal.is_instance_of::<PyInt>() => return ordinal.extract().map(Some),
            _ => {}
        }
    }
    let kind = device.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a device is its number, None (the current one), or a device of torch, cupy, numba or cuda.core, not {kind}"
    )))
}

/// The number of a stream: 0 is the default stream, an object is one of torch, CuPy, Numba or
/// cuda.core.
pub(crate) fn stream_of(stream: &Bound<'_, PyAny>) -> PyResult<u64> {
    let number = |value: &Bound<'_, PyAny>| value.extract::<u64>();
    if stream.is_none() {
        return Ok(0);
    }
    if stream.is_instance_of::<PyInt>() {
        return number(stream);
    }
    for name in ["cuda_stream", "ptr", "handle"] {
        let Ok(value) = stream.getattr(name) else { continue };
        if let Ok(found) = number(&value) {
            return Ok(found);
        }
        // ctypes' and cuda.bindings' handles.
        if let Ok(found) =
            value.getattr("value").and_then(|value| if value.is_none() { Ok(0) } else { number(&value) })
        {
            return Ok(found);
        }
        if let Ok(found) = value.call_method0("__int__").and_then(|value| number(&value)) {
            return Ok(found);
        }
    }
    // CUDA's own protocol.
    if let Ok(found) = stream.call_method0("__cuda_stream__") {
        return number(&found.get_item(1)?);
    }
    let kind = stream.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a stream is its handle as a number (0: the default stream), or a stream of torch, cupy, numba or cuda.core, not {kind}"
    )))
}
