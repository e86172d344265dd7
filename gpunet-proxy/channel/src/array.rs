//! Arrays: what their elements are, their shape, and where their bytes lie.

#![allow(unsafe_code, reason = "elements as bytes")]

use crate::error::ChannelError;
use gpu_usermap::cuda::{CudaError, Device, GpuBuffer};

/// The most dimensions of an array.
pub const MAX_DIMS: usize = 64;

/// What the elements of an array are, in DLPack's numbers.
///
/// # Examples
/// ```
/// use gpunet_channel::Dtype;
///
/// assert_eq!(Dtype::F32.to_string(), "float32");
/// assert_eq!(Dtype::BF16.bytes_of(6), Some(12));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dtype {
    /// DLPack's `DLDataTypeCode`.
    pub code: u8,
    /// The bits of a lane.
    pub bits: u8,
    /// The lanes of an element.
    pub lanes: u16,
}

impl Dtype {
    /// 8-bit unsigned integers, or bytes that mean something else.
    pub const U8: Self = Self::new(1, 8);
    /// 16-bit unsigned integers.
    pub const U16: Self = Self::new(1, 16);
    /// 32-bit unsigned integers.
    pub const U32: Self = Self::new(1, 32);
    /// 64-bit unsigned integers.
    pub const U64: Self = Self::new(1, 64);
    /// 8-bit integers.
    pub const I8: Self = Self::new(0, 8);
    /// 16-bit integers.
    pub const I16: Self = Self::new(0, 16);
    /// 32-bit integers.
    pub const I32: Self = Self::new(0, 32);
    /// 64-bit integers.
    pub const I64: Self = Self::new(0, 64);
    /// IEEE half precision.
    pub const F16: Self = Self::new(2, 16);
    /// IEEE single precision.
    pub const F32: Self = Self::new(2, 32);
    /// IEEE double precision.
    pub const F64: Self = Self::new(2, 64);
    /// bfloat16.
    pub const BF16: Self = Self::new(4, 16);
    /// Booleans of a byte.
    pub const BOOL: Self = Self::new(6, 8);

    /// Makes a type of one lane.
    #[must_use]
    pub const fn new(code: u8, bits: u8) -> Self {
        Self { code, bits, lanes: 1 }
    }

    /// Returns how many bytes so many elements take; `None` if the type has no size or the number
    /// is too large.
    #[must_use]
    pub fn bytes_of(self, elements: u64) -> Option<u64> {
        let bits = u64::from(self.bits) * u64::from(self.lanes);
        if bits == 0 {
            return None;
        }
        Some(elements.checked_mul(bits)?.div_ceil(8))
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.code {
            0 => "int",
            1 => "uint",
            2 => "float",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            code => return write!(f, "type {code}, {} bits, {} lanes", self.bits, self.lanes),
        };
        match self.lanes {
            1 => write!(f, "{name}{}", self.bits),
            lanes => write!(f, "{name}{}x{lanes}", self.bits),
        }
    }
}

/// Returns how many bytes an array has; `None` if no array has so many.
pub(crate) fn bytes_of(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    if shape.len() > MAX_DIMS {
        return None;
    }
    // An array with an empty dimension has no bytes, however large the others are.
    let elements = if shape.contains(&0) {
        0
    } else {
        shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))?
    };
    // No address space has more.
    dtype.bytes_of(elements).filter(|&bytes| bytes < 1 << 56)
}

mod sealed {
    /// # Safety
    /// A type without padding, for which all bytes are valid.
    pub unsafe trait Element: Copy {
        /// Its number in DLPack.
        const DTYPE: super::Dtype;
    }
}

pub(crate) use sealed::Element;

macro_rules! elements {
    ($($type:ty = $dtype:ident),*) => {$(
        // SAFETY: a number.
        unsafe impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

elements!(
    u8 = U8,
    u16 = U16,
    u32 = U32,
    u64 = U64,
    i8 = I8,
    i16 = I16,
    i32 = I32,
    i64 = I64,
    f32 = F32,
    f64 = F64
);

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
