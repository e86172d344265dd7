//! A record that was read.

use crate::span::Mark;
use crate::unit::{Head, NONE_BYTE, NONE_SM};
use std::fmt;

/// A record, as long as it lies in its reader's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The ring it comes from.
    pub ring: u32,
    /// Its number in the ring, from 0. Records of a ring are in order; numbers that are missing
    /// were overwritten.
    pub number: u64,
    /// What every record says.
    pub head: Head,
    /// What this one says.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Word `at` of the payload; 0 beyond its end.
    #[must_use]
    pub fn word(&self, at: usize) -> u32 {
        let (words, _) = self.payload.as_chunks::<4>();
        words.get(at).copied().map_or(0, u32::from_le_bytes)
    }

    /// What it says of a span or a counter, if it is of such a kind.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        Mark::of(self.head.kind, self.payload)
    }

    /// The number of the format that it names: that of a printed line, a span or a counter.
    #[must_use]
    pub fn format(&self) -> Option<u16> {
        self.head.kind.format().or_else(|| self.mark().map(Mark::format))
    }
}

/// Where a record was written: `block 3, warp 1, lane 7, SM 20`.
pub(crate) struct Place(pub(crate) Head);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { block, sm, warp, lane, .. } = self.0;
        write!(f, "block {block}")?;
        if warp != NONE_BYTE {
            write!(f, ", warp {warp}")?;
        }
        if lane != NONE_BYTE {
            write!(f, ", lane {lane}")?;
        }
        if sm != NONE_SM {
            write!(f, ", SM {sm}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: record of kind {}:", Place(self.head), self.head.kind.raw())?;
        let (words, rest) = self.payload.as_chunks::<4>();
        words.iter().try_for_each(|&word| write!(f, " {:08x}", u32::from_le_bytes(word)))?;
        if !rest.is_empty() {
            f.write_str(" ")?;
        }
        rest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
