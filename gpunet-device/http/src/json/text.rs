//! Strings and numbers of a document, as they stand there.

use gpunet_serve::Bytes;

/// A string of a document, which the reader has checked: UTF-8, with the escapes that it was sent
/// with.
#[derive(Clone, Copy, Debug)]
pub struct Text<'t> {
    /// What stands between the quotation marks.
    pub(super) raw: Bytes<'t>,
    pub(super) has_escapes: bool,
}

impl<'t> Text<'t> {
    /// The string as it stands in the document, with its escapes: for another document.
    #[must_use]
    pub const fn raw(&self) -> Bytes<'t> {
        self.raw
    }

    /// The string where it lies, if it has no escapes.
    #[must_use]
    pub const fn plain(&self) -> Option<Bytes<'t>> {
        if self.has_escapes { None } else { Some(self.raw) }
    }

    /// Its bytes, one after another.
    #[must_use]
    pub const fn bytes(&self) -> Decoded<'t> {
        Decoded { raw: self.raw, at: 0, pending: 0, left: 0 }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.has_escapes { self.bytes().count() } else { self.raw.len() }
    }

    /// Returns whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns whether it is this.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn is(&self, text: &[u8]) -> bool {
        if !self.has_escapes {
            return self.raw == text;
        }
        let (mut at, text) = (0, Bytes::from(text));
        for byte in self.bytes() {
            if at >= text.len() || byte != text.get(at) {
                return false;
            }
            at += 1;
        }
        at == text.len()
    }

    /// Copies it into a buffer, without escapes. Returns what was copied; `None` if it does not
    /// fit.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn decode<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let mut len = 0;
        for byte in self.bytes() {
            *buffer.get_mut(len)? = byte;
            len += 1;
        }
        buffer.get(..len)
    }
}

/// The bytes of a [`Text`].
#[derive(Clone, Debug)]
pub struct Decoded<'t> {
    raw: Bytes<'t>,
    at: usize,
    /// Bytes of a character that was escaped, the next one lowest.
    pending: u32,
    left: u32,
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.left == 0 {
            if self.at >= self.raw.len() {
                return None;
            }
            let byte = self.raw.get(self.at);
            self.at += 1;
            if byte != b'\\' {
                return Some(byte);
            }
            // The reader has checked it.
            let (character, len) = escape(self.raw.skip(self.at))?;
            self.at += len;
            (self.pending, self.left) = utf8(character);
        }
        let byte = self.pending as u8;
        (self.pending, self.left) = (self.pending >> 8, self.left - 1);
        Some(byte)
    }
}

/// The character of an escape whose backslash is taken, and how many bytes it has.
pub(super) fn escape(bytes: Bytes<'_>) -> Option<(u32, usize)> {
    let character = match bytes.get(0) {
        byte @ (b'"' | b'\\' | b'/') => byte,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => {
            let first = unit(bytes.skip(1))?;
            return match first {
                0xd800..=0xdbff => {
                    let second = if bytes.get(5) == b'\\' && bytes.get(6) == b'u' {
                        unit(bytes.skip(7))?
                    } else {
                        return None;
                    };
                    let is_pair = matches!(second, 0xdc00..=0xdfff);
                    is_pair.then(|| (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 11))
                }
                0xdc00..=0xdfff => None,
                _ => Some((first, 5)),
            };
        }
        _ => return None,
    };
    Some((character.into(), 1))
}

