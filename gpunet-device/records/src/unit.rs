//! The format of a record in a ring: units of eight bytes, four of them a tag.
//!
//! ```text
//! 0        8        16       24       32       40
//! +--------+--------+--------+--------+--------+-- - - --+
//! | kind,  | block  | time   | time   | place  | payload |   a record, each unit of it with the tag
//! | length |        | (low)  | (high) |        |         |
//! +--------+--------+--------+--------+--------+-- - - --+
//! unit:  bits 63-32 tag, bits 31-0 four bytes of the record
//! place: bits 31-24 lane, bits 23-16 warp, bits 15-0 multiprocessor
//! ```
//!
//! Record `n` of a ring lies at place `n % records`, and its tag is its lap, `n / records + 1`. A
//! unit is stored at once, so a unit with the tag holds that record's bytes; a record is there when
//! all its units have its tag. Memory that nobody has written is zero, which is the tag of no lap.

pub(crate) use gpunet_device::abi::line::unit;

/// Units before the payload.
pub(crate) const HEAD: usize = 5;
/// The longest payload of [`crate::Recorder::record`], in words of four bytes.
pub const MAX_WORDS: usize = 27;
/// The warp of a record that a whole block has written; the lane of one that a block or a warp has.
pub const NONE_BYTE: u8 = u8::MAX;
/// The multiprocessor of a record of a CPU block.
pub const NONE_SM: u16 = u16::MAX;
/// The kinds of printed lines: this bit and the number of the format.
const PRINTED: u16 = 1 << 15;
/// The first of the kinds below [`PRINTED`] that have a meaning of their own.
const RESERVED: u16 = 32752;

/// What a record is: a number that the kernel and its host program agree on.
///
/// # Examples
///
/// ```
/// # use gpunet_records::Kind;
/// const TURN: Kind = Kind::new(1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Kind(u16);

impl Kind {
    /// A span begins: [`Recorder::begin`](crate::Recorder::begin).
    pub const BEGIN: Self = Self(RESERVED);
    /// A span ends: [`Recorder::end`](crate::Recorder::end).
    pub const END: Self = Self(RESERVED + 1);
    /// A counter has a value: [`Recorder::count`](crate::Recorder::count).
    pub const COUNTER: Self = Self(RESERVED + 2);

    /// The kind of that number, from 1 to 32751: others mean spans, counters, printed lines and
    /// notices.
    ///
    /// # Panics
    /// If it is another number; in a constant, when it is compiled.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        assert!(number != 0 && number < RESERVED, "a kind is a number from 1 to 32751");
        Self(number)
    }

    /// The kind of lines of a format.
    #[inline(always)]
    pub(crate) const fn printed(format: u16) -> Self {
        Self(format | PRINTED)
    }

    /// The kind as rings and streams have it.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        Self(raw)
    }

    /// The number.
    #[must_use]
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Returns whether it is one of lines, spans or counters.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) const fn has_meaning(self) -> bool {
        self.0 >= RESERVED
    }

    /// The number of the format of a printed line.
    #[must_use]
    pub const fn format(self) -> Option<u16> {
        if self.0 & PRINTED == 0 { None } else { Some(self.0 & !PRINTED) }
    }
}

/// What every record says beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// Bytes of its payload.
    pub len: u16,
    /// When it was written, in nanoseconds of the device's clock.
    pub time_ns: u64,
    /// The block that wrote it. On the CPU device the number of the group among those of its kind.
    pub block: u32,
    /// The multiprocessor; [`NONE_SM`] on the CPU device.
    pub sm: u16,
    /// The warp in its block, or [`NONE_BYTE`].
    pub warp: u8,
    /// The lane in its warp, or [`NONE_BYTE`].
    pub lane: u8,
}

impl Head {
    /// The head as the words of a record.
    #[inline(always)]
    pub(crate) const fn words(&self) -> [u32; HEAD] {
        [
            self.kind.0 as u32 | (self.len as u32) << 16,
            self.block,
            self.time_ns as u32,
            (self.time_ns >> 32) as u32,
            self.sm as u32 | (self.warp as u32) << 16 | (self.lane as u32) << 24,
        ]
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) const fn of([kind, block, low, high, place]: [u32; HEAD]) -> Self {
        Self {
            kind: Kind(kind as u16),
            len: (kind >> 16) as u16,
            time_ns: low as u64 | (high as u64) << 32,
            block,
            sm: place as u16,
            warp: (place >> 16) as u8,
            lane: (place >> 24) as u8,
        }
    }
}

/// The tag of a lap.
#[inline(always)]
pub(crate) const fn tag(lap: u64) -> u32 {
    (lap as u32).wrapping_add(1)
}

/// Units of a record with a payload of `len` bytes.
#[inline(always)]
pub(crate) const fn units(len: usize) -> usize {
    HEAD + len.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_come_back(kind: u16, len: u16, time_ns: u64, block: u32, sm: u16, warp: u8, lane: u8) {
            let head = Head { kind: Kind(kind), len, time_ns, block, sm, warp, lane };
            prop_assert_eq!(Head::of(head.words()), head);
        }
    }

    #[test]
    fn memory_that_nobody_has_written_has_the_tag_of_no_lap() {
        assert_eq!((tag(0), tag(1), tag(u32::MAX.into())), (1, 2, 0));
    }

    #[test]
    fn a_printed_line_knows_its_format() {
        assert_eq!(Kind::printed(7).format(), Some(7));
        assert_eq!(Kind::new(7).format(), None);
    }
}
