//! FixedPoint numbers with seventeen places behind the point, as INCRBYFLOAT adds them up: Redis
//! writes so many places, and the sum of what people write is exact in them.

use gpunet_serve::Bytes;

/// One, in units of the last place.
const ONE: u64 = 10u64.pow(PLACES);
const PLACES: u32 = 17;
/// Whole numbers have fewer than twenty digits.
const WHOLE_PLACES: u32 = 19;
const MOST: u64 = 10u64.pow(WHOLE_PLACES) - 1;
/// The longest text that is looked at, as Redis has it.
const MAX_TEXT: usize = 5 << 10;

/// A number, by its absolute value: at most [`MOST`], and units of the last place below [`ONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedPoint {
    is_negative: bool,
    whole: u64,
    parts: u64,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Number(FixedPoint),
    /// It is no number.
    Invalid,
    /// It is too large to be kept.
    TooLarge,
}

impl FixedPoint {
    pub(crate) const ZERO: Self = Self { is_negative: false, whole: 0, parts: 0 };

    /// Reads a number as C has it: a sign, digits with a point among them, an exponent. What is
    /// beyond the last place is rounded.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn read(text: Bytes<'_>) -> Read {
        if text.len() >= MAX_TEXT {
            return Read::Invalid;
        }
        let is_signed = matches!(text.get(0), b'-' | b'+');
        let is_negative = text.get(0) == b'-';
        let digits = text.skip(usize::from(is_signed));
        if digits.eq_ignore_case(b"inf") || digits.eq_ignore_case(b"infinity") {
            return Read::TooLarge;
        }
        // Where the point is among the digits, and how many there are.
        let (mut point, mut count, mut end) = (None, 0i64, 0);
        while end < digits.len() {
            match digits.get(end) {
                b'0'..=b'9' => count += 1,
                b'.' if point.is_none() => point = Some(count),
                _ => break,
            }
            end += 1;
        }
        let exponent = match digits.get(end) {
            _ if end == digits.len() => Some(0),
            b'e' | b'E' => exponent(digits.skip(end + 1)),
            _ => None,
        };
        let Some(exponent) = exponent.filter(|_| count > 0) else { return Read::Invalid };
        let (point, mut number) = (point.unwrap_or(count) + exponent, Self { is_negative, ..Self::ZERO });
        let (mut which, mut at) = (0, 0);
        while at < end {
            let digit = digits.get(at).wrapping_sub(b'0') as u64;
            at += 1;
            if digit > 9 {
                continue;
            }
            // Its place, counted from the one before the point.
            let place = point - 1 - which;
            which += 1;
            if digit == 0 || place < -(PLACES as i64) - 1 {
                continue;
            } else if place >= WHOLE_PLACES as i64 {
                return Read::TooLarge;
            } else if place >= 0 {
                number.whole += 10u64.pow(place as u32) * digit;
            } else if place >= -(PLACES as i64) {
                number.parts += 10u64.pow((place + PLACES as i64) as u32) * digit;
            } else if digit >= 5 {
                number.parts += 1;
            }
        }
        if number.parts >= ONE {
            (number.whole, number.parts) = (number.whole + 1, number.parts - ONE);
        }
        if number.whole > MOST { Read::TooLarge } else { Read::Number(number) }
    }

    /// The sum, unless it is too large.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        let sum = if self.is_negative == other.is_negative {
            let parts = self.parts + other.parts;
            let carry = u64::from(parts >= ONE);
            let whole = self.whole.checked_add(other.whole + carry)?;
            Self { is_negative: self.is_negative, whole, parts: parts - carry * ONE }
        } else {
            let is_larger =
                self.whole > other.whole || (self.whole == other.whole && self.parts >= other.parts);
            let (large, small) = if is_larger { (self, other) } else { (other, self) };
            let borrow = u64::from(large.parts < small.parts);
            let whole = large.whole - small.whole - borrow;
            Self { is_negative: large.is_negative, whole, parts: large.parts + borrow * ONE - small.parts }
        };
        if sum.whole > MOST { None } else { Some(sum) }
    }

    /// Its digits, without zeros at the end.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn numeral(self) -> Numeral {
        let mut text = Numeral::EMPTY;
        let (mut parts, mut places) = (self.parts, PLACES);
        while places > 0 && parts.is_multiple_of(10) {
            (parts, places) = (parts / 10, places - 1);
        }
        if places > 0 {
            while places > 0 {
                text.put_before(b'0' + (parts % 10) as u8);
                (parts, places) = (parts / 10, places - 1);
            }
            text.put_before(b'.');
        }
        text.put_number(self.whole);
        if self.is_negative && (self.whole | self.parts) != 0 {
            text.put_before(b'-');
        }
        text
    }
}

