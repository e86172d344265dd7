//! Decimal text of numbers, both ways. The kernel has no formatting of its own.

use gpunet_serve::Bytes;

/// Ten to the power of a number.
fn power_of_ten(exponent: u32) -> f64 {
    const POWERS: [f64; 9] = [1e1, 1e2, 1e4, 1e8, 1e16, 1e32, 1e64, 1e128, 1e256];
    let (mut power, mut bit) = (1.0, 0);
    while bit < 9 {
        if exponent >> bit & 1 == 1 {
            power *= POWERS[bit as usize];
        }
        bit += 1;
    }
    power
}

/// `number * 10^exponent`. One rounding if both are as exact as in most texts: 15 digits, and up to
/// 22 places.
fn scaled(number: f64, exponent: i32) -> f64 {
    match exponent {
        0.. => number * power_of_ten(exponent as u32),
        _ => number / power_of_ten(exponent.unsigned_abs()),
    }
}

/// Reads a decimal number, `-?[0-9]*(.[0-9]*)?([eE][+-]?[0-9]+)?` with a digit before the exponent;
/// `None` for everything else, and for what no `f32` expresses.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn parse(text: Bytes<'_>) -> Option<f32> {
    /// More digits than this are of no account.
    const MOST: u64 = 1_000_000_000_000_000_000;
    let sign = text.get(0);
    let mut at = usize::from(sign == b'-' || sign == b'+');
    let (mut value, mut exponent, mut digits, mut point) = (0u64, 0i32, 0, false);
    while at < text.len() {
        match text.get(at) {
            digit @ b'0'..=b'9' => {
                digits += 1;
                if value < MOST {
                    value = value * 10 + (digit - b'0') as u64;
                    exponent -= i32::from(point);
                } else {
                    exponent += i32::from(!point);
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' if digits > 0 => {
                exponent = exponent.saturating_add(exponent_of(text.skip(at + 1))?);
                at = text.len();
                continue;
            }
            _ => return None,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    let number = if value == 0 || exponent < -320 {
        0.0
    } else if exponent > 60 {
        return None;
    } else {
        scaled(value as f64, exponent) as f32
    };
    if number > f32::MAX {
        return None;
    }
    Some(if sign == b'-' { -number } else { number })
}

fn exponent_of(text: Bytes<'_>) -> Option<i32> {
    let sign = text.get(0);
    let mut at = usize::from(sign == b'-' || sign == b'+');
    if at == text.len() {
        return None;
    }
    let mut value = 0i32;
    while at < text.len() {
        let digit = text.get(at).wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = (value * 10 + digit as i32).min(100_000);
        at += 1;
    }
    Some(if sign == b'-' { -value } else { value })
}

/// The decimal text of a number with nine significant digits, which is enough for any `f32` to come
/// back.
///
/// # Examples
///
/// ```
/// use gpunet_kv_vectors::Decimal;
/// use gpunet_serve::Bytes;
///
/// assert!(Decimal::of(-0.25).bytes() == b"-0.25");
/// assert!(Decimal::of(1.5e-12).bytes() == b"1.5e-12");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    text: Short,
}

/// The longest text: a sign, nine digits and a point, and an exponent of a sign and three digits
/// behind its letter.
const SHORT: usize = 23;

/// A short text.
#[derive(Clone, Copy, Debug)]
// As `Digits`.
#[repr(align(8))]
struct Short {
    bytes: [u8; SHORT],
    len: u8,
}

impl Short {
    /// Appends a byte. What has no place is dropped, not checked: a check brings formatting into
    /// the kernel.
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len as usize) {
            *place = byte;
            self.len += 1;
        }
    }
}

