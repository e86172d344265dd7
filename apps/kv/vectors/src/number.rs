//! Numbers: halves, keys that order like numbers, roots.
#![allow(unsafe_code)]

/// The two halves of a word as numbers, the lower one first. They are finite: nothing else is
/// stored.
#[inline(always)]
pub(super) fn halves(word: u32) -> [f32; 2] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (low, high);
        // SAFETY: it reads and writes registers alone. The conversion is exact.
        unsafe {
            core::arch::asm!("{{ .reg .b16 l, h; mov.b32 {{l, h}}, {w}; cvt.f32.f16 {low}, l; cvt.f32.f16 {high}, h; }}", w = in(reg32) word, low = out(reg32) low, high = out(reg32) high, options(pure, nomem, nostack));
        }
        [low, high]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        /// 2^112: what the exponents of `f32` and of a half differ by. It is exact, for subnormal
        /// halves too.
        const SCALE: f32 = f32::from_bits(0x7780_0000);
        // A shift that repeats the sign moves the exponent and the fraction to their places; the
        // mask removes the repetitions.
        let number = |half: u32| f32::from_bits((half as i32 >> 3) as u32 & 0x8fff_e000) * SCALE;
        [number(word << 16), number(word)]
    }
}

/// A key that is larger for a larger similarity, and for the same similarity if the position is
/// lower. Never 0.
#[inline(always)]
pub(super) fn key_of(similarity: f32, position: u32) -> u64 {
    // Zeros of both signs are the same similarity.
    let bits = (similarity + 0.0).to_bits();
    let ordered = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    (ordered as u64) << 32 | (!position) as u64
}

/// The similarity and the position of a key.
#[inline(always)]
pub(super) fn of_key(key: u64) -> (f32, u32) {
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 0 { !ordered } else { ordered & 0x7fff_ffff };
    (f32::from_bits(bits), !(key as u32))
}

/// The square root of a finite number that is not negative, to the last bit or next to it: the same
/// on every device.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn root(number: f64) -> f64 {
    if number <= 0.0 {
        return 0.0;
    }
    // Half the exponent is a guess within 6 %; Newton's method doubles the digits each time.
    let mut root = f64::from_bits((number.to_bits() >> 1) + 0x1ff7_a3be_a91d_9b1b);
    let mut step = 0;
    while step < 5 {
        root = 0.5 * (root + number / root);
        step += 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::team::F16;
    use proptest::prelude::*;

    #[test]
    fn every_finite_half_is_unpacked() {
        for bits in (0..=u16::MAX).filter(|bits| F16(*bits).to_f32().is_finite()) {
            let other = bits ^ 0x8001;
            let expected = [bits, other].map(|bits| F16(bits).to_f32().to_bits());
            if F16(other).to_f32().is_finite() {
                assert_eq!(
                    halves(bits as u32 | (other as u32) << 16).map(f32::to_bits),
                    expected,
                    "{bits:#x}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn keys_order_as_similarity_and_position(a in -2.0f32..2.0, b in -2.0f32..2.0, x: u32, y: u32) {
            prop_assert_eq!(of_key(key_of(a, x)), (a, x));
            let expected = a.partial_cmp(&b).unwrap().then(y.cmp(&x));
            prop_assert_eq!(key_of(a, x).cmp(&key_of(b, y)), expected);
        }

        #[test]
        fn a_root_squared_is_the_number(number in 1e-30f64..1e80) {
            prop_assert!((root(number) / number.sqrt() - 1.0).abs() < 1e-15);
        }
    }
}