fn exponent(text: Bytes<'_>) -> Option<i64> {
    let is_signed = matches!(text.get(0), b'-' | b'+');
    let digits = text.skip(usize::from(is_signed));
    if digits.is_empty() {
        return None;
    }
    let (mut exponent, mut at) = (0i64, 0);
    while at < digits.len() {
        let digit = digits.get(at).wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // What is larger makes no difference.
        exponent = (exponent * 10 + digit as i64).min(1 << 20);
        at += 1;
    }
    Some(if text.get(0) == b'-' { -exponent } else { exponent })
}

/// The text of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numeral {
    /// It is at the end.
    all: [u8; Self::MOST],
    start: usize,
}

impl Numeral {
    /// Bytes of the longest one.
    pub(crate) const MOST: usize = 40;
    pub(crate) const EMPTY: Self = Self { all: [0; Self::MOST], start: Self::MOST };

    /// The text of an integer.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn of(number: i64) -> Self {
        let mut text = Self::EMPTY;
        text.put_number(number.unsigned_abs());
        if number < 0 {
            text.put_before(b'-');
        }
        text
    }

    fn put_number(&mut self, mut number: u64) {
        loop {
            self.put_before(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                break;
            }
        }
    }

    fn put_before(&mut self, byte: u8) {
        self.start -= 1;
        // Without a check that could fail, whose text would be formatted: the longest has room.
        if let Some(place) = self.all.get_mut(self.start) {
            *place = byte;
        }
    }

    pub(crate) fn bytes(&self) -> Bytes<'_> {
        Bytes::from(&self.all).skip(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    fn read(text: &str) -> Read {
        FixedPoint::read(text.as_bytes().into())
    }

    fn sum(a: &str, b: &str) -> String {
        let (Read::Number(a), Read::Number(b)) = (read(a), read(b)) else { return "no number".into() };
        let Some(sum) = a.plus(b) else { return "too large".into() };
        let text = sum.numeral();
        (0..text.bytes().len()).map(|at| char::from(text.bytes().get(at))).collect()
    }

    #[test]
    fn numbers_are_added_as_people_write_them() {
        for (a, b, expected) in [
            ("0", "1", "1"),
            ("1", "0.25", "1.25"),
            ("3.0", "1.1", "4.1"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1.1", "-0.1"),
            ("5.0e3", "2.0e2", "5200"),
            ("1e-17", "0", "0.00000000000000001"),
            ("4e-18", "0", "0"),
            ("-4e-18", "0", "0"),
            ("17179869184", "17179869184.5", "34359738368.5"),
            ("-9223372036854775807", "0.5", "-9223372036854775806.5"),
            ("0.99999999999999999", "0.00000000000000001", "1"),
            ("0.999999999999999999", "0", "1"),
            ("+.5", "1.", "1.5"),
            ("0.024390243902439025", "-0.024390243902439025", "0"),
            ("00012e+1", "-0", "120"),
            ("0e99999999999", "7", "7"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("9999999999999999999", "0.5", "9999999999999999999.5"),
            ("9999999999999999999", "1", "too large"),
            ("9999999999999999999", "9999999999999999999", "too large"),
            ("-9999999999999999999", "9999999999999999999", "0"),
            ("9223372036854775807", "0.5", "9223372036854775807.5"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", "-", "+", ".", "e5", "1e", "1e+", "1x", " 1", "1 ", "1..2", "nan", "0x10", "1\n", "--1"]
        {
            assert_eq!(read(text), Read::Invalid, "{text:?}");
        }
        for text in ["inf", "-Infinity", "1e19", "10000000000000000000", "1e9999999999"] {
            assert_eq!(read(text), Read::TooLarge, "{text}");
        }
    }

    proptest! {
        #[test]
        fn sums_are_those_of_integers(a in -(1i64 << 50)..1 << 50, b in -(1i64 << 50)..1 << 50, places in 0u32..12) {
            let written = |number: i64| std::format!("{number}e-{places}");
            let digits = std::format!("{:0width$}", (a + b).abs(), width = places as usize + 1);
            let (whole, parts) = digits.split_at(digits.len() - places as usize);
            let text = std::format!("{}{whole}.{parts}", if a + b < 0 { "-" } else { "" });
            let expected = text.trim_end_matches('0').trim_end_matches('.');
            prop_assert_eq!(sum(&written(a), &written(b)), if expected == "-0" { "0" } else { expected });
        }
    }
}
