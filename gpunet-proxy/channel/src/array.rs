//! Arrays: their shape, and where their bytes lie.

#![allow(unsafe_code, reason = "elements as bytes")]

use crate::dtype::{Dtype, Element, bytes_of};
use crate::error::ChannelError;
use gpu_usermap::cuda::{CudaError, Device, GpuBuffer};

/// An array as its header describes it.
///
/// # Examples
/// ```
/// # fn example(incoming: &gpunet_channel::Incoming<'_>) {
/// for array in incoming.arrays() {
///     println!("{}: {} {:?}, {} bytes", array.name, array.dtype, array.shape, array.bytes());
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name; empty for one without.
    pub name: String,
    /// What its elements are.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Whether it is in the memory of a GPU at the sender's end.
    pub on_gpu: bool,
}

impl Description {
    /// Returns how many bytes the array has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // It was judged when it was decoded or made.
        bytes_of(self.dtype, &self.shape).unwrap_or(0)
    }

    /// Describes an array that has no name yet.
    fn of(dtype: Dtype, shape: &[u64], on_gpu: bool) -> Self {
        Self { name: String::new(), dtype, shape: shape.to_vec(), on_gpu }
    }

    /// Describes one in so many bytes of memory.
    fn fitting(dtype: Dtype, shape: &[u64], on_gpu: bool, len: usize) -> Result<Self, ChannelError> {
        match bytes_of(dtype, shape) {
            Some(bytes) if bytes == len as u64 => Ok(Self::of(dtype, shape, on_gpu)),
            Some(bytes) => Err(ChannelError::Invalid(format!(
                "{dtype} of shape {shape:?} are {bytes} bytes, and the memory has {len}"
            ))),
            None => Err(ChannelError::Invalid(format!("no array has {dtype} of shape {shape:?}"))),
        }
    }

    /// Describes one in memory of a GPU, and returns how many bytes it takes there.
    fn on_gpu(dtype: Dtype, shape: &[u64]) -> Result<(Self, usize), ChannelError> {
        let len = bytes_of(dtype, shape).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        Ok((Self::fitting(dtype, shape, true, len)?, len))
    }

    /// Describes the same bytes with another shape.
    fn reshaped(self, shape: &[u64], len: usize) -> Result<Self, ChannelError> {
        let Self { name, dtype, on_gpu, .. } = self;
        Ok(Self { name, ..Self::fitting(dtype, shape, on_gpu, len)? })
    }
}

/// Where bytes lie. `H` is how they are borrowed, if that is in this process.
#[derive(Clone, Debug)]
pub(crate) enum Memory<H> {
    Host(H),
    Gpu { device: Device, address: u64, len: usize },
}

impl<H: AsRef<[u8]>> Memory<H> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.as_ref().len(),
            Self::Gpu { len, .. } => *len,
        }
    }
}

impl<H> Memory<H> {
    pub(crate) fn device(&self) -> Option<&Device> {
        match self {
            Self::Host(_) => None,
            Self::Gpu { device, .. } => Some(device),
        }
    }
}

/// An array to be sent: contiguous, in row-major order.
///
/// # Examples
/// ```
/// use gpunet_channel::{Array, Dtype};
///
/// let weights = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let array = Array::of(&weights).with_shape(&[2, 3])?;
/// assert_eq!((array.dtype(), array.shape(), array.bytes()), (Dtype::F32, &[2, 3][..], 24));
/// assert!(Array::of(&weights).with_shape(&[2, 4]).is_err());
/// # Ok::<(), gpunet_channel::ChannelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Array<'a> {
    pub(crate) about: Description,
    pub(crate) memory: Memory<&'a [u8]>,
}

/// An array to be received: contiguous, in row-major order.
///
/// # Examples
/// ```
/// use gpunet_channel::ArrayMut;
///
/// let mut weights = [0f32; 6];
/// let array = ArrayMut::of(&mut weights).with_shape(&[2, 3])?;
/// # drop(array);
/// # Ok::<(), gpunet_channel::ChannelError>(())
/// ```
#[derive(Debug)]
pub struct ArrayMut<'a> {
    pub(crate) about: Description,
    pub(crate) memory: Memory<&'a mut [u8]>,
}

