//! DLPack: tensors in capsules, as other libraries read them and give them.
//!
//! The layouts are those of DLPack 1.0 (`DLManagedTensorVersioned`), and of before
//! (`DLManagedTensor`), which most libraries still make.

use crate::array::{Described, bytes_of, is_contiguous};
use crate::detach::attach;
use crate::error::made;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// DLPACK_FLAG_BITMASK_READ_ONLY.
const READ_ONLY: u64 = 1;

/// Where a tensor is: a DLDevice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Place {
    kind: i32,
    number: i32,
}

impl Place {
    /// kDLCPU.
    pub(crate) const CPU: Self = Self { kind: 1, number: 0 };

    /// kDLCUDA.
    pub(crate) const fn gpu(number: u32) -> Self {
        Self { kind: 2, number: number.cast_signed() }
    }

    pub(crate) const fn is_gpu(self) -> bool {
        self.kind == 2
    }

    /// Memory that a CPU reads and writes: kDLCPU, kDLCUDAHost, kDLCUDAManaged.
    const fn is_host(self) -> bool {
        matches!(self.kind, 1 | 3 | 13)
    }

    pub(crate) fn tuple(self) -> (i32, i32) {
        (self.kind, self.number)
    }
}

/// DLDataType.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Kind {
    /// kDLInt (0), kDLUInt (1), kDLFloat (2), kDLBfloat (4), kDLComplex (5), kDLBool (6), ...
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    place: Place,
    ndim: i32,
    kind: Kind,
    shape: *mut i64,
    /// In elements; null: contiguous.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// Where an object says that its data is.
pub(crate) fn device_of(object: &Bound<'_, PyAny>) -> PyResult<Place> {
    let (kind, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    Ok(Place { kind, number })
}

/// Asks an object for its tensor, to be used on a stream if it is on a GPU. The capsule keeps the
/// data: who drops it without having taken the tensor calls its deleter.
pub(crate) fn ask<'py>(object: &Bound<'py, PyAny>, stream: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let keywords = PyDict::new(py);
    if let Some(stream) = stream.filter(|_| device_of(object).is_ok_and(Place::is_gpu)) {
        keywords.set_item("stream", stream)?;
    }
    let plain = keywords.copy()?;
    keywords.set_item("max_version", (1, 0))?;
    match object.call_method("__dlpack__", (), Some(&keywords)) {
        // Made before DLPack had versions.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            object.call_method("__dlpack__", (), Some(&plain))
        }
        asked => asked,
    }
}

/// What a capsule's tensor is.
pub(crate) fn describe(capsule: &Bound<'_, PyAny>) -> PyResult<Described> {
    let py = capsule.py();
    let pointer = |name: &CStr| {
        // SAFETY: a live object, and a text that stays.
        unsafe {
            (ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 0)
                .then(|| ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))
        }
    };
    let (tensor, flags): (*const Tensor, u64) = if let Some(managed) = pointer(VERSIONED) {
        let managed = managed.cast::<ManagedVersioned>();
        // SAFETY: a capsule of that name has such a value, whose first word is its version.
        let [major, _] = unsafe { (*managed).version };
        if major != 1 {
            return Err(made::<PyBufferError>(
                py,
                format!("a DLPack tensor of version {major}, and not of 1"),
            ));
        }
        // SAFETY: as above, in the layout of version 1.
        unsafe { (&raw const (*managed).tensor, (*managed).flags) }
    } else if let Some(managed) = pointer(PLAIN) {
        // SAFETY: a capsule of that name has such a value.
        (unsafe { &raw const (*managed.cast::<Managed>()).tensor }, 0)
    } else {
        return Err(made::<PyTypeError>(py, "__dlpack__ returned no tensor that is still there".to_owned()));
    };
    // SAFETY: it lives as long as the capsule, and nobody changes it.
    let tensor = unsafe { &*tensor };
    let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
    let numbers = |at: *const i64| match ndim {
        0 => &[][..],
        // SAFETY: an array of `ndim` numbers, by the protocol.
        _ => unsafe { std::slice::from_raw_parts(at, ndim) },
    };
    let malformed = || made::<PyBufferError>(py, "a DLPack tensor with a shape that cannot be".to_owned());
    let shape: Vec<usize> = numbers(tensor.shape)
        .iter()
        .map(|&n| usize::try_from(n))
        .collect::<Result<_, _>>()
        .map_err(|_| malformed())?;
    let bits = usize::from(tensor.kind.bits) * usize::from(tensor.kind.lanes);
    if bits == 0 || !bits.is_multiple_of(8) {
        return Err(made::<PyBufferError>(
            py,
            format!("elements of {bits} bits have no bytes; pass a view of uint8"),
        ));
    }
    if !tensor.place.is_host() && !tensor.place.is_gpu() {
        let text =
            format!("a DLPack tensor on a device of kind {}, and not of a CPU or CUDA", tensor.place.kind);
        return Err(made::<PyValueError>(py, text));
    }
    let len = bytes_of(&shape, bits / 8).ok_or_else(malformed)?;
    let strides: Vec<isize> = match tensor.strides.is_null() {
        true => Vec::new(),
        false => numbers(tensor.strides).iter().map(|&n| n as isize).collect(),
    };
    let is_contiguous = tensor.strides.is_null() || is_contiguous(&shape, &strides, 1);
    Ok(Described {
        address: (tensor.data as u64).wrapping_add(tensor.byte_offset),
        len,
        shape,
        kind: Some(tensor.kind),
        is_contiguous,
        is_read_only: flags & READ_ONLY != 0,
        on_gpu: tensor.place.is_gpu(),
    })
}

