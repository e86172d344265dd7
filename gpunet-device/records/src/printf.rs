//! Texts with the placeholders of C's printf, for lines of kernels in C and C++.
//!
//! The compiler of the kernel has checked text and arguments. A text that is wrong all the same is
//! printed as far as it goes: it comes from memory that anybody may have written.

use crate::format::Type;
use std::fmt::Write;

/// A field is at most so wide, and has at most so many digits.
const MOST: usize = 200;

/// A placeholder: `%[flags][width][.precision][length]conversion`.
#[derive(Clone, Copy, Debug, Default)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    conversion: u8,
}

/// Reads what follows a `%`; returns it and what is left.
fn spec(mut text: &[u8]) -> Option<(Spec, &[u8])> {
    fn number(text: &mut &[u8]) -> usize {
        let mut value = 0;
        while let Some((&digit, rest)) = text.split_first().filter(|(digit, _)| digit.is_ascii_digit()) {
            value = (value * 10 + usize::from(digit - b'0')).min(MOST);
            *text = rest;
        }
        value
    }
    let mut spec = Spec::default();
    while let Some((&flag, rest)) = text.split_first() {
        match flag {
            b'-' => spec.left = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.alternate = true,
            b'0' => spec.zeros = true,
            _ => break,
        }
        text = rest;
    }
    spec.width = number(&mut text);
    if let Some(rest) = text.strip_prefix(b".") {
        text = rest;
        spec.precision = Some(number(&mut text));
    }
    while let Some((b'l' | b'h' | b'z' | b'j' | b't', rest)) = text.split_first() {
        text = rest;
    }
    let (&conversion, rest) = text.split_first()?;
    spec.conversion = conversion;
    Some((spec, rest))
}

