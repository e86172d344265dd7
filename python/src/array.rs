//! Arrays as memory that a queue reads or writes behind the program's back: by the buffer protocol,
//! `__cuda_array_interface__` or DLPack, without a copy.

use crate::buffer::View;
use crate::cuda::{Context, Event};
use crate::dlpack::{self, Kind};
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
    Gpu(&'a OnStream),
    /// Where the array is. Who runs them orders them behind what uses it.
    Anywhere,
}

/// A stream of a GPU.
#[derive(Debug)]
pub(crate) struct OnStream {
    pub(crate) context: Context,
    /// The GPU's number.
    pub(crate) ordinal: u32,
    pub(crate) stream: u64,
    /// By which it follows the streams that arrays name.
    pub(crate) follows: Event,
    /// The object that has the stream, if it is not a number.
    pub(crate) _owner: Py<PyAny>,
}

/// The bytes of an array, which stay where they are until this is dropped, with the GIL held.
pub(crate) struct Array {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) shape: Vec<usize>,
    /// `None`: of a type for which its protocol has no name.
    pub(crate) kind: Option<Kind>,
    /// GPU memory.
    pub(crate) on_gpu: bool,
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
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: Option<Kind>,
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
        let has_dlpack = || object.hasattr("__dlpack__");
        let interface = match object.getattr("__cuda_array_interface__") {
            Ok(interface) => Some(interface),
            Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => None,
            // A type for which it has no name.
            Err(_) if has_dlpack()? => None,
            Err(error) => return Err(error),
        };
        if let Some(interface) = interface {
            let described = cuda_array(object, &interface)?;
            // Who needs the type asks the protocol that has more of them.
            let is_named = described.kind.is_some() || !matches!(runner, Runner::Anywhere) || !has_dlpack()?;
            if is_named {
                described.check(object, access, runner)?;
                if let Runner::Gpu(on) = runner {
                    follow(&interface, on)?;
                }
                return Ok(Self::of(described, Keep::Object(object.clone().unbind())));
            }
        }
        // SAFETY: a live object.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
            let view = View::array(object, access == Access::Write)?;
            let (address, len, kind) = (view.address(), view.len(), view.kind());
            let shape = match view.shape() {
                Some(shape) => shape,
                // What has no name for its type has a shape nevertheless.
                None => object.getattr("shape").and_then(|shape| shape.extract()).unwrap_or(vec![len]),
            };
            return Ok(Self { address, len, shape, kind, on_gpu: false, _keep: Keep::View(view) });
        }
        if has_dlpack()? {
            let stream = match runner {
                Runner::Gpu(on) => Some(on.stream.cast_signed()),
                // The protocol's number for a consumer that orders itself.
                Runner::Anywhere => Some(-1),
                Runner::Cpu if dlpack::device_of(object)?.is_gpu() => {
                    return Err(wrong_device(object, "is GPU memory, and the queue is of the CPU device"));
                }
                Runner::Cpu => None,
            };
            let capsule = dlpack::ask(object, stream)?;
            let described = dlpack::describe(&capsule)?;
            described.check(object, access, runner)?;
            return Ok(Self::of(described, Keep::Object(capsule.unbind())));
        }
        Err(no_array(object))
    }

    fn of(described: Described, keep: Keep) -> Self {
        let Described { address, len, shape, kind, on_gpu, .. } = described;
        Self { address, len, shape, kind, on_gpu, _keep: keep }
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
            Runner::Gpu(on) if self.on_gpu && self.len > 0 => match on.context.device_of(self.address)? {
                Some(found) if found == on.ordinal => Ok(()),
                Some(found) => Err(wrong_device(
                    object,
                    &format!("is on device {found}, and the queue on device {}", on.ordinal),
                )),
                None => {
                    let text = format!(
                        "{kind} has its data at {:#x}, which is no memory that CUDA knows: was it freed?",
                        self.address
                    );
                    Err(made::<PyValueError>(py, text))
                }
            },
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
    let of_cuda = |code| Kind { code, bits: u8::try_from(8 * size).unwrap_or(0), lanes: 1 };
    let kind = match kind.as_bytes() {
        [b'>', ..] => None,
        [_, b'i', ..] => Some(of_cuda(0)),
        [_, b'u', ..] => Some(of_cuda(1)),
        [_, b'f', ..] => Some(of_cuda(2)),
        [_, b'c', ..] => Some(of_cuda(5)),
        [_, b'b', ..] => Some(of_cuda(6)),
        _ => None,
    };
    Ok(Described { address, len, shape, kind, is_contiguous, is_read_only, on_gpu: true })
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
fn follow(interface: &Bound<'_, PyAny>, on: &OnStream) -> PyResult<()> {
    let named = interface.cast::<PyDict>().ok().and_then(|interface| interface.get_item("stream").ok()?);
    let Some(named) = named.filter(|named| !named.is_none()) else { return Ok(()) };
    let named = named.extract::<u64>()?;
    if named != on.stream && !on.context.is_capturing(on.stream)? {
        on.follows.record(named)?;
        on.follows.hold_up(on.stream)?;
    }
    Ok(())
}
