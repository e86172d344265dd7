//! What a stream word says: a position, and whether the stream ended.

/// Bit 63: the word's own writer gave up on this direction.
pub const ERR: u64 = 1 << 63;
/// Bit 62: the position is final (`published`: end of data; `consumed`: the reader wants no more).
pub const FIN: u64 = 1 << 62;
/// The bits that hold the position: 62 bits count bytes for longer than any stream lives
/// (146 years at 1 GB/s), so positions never wrap.
pub const MASK: u64 = FIN - 1;

/// A 62-bit byte position with its FIN and ERR marks, as it stands in a shared word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct StreamWord(pub u64);

impl StreamWord {
    /// Makes the word of a position.
    #[must_use]
    #[inline(always)]
    pub const fn at(position: u64) -> Self {
        Self(position & MASK)
    }

    /// Returns the same word with the FIN mark.
    #[must_use]
    #[inline(always)]
    pub const fn with_fin(self) -> Self {
        Self(self.0 | FIN)
    }

    /// Returns the same word with the ERR mark.
    #[must_use]
    #[inline(always)]
    pub const fn with_err(self) -> Self {
        Self(self.0 | ERR)
    }

    /// Returns the byte position.
    #[must_use]
    #[inline(always)]
    pub const fn position(self) -> u64 {
        self.0 & MASK
    }

    /// Says whether the position is final.
    #[must_use]
    #[inline(always)]
    pub const fn fin(self) -> bool {
        self.0 & FIN != 0
    }

    /// Says whether the writer gave up.
    #[must_use]
    #[inline(always)]
    pub const fn err(self) -> bool {
        self.0 & ERR != 0
    }
}

/// Why a word that another agent wrote cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The position went back.
    Regressed {
        /// Position believed so far.
        from: u64,
        /// Position the word claims.
        to: u64,
    },
    /// The position moved after FIN.
    MovedAfterFin {
        /// The final position.
        end: u64,
        /// Position the word claims.
        to: u64,
    },
    /// More bytes are claimed than the ring holds, or than were ever offered.
    OutOfRange {
        /// Largest position that would have been possible.
        limit: u64,
        /// Position the word claims.
        to: u64,
    },
    /// A request names a slot, generation or value that cannot be.
    BadRequest,
}

/// Checks the next value of a word against the last believed one.
///
/// # Errors
/// The [`Violation`], when the position regressed, moved after FIN, lost its FIN, or passed
/// `limit`.
#[inline(always)]
pub fn advance(last: StreamWord, next: StreamWord, limit: u64) -> Result<StreamWord, Violation> {
    let (from, to) = (last.position(), next.position());
    if last.fin() && (to != from || !next.fin()) {
        return Err(Violation::MovedAfterFin { end: from, to });
    }
    if to < from {
        return Err(Violation::Regressed { from, to });
    }
    if to > limit {
        return Err(Violation::OutOfRange { limit, to });
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_position_do_not_mix() {
        let word = StreamWord::at(12345).with_fin();
        assert_eq!((word.position(), word.fin(), word.err()), (12345, true, false));
        assert!(StreamWord::at(1).with_err().err());
    }

    #[test]
    fn a_position_may_stand_still_or_grow_up_to_the_limit() {
        let last = StreamWord::at(10);
        assert_eq!(advance(last, last, 10), Ok(last));
        assert_eq!(advance(last, StreamWord::at(20), 20), Ok(StreamWord::at(20)));
    }

    #[test]
    fn a_lying_word_is_refused() {
        let last = StreamWord::at(10);
        assert!(matches!(advance(last, StreamWord::at(9), 99), Err(Violation::Regressed { .. })));
        assert!(matches!(advance(last, StreamWord::at(21), 20), Err(Violation::OutOfRange { .. })));
        let end = last.with_fin();
        assert!(matches!(
            advance(end, StreamWord::at(11).with_fin(), 99),
            Err(Violation::MovedAfterFin { .. })
        ));
        assert!(matches!(advance(end, last, 99), Err(Violation::MovedAfterFin { .. })));
    }
}
