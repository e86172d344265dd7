//! Memory of a device for its kernels.

use crate::attachment::AttachmentCore;
use crate::buffer::View;
use crate::detach::detach;
use crate::error::{self, Failure};
use crate::fork::Owned;
use crate::wait::lock;
use gpunet_proxy::DeviceBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

/// Zeroed memory of an attachment's device. The CPU's is a buffer of the program; a GPU's is an
/// array by `__cuda_array_interface__`.
#[pyclass(frozen, weakref, module = "gpunet", name = "Memory")]
pub(crate) struct Memory {
    inner: Owned<Inner>,
}

struct Inner {
    /// Locked for copies; the addresses do not change.
    memory: Mutex<DeviceBuffer>,
    address: u64,
    len: usize,
    on_gpu: bool,
    _attachment: Arc<AttachmentCore>,
}

impl Memory {
    pub(crate) fn new(attachment: &Arc<AttachmentCore>, memory: DeviceBuffer) -> Self {
        // SAFETY: who passes the address to kernels keeps the object until they have ended: a rule
        // of docs/python.md.
        let buffer = unsafe { memory.buffer() };
        let (address, len) = (buffer.as_ptr() as u64, memory.len());
        let on_gpu = attachment.context().is_some();
        let (memory, attachment) = (Mutex::new(memory), attachment.clone());
        Self { inner: Owned::new(Inner { memory, address, len, on_gpu, _attachment: attachment }) }
    }

    fn check(&self, offset: usize, len: usize) -> PyResult<&Inner> {
        let inner = self.inner.get()?;
        if offset.checked_add(len).is_none_or(|end| end > inner.len) {
            let text = format!("{len} bytes at {offset} are not inside of {} bytes", inner.len);
            return Err(PyValueError::new_err(text));
        }
        Ok(inner)
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.inner.get()?.address)
    }

    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.inner.get()?.len)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.nbytes()
    }

    #[pyo3(signature = (data, offset=0))]
    fn write(&self, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<()> {
        let view = View::readable(data)?;
        let inner = self.check(offset, view.len())?;
        let bytes = view.bytes();
        detach(data.py(), || lock(&inner.memory).write(offset, bytes)).map_err(error::cuda)
    }

    #[pyo3(signature = (nbytes=None, offset=0))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        nbytes: Option<usize>,
        offset: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let len = nbytes.unwrap_or(self.nbytes()?.saturating_sub(offset));
        let inner = self.check(offset, len)?;
        PyBytes::new_with(py, len, |bytes| {
            detach(py, || lock(&inner.memory).read(offset, bytes)).map_err(error::cuda)
        })
    }

    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.inner.get()?;
        if !inner.on_gpu {
            return Err(pyo3::exceptions::PyAttributeError::new_err(
                "the memory of the CPU device is no CUDA array",
            ));
        }
        let dict = PyDict::new(py);
        dict.set_item("shape", (inner.len,))?;
        dict.set_item("typestr", "|u1")?;
        dict.set_item("data", (inner.address, false))?;
        dict.set_item("strides", py.None())?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    /// # Safety
    /// The buffer protocol's: `view` is to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let inner = slf.get().inner.get()?;
        if inner.on_gpu {
            return Err(PyBufferError::new_err(
                "this is GPU memory; copy it: memory.read(), memory.write(data)",
            ));
        }
        let (address, len) = (inner.address as *mut _, inner.len.cast_signed());
        // SAFETY: the memory stays where it is until the object is gone, which the view keeps.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        match self.inner.get() {
            Ok(inner) => format!("<gpunet.Memory of {} bytes at {:#x}>", inner.len, inner.address),
            Err(Failure { .. }) => "<gpunet.Memory of another process>".to_owned(),
        }
    }
}