/// What a capsule of this module owns: the object that keeps the memory, and the shape.
struct Owner {
    _object: Py<PyAny>,
    shape: Box<[i64]>,
}

/// A contiguous array of this module's memory.
pub(crate) struct Exported<'a> {
    pub(crate) address: u64,
    pub(crate) place: Place,
    pub(crate) kind: Kind,
    pub(crate) shape: &'a [usize],
}

/// The arguments of `__dlpack__`, as far as they matter.
pub(crate) struct Asked<'py> {
    pub(crate) max_version: Option<Bound<'py, PyAny>>,
    pub(crate) dl_device: Option<Bound<'py, PyAny>>,
    pub(crate) copy: Option<bool>,
}

/// Makes a capsule with a tensor, which keeps `object`.
///
/// # Errors
/// BufferError for a copy, or another device.
pub(crate) fn export<'py>(
    object: &Bound<'py, PyAny>,
    exported: &Exported<'_>,
    asked: &Asked<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let refused = |text: &str| made::<PyBufferError>(py, text.to_owned());
    if asked.copy == Some(true) {
        return Err(refused("this memory is shared, and never copied: copy the array that is made of it"));
    }
    if let Some(device) = &asked.dl_device
        && device.extract::<(i32, i32)>()? != exported.place.tuple()
    {
        return Err(refused("this memory is on one device, and is not copied to another: copy the array"));
    }
    let is_versioned = match &asked.max_version {
        Some(version) => version.cast::<PyTuple>()?.get_item(0)?.extract::<u32>()? >= 1,
        None => false,
    };
    let shape = exported.shape.iter().map(|&extent| extent as i64).collect();
    let owner = Box::new(Owner { _object: object.clone().unbind(), shape });
    let tensor = Tensor {
        data: exported.address as *mut c_void,
        place: exported.place,
        ndim: owner.shape.len() as i32,
        kind: exported.kind,
        shape: owner.shape.as_ptr().cast_mut(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let context = Box::into_raw(owner).cast();
    let (pointer, name): (*mut c_void, _) = if is_versioned {
        let deleter = Some(delete_versioned as _);
        let managed = ManagedVersioned { version: [1, 0], context, deleter, flags: 0, tensor };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
    } else {
        let managed = Managed { tensor, context, deleter: Some(delete as _) };
        (Box::into_raw(Box::new(managed)).cast(), PLAIN)
    };
    // SAFETY: a pointer that is not null, a text that stays, and a destructor that takes both.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(drop_capsule)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// The destructor of a capsule: nobody has taken its tensor, or somebody has and has given the
/// capsule another name.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of `export`, which is being destroyed with the GIL held.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `export`, and deleted once.
    let managed = unsafe { Box::from_raw(managed) };
    delete_owner(managed.context);
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: made by `export`, and deleted once.
    let managed = unsafe { Box::from_raw(managed) };
    delete_owner(managed.context);
}

/// A consumer calls from any thread. When the interpreter ends, the memory stays until the process
/// is gone.
fn delete_owner(context: *mut c_void) {
    attach(|_| {
        // SAFETY: made by `export`, and deleted once.
        drop(unsafe { Box::from_raw(context.cast::<Owner>()) });
    });
}
