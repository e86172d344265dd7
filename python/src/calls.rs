//! Functions of Python that kernels call.
//!
//! A thread of the library's pool runs a function, with the GIL. Nobody waits for these threads
//! with the GIL held.

use crate::attachment::AttachmentCore;
use crate::buffer::View;
use crate::detach::{attach, detach};
use crate::error::Failure;
use crate::fork::Owned;
use crate::wait::lock;
use gpunet_calls_host::{CallServer, Error as Refused, Functions, Settings, number_of};
use gpunet_device::Error;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use serde_json::json;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Functions that kernels call, until it is closed. The memory of the calls stays until the object
/// is gone: kernels that still run look there.
#[pyclass(frozen, weakref, module = "gpunet", name = "Calls")]
pub(crate) struct Calls {
    /// `None` when the object is gone.
    server: Owned<Mutex<Option<CallServer>>>,
    is_closed: AtomicBool,
    _attachment: Arc<AttachmentCore>,
}

thread_local! {
    /// This thread runs a function for a kernel.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// The bytes of a value that kernels get as a parameter.
///
/// # Safety
/// It has no padding.
pub(crate) unsafe fn value_bytes<'py, T>(py: Python<'py>, value: &T) -> Bound<'py, PyBytes> {
    // SAFETY: so many bytes, all of them initialised by the caller's promise.
    PyBytes::new(py, unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) })
}

/// Runs a function; what it raises is an errno for the kernel.
fn run(py: Python<'_>, function: &Py<PyAny>, request: &[u8], room: &mut [u8]) -> Result<usize, Error> {
    let answered = function.call1(py, (PyBytes::new(py, request),)).and_then(|answer| {
        let answer = answer.into_bound(py);
        if answer.is_none() {
            return Ok(0);
        }
        let view = View::readable(&answer)?;
        // More than there is room for fails the call.
        if let Some(to) = room.get_mut(..view.len()) {
            to.copy_from_slice(view.bytes());
        }
        Ok(view.len())
    });
    answered.map_err(|error| {
        let errno = error.value(py).getattr("errno").and_then(|errno| errno.extract::<i32>());
        match errno {
            Ok(errno @ 1..=4095) if error.is_instance_of::<PyOSError>(py) => Error::from_errno(errno),
            _ => {
                error.write_unraisable(py, Some(function.bind(py)));
                Error::ConnectionAborted
            }
        }
    })
}

fn add(
    functions: &mut Functions,
    key: &Bound<'_, PyAny>,
    function: Py<PyAny>,
    most: (usize, usize),
) -> PyResult<()> {
    let py = key.py();
    if !function.bind(py).is_callable() {
        return Err(PyTypeError::new_err(format!("the function {} cannot be called", key.repr()?)));
    }
    let number = if let Ok(name) = key.cast::<PyString>() {
        number_of(&name.to_cow()?)
    } else {
        let number = key.extract::<u32>().ok().filter(|number| number >> 30 == 0);
        let text = || format!("a function has a name, or a number below 2**30, not {key:?}");
        number.ok_or_else(|| PyValueError::new_err(text()))?
    };
    let body = move |request: &[u8], room: &mut [u8]| {
        RUNS.set(true);
        let result = attach(|py| run(py, &function, request, room));
        RUNS.set(false);
        // The interpreter ends.
        result.unwrap_or(Err(Error::NetworkDown))
    };
    functions.add_bytes(number, most.0, most.1, body).map_err(|_| {
        PyValueError::new_err(format!(
            "{key:?} has the number of another function: choose another name or number"
        ))
    })?;
    Ok(())
}

impl Calls {
    pub(crate) fn new(
        core: &Arc<AttachmentCore>,
        functions: &Bound<'_, PyDict>,
        settings: Settings,
        most: (usize, usize),
        names: bool,
    ) -> PyResult<Self> {
        let mut all = Functions::new();
        if names {
            // It is the first function.
            let _ = all.add_names();
        }
        for (key, function) in functions {
            add(&mut all, &key, function.unbind(), most)?;
        }
        let made =
            detach(functions.py(), || core.with(|attachment| CallServer::start(attachment, all, settings)))?;
        let server = made.map_err(|error| match error {
            Refused::Shape { .. } => PyValueError::new_err(error.to_string()),
            Refused::Alloc(error) => crate::error::alloc(&error),
            error => Failure::new(libc::ENOMEM, error.to_string()).into(),
        })?;
        let server = Owned::new(Mutex::new(Some(server)));
        Ok(Self { server, is_closed: AtomicBool::new(false), _attachment: core.clone() })
    }

    fn with<R>(&self, body: impl FnOnce(&CallServer) -> R) -> PyResult<R> {
        let server = self.server.get()?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("set of functions").into());
        }
        lock(server).as_ref().map(body).ok_or_else(|| Failure::closed("set of functions").into())
    }
}

#[pymethods]
impl Calls {
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        // SAFETY: who passes the value to kernels keeps the object until they have ended: a rule of
        // docs/python.md.
        let value = self.with(|server| unsafe { server.calls() })?;
        // SAFETY: two addresses and four numbers, without padding.
        Ok(unsafe { value_bytes(py, &value) })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let counts = self.with(CallServer::counts)?;
        let value = json!({
            "answered": counts.answered,
            "told": counts.told,
            "failed": counts.failed,
            "late": counts.late,
            "malformed": counts.malformed,
        });
        crate::plain::python(py, &value)
    }

    fn close(&self, py: Python<'_>) -> PyResult<usize> {
        if RUNS.get() {
            let text = "a function that a kernel calls cannot wait for its own end: close it elsewhere";
            return Err(Failure::new(libc::EDEADLK, text).into());
        }
        let server = self.server.get()?;
        // Ordering: Relaxed; the lock orders the rest.
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(0);
        }
        // Functions that run need the GIL.
        Ok(detach(py, || lock(server).as_mut().map_or(0, CallServer::stop)))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        self.server.get()?;
        Ok(self.is_closed.load(Ordering::Relaxed))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py).map(drop)
    }

    fn __repr__(&self) -> String {
        match self.closed() {
            Ok(false) => "<gpunet.Calls>".to_owned(),
            _ => "<gpunet.Calls [closed]>".to_owned(),
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let Ok(server) = self.server.get() else { return };
        if let Some(server) = lock(server).take() {
            // Not here: functions that run need the GIL, which this thread may hold.
            crate::job::begin(move || drop(server));
        }
    }
}
