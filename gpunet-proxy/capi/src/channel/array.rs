//! Arrays, as C describes them and DLPack does.

use crate::failure::{Failure, done};
use crate::memory::{self, Out};
use gpu_usermap::cuda::{Cuda, Device};
use gpunet_channel::{Array, ArrayMut, Dtype, MAX_DIMS, MAX_NAME};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// The most dimensions of an array.
pub const GPUNET_HOST_MAX_DIMS: usize = 64;
const _: () = assert!(GPUNET_HOST_MAX_DIMS == MAX_DIMS);

/// Code of gpunet_host_dtype: integers.
pub const GPUNET_HOST_INT: u8 = 0;
/// Code of gpunet_host_dtype: unsigned integers.
pub const GPUNET_HOST_UINT: u8 = 1;
/// Code of gpunet_host_dtype: IEEE numbers.
pub const GPUNET_HOST_FLOAT: u8 = 2;
/// Code of gpunet_host_dtype: bfloat16.
pub const GPUNET_HOST_BFLOAT: u8 = 4;
/// Code of gpunet_host_dtype: complex numbers.
pub const GPUNET_HOST_COMPLEX: u8 = 5;
/// Code of gpunet_host_dtype: booleans.
pub const GPUNET_HOST_BOOL: u8 = 6;

/// Where an array lies: memory of the CPU; 0 is the same. The number is DLPack's.
pub const GPUNET_HOST_CPU: i32 = 1;
/// Where an array lies: memory of a GPU. The number is DLPack's.
pub const GPUNET_HOST_CUDA: i32 = 2;
/// Where an array lies: pinned memory of the CPU. The number is DLPack's.
pub const GPUNET_HOST_CUDA_HOST: i32 = 3;

/// What the elements of an array are: DLPack's DLDataType, whose other codes are valid, too. The
/// two ends compare it, and convert nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gpunet_host_dtype {
    /// GPUNET_HOST_INT and its like.
    pub code: u8,
    /// The bits of a lane.
    pub bits: u8,
    /// The lanes of an element. 0: 1.
    pub lanes: u16,
}

impl From<gpunet_host_dtype> for Dtype {
    fn from(given: gpunet_host_dtype) -> Self {
        Self { code: given.code, bits: given.bits, lanes: given.lanes.max(1) }
    }
}

impl From<Dtype> for gpunet_host_dtype {
    fn from(Dtype { code, bits, lanes }: Dtype) -> Self {
        Self { code, bits, lanes }
    }
}

/// An array: contiguous, in row-major order, without gaps.
///
///     float weights[2][3];
///     int64_t shape[] = {2, 3};
///     gpunet_host_array array = {weights, shape, "weights", 2, {GPUNET_HOST_FLOAT, 32, 1}, GPUNET_HOST_CPU, 0};
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gpunet_host_array {
    /// The first element. A send reads from there only. May be NULL for an array without elements.
    pub data: *mut c_void,
    /// The lengths of the dimensions, in elements. May be NULL for rank 0.
    pub shape: *const i64,
    /// The name by which the other end finds the array among several, at most 1,024 bytes. NULL or
    /// "": it has none, and counts by its place.
    pub name: *const c_char,
    /// How many dimensions there are, 0 to GPUNET_HOST_MAX_DIMS. One of rank 0 has one element.
    pub rank: u32,
    /// What the elements are.
    pub dtype: gpunet_host_dtype,
    /// Where it lies: GPUNET_HOST_CPU, GPUNET_HOST_CUDA or GPUNET_HOST_CUDA_HOST.
    pub device_type: i32,
    /// The GPU's number for GPUNET_HOST_CUDA. The memory is one of its primary context, which the
    /// CUDA runtime uses.
    pub device_id: i32,
}

/// The GPUs that a channel has met, which stay open with it.
#[derive(Default)]
pub(super) struct Devices(Mutex<HashMap<u32, Device>>);

impl Devices {
    pub(super) fn get(&self, number: i32) -> Result<Device, Failure> {
        let number = u32::try_from(number)
            .map_err(|_| Failure::new(libc::EINVAL, format!("no GPU has the number {number}")))?;
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&number) {
            return Ok(device.clone());
        }
        Ok(devices.entry(number).or_insert(Cuda::load()?.device(number)?).clone())
    }
}

