//! The texts of formats in pinned memory, for readers without the kernel's table.
//!
//! ```text
//! unit 0: bits 0-15 the text's length in bytes, 16-23 its level, 24 a limit, 25 as printf has it
//! unit 1: the types of the arguments, four bits each from the lowest on; 0: no more
//! unit 2 and after: the text
//! ```
//!
//! A unit has four of these bytes and a tag, which is the same in all units of a text and not 0. A
//! place is written once, by the host for the formats of its table, and by kernels for the others:
//! several may write the same text at the same time. Nothing in a place is trusted.

use crate::format::{FormatInfo, Level, MAX_ARGUMENTS, Type};
use crate::layout::{Records, TEXT};
use crate::unit;

/// The longest text: what is longer is cut.
pub(crate) const LONGEST: usize = (TEXT / 8 - 2) * 4;
/// The tag of texts that the host has written.
const OF_HOST: u32 = 1;

/// What a place says of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatText {
    /// The level of its lines.
    pub level: Level,
    /// The types of the arguments.
    pub types: Vec<Type>,
    /// Whether each line says how many were left out before it.
    pub is_limited: bool,
    /// Whether placeholders are those of C's printf.
    pub is_printf: bool,
    /// The text. What is no UTF-8 is replaced.
    pub text: String,
}

const TYPES: [Type; 8] =
    [Type::U32, Type::U64, Type::I32, Type::I64, Type::F32, Type::F64, Type::Bool, Type::Errno];

const fn code(value: Type) -> u32 {
    match value {
        Type::U32 => 1,
        Type::U64 => 2,
        Type::I32 => 3,
        Type::I64 => 4,
        Type::F32 => 5,
        Type::F64 => 6,
        Type::Bool => 7,
        Type::Errno => 8,
    }
}

const fn level(raw: u8) -> Option<Level> {
    Some(match raw {
        1 => Level::Error,
        2 => Level::Warn,
        3 => Level::Info,
        4 => Level::Debug,
        5 => Level::Trace,
        _ => return None,
    })
}

impl Records {
    /// Writes the texts of the host's table, for readers that do not have it. Once, before any
    /// other program has the memory.
    pub fn tell_formats(self, table: &[FormatInfo]) {
        for (number, format) in (0..self.shape().formats()).zip(table) {
            let text = format.text.as_bytes();
            let text = &text[..text.len().min(LONGEST)];
            let head = text.len() as u32 | (format.level as u32) << 16 | u32::from(format.is_limited) << 24;
            let types =
                format.types.iter().enumerate().fold(0, |all, (at, value)| all | code(*value) << (4 * at));
            let put = |at: usize, word: u32| self.text(number, at).set(unit::unit(word, OF_HOST));
            for (at, four) in text.chunks(4).enumerate() {
                let mut word = [0; 4];
                word[..four.len()].copy_from_slice(four);
                put(at + 2, u32::from_le_bytes(word));
            }
            put(1, types);
            put(0, head);
        }
    }

    /// The text of a format. `None`: there is none, or its rest has not come.
    #[must_use]
    pub fn format(self, number: u16) -> Option<FormatText> {
        let shape = self.shape();
        if u32::from(number) >= shape.formats() + shape.texts() {
            return None;
        }
        // Ordering: Relaxed; a unit's tag comes with its bytes.
        let load = |at: usize| self.text(number.into(), at).peek();
        let first = load(0);
        let tag = (first >> 32) as u32;
        if tag == 0 {
            return None;
        }
        let word =
            |at: usize| Some(load(at)).filter(|unit| (unit >> 32) as u32 == tag).map(|unit| unit as u32);
        let (head, codes) = (first as u32, word(1)?);
        let len = (head as u16 as usize).min(LONGEST);
        let mut text = Vec::with_capacity(len + 3);
        for at in 0..len.div_ceil(4) {
            text.extend_from_slice(&word(at + 2)?.to_le_bytes());
        }
        text.truncate(len);
        let codes =
            (0..MAX_ARGUMENTS).map(|at| (codes >> (4 * at) & 15) as usize).take_while(|&code| code > 0);
        Some(FormatText {
            level: level((head >> 16) as u8)?,
            types: codes.map(|code| TYPES.get(code - 1).copied()).collect::<Option<_>>()?,
            is_limited: head >> 24 & 1 == 1,
            is_printf: head >> 25 & 1 == 1,
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WhenFull;
    use crate::test_rings::TestRings;
    use proptest::prelude::*;

    crate::formats! {
        mod lines: Info {
            PLAIN: Info(u32, f64) = "{} took {:.1} us";
            LIMITED: Warn(bool, gpunet_device::Error) limit 5 = "{}: {}";
        }
    }

    #[test]
    fn the_hosts_formats_are_read_by_their_numbers() {
        let rings = TestRings::new(1, 64, 8, lines::TABLE.len());
        let records = rings.records(WhenFull::Overwrite);
        assert_eq!(records.format(0), None, "nothing is written");
        records.tell_formats(lines::TABLE);
        for (number, format) in (0..).zip(lines::TABLE) {
            let text = records.format(number).unwrap();
            assert_eq!((text.level, &*text.text, &*text.types), (format.level, format.text, format.types));
            assert_eq!((text.is_limited, text.is_printf), (format.is_limited, false));
        }
        assert_eq!(records.format(2), None, "there is no such format");
    }

    #[test]
    fn a_shape_is_found_in_its_memory() {
        let rings = TestRings::new(3, 64, 40, 2);
        let records = rings.records(WhenFull::Overwrite);
        assert_eq!(rings.found(), None);
        records.tell_shape();
        assert_eq!(rings.found(), Some((records.shape(), false)));
    }

    proptest! {
        /// Whatever stands at a place is a text, or none.
        #[test]
        fn any_place_is_judged(words in prop::collection::vec(any::<u32>(), 64), tag in 0_u32..3, torn in 0_usize..80) {
            let rings = TestRings::new(1, 64, 8, 1);
            let records = rings.records(WhenFull::Overwrite);
            for (at, word) in words.iter().enumerate() {
                let tag = if at == torn { tag + 1 } else { tag };
                records.text(0, at).set(unit::unit(*word, tag));
            }
            if let Some(text) = records.format(0) {
                prop_assert!(tag != 0 || torn == 0);
                prop_assert!(text.types.len() <= MAX_ARGUMENTS && text.text.chars().count() <= LONGEST);
            }
        }
    }
}
