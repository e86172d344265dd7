//! Numbers: halves, sums of products, powers and roots, without a mathematical library.
//!
//! A GPU has instructions for them; a CPU computes them here. Both stay within the bounds that are
//! given, so a GPU's logits differ from a CPU's in the last digits.
#![allow(unsafe_code)]

/// Columns of a matrix that a lane takes at a time: a GPU's lanes read next to each other, and a
/// CPU's compiler makes vectors of them.
#[cfg(target_arch = "nvptx64")]
pub(crate) const COLUMNS: usize = 2;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const COLUMNS: usize = 8;

/// Loads [`COLUMNS`] halves as numbers, exactly.
///
/// # Safety
/// `from` is readable for as many halves, which nobody writes meanwhile, and aligned to them. They
/// are finite.
#[inline(always)]
pub(crate) unsafe fn load_halves(from: *const u16) -> [f32; COLUMNS] {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: the caller's contract.
        let word = unsafe { from.cast::<u32>().read() };
        let (low, high);
        // SAFETY: it reads and writes registers alone.
        unsafe {
            core::arch::asm!("{{ .reg .b16 l, h; mov.b32 {{l, h}}, {w}; cvt.f32.f16 {low}, l; cvt.f32.f16 {high}, h; }}", w = in(reg32) word, low = out(reg32) low, high = out(reg32) high, options(pure, nomem, nostack));
        }
        [low, high]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        // SAFETY: the caller's contract.
        let halves = unsafe { from.cast::<[u16; COLUMNS]>().read() };
        halves.map(half)
    }
}

/// A finite half as a number, exactly.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn half(bits: u16) -> f32 {
    /// 2^112: what the exponents of `f32` and of a half differ by.
    const SCALE: f32 = f32::from_bits(0x7780_0000);
    // A shift that repeats the sign moves the exponent and the fraction to their places; the mask
    // removes the repetitions.
    f32::from_bits(((u32::from(bits) << 16).cast_signed() >> 3).cast_unsigned() & 0x8fff_e000) * SCALE
}

/// `sum + a * b`. A GPU rounds once.
#[inline(always)]
pub(crate) fn add_product(sum: f32, a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result;
        // SAFETY: it reads and writes registers alone.
        unsafe {
            core::arch::asm!("fma.rn.f32 {r}, {a}, {b}, {s};", r = out(reg32) result, a = in(reg32) a, b = in(reg32) b, s = in(reg32) sum, options(pure, nomem, nostack));
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        sum + a * b
    }
}

/// e to the power of a number of at most 80; 0 below -87. The relative error is at most
/// 2^-21 + |x| * 2^-23.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let power = x * core::f32::consts::LOG2_E;
    #[cfg(target_arch = "nvptx64")]
    {
        let result;
        // SAFETY: it reads and writes registers alone.
        unsafe {
            core::arch::asm!("ex2.approx.ftz.f32 {r}, {p};", r = out(reg32) result, p = in(reg32) power, options(pure, nomem, nostack));
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        /// Added and taken away again, it leaves the nearest integer: 1.5 * 2^23.
        const ROUND: f32 = 12_582_912.0;
        if x < -87.0 {
            return 0.0;
        }
        let rounded = (power + ROUND) - ROUND;
        // e^y for |y| <= ln(2) / 2 by its series. The first term that is left out is below 2^-22.
        let y = (power - rounded) * core::f32::consts::LN_2;
        let series = 1.0 / 120.0 + y * (1.0 / 720.0);
        let series = 1.0 / 6.0 + y * (1.0 / 24.0 + y * series);
        let series = 1.0 + y * (1.0 + y * (0.5 + y * series));
        series * f32::from_bits(((rounded as i32 + 127) as u32) << 23)
    }
}

/// One divided by the square root of a number from 2^-60 to 2^60. The relative error is at most
/// 2^-21.
#[inline(always)]
pub(crate) fn inverse_root(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result;
        // SAFETY: it reads and writes registers alone.
        unsafe {
            core::arch::asm!("rsqrt.approx.ftz.f32 {r}, {x};", r = out(reg32) result, x = in(reg32) x, options(pure, nomem, nostack));
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        // Half the exponent, negated, is a guess within 4 %; Newton's method doubles the digits.
        let mut root = f32::from_bits(0x5f37_59df - (x.to_bits() >> 1));
        let half = 0.5 * x;
        for _ in 0..3 {
            root *= 1.5 - half * root * root;
        }
        root
    }
}

/// A number that is at least 0 and below 1, from 24 of the bits that a seed and a place give.
#[inline(always)]
pub(crate) fn random(seed: u64, place: u32) -> f32 {
    // SplitMix64 (Steele, Lea, Flood 2014): a step for each place, and its mixing of bits.
    let state = seed.wrapping_add((u64::from(place) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((state ^ (state >> 31)) >> 40) as f32 * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00) {
            assert_eq!(half(bits).to_bits(), gpunet_device::team::F16(bits).to_f32().to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn powers_stay_within_their_bound() {
        for step in -87_000..=80_000 {
            let x = step as f32 / 1000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            let bound = (-21f64).exp2() + f64::from(x.abs()) * (-23f64).exp2();
            assert!(error <= bound, "e^{x}: {error:e} is more than {bound:e}");
        }
        assert_eq!(exp(-87.1), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn roots_stay_within_their_bound() {
        for step in 0..240_000 {
            let x = (f64::from(step) / 2000.0 - 60.0).exp2() as f32;
            let error = (f64::from(inverse_root(x)) * f64::from(x).sqrt() - 1.0).abs();
            assert!(error <= (-21f64).exp2(), "1/sqrt({x:e}): {error:e}");
        }
    }

    #[test]
    fn random_numbers_are_spread_over_places_and_seeds() {
        for (seeds, places) in [(1u64, 4096u32), (4096, 1)] {
            let (mut sum, mut low) = (0.0, 0);
            for seed in 0..seeds {
                for place in 0..places {
                    let number = random(seed, place);
                    assert!((0.0..1.0).contains(&number));
                    sum += f64::from(number);
                    low += u32::from(number < 0.25);
                }
            }
            // Of 4096 numbers; five times the standard deviation.
            assert!(
                (sum / 4096.0 - 0.5).abs() < 0.0226 && (i64::from(low) - 1024).abs() < 139,
                "{sum} {low}"
            );
        }
    }
}