/// An array of the program's whose description was judged.
pub(super) struct Given {
    dtype: Dtype,
    shape: Vec<u64>,
    name: String,
    /// `None`: memory of the CPU.
    device: Option<Device>,
    address: usize,
    len: usize,
}

fn invalid(text: String) -> Failure {
    Failure::new(libc::EINVAL, text)
}

fn given(array: &gpunet_host_array, devices: &Devices) -> Result<Given, Failure> {
    if array.rank as usize > MAX_DIMS {
        return Err(invalid(format!("an array has at most {MAX_DIMS} dimensions, not {}", array.rank)));
    }
    if array.rank > 0 && array.shape.is_null() {
        return Err(Failure::new(libc::EFAULT, "the shape is null"));
    }
    let shape = memory::slice(array.shape, array.rank as usize)?
        .iter()
        .map(|&dim| u64::try_from(dim).map_err(|_| invalid(format!("a dimension has {dim} elements"))))
        .collect::<Result<Vec<_>, _>>()?;
    let name = memory::text(array.name, "the name")?.unwrap_or_default();
    if name.len() > MAX_NAME {
        return Err(invalid(format!("a name has at most {MAX_NAME} bytes, not {}", name.len())));
    }
    let dtype = Dtype::from(array.dtype);
    let elements = if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))
    };
    let len = elements
        .and_then(|elements| dtype.bytes_of(elements))
        .and_then(|len| isize::try_from(len).ok())
        .ok_or_else(|| invalid(format!("no array has {dtype} of shape {shape:?}")))?
        .unsigned_abs();
    let address = array.data.expose_provenance();
    if address == 0 && len > 0 {
        return Err(Failure::new(libc::EFAULT, format!("the data of the array {name:?} is null")));
    }
    if address.checked_add(len).is_none() {
        return Err(invalid(format!("no memory has {len} bytes at {address:#x}")));
    }
    let device = match array.device_type {
        0 | GPUNET_HOST_CPU | GPUNET_HOST_CUDA_HOST => None,
        GPUNET_HOST_CUDA => Some(devices.get(array.device_id)?),
        other => {
            return Err(invalid(format!(
                "an array lies on a device of type {other}; channels know GPUNET_HOST_CPU, _CUDA and _CUDA_HOST"
            )));
        }
    };
    Ok(Given { dtype, shape, name: name.to_owned(), device, address, len })
}

impl Given {
    /// Judges `count` arrays of the program.
    ///
    /// # Errors
    /// EFAULT; EINVAL, also for too many arrays; ENODEV and EIO for GPUs.
    pub(super) fn all(
        arrays: *const gpunet_host_array,
        count: usize,
        devices: &Devices,
    ) -> Result<Vec<Self>, Failure> {
        if count > gpunet_channel::MAX_ARRAYS {
            return Err(invalid(format!("a transfer has at most {} arrays", gpunet_channel::MAX_ARRAYS)));
        }
        memory::slice(arrays, count)?.iter().map(|array| given(array, devices)).collect()
    }

    pub(super) fn bytes(all: &[Self]) -> u64 {
        all.iter().map(|given| given.len as u64).sum()
    }

    /// # Errors
    /// EINVAL: two arrays share bytes, of which a receive would write both.
    pub(super) fn check_apart(all: &[Self]) -> Result<(), Failure> {
        let mut places: Vec<_> = all.iter().filter(|given| given.len > 0).collect();
        places.sort_unstable_by_key(|given| given.address);
        match places.windows(2).find(|two| two[0].address + two[0].len > two[1].address) {
            Some(two) => {
                let text = format!("the arrays {:?} and {:?} share memory", two[0].name, two[1].name);
                Err(Failure::new(libc::EINVAL, text))
            }
            None => Ok(()),
        }
    }

