//! A printed line: its format, and the arguments that have travelled.

use crate::format::{FormatInfo, Hole, Level, Piece, Type, piece};
use crate::printf;
use crate::record::{Place, Record};
use crate::text::FormatText;
use crate::unit::Head;
use std::fmt::{self, Write};

/// Why a record is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLine {
    /// It is no printed line, but a record of another kind.
    OtherKind,
    /// The program knows no such format.
    UnknownFormat(u16),
    /// The kernel has printed a line of a format, and its text has not come.
    NoText(u16),
    /// Its length is not that of the arguments.
    Length {
        /// The format's name.
        format: &'static str,
        /// Bytes that came.
        len: usize,
        /// Bytes that the arguments take.
        expected: usize,
    },
}

impl fmt::Display for NoLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherKind => f.write_str("the record is no printed line"),
            Self::UnknownFormat(number) => write!(f, "the program knows no format {number}"),
            Self::NoText(number) => write!(f, "the text of format {number} has not come"),
            Self::Length { format, len, expected } => {
                write!(f, "{len} bytes of arguments, where {format} has {expected}")
            }
        }
    }
}

impl std::error::Error for NoLine {}

/// A line that a kernel has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it was printed, where, and by which format.
    pub head: Head,
    /// Its level.
    pub level: Level,
    /// The name of its format; `gprintf` for one whose text the kernel's memory has.
    pub name: &'static str,
    /// The text, with the arguments.
    pub text: String,
    /// How many lines of the same format were left out before it, because of the format's limit.
    pub left_out: u32,
}

impl Line {
    /// The line of a record, by the formats that kernel and program share.
    ///
    /// # Errors
    /// [`NoLine`].
    pub fn of(record: &Record<'_>, formats: &'static [FormatInfo]) -> Result<Self, NoLine> {
        let number = record.head.kind.format().ok_or(NoLine::OtherKind)?;
        let format = formats.get(usize::from(number)).ok_or(NoLine::UnknownFormat(number))?;
        let FormatInfo { name, level, text, types, is_limited } = *format;
        Shown { name, level, text, types, is_limited, is_printf: false }.line(record)
    }

    /// The line of a record, by a format that lies in the rings' memory.
    ///
    /// # Errors
    /// [`NoLine::Length`].
    pub fn by_text(record: &Record<'_>, format: &FormatText) -> Result<Self, NoLine> {
        let FormatText { level, ref types, is_limited, is_printf, ref text } = *format;
        Shown { name: "gprintf", level, text, types, is_limited, is_printf }.line(record)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Error => "ERROR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
            Level::Trace => "TRACE",
        };
        write!(f, "{level:5} {}: {}", Place(self.head), self.text)?;
        if self.left_out > 0 {
            write!(f, " ({} left out before it)", self.left_out)?;
        }
        Ok(())
    }
}

/// A format, wherever it comes from.
struct Shown<'a> {
    name: &'static str,
    level: Level,
    text: &'a str,
    types: &'a [Type],
    is_limited: bool,
    is_printf: bool,
}

impl Shown<'_> {
    fn line(&self, record: &Record<'_>) -> Result<Line, NoLine> {
        let first = usize::from(self.is_limited);
        let words: usize = first + self.types.iter().map(|value| value.words()).sum::<usize>();
        if record.payload.len() != words * 4 {
            let (len, expected) = (record.payload.len(), words * 4);
            return Err(NoLine::Length { format: self.name, len, expected });
        }
        let mut at = first;
        let arguments = self.types.iter().map(|&value| {
            let low = u64::from(record.word(at));
            let high = if value.words() == 2 { u64::from(record.word(at + 1)) << 32 } else { 0 };
            at += value.words();
            (value, low | high)
        });
        let text =
            if self.is_printf { printf::print(self.text, arguments) } else { text(self.text, arguments) };
        let left_out = if self.is_limited { record.word(0) } else { 0 };
        Ok(Line { head: record.head, level: self.level, name: self.name, text, left_out })
    }
}

/// A text of `formats!` with its arguments, each a type and its bits.
fn text(text: &str, mut arguments: impl Iterator<Item = (Type, u64)>) -> String {
    let (mut out, mut from) = (String::with_capacity(text.len() + 16), 0);
    loop {
        from = match piece(text.as_bytes(), from) {
            Piece::End => return out,
            // `check` has refused such a text; in the rings' memory anything may stand, or a text
            // that was cut.
            Piece::Bad => return out + text.get(from..).unwrap_or_default(),
            Piece::Text(end) => {
                out.push_str(text.get(from..end).unwrap_or_default());
                end
            }
            Piece::Brace(brace, end) => {
                out.push(char::from(brace));
                end
            }
            Piece::Hole(hole, end) => {
                if let Some((value, bits)) = arguments.next() {
                    // Writing to a string does not fail.
                    let _ = argument(&mut out, hole, value, bits);
                }
                end
            }
        };
    }
}

