//! What kernels print: formats that kernel and host share, checked when they are compiled.

use crate::unit::MAX_WORDS;
use core::marker::PhantomData;
use gpunet_device::Error;

/// How important a line is; [`Level::Error`] is the most important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something has failed.
    Error = 1,
    /// Something may be wrong.
    Warn = 2,
    /// What goes on.
    Info = 3,
    /// Details for those who look for a fault.
    Debug = 4,
    /// All details.
    Trace = 5,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A `u32`, or a smaller number without sign.
    U32,
    /// A `u64` or `usize`.
    U64,
    /// An `i32`, or a smaller number with a sign.
    I32,
    /// An `i64` or `isize`.
    I64,
    /// An `f32`.
    F32,
    /// An `f64`.
    F64,
    /// A `bool`.
    Bool,
    /// An [`Error`], printed in words.
    Errno,
}

impl Type {
    /// Words of four bytes that an argument of the type takes.
    #[must_use]
    pub const fn words(self) -> usize {
        match self {
            Self::U64 | Self::I64 | Self::F64 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::Bool | Self::Errno => 1,
        }
    }
}

/// What a kernel can print.
pub trait Argument: Copy {
    /// Its type, for the host.
    const TYPE: Type;

    /// The value's bits.
    fn bits(self) -> u64;
}

macro_rules! argument {
    ($($rust:ty => $type:ident, |$value:ident| $bits:expr;)*) => {
        $(impl Argument for $rust {
            const TYPE: Type = Type::$type;

            #[inline(always)]
            fn bits(self) -> u64 {
                let $value = self;
                $bits
            }
        })*
    };
}

argument! {
    u8 => U32, |value| value as u64;
    u16 => U32, |value| value as u64;
    u32 => U32, |value| value as u64;
    u64 => U64, |value| value;
    usize => U64, |value| value as u64;
    i8 => I32, |value| value as i32 as u32 as u64;
    i16 => I32, |value| value as i32 as u32 as u64;
    i32 => I32, |value| value as u32 as u64;
    i64 => I64, |value| value as u64;
    isize => I64, |value| value as u64;
    f32 => F32, |value| value.to_bits() as u64;
    f64 => F64, |value| value.to_bits();
    bool => Bool, |value| value as u64;
    Error => Errno, |value| value.errno() as u32 as u64;
}

/// How many arguments a line has at most.
pub const MAX_ARGUMENTS: usize = 8;

/// The arguments of a line: a tuple of at most [`MAX_ARGUMENTS`].
pub trait Arguments: Copy {
    /// Their types.
    const TYPES: &'static [Type];
    /// Words of four bytes that they take.
    const WORDS: usize;

    /// Stores them from word `at` on.
    fn put(self, words: &mut [u32; MAX_WORDS], at: usize);
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: Argument),*> Arguments for ($($name,)*) {
            const TYPES: &'static [Type] = &[$($name::TYPE),*];
            const WORDS: usize = 0 $(+ $name::TYPE.words())*;

            #[inline(always)]
            #[allow(non_snake_case, unused, reason = "each argument is named as its type")]
            fn put(self, words: &mut [u32; MAX_WORDS], mut at: usize) {
                let ($($name,)*) = self;
                $(
                    let bits = $name.bits();
                    words[at] = bits as u32;
                    if $name::TYPE.words() == 2 {
                        words[at + 1] = (bits >> 32) as u32;
                    }
                    at += $name::TYPE.words();
                )*
            }
        }
    };
}

arguments! {}
arguments! { A }
arguments! { A B }
arguments! { A B C }
arguments! { A B C D }
arguments! { A B C D E }
arguments! { A B C D E F }
arguments! { A B C D E F G }
arguments! { A B C D E F G H }

const _: () = assert!(2 * MAX_ARGUMENTS < MAX_WORDS);

/// A line that a kernel can print: its number, and what it takes. [`formats!`](crate::formats)
/// makes it.
#[derive(Clone, Copy, Debug)]
pub struct Format<A> {
    number: u16,
    level: Level,
    is_compiled: bool,
    interval_ns: u64,
    arguments: PhantomData<fn(A)>,
}

