//! Memory of a device for its kernels.

use crate::attachment::AttachmentCore;
use crate::buffer::View;
use crate::detach::detach;
use crate::dlpack::Asked;
use crate::error::{self, Failure};
use crate::export::{self, Dtype, Exporter};
use crate::fork::Owned;
use crate::wait::lock;
use gpunet_proxy::DeviceBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

/// Zeroed memory of an attachment's device: an array of bytes for other libraries.
#[pyclass(frozen, weakref, module = "gpunet", name = "Memory")]
pub(crate) struct Memory {
    inner: Owned<Inner>,
}

struct Inner {
    /// Locked for copies; the addresses do not change.
    memory: Mutex<DeviceBuffer>,
    address: u64,
    len: usize,
    /// Of a GPU.
    ordinal: Option<u32>,
    _attachment: Arc<AttachmentCore>,
}

impl Inner {
    fn with<R>(&self, body: impl FnOnce(&Exporter<'_>) -> R) -> R {
        let shape = [self.len];
        body(&Exporter { address: self.address, shape: &shape, dtype: Dtype::BYTE, ordinal: self.ordinal })
    }
}

impl Memory {
    pub(crate) fn new(attachment: &Arc<AttachmentCore>, ordinal: Option<u32>, memory: DeviceBuffer) -> Self {
        // SAFETY: who passes the address to kernels keeps the object until they have ended: a rule
        // of docs/python.md.
        let buffer = unsafe { memory.buffer() };
        let (address, len) = (buffer.as_ptr() as u64, memory.len());
        let (memory, attachment) = (Mutex::new(memory), attachment.clone());
        Self { inner: Owned::new(Inner { memory, address, len, ordinal, _attachment: attachment }) }
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
        self.inner.get()?.with(|exporter| exporter.cuda_array_interface(py))
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        Ok(self.inner.get()?.with(|exporter| exporter.dlpack_device()))
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    #[allow(unused_variables, reason = "who makes tensors of it orders what writes it")]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked { max_version, dl_device, copy };
        slf.get().inner.get()?.with(|exporter| exporter.dlpack(slf, &asked))
    }

    /// # Safety
    /// The buffer protocol's: `view` is to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above.
        slf.get().inner.get()?.with(|exporter| unsafe { exporter.buffer(&slf, view, flags) })
    }

    /// # Safety
    /// The buffer protocol's: `__getbuffer__` has filled the view in.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: as above.
        unsafe { export::release(view) };
    }

    fn __repr__(&self) -> String {
        match self.inner.get() {
            Ok(inner) => format!("<gpunet.Memory of {} bytes at {:#x}>", inner.len, inner.address),
            Err(Failure { .. }) => "<gpunet.Memory of another process>".to_owned(),
        }
    }
}
