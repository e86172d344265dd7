//! Arrays as memory that a queue reads or writes behind the program's back: by the buffer protocol,
//! `__cuda_array_interface__` or DLPack, without a copy.

use crate::buffer::View;
use crate::cuda;
use crate::dlpack;
use crate::error::made;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// What an operation does with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Where operations run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Runner<'a> {
    Cpu,
    /// On a stream of a GPU; with its number, and the event by which the stream follows others.
    Gpu {
        ordinal: u32,
        stream: u64,
        follows: &'a cuda::Event,
    },
}

/// The bytes of an array, which stay where they are until this is dropped, with the GIL held.
pub(crate) struct Array {
    pub(crate) address: u64,
    pub(crate) len: usize,
    _keep: Keep,
}

#[expect(dead_code, reason = "kept until the operation has ended")]
enum Keep {
    View(View),
    Object(Py<PyAny>),
}

/// A contiguous piece of memory, as a protocol describes it.
pub(crate) struct Described {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) is_contiguous: bool,
    pub(crate) is_read_only: bool,
    /// GPU memory.
    pub(crate) on_gpu: bool,
}

impl Array {
    /// The memory of an object, for an operation.
    ///
    /// # Errors
    /// What the object is, and what to pass instead.
    pub(crate) fn new(object: &Bound<'_, PyAny>, access: Access, runner: Runner<'_>) -> PyResult<Self> {
        let interface = match object.getattr("__cuda_array_interface__") {
            Ok(interface) => Some(interface),
            Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => None,
            // torch says what to call first.
            Err(error) => return Err(error),
        };
        if let Some(interface) = interface {
            let described = cuda_array(object, &interface)?;
            described.check(object, access, runner)?;
            if let Runner::Gpu { stream, follows, .. } = runner {
                follow(&interface, stream, follows)?;
            }
            return Ok(Self::of(&described, Keep::Object(object.clone().unbind())));
        }
        // SAFETY: a live object.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
            let view = View::array(object, access == Access::Write)?;
            let (address, len) = (view.address(), view.len());
            return Ok(Self { address, len, _keep: Keep::View(view) });
        }
        if object.hasattr("__dlpack__")? {
            let stream = if let Runner::Gpu { stream, .. } = runner { Some(stream) } else { None };
            if stream.is_none() && dlpack::device_of(object)?.is_gpu() {
                return Err(wrong_device(object, "is GPU memory, and the queue is of the CPU device"));
            }
            let capsule = dlpack::ask(object, stream)?;
            let described = dlpack::describe(&capsule)?;
            described.check(object, access, runner)?;
            return Ok(Self::of(&described, Keep::Object(capsule.unbind())));
        }
        Err(no_array(object))
    }

    const fn of(described: &Described, keep: Keep) -> Self {
        Self { address: described.address, len: described.len, _keep: keep }
    }
}

impl Described {
    fn check(&self, object: &Bound<'_, PyAny>, access: Access, runner: Runner<'_>) -> PyResult<()> {
        let py = object.py();
        let kind = kind_of(object);
        if !self.is_contiguous {
            let text = format!(
                "{kind} is not C-contiguous; pass a contiguous copy: a.contiguous(), cupy.ascontiguousarray(a)"
            );
            return Err(made::<PyBufferError>(py, text));
        }
        if self.is_read_only && access == Access::Write {
            return Err(made::<PyBufferError>(
                py,
                format!("{kind} is read-only; receive into a writable array"),
            ));
        }
        match runner {
            Runner::Cpu if self.on_gpu => {
                Err(wrong_device(object, "is GPU memory, and the queue is of the CPU device"))
            }
            Runner::Gpu { ordinal, .. } if self.on_gpu && self.len > 0 => {
                match cuda::device_of(self.address)? {
                    Some(found) if found == ordinal => Ok(()),
                    Some(found) => Err(wrong_device(
                        object,
                        &format!("is on device {found}, and the queue on device {ordinal}"),
                    )),
                    None => {
                        let text = format!(
                            "{kind} has its data at {:#x}, which is no memory that CUDA knows: was it freed?",
                            self.address
                        );
                        Err(made::<PyValueError>(py, text))
                    }
                }
            }
            _ => Ok(()),
        }
    }
}

