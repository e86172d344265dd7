//! The types of which symmetric memory can consist.

/// Types of which symmetric memory can consist: numbers for which every bit pattern is a value.
///
/// # Safety
/// Every bit pattern is a value, zeros among them, and there is no padding. The size is at most
/// eight bytes and the alignment is the size.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($number:ty),*) => {
        $(
            // SAFETY: a number.
            unsafe impl Element for $number {}
        )*
    };
}
elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// A 16-bit floating-point number (IEEE 754 binary16), as its bits. It can be stored and reduced;
/// computing with it is the kernel's own affair.
///
/// # Examples
///
/// ```
/// use gpunet_device::team::F16;
///
/// assert_eq!(F16::from_f32(1.5).to_f32(), 1.5);
/// assert_eq!(F16::from_f32(1e6).to_f32(), f32::INFINITY);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of an `f32` (bfloat16), as its bits. It can be stored and reduced; computing with
/// it is the kernel's own affair.
///
/// # Examples
///
/// ```
/// use gpunet_device::team::Bf16;
///
/// assert_eq!(Bf16::from_f32(1.5).to_f32(), 1.5);
/// assert_eq!(Bf16::from_f32(1.0 + 1.0 / 1024.0).to_f32(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

// SAFETY: sixteen bits.
unsafe impl Element for F16 {}
// SAFETY: sixteen bits.
unsafe impl Element for Bf16 {}

/// The exponent that an `f32` of infinity or no number has, with the bits below it zero.
const F32_INFINITE: u32 = 0x7f80_0000;

impl F16 {
    /// Returns the nearest number; of two equally near ones the even one.
    #[must_use]
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = ((bits >> 16) & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude >= F32_INFINITE {
            // No number stays none, and quiet.
            let nan = if magnitude > F32_INFINITE { 0x200 | (magnitude >> 13) as u16 & 0x3ff } else { 0 };
            return Self(sign | 0x7c00 | nan);
        }
        // 65520 and more are nearer to 2^16, which there is not.
        if magnitude >= 0x477f_f000 {
            return Self(sign | 0x7c00);
        }
        if magnitude < 0x3880_0000 {
            // Below 2^-14 numbers are multiples of 2^-24. Less than half of one is zero.
            if magnitude < 0x3300_0000 {
                return Self(sign);
            }
            let significand = (magnitude & 0x7f_ffff) | 0x80_0000;
            let shift = 126 - (magnitude >> 23);
            return Self(sign | round(significand, shift) as u16);
        }
        Self(sign | round(magnitude - 0x3800_0000, 13) as u16)
    }

    /// Returns the same number.
    #[must_use]
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        let sign = ((self.0 & 0x8000) as u32) << 16;
        let magnitude = (self.0 & 0x7fff) as u32;
        if magnitude >= 0x7c00 {
            return f32::from_bits(sign | F32_INFINITE | ((magnitude & 0x3ff) << 13));
        }
        if magnitude < 0x400 {
            // A multiple of 2^-24, exactly.
            let small = magnitude as f32 * (1.0 / 16_777_216.0);
            return f32::from_bits(sign | small.to_bits());
        }
        f32::from_bits(sign | ((magnitude << 13) + 0x3800_0000))
    }
}

impl Bf16 {
    /// Returns the nearest number; of two equally near ones the even one.
    #[must_use]
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if bits & 0x7fff_ffff > F32_INFINITE {
            // No number stays none, and quiet.
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self(round(bits, 16) as u16)
    }

    /// Returns the same number.
    #[must_use]
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

/// Divides by two to the power of `shift` (1 to 31), to the nearest integer, of two equally near
/// ones the even one.
#[inline(always)]
const fn round(value: u32, shift: u32) -> u32 {
    let (quotient, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    if rest > half || (rest == half && quotient & 1 == 1) { quotient + 1 } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_number_comes_back() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (F16(bits), Bf16(bits));
            for (value, back) in [
                (half.to_f32(), F16::from_f32(half.to_f32()).to_f32()),
                (brain.to_f32(), Bf16::from_f32(brain.to_f32()).to_f32()),
            ] {
                assert!(value.to_bits() == back.to_bits() || (value.is_nan() && back.is_nan()), "{bits:#x}");
            }
        }
    }

    /// The nearest of all finite numbers, by looking at each; of two equally near ones the even
    /// one.
    fn nearest(value: f32, to_f32: impl Fn(u16) -> f32) -> f32 {
        let finite = (0..=u16::MAX).filter(|&bits| to_f32(bits).is_finite());
        let distance = |bits: u16| (f64::from(to_f32(bits)) - f64::from(value)).abs();
        let found = finite.min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        to_f32(found.expect("there are finite numbers"))
    }

    #[test]
    fn a_number_becomes_the_nearest_half() {
        let values =
            [0.1, 1.0 / 3.0, 1e-7, 2.98e-8, 6.1e-5, 1.000_488_3, 2049.0, 2051.0, 65503.0, -0.7, 1e-4];
        for value in values {
            assert_eq!(F16::from_f32(value).to_f32(), nearest(value, |bits| F16(bits).to_f32()), "{value}");
            assert_eq!(Bf16::from_f32(value).to_f32(), nearest(value, |bits| Bf16(bits).to_f32()), "{value}");
        }
        assert_eq!(F16::from_f32(65519.0).to_f32(), 65504.0);
        assert_eq!(F16::from_f32(65520.0).to_f32(), f32::INFINITY);
    }
}