impl<A: Arguments> Format<A> {
    /// Format `number`. A launch prints one each `interval_ns` nanoseconds at most. Kernels print
    /// it if `most` is not less important.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(number: u16, level: Level, most: Level, interval_ns: u64) -> Self {
        assert!(number < 1 << 15, "32768 formats at most");
        Self { number, level, is_compiled: level as u8 <= most as u8, interval_ns, arguments: PhantomData }
    }

    /// Its number.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u16 {
        self.number
    }

    /// Its level.
    #[must_use]
    #[inline(always)]
    pub const fn level(self) -> Level {
        self.level
    }

    /// Returns whether kernels contain it.
    #[must_use]
    #[inline(always)]
    pub const fn is_compiled(self) -> bool {
        self.is_compiled
    }

    #[inline(always)]
    pub(crate) const fn interval_ns(self) -> u64 {
        self.interval_ns
    }
}

/// What the host knows of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatInfo {
    /// The name of its constant.
    pub name: &'static str,
    /// Its level.
    pub level: Level,
    /// The text, with placeholders.
    pub text: &'static str,
    /// The types of the arguments.
    pub types: &'static [Type],
    /// Returns whether there is a limit of lines per second. If so, each says how many were left
    /// out before it.
    pub is_limited: bool,
}

/// How an argument is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hole {
    /// As a hexadecimal number.
    pub hex: bool,
    /// With `0x`.
    pub prefix: bool,
    /// With zeros in front, not spaces.
    pub zeros: bool,
    /// At least so many characters.
    pub width: u8,
    /// Digits behind the point.
    pub precision: Option<u8>,
}

impl Hole {
    const fn takes(self, value: Type) -> bool {
        match value {
            Type::U32 | Type::U64 | Type::I32 | Type::I64 => self.precision.is_none(),
            Type::F32 | Type::F64 => !self.hex,
            Type::Bool | Type::Errno => !self.hex && !self.zeros && self.precision.is_none(),
        }
    }
}

/// A part of a format's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes up to there, as they are.
    Text(usize),
    /// A brace, written twice; the text goes on there.
    Brace(u8, usize),
    /// An argument; the text goes on there.
    Hole(Hole, usize),
    /// The text's end.
    End,
    /// A brace that begins or ends no placeholder that is known.
    Bad,
}

/// The part of a text that begins at byte `at`.
#[must_use]
pub const fn piece(text: &[u8], at: usize) -> Piece {
    const fn byte(text: &[u8], at: usize) -> u8 {
        if at < text.len() { text[at] } else { 0 }
    }
    const fn number(text: &[u8], mut at: usize) -> (u32, usize) {
        let (mut value, start) = (0, at);
        while byte(text, at).is_ascii_digit() && at < start + 2 {
            value = value * 10 + (byte(text, at) - b'0') as u32;
            at += 1;
        }
        (value, at)
    }
    if at >= text.len() {
        return Piece::End;
    }
    match text[at] {
        brace @ (b'{' | b'}') if byte(text, at + 1) == brace => Piece::Brace(brace, at + 2),
        b'{' => {
            let (mut hole, mut end) =
                (Hole { hex: false, prefix: false, zeros: false, width: 0, precision: None }, at + 1);
            if byte(text, end) == b':' {
                end += 1;
                if byte(text, end) == b'#' {
                    (hole.prefix, end) = (true, end + 1);
                }
                if byte(text, end) == b'0' {
                    (hole.zeros, end) = (true, end + 1);
                }
                let (width, after) = number(text, end);
                (hole.width, end) = (width as u8, after);
                if byte(text, end) == b'.' {
                    let (precision, after) = number(text, end + 1);
                    if after == end + 1 {
                        return Piece::Bad;
                    }
                    (hole.precision, end) = (Some(precision as u8), after);
                }
                if byte(text, end) == b'x' {
                    (hole.hex, end) = (true, end + 1);
                }
            }
            if byte(text, end) == b'}' && (hole.hex || !hole.prefix) {
                Piece::Hole(hole, end + 1)
            } else {
                Piece::Bad
            }
        }
        b'}' => Piece::Bad,
        _ => {
            let mut end = at;
            while end < text.len() && !matches!(text[end], b'{' | b'}') {
                end += 1;
            }
            Piece::Text(end)
        }
    }
}

