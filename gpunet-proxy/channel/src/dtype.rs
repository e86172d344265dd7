//! What the elements of an array are.

#![allow(unsafe_code, reason = "elements as bytes")]

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