/// What both kinds of arrays are given.
macro_rules! builders {
    ($type:ident, $name:literal) => {
        impl<'a> $type<'a> {
            /// Gives the same bytes another shape.
            ///
            /// # Errors
            /// [`ChannelError::Invalid`]: the array would have another number of bytes.
            pub fn with_shape(self, shape: &[u64]) -> Result<Self, ChannelError> {
                Ok(Self { about: self.about.reshaped(shape, self.memory.len())?, memory: self.memory })
            }

            #[doc = $name]
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> Self {
                self.about.name = name.into();
                self
            }

            /// Takes memory of a GPU, of which the caller has made the promises of `on_gpu`.
            fn of_gpu(
                device: &Device,
                address: u64,
                dtype: Dtype,
                shape: &[u64],
            ) -> Result<Self, ChannelError> {
                let (about, len) = Description::on_gpu(dtype, shape)?;
                Ok(Self { about, memory: Memory::Gpu { device: device.clone(), address, len } })
            }
        }
    };
}

builders!(Array, "Gives the array a name, by which the other end finds it among several.");
builders!(ArrayMut, "Says which of several arrays goes here.");

impl<'a> Array<'a> {
    /// Takes numbers as an array of one dimension.
    #[allow(private_bounds, reason = "the types are listed")]
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        // SAFETY: an `Element` has no padding; the slice is borrowed for as long as the bytes.
        let bytes = unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
        let about = Description::of(T::DTYPE, &[elements.len() as u64], false);
        Self { about, memory: Memory::Host(bytes) }
    }

    /// Takes bytes as an array of any type.
    ///
    /// # Errors
    /// [`ChannelError::Invalid`]: the array would have another number of bytes.
    pub fn new(dtype: Dtype, shape: &[u64], bytes: &'a [u8]) -> Result<Self, ChannelError> {
        let about = Description::fitting(dtype, shape, false, bytes.len())?;
        Ok(Self { about, memory: Memory::Host(bytes) })
    }

    /// Takes memory of a GPU as an array.
    ///
    /// # Errors
    /// [`ChannelError::Invalid`]: no array has this type and shape.
    ///
    /// # Safety
    /// `address` is one of `device`, and the array's bytes there are live and written by nobody
    /// until the transfer has ended.
    pub unsafe fn on_gpu(
        device: &Device,
        address: u64,
        dtype: Dtype,
        shape: &[u64],
    ) -> Result<Self, ChannelError> {
        Self::of_gpu(device, address, dtype, shape)
    }

    /// Returns what the elements are.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.about.dtype
    }

    /// Returns the shape.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.about.shape
    }

    /// Returns how many bytes the array has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }
}

impl<'a> ArrayMut<'a> {
    /// Takes memory for numbers as an array of one dimension.
    #[allow(private_bounds, reason = "the types are listed")]
    pub fn of<T: Element>(elements: &'a mut [T]) -> Self {
        let about = Description::of(T::DTYPE, &[elements.len() as u64], false);
        // SAFETY: all bytes are valid elements; the slice is borrowed for as long as the bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) };
        Self { about, memory: Memory::Host(bytes) }
    }

    /// Takes memory for an array of any type.
    ///
    /// # Errors
    /// As [`Array::new`].
    pub fn new(dtype: Dtype, shape: &[u64], bytes: &'a mut [u8]) -> Result<Self, ChannelError> {
        let about = Description::fitting(dtype, shape, false, bytes.len())?;
        Ok(Self { about, memory: Memory::Host(bytes) })
    }

    /// Takes memory of a GPU for an array.
    ///
    /// # Errors
    /// As [`Array::on_gpu`].
    ///
    /// # Safety
    /// As for [`Array::on_gpu`], and nobody reads the bytes until the transfer has ended.
    pub unsafe fn on_gpu(
        device: &Device,
        address: u64,
        dtype: Dtype,
        shape: &[u64],
    ) -> Result<Self, ChannelError> {
        Self::of_gpu(device, address, dtype, shape)
    }

