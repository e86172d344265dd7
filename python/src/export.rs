//! Memory of this package as arrays of other libraries: by the buffer protocol where a CPU has it,
//! by `__cuda_array_interface__` where a GPU has it, by DLPack in both cases. None of them copies.

use crate::dlpack::{self, Asked, Kind, Place};
use crate::error::made;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::ffi::{CStr, c_int};
use std::ptr::null_mut;

/// A type of elements, as the libraries call it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dtype {
    pub(crate) name: &'static str,
    /// As `__cuda_array_interface__` writes it, and as a short name.
    code: &'static str,
    /// As the buffer protocol writes it, where it can.
    format: Option<&'static CStr>,
    kind: Kind,
}

const fn dtype(
    name: &'static str,
    code: &'static str,
    format: Option<&'static CStr>,
    kind: u8,
    bits: u8,
) -> Dtype {
    Dtype { name, code, format, kind: Kind { code: kind, bits, lanes: 1 } }
}

const DTYPES: [Dtype; 15] = [
    dtype("uint8", "|u1", Some(c"B"), 1, 8),
    dtype("int8", "|i1", Some(c"b"), 0, 8),
    dtype("uint16", "<u2", Some(c"H"), 1, 16),
    dtype("int16", "<i2", Some(c"h"), 0, 16),
    dtype("uint32", "<u4", Some(c"I"), 1, 32),
    dtype("int32", "<i4", Some(c"i"), 0, 32),
    dtype("uint64", "<u8", Some(c"Q"), 1, 64),
    dtype("int64", "<i8", Some(c"q"), 0, 64),
    dtype("float16", "<f2", Some(c"e"), 2, 16),
    dtype("bfloat16", "<V2", None, 4, 16),
    dtype("float32", "<f4", Some(c"f"), 2, 32),
    dtype("float64", "<f8", Some(c"d"), 2, 64),
    dtype("bool", "|b1", Some(c"?"), 6, 8),
    dtype("complex64", "<c8", Some(c"Zf"), 5, 64),
    dtype("complex128", "<c16", Some(c"Zd"), 5, 128),
];

impl Dtype {
    /// Bytes.
    pub(crate) const BYTE: Self = DTYPES[0];

    /// The type that a program means: a name, or a type of numpy, torch, cupy or Python.
    pub(crate) fn parse(dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = match dtype.cast::<PyString>() {
            Ok(name) => name.to_string(),
            Err(_) => ["name", "__name__"]
                .iter()
                .find_map(|attribute| dtype.getattr(*attribute).ok()?.extract::<String>().ok())
                // torch's.
                .map_or_else(|| Ok::<_, PyErr>(dtype.str()?.to_string()), Ok)?,
        };
        let short = name.rsplit('.').next().unwrap_or_default();
        let short = match short {
            "float" => "float64",
            "half" => "float16",
            "int" => "int64",
            "complex" => "complex128",
            short => short.trim_start_matches(['<', '=', '|']),
        };
        let is_it = |found: &&Self| found.name == short || found.code[1..] == *short;
        DTYPES.iter().find(is_it).copied().ok_or_else(|| {
            let names: Vec<_> = DTYPES.iter().map(|found| found.name).collect();
            let text =
                format!("a dtype is one of {} (numpy's, torch's or a name), not {name}", names.join(", "));
            made::<PyTypeError>(dtype.py(), text)
        })
    }

    /// Bytes of an element.
    pub(crate) const fn size(self) -> usize {
        self.kind.bits as usize / 8
    }
}

/// A contiguous array in memory that an object keeps.
pub(crate) struct Exporter<'a> {
    pub(crate) address: u64,
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: Dtype,
    /// The GPU that has it in its address space.
    pub(crate) ordinal: Option<u32>,
}

/// What a view of the buffer protocol points to, until it is released.
struct Shape {
    shape: Box<[isize]>,
    strides: Box<[isize]>,
}

impl Exporter<'_> {
    fn place(&self) -> Place {
        self.ordinal.map_or(Place::CPU, Place::gpu)
    }

    fn len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    pub(crate) fn dlpack_device(&self) -> (i32, i32) {
        self.place().tuple()
    }

    pub(crate) fn dlpack<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        asked: &Asked<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (address, place, kind, shape) = (self.address, self.place(), self.dtype.kind, self.shape);
        dlpack::export(object, &dlpack::Exported { address, place, kind, shape }, asked)
    }

    pub(crate) fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.ordinal.is_none() {
            let text = "the memory of the CPU device is no CUDA array".to_owned();
            return Err(made::<PyAttributeError>(py, text));
        }
        let dict = PyDict::new(py);
        dict.set_item("shape", PyTuple::new(py, self.shape)?)?;
        dict.set_item("typestr", self.dtype.code)?;
        dict.set_item("data", (self.address, false))?;
        dict.set_item("strides", py.None())?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    /// Fills a view of the buffer protocol, for [`release`] to release.
    ///
    /// # Safety
    /// `view` is to be filled in.
    pub(crate) unsafe fn buffer(
        &self,
        object: &Bound<'_, PyAny>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let refused = |text: &str| made::<PyBufferError>(object.py(), text.to_owned());
        if self.ordinal.is_some() {
            return Err(refused(
                "this is GPU memory; copy it: memory.read(), torch.from_dlpack(memory).cpu()",
            ));
        }
        let Some(format) = self.dtype.format else {
            return Err(refused("the buffer protocol has no bfloat16; use torch.from_dlpack(memory)"));
        };
        let (address, len) = (self.address as *mut _, self.len().cast_signed());
        // SAFETY: the memory stays where it is until the object is gone, which the view keeps.
        if unsafe { ffi::PyBuffer_FillInfo(view, object.as_ptr(), address, len, 0, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let shape: Box<[isize]> = self.shape.iter().map(|extent| extent.cast_signed()).collect();
        let mut stride = self.dtype.size().cast_signed();
        let mut strides: Box<[isize]> = shape
            .iter()
            .rev()
            .map(|extent| {
                let own = stride;
                stride *= extent;
                own
            })
            .collect();
        strides.reverse();
        let shape = Box::new(Shape { shape, strides });
        // SAFETY: filled in above, as bytes; what it points to stays until `release`. Who asks for
        // less gets less.
        unsafe {
            (*view).itemsize = self.dtype.size().cast_signed();
            (*view).ndim = shape.shape.len() as c_int;
            if flags & ffi::PyBUF_FORMAT != 0 {
                (*view).format = format.as_ptr().cast_mut();
            }
            if flags & ffi::PyBUF_ND != 0 {
                (*view).shape = shape.shape.as_ptr().cast_mut();
            }
            if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
                (*view).strides = shape.strides.as_ptr().cast_mut();
            }
            (*view).internal = Box::into_raw(shape).cast();
        }
        Ok(())
    }
}

/// Releases a view.
///
/// # Safety
/// [`Exporter::buffer`] has filled it in.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: as above; a view is released once.
    unsafe {
        let shape = std::mem::replace(&mut (*view).internal, null_mut());
        if !shape.is_null() {
            drop(Box::from_raw(shape.cast::<Shape>()));
        }
    }
}
