//! The memory of Python objects, by the buffer protocol, without a copy.

use crate::dlpack::Kind;
use crate::error::made;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// A contiguous piece of an object's memory. It stays where it is until this is dropped.
///
/// Other threads of the program may write it while a call without the GIL uses it, as with
/// `socket.socket`; then it is undefined which bytes are moved.
pub(crate) struct View {
    view: Box<ffi::Py_buffer>,
}

// SAFETY: a view is memory that its object keeps; it is released with the GIL held, which `Drop`
// takes care of.
unsafe impl Send for View {}

impl View {
    /// The memory of an object, to be read.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(object, ffi::PyBUF_SIMPLE)
    }

    /// The memory of an object, to be written.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(object, ffi::PyBUF_WRITABLE)
    }

    /// The memory of an array: as above, and of numbers.
    pub(crate) fn array(object: &Bound<'_, PyAny>, is_written: bool) -> PyResult<Self> {
        let flags = if is_written { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        // Some arrays have items for which the buffer protocol has no name.
        let view = Self::new(object, flags | ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_FORMAT)
            .or_else(|_| Self::new(object, flags))?;
        if !view.view.format.is_null() {
            // SAFETY: a C string of the object, which the view keeps.
            let format = unsafe { CStr::from_ptr(view.view.format) }.to_bytes();
            // Names of fields stand between colons.
            let kinds = format.split(|&byte| byte == b':').step_by(2).flatten();
            if kinds.into_iter().any(|kind| b"OPX&".contains(kind)) {
                let text = "the array's items are Python objects or pointers, which mean nothing elsewhere; pass numbers";
                return Err(made::<PyTypeError>(object.py(), text.to_owned()));
            }
        }
        Ok(view)
    }

    fn new(object: &Bound<'_, PyAny>, flags: i32) -> PyResult<Self> {
        let is_written = flags & ffi::PyBUF_WRITABLE != 0;
        Self::new_with(object, flags).map_err(|error| refused(object, is_written, error))
    }

    /// The same with the object's own error.
    fn new_with(object: &Bound<'_, PyAny>, flags: i32) -> PyResult<Self> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        // SAFETY: the object is live, and the view is writable memory for the answer.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the call has filled it in.
        Ok(Self { view: unsafe { view.assume_init() } })
    }

    pub(crate) fn len(&self) -> usize {
        self.view.len.unsigned_abs()
    }

    /// The shape, of a view that has one.
    pub(crate) fn shape(&self) -> Option<Vec<usize>> {
        let ndim = usize::try_from(self.view.ndim).unwrap_or(0);
        match self.view.shape.is_null() {
            true if self.view.format.is_null() || ndim > 0 => None,
            true => Some(Vec::new()),
            // SAFETY: an array of `ndim` numbers, by the protocol.
            false => Some((0..ndim).map(|at| unsafe { *self.view.shape.add(at) }.unsigned_abs()).collect()),
        }
    }

    /// What the elements are, of a view that says it: numbers of this machine.
    pub(crate) fn kind(&self) -> Option<Kind> {
        if self.view.format.is_null() {
            return None;
        }
        // SAFETY: a C string of the object, which the view keeps.
        let format = unsafe { CStr::from_ptr(self.view.format) }.to_bytes();
        let format = format.strip_prefix(b"@").or(format.strip_prefix(b"=")).unwrap_or(format);
        let code = match format.strip_prefix(b"<").unwrap_or(format) {
            [b'b' | b'h' | b'i' | b'l' | b'q' | b'n'] => 0,
            [b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' | b'c'] => 1,
            [b'e' | b'f' | b'd'] => 2,
            [b'Z', b'f' | b'd'] => 5,
            [b'?'] => 6,
            _ => return None,
        };
        Some(Kind { code, bits: u8::try_from(8 * self.view.itemsize).ok()?, lanes: 1 })
    }

    pub(crate) fn address(&self) -> u64 {
        self.view.buf as u64
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: `len` bytes from `buf` on, which the object keeps until the view is released. See
        // the type for who writes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast(), self.len()) }
    }

    /// The bytes, of a view that is writable.
    pub(crate) fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        debug_assert!(self.view.readonly == 0);
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as in `bytes`; the object has said that it may be written.
        unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast(), self.len()) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: it was filled in, and is released once.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.view) });
    }
}

/// Says what to do about an object whose memory cannot be used.
fn refused(object: &Bound<'_, PyAny>, to_write: bool, error: PyErr) -> PyErr {
    let py = object.py();
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    let on_gpu = object.hasattr("__cuda_array_interface__").unwrap_or(false);
    let has_own_error =
        !error.is_instance_of::<PyTypeError>(py) && !error.is_instance_of::<PyBufferError>(py);
    // numpy's for an array that is not contiguous, or read-only, is a ValueError, too.
    if has_own_error && View::new_with(object, ffi::PyBUF_STRIDED_RO).is_err() {
        // The object says itself what is wrong, such as that it was closed.
        if !object.is_instance_of::<PyMemoryView>() {
            return error;
        }
        let text = "the memoryview was released; pass the object itself, or a new view of it";
        return caused(made::<PyValueError>(py, text.to_owned()), py, error);
    }
    let refusal = if on_gpu {
        made::<PyTypeError>(
            py,
            format!(
                "{kind} is GPU memory, and a host socket moves host memory; send it from a kernel, or copy it first (.cpu(), .get())"
            ),
        )
    } else if object.is_instance_of::<pyo3::types::PyString>() {
        made::<PyTypeError>(
            py,
            "a bytes-like object is required, not str; encode it first: text.encode()".to_owned(),
        )
    } else if error.is_instance_of::<PyTypeError>(py) {
        made::<PyTypeError>(
            py,
            format!("a bytes-like object is required, not {kind} (of a torch tensor pass tensor.numpy())"),
        )
    } else if to_write && View::readable(object).is_ok() {
        made::<PyBufferError>(
            py,
            format!("{kind} is read-only; receive into a bytearray or a writable array"),
        )
    } else {
        made::<PyBufferError>(
            py,
            format!(
                "{kind} is not C-contiguous; pass a contiguous copy: numpy.ascontiguousarray(a), bytes(view)"
            ),
        )
    };
    caused(refusal, py, error)
}

fn caused(refusal: PyErr, py: Python<'_>, error: PyErr) -> PyErr {
    refusal.set_cause(py, Some(error));
    refusal
}