    /// Borrows it for a shorter time.
    pub(crate) fn reborrow(&mut self) -> ArrayMut<'_> {
        let memory = match &mut self.memory {
            Memory::Host(bytes) => Memory::Host(&mut **bytes),
            Memory::Gpu { device, address, len } => {
                Memory::Gpu { device: device.clone(), address: *address, len: *len }
            }
        };
        ArrayMut { about: self.about.clone(), memory }
    }
}

/// An array that was received into memory of its own.
///
/// # Examples
/// ```
/// # fn example(array: gpunet_channel::Received) {
/// if let Some(numbers) = array.to_vec::<f32>() {
///     println!("{}: {numbers:?}", array.name);
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Received {
    /// The name that the sender gave it.
    pub name: String,
    /// What the elements are.
    pub dtype: Dtype,
    /// The shape.
    pub shape: Vec<u64>,
    /// The elements, in row-major order.
    pub bytes: Vec<u8>,
}

/// Without the elements: there are many.
impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received")
            .field("name", &self.name)
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl Received {
    /// Returns the elements as numbers; `None` if they are others.
    #[must_use]
    #[allow(private_bounds, reason = "the types are listed")]
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        if self.dtype != T::DTYPE {
            return None;
        }
        let len = self.bytes.len() / size_of::<T>();
        let mut elements: Vec<T> = Vec::with_capacity(len);
        // SAFETY: room for `len` elements, of which `bytes` has as many bytes; the two do not
        // overlap, and all bytes are valid elements.
        unsafe {
            elements
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(self.bytes.as_ptr(), len * size_of::<T>());
        }
        // SAFETY: just written.
        unsafe { elements.set_len(len) };
        Some(elements)
    }

    /// Returns the memory for what the array has, as the target of a transfer.
    pub(crate) fn as_mut(&mut self) -> ArrayMut<'_> {
        let about =
            Description { name: self.name.clone(), ..Description::of(self.dtype, &self.shape, false) };
        ArrayMut { about, memory: Memory::Host(&mut self.bytes) }
    }
}

/// An array that was received into memory of a GPU that was allocated for it.
///
/// # Examples
/// ```
/// # fn example(array: gpunet_channel::ReceivedOnGpu) {
/// if let Some(buffer) = &array.buffer {
///     println!("{} lies at {:#x}, {} bytes", array.name, buffer.ptr(), buffer.len());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceivedOnGpu {
    /// The name that the sender gave it.
    pub name: String,
    /// What the elements are.
    pub dtype: Dtype,
    /// The shape.
    pub shape: Vec<u64>,
    /// The elements, in row-major order; `None` for an array without any.
    pub buffer: Option<GpuBuffer>,
}

impl ReceivedOnGpu {
    /// Allocates memory for an array.
    pub(crate) fn allocate(device: &Device, about: &Description) -> Result<Self, CudaError> {
        let len = usize::try_from(about.bytes()).unwrap_or(usize::MAX);
        let buffer = if len > 0 { Some(device.alloc_uninit(len)?) } else { None };
        Ok(Self { name: about.name.clone(), dtype: about.dtype, shape: about.shape.clone(), buffer })
    }

    /// Returns the memory for what the array has, as the target of a transfer.
    pub(crate) fn as_mut(&mut self) -> ArrayMut<'_> {
        let about = Description { name: self.name.clone(), ..Description::of(self.dtype, &self.shape, true) };
        let memory = match &self.buffer {
            Some(buffer) => {
                let device = buffer.device().clone();
                Memory::Gpu { device, address: buffer.ptr(), len: buffer.len() }
            }
            None => Memory::Host(&mut [][..]),
        };
        ArrayMut { about, memory }
    }
}

/// Returns so many bytes, all zero; `None` if there is no memory. What is never written takes none.
pub(crate) fn zeroed(len: usize) -> Option<Vec<u8>> {
    if len == 0 {
        return Some(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u8>(len).ok()?;
    // SAFETY: the length is not 0.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    // SAFETY: of the global allocator, with the layout of so many bytes, all of which are
    // initialised.
    Some(unsafe { Vec::from_raw_parts(memory, len, len) })
}