/// Checks that a text has a placeholder for each argument, and that each can print its own.
///
/// # Panics
/// If not: when the format is compiled.
pub const fn check(text: &str, types: &[Type]) {
    let text = text.as_bytes();
    let (mut at, mut argument) = (0, 0);
    loop {
        at = match piece(text, at) {
            Piece::End => break,
            Piece::Bad => panic!("a brace that begins or ends no placeholder: write it twice to print it"),
            Piece::Text(end) | Piece::Brace(_, end) => end,
            Piece::Hole(hole, end) => {
                assert!(argument < types.len(), "the text has more placeholders than there are arguments");
                assert!(hole.takes(types[argument]), "a placeholder does not suit the type of its argument");
                argument += 1;
                end
            }
        };
    }
    assert!(argument == types.len(), "the text has fewer placeholders than there are arguments");
}

/// Declares what the kernels of a crate print: a module with a constant for each line, and `TABLE`
/// for the host.
///
/// `NAME: Level(types) = "text"`: the types are those of [`Argument`], the text has a placeholder
/// for each: `{}`, `{:x}`, `{:#x}`, `{:08x}`, `{:6}`, `{:.3}`. `limit N` after the types: a launch
/// prints N such lines a second at most, and each says how many were left out before it. The level
/// after the module's name is the least important one that kernels contain: lines below it cost
/// nothing.
///
/// # Examples
///
/// ```
/// gpunet_records::formats! {
///     /// What the server prints.
///     pub mod lines: Info {
///         /// A block has started.
///         STARTED: Info(u32, u64) = "{} items from {:#x} on";
///         SLOW: Warn(f64) limit 10 = "a request took {:.1} ms";
///         DETAIL: Trace(u32) = "at {}";
///     }
/// }
/// assert_eq!(lines::TABLE[1].text, "a request took {:.1} ms");
/// assert!(!lines::DETAIL.is_compiled());
/// ```
///
/// A text that does not suit its types is not compiled:
///
/// ```compile_fail
/// gpunet_records::formats! {
///     mod lines: Info {
///         STARTED: Info(u32, u64) = "{} items";
///     }
/// }
/// ```
#[macro_export]
macro_rules! formats {
    ($(#[$outer:meta])* $vis:vis mod $module:ident: $most:ident {
        $($(#[$inner:meta])* $name:ident: $level:ident($($type:ty),* $(,)?) $(limit $limit:literal)? = $text:literal;)*
    }) => {
        $(#[$outer])*
        #[allow(unused_imports, dead_code, missing_docs, reason = "whatever the types need; a line may not be printed")]
        $vis mod $module {
            use super::*;

            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            #[repr(u16)]
            enum Number { $($name),* }

            $(
                $(#[$inner])*
                pub const $name: $crate::Format<($($type,)*)> = {
                    $crate::check($text, <($($type,)*) as $crate::Arguments>::TYPES);
                    $crate::Format::new(
                        Number::$name as u16,
                        $crate::Level::$level,
                        $crate::Level::$most,
                        $crate::formats!(@interval $($limit)?),
                    )
                };
            )*

            /// All of them, for the host.
            #[cfg(not(target_arch = "nvptx64"))]
            pub static TABLE: &[$crate::FormatInfo] = &[$(
                $crate::FormatInfo {
                    name: stringify!($name),
                    level: $crate::Level::$level,
                    text: $text,
                    types: <($($type,)*) as $crate::Arguments>::TYPES,
                    is_limited: $crate::formats!(@interval $($limit)?) != 0,
                },
            )*];
        }
    };
    (@interval) => { 0 };
    (@interval $limit:literal) => {
        const {
            let limit: u64 = $limit;
            1_000_000_000 / limit
        }
    };
}

/// Prints a line: `gprintf!(recorder, group, lines::NAME, arguments..)`. The text is in
/// [`formats!`](crate::formats); it stays on the host's side, and the arguments travel.
///
/// Arguments of a level that is not compiled, or not wanted by the host, are not evaluated.
///
/// # Cooperation
/// All lanes of the group call it with the same arguments. A format with a limit is a
/// [`gpunet_device::Group::sync`]; the others are not.
///
/// # Examples
///
/// ```
/// # use gpunet_device::Group;
/// # use gpunet_records::{Recorder, gprintf};
/// gpunet_records::formats! {
///     pub mod lines: Info {
///         STARTED: Info(u32, u64) = "{} items from {:#x} on";
///     }
/// }
///
/// fn start<G: Group>(g: &G, recorder: &mut Recorder, items: u32, from: u64) {
///     gprintf!(recorder, g, lines::STARTED, items, from);
/// }
/// ```
///
/// Arguments of other types are not compiled:
///
/// ```compile_fail
/// # use gpunet_device::Group;
/// # use gpunet_records::{Recorder, gprintf};
/// # gpunet_records::formats! {
/// #     pub mod lines: Info {
/// #         STARTED: Info(u32, u64) = "{} items from {:#x} on";
/// #     }
/// # }
/// fn start<G: Group>(g: &G, recorder: &mut Recorder) {
///     gprintf!(recorder, g, lines::STARTED, 7_u32);
/// }
/// ```
#[macro_export]
macro_rules! gprintf {
    ($recorder:expr, $g:expr, $format:expr $(, $argument:expr)* $(,)?) => {
        if $format.is_compiled() && $recorder.prints($format.level()) {
            $recorder.print($g, $format, ($($argument,)*));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found() {
        let hole = Hole::default();
        let parts = |text: &str| {
            let (mut parts, mut at) = (Vec::new(), 0);
            loop {
                let part = piece(text.as_bytes(), at);
                parts.push(part);
                at = match part {
                    Piece::Text(end) | Piece::Brace(_, end) | Piece::Hole(_, end) => end,
                    Piece::End | Piece::Bad => return parts,
                };
            }
        };
        assert_eq!(parts("a {}"), [Piece::Text(2), Piece::Hole(hole, 4), Piece::End]);
        assert_eq!(parts("{{}}"), [Piece::Brace(b'{', 2), Piece::Brace(b'}', 4), Piece::End]);
        let long = Hole { hex: true, prefix: true, zeros: true, width: 18, precision: None };
        assert_eq!(parts("{:#018x}")[0], Piece::Hole(long, 8));
        let float = Hole { width: 9, precision: Some(3), ..hole };
        assert_eq!(parts("{:9.3}")[0], Piece::Hole(float, 6));
        for bad in ["{", "}", "{:", "{:?}", "{a}", "{:#}", "{:.}", "{:100}", "a { b"] {
            assert_eq!(parts(bad).last(), Some(&Piece::Bad), "{bad}");
        }
    }

    #[test]
    fn a_text_suits_its_types() {
        check("{} {:x} {:.2} {}", &[Type::Bool, Type::I64, Type::F32, Type::Errno]);
        for (text, types) in [
            ("{}", &[][..]),
            ("", &[Type::U32]),
            ("{:x}", &[Type::F64]),
            ("{:.1}", &[Type::U32]),
            ("{:x}", &[Type::Bool]),
        ] {
            assert!(std::panic::catch_unwind(|| check(text, types)).is_err(), "{text}");
        }
    }

    #[test]
    fn arguments_take_as_many_words_as_they_say() {
        let mut words = [9; MAX_WORDS];
        (1_u8, -1_i64, 1.0_f32, true).put(&mut words, 1);
        assert_eq!(words[..7], [9, 1, u32::MAX, u32::MAX, 1.0_f32.to_bits(), 1, 9]);
        assert_eq!(<(u8, i64, f32, bool)>::WORDS, 5);
    }
}