impl Decimal {
    /// Spells a finite number as C's `%.9g`.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn of(number: f64) -> Self {
        let mut text = Short { bytes: [0; SHORT], len: 0 };
        if number < 0.0 {
            text.push(b'-');
        }
        let number = number.abs();
        if number == 0.0 {
            text.push(b'0');
            return Self { text };
        }
        let (digits, exponent) = nine_digits(number);
        if (-4..9).contains(&exponent) {
            plain(&mut text, digits, exponent);
        } else {
            spell(&mut text, digits, 1);
            text.push(b'e');
            text.push(if exponent < 0 { b'-' } else { b'+' });
            let exponent = exponent.unsigned_abs();
            if exponent > 99 {
                text.push(b'0' + (exponent / 100) as u8);
            }
            text.push(b'0' + (exponent / 10 % 10) as u8);
            text.push(b'0' + (exponent % 10) as u8);
        }
        Self { text }
    }

    /// Reads a decimal number, with a point and an exponent if need be; `None` for everything else,
    /// and for what no `f32` expresses.
    ///
    /// Up to 15 digits and 22 places, it is the `f32` that is nearest to the nearest `f64`, as in
    /// most programs; beyond that, it may be the one next to it.
    #[must_use]
    pub fn parse(text: Bytes<'_>) -> Option<f32> {
        parse(text)
    }

    /// The text.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn bytes(&self) -> Bytes<'_> {
        Bytes::from(&self.text.bytes).first(self.text.len as usize)
    }
}

/// The first nine digits of a positive number, rounded, and the power of ten of the first of them.
fn nine_digits(number: f64) -> (u32, i32) {
    let mut exponent = 0;
    let mut rest = number;
    let mut bit = 8i32;
    // To between 1 and 10.
    while bit >= 0 {
        let power = 1 << bit;
        if rest >= power_of_ten(power) {
            rest /= power_of_ten(power);
            exponent += power as i32;
        } else if rest * power_of_ten(power - 1) < 1.0 {
            rest *= power_of_ten(power);
            exponent -= power as i32;
        }
        bit -= 1;
    }
    if rest < 1.0 {
        exponent -= 1;
    }
    // Once more from the number itself, by one rounding.
    let digits = (scaled(number, 8 - exponent) + 0.5) as u64;
    match digits {
        1_000_000_000.. => (100_000_000, exponent + 1),
        digits => (digits as u32, exponent),
    }
}

/// Digits with a point, without zeros behind the last one that counts.
fn plain(text: &mut Short, digits: u32, exponent: i32) {
    if exponent >= 0 {
        return spell(text, digits, exponent as u32 + 1);
    }
    text.push(b'0');
    text.push(b'.');
    let mut zeros = -1 - exponent;
    while zeros > 0 {
        text.push(b'0');
        zeros -= 1;
    }
    spell(text, digits, 0);
}

/// Nine digits without the zeros at their end; behind the first `before`, if there are such, stands
/// a point.
fn spell(text: &mut Short, digits: u32, before: u32) {
    let (mut rest, mut power, mut at) = (digits, 100_000_000, 0);
    while at < before || rest > 0 {
        if at == before && before > 0 {
            text.push(b'.');
        }
        text.push(b'0' + (rest / power % 10) as u8);
        rest %= power;
        power = if power > 1 { power / 10 } else { 1 };
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    fn text(number: f64) -> String {
        let decimal = Decimal::of(number);
        (0..decimal.bytes().len()).map(|at| decimal.bytes().get(at) as char).collect()
    }

    #[test]
    fn numbers_are_spelt_as_c_spells_them() {
        for (number, expected) in [
            (0.5, "0.5"),
            (1.0, "1"),
            (0.999_999_94, "0.99999994"),
            (123_456_789.0, "123456789"),
            (1e9, "1e+09"),
            (-100.25, "-100.25"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (0.999_999_999_9, "1"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(text(number), expected);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for word in
            ["", "-", ".", "e5", "1e", "1e+", "nan", "inf", "1.2.3", "1x", "1e39", "0x10", "1e99999999999"]
        {
            assert_eq!(parse(word.as_bytes().into()), None, "{word}");
        }
        for (word, value) in [(".5", 0.5), ("5.", 5.0), ("+1e-2", 0.01), ("1e-400", 0.0), ("0e99999", 0.0)] {
            assert_eq!(parse(word.as_bytes().into()), Some(value), "{word}");
        }
    }

    proptest! {
        #[test]
        fn an_f32_comes_back_from_its_text(bits: u32) {
            let number = f32::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(parse(text(number as f64).as_bytes().into()), Some(number), "{}", text(number as f64));
            prop_assert_eq!(parse(std::format!("{number:?}").as_bytes().into()), Some(number));
        }
    }
}