/// Four hexadecimal digits.
fn unit(bytes: Bytes<'_>) -> Option<u32> {
    let (mut unit, mut at) = (0, 0);
    while at < 4 {
        let digit = match bytes.get(at) {
            byte @ b'0'..=b'9' => byte - b'0',
            byte @ b'a'..=b'f' => byte - b'a' + 10,
            byte @ b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        unit = unit << 4 | u32::from(digit);
        at += 1;
    }
    Some(unit)
}

/// A character in UTF-8, the first byte lowest, and how many bytes it has.
const fn utf8(character: u32) -> (u32, u32) {
    const fn next(bits: u32) -> u32 {
        0x80 | bits & 0x3f
    }
    let c = character;
    match c {
        0..0x80 => (c, 1),
        0x80..0x800 => (0xc0 | c >> 6 | next(c) << 8, 2),
        0x800..0x10000 => (0xe0 | c >> 12 | next(c >> 6) << 8 | next(c) << 16, 3),
        _ => (0xf0 | c >> 18 | next(c >> 12) << 8 | next(c >> 6) << 16 | next(c) << 24, 4),
    }
}

/// How many bytes the character at the beginning has, if it is UTF-8 beyond ASCII.
pub(super) fn character(bytes: Bytes<'_>) -> Option<usize> {
    let is_next = |at: usize, from: u8, to: u8| (from..=to).contains(&bytes.get(at));
    let is_tail = |at: usize| is_next(at, 0x80, 0xbf);
    let len = match bytes.get(0) {
        0xc2..=0xdf if is_tail(1) => 2,
        0xe0 if is_next(1, 0xa0, 0xbf) && is_tail(2) => 3,
        0xed if is_next(1, 0x80, 0x9f) && is_tail(2) => 3,
        0xe1..=0xec | 0xee..=0xef if is_tail(1) && is_tail(2) => 3,
        0xf0 if is_next(1, 0x90, 0xbf) && is_tail(2) && is_tail(3) => 4,
        0xf1..=0xf3 if is_tail(1) && is_tail(2) && is_tail(3) => 4,
        0xf4 if is_next(1, 0x80, 0x8f) && is_tail(2) && is_tail(3) => 4,
        _ => return None,
    };
    Some(len)
}

/// A number of a document, which the reader has checked.
#[derive(Clone, Copy, Debug)]
pub struct Number<'t> {
    pub(super) raw: Bytes<'t>,
}

impl<'t> Number<'t> {
    /// The number as it stands in the document.
    #[must_use]
    pub const fn raw(&self) -> Bytes<'t> {
        self.raw
    }

    /// The number if it is written without a point or an exponent, and fits.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        self.raw.number()
    }

    /// The number. It is the nearest one if it has at most 15 digits and powers of ten up to 22;
    /// otherwise the last digits may differ.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn float(&self) -> f64 {
        let (mut digits, mut exponent, mut has_point) = (0u64, 0i32, false);
        let mut at = usize::from(self.raw.get(0) == b'-');
        while at < self.raw.len() {
            let byte = self.raw.get(at);
            at += 1;
            match byte {
                b'0'..=b'9' if digits < u64::MAX / 16 => {
                    digits = digits * 10 + u64::from(byte - b'0');
                    exponent -= i32::from(has_point);
                }
                // Too small to matter.
                b'0'..=b'9' => exponent += i32::from(!has_point),
                b'.' => has_point = true,
                _ => break,
            }
        }
        if at < self.raw.len() {
            let sign = self.raw.get(at);
            let is_negative = sign == b'-';
            at += usize::from(is_negative || sign == b'+');
            let mut power = 0i32;
            while at < self.raw.len() {
                power = (power * 10 + i32::from(self.raw.get(at) - b'0')).min(100_000);
                at += 1;
            }
            exponent = exponent.saturating_add(if is_negative { -power } else { power });
        }
        let value = scale(digits as f64, exponent);
        if self.raw.get(0) == b'-' { -value } else { value }
    }
}

/// A number times a power of ten.
fn scale(mut value: f64, exponent: i32) -> f64 {
    if value == 0.0 {
        return value;
    }
    // Up to 10^22 each power is exact, and so is one product or quotient of it.
    const STEP: i32 = 22;
    let mut left = exponent.unsigned_abs().min(700) as i32;
    while left > 0 {
        let power = power_of_ten(left.min(STEP));
        value = if exponent < 0 { value / power } else { value * power };
        left -= STEP;
    }
    value
}

fn power_of_ten(exponent: i32) -> f64 {
    let (mut power, mut at) = (1.0, 0);
    while at < exponent {
        power *= 10.0;
        at += 1;
    }
    power
}