fn argument(out: &mut String, hole: Hole, value: Type, bits: u64) -> fmt::Result {
    let width = usize::from(hole.width);
    match value {
        Type::U32 | Type::U64 | Type::I32 | Type::I64 if hole.hex => match (hole.prefix, hole.zeros) {
            (false, false) => write!(out, "{bits:width$x}"),
            (false, true) => write!(out, "{bits:0width$x}"),
            (true, false) => write!(out, "{bits:#width$x}"),
            (true, true) => write!(out, "{bits:#0width$x}"),
        },
        Type::U32 | Type::U64 => number(out, hole, bits),
        Type::I32 => number(out, hole, bits as u32 as i32),
        Type::I64 => number(out, hole, bits as i64),
        Type::F32 => float(out, hole, f64::from(f32::from_bits(bits as u32)), f32::from_bits(bits as u32)),
        Type::F64 => float(out, hole, f64::from_bits(bits), f64::from_bits(bits)),
        Type::Bool => write!(out, "{:width$}", bits != 0),
        Type::Errno => {
            let text = gpunet_device::Error::from_errno(bits as u32 as i32).text();
            write!(out, "{text:width$}")
        }
    }
}

fn number(out: &mut String, hole: Hole, value: impl fmt::Display) -> fmt::Result {
    let width = usize::from(hole.width);
    if hole.zeros { write!(out, "{value:0width$}") } else { write!(out, "{value:width$}") }
}

/// `shortest` is the value in its own type, whose shortest digits are printed.
fn float(out: &mut String, hole: Hole, value: f64, shortest: impl fmt::Display) -> fmt::Result {
    let (width, zeros) = (usize::from(hole.width), hole.zeros);
    match hole.precision.map(usize::from) {
        Some(digits) if zeros => write!(out, "{value:0width$.digits$}"),
        Some(digits) => write!(out, "{value:width$.digits$}"),
        None => number(out, hole, shortest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Kind;

    crate::formats! {
        mod lines: Trace {
            PLAIN: Info(u32, i64) = "{} of {}, {{not}} this";
            NUMBERS: Debug(i32, u64, f32, f64) = "{:5}|{:#010x}|{:6.2}|{}";
            LIMITED: Warn(bool, gpunet_device::Error) limit 5 = "{}: {}";
        }
    }

    fn record(kind: u16, payload: &[u8]) -> Record<'_> {
        let kind = Kind::from_raw(kind);
        let head =
            Head { kind, len: payload.len() as u16, time_ns: 5, block: 3, sm: 20, warp: 1, lane: u8::MAX };
        Record { ring: 0, number: 0, head, payload }
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn lines_are_put_together() {
        let line =
            |format: u16, words: &[u32]| Line::of(&record(format | 1 << 15, &bytes(words)), lines::TABLE);
        let plain = line(0, &[7, u32::MAX, u32::MAX]).unwrap();
        assert_eq!(plain.to_string(), "INFO  block 3, warp 1, SM 20: 7 of -1, {not} this");
        let quarter = 0.25_f64.to_bits();
        let words = [-3_i32 as u32, 0xabc, 0, 1.0_f32.to_bits(), quarter as u32, (quarter >> 32) as u32];
        assert_eq!(line(1, &words).unwrap().text, "   -3|0x00000abc|  1.00|0.25");
        let limited = line(2, &[12, 1, 110]).unwrap();
        assert_eq!((limited.left_out, limited.name), (12, "LIMITED"));
        assert!(limited.to_string().ends_with("true: timed out (12 left out before it)"), "{limited}");
    }

    #[test]
    fn what_is_no_line_is_said() {
        let line = |kind: u16, payload: &[u8]| Line::of(&record(kind, payload), lines::TABLE);
        assert_eq!(line(7, &[]), Err(NoLine::OtherKind));
        assert_eq!(line(3 | 1 << 15, &[]), Err(NoLine::UnknownFormat(3)));
        assert_eq!(line(1 << 15, &[0; 8]), Err(NoLine::Length { format: "PLAIN", len: 8, expected: 12 }));
        assert!(line(1 << 15, &[0; 13]).is_err());
    }
}