    /// Takes the array as one to be sent.
    pub(super) fn source(&self) -> Result<Array<'static>, Failure> {
        let array = match &self.device {
            // SAFETY: an address of the device, whose memory stays until the transfer has ended,
            // and which nobody writes: the caller's promise.
            Some(device) => unsafe { Array::on_gpu(device, self.address as u64, self.dtype, &self.shape) }?,
            None if self.len == 0 => Array::new(self.dtype, &self.shape, &[])?,
            None => {
                let first = std::ptr::with_exposed_provenance(self.address);
                // SAFETY: not null, readable for so many bytes, which stay until the transfer has
                // ended, and which nobody writes: the caller's promise.
                Array::new(self.dtype, &self.shape, unsafe { std::slice::from_raw_parts(first, self.len) })?
            }
        };
        Ok(array.named(&self.name))
    }

    /// Takes the array as one to be received.
    pub(super) fn target(&self) -> Result<ArrayMut<'static>, Failure> {
        let array = match &self.device {
            Some(device) => {
                let address = self.address as u64;
                // SAFETY: as in `source`, and nobody reads it.
                unsafe { ArrayMut::on_gpu(device, address, self.dtype, &self.shape) }?
            }
            None if self.len == 0 => ArrayMut::new(self.dtype, &self.shape, &mut [])?,
            None => {
                let first = std::ptr::with_exposed_provenance_mut(self.address);
                // SAFETY: as in `source`, and nobody reads it: no other array of the transfer
                // (`check_apart`), and no other code by the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts_mut(first, self.len) };
                ArrayMut::new(self.dtype, &self.shape, bytes)?
            }
        };
        Ok(array.named(&self.name))
    }
}

/// DLPack's DLTensor, which has been the same since its first version.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: gpunet_host_dtype,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// Describes a tensor of DLPack as an array. `tensor` is a DLTensor: `&managed->dl_tensor` of a
/// DLManagedTensor or a DLManagedTensorVersioned. The tensor stays the program's, which deletes it
/// when the array is not used any more: the array has its shape and its data. `name` is the
/// array's, and may be NULL.
///
///     DLManagedTensor *managed = ...;
///     gpunet_host_array array;
///     gpunet_host_array_of_dlpack(&managed->dl_tensor, "weights", &array);
///     gpunet_host_channel_send(channel, &array, 1, NULL, NULL);
///     managed->deleter(managed);
///
/// Errors: -EFAULT; -EINVAL for strides that are not those of a contiguous array in row-major
/// order, for a negative number of dimensions or more than GPUNET_HOST_MAX_DIMS, and for a device
/// that channels do not know.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_array_of_dlpack(
    tensor: *const c_void,
    name: *const c_char,
    array: *mut gpunet_host_array,
) -> c_int {
    done(|| {
        let out = Out::new(array, "array")?;
        if tensor.is_null() {
            return Err(Failure::new(libc::EFAULT, "the tensor is null"));
        }
        // SAFETY: not null; a DLTensor, readable and aligned: the caller's promise.
        let tensor = unsafe { &*tensor.cast::<DlTensor>() };
        let rank = u32::try_from(tensor.ndim)
            .ok()
            .filter(|&rank| rank as usize <= MAX_DIMS)
            .ok_or_else(|| invalid(format!("a tensor of {} dimensions", tensor.ndim)))?;
        if !(GPUNET_HOST_CPU..=GPUNET_HOST_CUDA_HOST).contains(&tensor.device_type) {
            return Err(invalid(format!("a tensor on a device of type {}", tensor.device_type)));
        }
        if rank > 0 && tensor.shape.is_null() {
            return Err(Failure::new(libc::EFAULT, "the shape is null"));
        }
        if rank > 0 && !tensor.strides.is_null() {
            let shape = memory::slice(tensor.shape, rank as usize)?;
            let strides = memory::slice(tensor.strides, rank as usize)?;
            let mut next = 1i64;
            // The stride of a dimension of one element is not used, and none is in an empty array.
            let is_compact = shape.contains(&0)
                || shape.iter().zip(strides).rev().all(|(&dim, &stride)| {
                    let fits = dim == 1 || stride == next;
                    next = next.saturating_mul(dim);
                    fits
                });
            if !is_compact {
                return Err(invalid(format!(
                    "a tensor of shape {shape:?} and strides {strides:?} is not contiguous in row-major order: copy it \
                     into one that is"
                )));
            }
        }
        let offset = usize::try_from(tensor.byte_offset).unwrap_or(usize::MAX);
        let (data, dtype) = (tensor.data.wrapping_byte_add(offset), tensor.dtype);
        let (device_type, device_id) = (tensor.device_type, tensor.device_id);
        out.put(gpunet_host_array { data, shape: tensor.shape, name, rank, dtype, device_type, device_id });
        Ok(())
    })
}