/// The text with its arguments, each a type and its bits.
pub(crate) fn print(text: &str, mut arguments: impl Iterator<Item = (Type, u64)>) -> String {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
        } else if let Some(after) = rest.strip_prefix(b"%") {
            out.push(b'%');
            rest = after;
        } else if let Some((spec, after)) = spec(rest) {
            match arguments.next() {
                Some((kind, bits)) => out.extend_from_slice(argument(spec, kind, bits).as_bytes()),
                None => out.extend_from_slice(b"(missing)"),
            }
            rest = after;
        } else {
            out.push(b'%');
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn argument(spec: Spec, kind: Type, bits: u64) -> String {
    let is_long = kind.words() == 2;
    let unsigned = if is_long { bits } else { u64::from(bits as u32) };
    let signed = if is_long { bits as i64 } else { i64::from(bits as u32 as i32) };
    let float = match kind {
        Type::F32 => Some(f64::from(f32::from_bits(bits as u32))),
        Type::F64 => Some(f64::from_bits(bits)),
        _ => None,
    };
    match (spec.conversion, float) {
        (b'd' | b'i', None) => integer(spec, signed < 0, signed.unsigned_abs().to_string(), ""),
        (b'u', None) => {
            let spec = Spec { plus: false, space: false, ..spec };
            integer(spec, false, unsigned.to_string(), "")
        }
        (b'x', None) => hexadecimal(spec, format!("{unsigned:x}"), "0x", unsigned),
        (b'X', None) => hexadecimal(spec, format!("{unsigned:X}"), "0X", unsigned),
        (b'o', None) => hexadecimal(spec, format!("{unsigned:o}"), "0", unsigned),
        (b'p', None) => {
            let spec = Spec { plus: false, space: false, zeros: false, ..spec };
            integer(spec, false, format!("{unsigned:x}"), "0x")
        }
        (b'c', None) => {
            let char = char::from_u32(unsigned as u32).filter(|char| !char.is_control());
            pad(Spec { zeros: false, ..spec }, "", &char.unwrap_or('?').to_string())
        }
        (conversion, Some(value)) => {
            let sign = sign(spec, value.is_sign_negative());
            if !value.is_finite() {
                let name = match (value.is_nan(), conversion.is_ascii_uppercase()) {
                    (true, false) => "nan",
                    (true, true) => "NAN",
                    (false, false) => "inf",
                    (false, true) => "INF",
                };
                return pad(Spec { zeros: false, ..spec }, sign, name);
            }
            let value = value.abs();
            let digits = match conversion {
                b'e' | b'E' => exponent(value, spec.precision.unwrap_or(6)),
                b'g' | b'G' => general(value, spec.precision.unwrap_or(6).max(1), spec.alternate),
                _ => format!("{value:.*}", spec.precision.unwrap_or(6)),
            };
            let digits = if conversion.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
            pad(spec, sign, &digits)
        }
        // A conversion that does not suit its argument: what has come.
        (_, None) => format!("{unsigned:#x}"),
    }
}

const fn sign(spec: Spec, is_negative: bool) -> &'static str {
    match (is_negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

fn hexadecimal(spec: Spec, digits: String, prefix: &str, value: u64) -> String {
    let prefix = if spec.alternate && value != 0 { prefix } else { "" };
    integer(Spec { plus: false, space: false, ..spec }, false, digits, prefix)
}

fn integer(spec: Spec, is_negative: bool, digits: String, prefix: &str) -> String {
    // A precision is the least number of digits, and zeros fill no field then.
    let zeros = spec.zeros && spec.precision.is_none();
    let least = spec.precision.unwrap_or(1);
    let digits = if least == 0 && digits == "0" { String::new() } else { format!("{digits:0>least$}") };
    pad(Spec { zeros, ..spec }, &format!("{}{prefix}", sign(spec, is_negative)), &digits)
}

/// A field of the width, with what stands before the digits.
fn pad(spec: Spec, before: &str, digits: &str) -> String {
    let fill = spec.width.saturating_sub(before.chars().count() + digits.chars().count());
    match (spec.left, spec.zeros) {
        (true, _) => format!("{before}{digits}{:fill$}", ""),
        (false, true) => format!("{before}{:0>fill$}{digits}", ""),
        (false, false) => format!("{:fill$}{before}{digits}", ""),
    }
}

/// `1.5e+03`: an exponent has a sign and two digits at least.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// The shorter of both notations, without zeros at the end.
fn general(value: f64, precision: usize, keeps_zeros: bool) -> String {
    let text = format!("{value:.*e}", precision - 1);
    let power: i32 = text.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let is_short = power < -4 || power >= precision as i32;
    let mut text = if is_short {
        exponent(value, precision - 1)
    } else {
        format!("{value:.*}", (precision as i32 - 1 - power).max(0) as usize)
    };
    if !keeps_zeros {
        let (digits, power) = match text.split_once('e') {
            Some((digits, power)) => (digits.to_owned(), format!("e{power}")),
            None => (text, String::new()),
        };
        let digits = match digits.contains('.') {
            true => digits.trim_end_matches('0').trim_end_matches('.'),
            false => &digits,
        };
        text = digits.to_owned();
        // Writing to a string does not fail.
        let _ = write!(text, "{power}");
    }
    text
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::{CString, c_char, c_int};

    unsafe extern "C" {
        fn snprintf(to: *mut c_char, len: usize, text: *const c_char, ...) -> c_int;
    }

    fn flags() -> impl Strategy<Value = String> {
        ("[-+ #0]{0,3}", prop::option::of(0_usize..30), prop::option::of(0_usize..20)).prop_map(
            |(flags, width, precision)| {
                let width = width.map_or(String::new(), |width| width.to_string());
                let precision = precision.map_or(String::new(), |digits| format!(".{digits}"));
                format!("{flags}{width}{precision}")
            },
        )
    }

    /// What the C library makes of a text with one placeholder.
    macro_rules! of_c {
        ($text:expr, $value:expr) => {{
            let text = CString::new($text.as_str()).unwrap();
            let mut room = [0_u8; 1024];
            // SAFETY: the room is so long, and the text has one placeholder for the value's type.
            let len = unsafe { snprintf(room.as_mut_ptr().cast(), room.len(), text.as_ptr(), $value) };
            String::from_utf8(room[..len as usize].to_vec()).unwrap()
        }};
    }

    proptest! {
        /// What the C library prints.
        #[test]
        fn integers_are_printed_as_c_does(flags in flags(), value: i64, small: i32, at in 0_usize..5) {
            // C has no meaning for # with d and u, nor for more digits than 0 and a sign with o.
            let conversion = ["d", "u", "x", "X", "i"][at];
            let flags = if matches!(conversion, "d" | "u" | "i") { flags.replace('#', "") } else { flags };
            let text = format!("a%{flags}ll{conversion}|%%");
            prop_assert_eq!(print(&text, [(Type::I64, value as u64)].into_iter()), of_c!(text, value));
            let text = format!("%{flags}{conversion}");
            prop_assert_eq!(print(&text, [(Type::I32, small as u32 as u64)].into_iter()), of_c!(text, small));
        }

        #[test]
        fn floats_are_printed_as_c_does(flags in flags(), value: f64, small in -1e6_f64..1e6, at in 0_usize..6) {
            let text = format!("%{flags}{}", ["f", "e", "g", "F", "E", "G"][at]);
            for value in [value, small, 0.0, -0.0, 100.0, 1e-5, f64::INFINITY] {
                // The point that # keeps behind a whole number is not printed.
                let text = text.replace('#', "");
                prop_assert_eq!(print(&text, [(Type::F64, value.to_bits())].into_iter()), of_c!(text, value));
            }
        }

        /// Any text is printed, in bounded time and memory.
        #[test]
        fn any_text_is_printed(text in "[%0-9.*a-z#+ -]{0,60}", bits: u64) {
            let arguments = [(Type::U32, bits), (Type::F64, bits), (Type::I64, bits), (Type::Bool, bits)];
            let printed = print(&text, arguments.into_iter());
            prop_assert!(printed.len() < 60 * 1000);
        }
    }

    #[test]
    fn what_does_not_suit_is_shown() {
        assert_eq!(print("%d and %d", [(Type::U32, 7)].into_iter()), "7 and (missing)");
        assert_eq!(print("%s|%", [(Type::U64, 255)].into_iter()), "0xff|%");
        assert_eq!(print("%999999999d", [(Type::U32, 7)].into_iter()).len(), MOST);
    }

    #[test]
    fn characters_and_pointers() {
        let arguments = [(Type::I32, 65), (Type::U64, 0x7f00), (Type::Bool, 1)];
        assert_eq!(print("%c %p %d", arguments.into_iter()), "A 0x7f00 1");
    }
}