fn kind_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

fn wrong_device(object: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let text = format!("{} {what}; copy it there first (.cpu(), .get(), .to(device))", kind_of(object));
    made::<PyValueError>(object.py(), text)
}

fn no_array(object: &Bound<'_, PyAny>) -> PyErr {
    let text = if object.is_instance_of::<PyString>() {
        "an array or a bytes-like object is required, not str; encode it first: text.encode()".to_owned()
    } else {
        format!(
            "an array is an object with a buffer (numpy, bytearray, bytes), a CUDA array (torch, cupy, numba) or a DLPack \
             tensor, not {}",
            kind_of(object)
        )
    };
    made::<PyTypeError>(object.py(), text)
}

/// What an object says by `__cuda_array_interface__`.
fn cuda_array(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>) -> PyResult<Described> {
    let malformed = |what: &str| {
        let text = format!("{}: __cuda_array_interface__ has no usable {what}", kind_of(object));
        made::<PyTypeError>(object.py(), text)
    };
    let interface = interface.cast::<PyDict>().map_err(|_| malformed("dict"))?;
    let item = |name: &str| Ok::<_, PyErr>(interface.get_item(name)?.filter(|value| !value.is_none()));
    if item("mask")?.is_some() {
        let text =
            format!("{} has a mask, which a stream of bytes cannot carry; pass its data", kind_of(object));
        return Err(made::<PyTypeError>(object.py(), text));
    }
    let shape = item("shape")?.and_then(|shape| shape.extract::<Vec<usize>>().ok());
    let shape = shape.ok_or_else(|| malformed("shape"))?;
    let kind = item("typestr")?.and_then(|kind| kind.extract::<String>().ok());
    let kind = kind.filter(|kind| kind.is_ascii() && kind.len() >= 3).ok_or_else(|| malformed("typestr"))?;
    if kind.as_bytes()[1] == b'O' {
        return Err(malformed("typestr: it has Python objects"));
    }
    let size = kind[2..].parse::<usize>().map_err(|_| malformed("typestr"))?;
    let data = item("data")?.and_then(|data| data.extract::<(Option<u64>, bool)>().ok());
    let (address, is_read_only) = data.ok_or_else(|| malformed("data"))?;
    let strides = item("strides")?.map(|strides| strides.extract::<Vec<isize>>());
    let strides = strides.transpose().map_err(|_| malformed("strides"))?;
    let len = bytes_of(&shape, size).ok_or_else(|| malformed("shape"))?;
    let is_contiguous = strides.is_none_or(|strides| is_contiguous(&shape, &strides, size));
    let address = address.unwrap_or(0);
    if address == 0 && len > 0 {
        return Err(malformed("data"));
    }
    Ok(Described { address, len, is_contiguous, is_read_only, on_gpu: true })
}

/// How many bytes an array has.
pub(crate) fn bytes_of(shape: &[usize], size: usize) -> Option<usize> {
    let bytes = shape.iter().try_fold(size, |bytes, &extent| bytes.checked_mul(extent))?;
    isize::try_from(bytes).is_ok().then_some(bytes)
}

/// Whether elements lie one behind another, the last index running fastest. `size` is the stride of
/// that one.
pub(crate) fn is_contiguous(shape: &[usize], strides: &[isize], size: usize) -> bool {
    if shape.len() != strides.len() {
        return false;
    }
    let mut expected = size;
    let mut ok = true;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        // The stride of one element, or of none, says nothing.
        ok &= extent == 1 || stride == expected.cast_signed();
        expected = expected.saturating_mul(extent);
    }
    ok || shape.contains(&0)
}

/// Lets a stream follow the one that the array's owner names, as the protocol asks for.
fn follow(interface: &Bound<'_, PyAny>, stream: u64, event: &cuda::Event) -> PyResult<()> {
    let other = interface.cast::<PyDict>().map(|interface| interface.get_item("stream"));
    match other {
        Ok(Ok(Some(other))) if !other.is_none() => {
            let other = other.extract::<u64>()?;
            if other != stream && !cuda::is_capturing(stream)? {
                event.record(other)?;
                event.hold_up(stream)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
