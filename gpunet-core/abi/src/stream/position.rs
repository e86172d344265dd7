//! What a stream word means: a position, and whether the stream ended.
//!
//! ```text
//!  63  62  61  60                                               0
//! +---+---+---+--------------------------------------------------+
//! | 0 |END|ERR| position: bytes since the stream was opened      |
//! +---+---+---+--------------------------------------------------+
//! ```
//!
//! Bit 63 is always 0 because a CUDA stream waits for a word by a signed, cyclic comparison
//! (`(i64)(word - value) >= 0`): a word with bit 63 set would never release it, and a word with END
//! or ERR always does.

/// Bit 62: the position is final (`published`: end of data; `consumed`: the reader wants no more).
pub const END: u64 = 1 << 62;
/// Bit 61: the word's own writer gave up on this direction. It never stands without [`END`].
pub const ERR: u64 = 1 << 61;
/// The bits that hold the position: 61 bits count bytes for longer than any stream lives
/// (73 years at 1 GB/s), so positions never wrap.
pub const MASK: u64 = ERR - 1;
/// Bit 63: always 0.
const SIGN: u64 = 1 << 63;

/// A 61-bit byte position with its END and ERR marks, as it stands in a shared word.
///
/// # Examples
///
/// ```
/// use gpunet_abi::StreamWord;
///
/// let word = StreamWord::at(128).with_end();
/// assert_eq!((word.position(), word.end(), word.err()), (128, true, false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct StreamWord(pub u64);

impl StreamWord {
    /// Stands for every word that no agent writes: ERR without END. [`advance`] rejects it.
    pub const MALFORMED: Self = Self(ERR);

    /// Makes the word of a position.
    #[must_use]
    #[inline(always)]
    pub const fn at(position: u64) -> Self {
        Self(position & MASK)
    }

    /// Takes what another agent wrote. A value with bit 63 set becomes [`StreamWord::MALFORMED`],
    /// so bit 63 of a word that was read is always free for the reader's own use.
    #[must_use]
    #[inline(always)]
    pub const fn read(raw: u64) -> Self {
        if raw & SIGN == 0 { Self(raw) } else { Self::MALFORMED }
    }

    /// Returns the same word with the END mark.
    #[must_use]
    #[inline(always)]
    pub const fn with_end(self) -> Self {
        Self(self.0 | END)
    }

    /// Returns the same word with the ERR mark, and END, which goes with it.
    #[must_use]
    #[inline(always)]
    pub const fn with_err(self) -> Self {
        Self(self.0 | ERR | END)
    }

    /// Returns the byte position.
    #[must_use]
    #[inline(always)]
    pub const fn position(self) -> u64 {
        self.0 & MASK
    }

    /// Returns the same word `len` bytes further: fewer than remain until a position would wrap.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn moved_by(self, len: u64) -> Self {
        Self(self.0 + len)
    }

    /// Returns the word without its position: END and ERR, where they stand.
    #[must_use]
    #[inline(always)]
    const fn marks(self) -> u64 {
        self.0 & (END | ERR)
    }

    /// Returns whether the position is final, in good order or not: ask [`StreamWord::err`] first.
    #[must_use]
    #[inline(always)]
    pub const fn end(self) -> bool {
        self.0 & END != 0
    }

    /// Returns whether the writer gave up.
    #[must_use]
    #[inline(always)]
    pub const fn err(self) -> bool {
        self.0 & ERR != 0
    }

    /// Returns whether an agent that keeps to the contract can have written the word: bit 63 is 0,
    /// and ERR stands with END.
    #[must_use]
    #[inline(always)]
    pub const fn is_well_formed(self) -> bool {
        self.0 & SIGN == 0 && (self.0 & (ERR | END)) != ERR
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
    /// The position moved after END, or a mark was taken back.
    MovedAfterEnd {
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
    /// No agent that keeps to the contract writes such a word: bit 63 is set, or ERR stands alone.
    Malformed {
        /// What stands there.
        word: u64,
    },
    /// The word's own writer gave up (ERR) where only the reader may give up.
    GaveUp,
}

/// Checks the next value of a word against the last believed one.
///
/// The marks only grow, and the position stands still once there is one.
///
/// # Errors
/// The [`Violation`], when the word is malformed, the position regressed or passed `limit`, or
/// position or marks changed after END in a way that they cannot.
#[inline(always)]
pub fn advance(last: StreamWord, next: StreamWord, limit: u64) -> Result<StreamWord, Violation> {
    let (from, to) = (last.position(), next.position());
    // One branch: all lanes of a GPU's group decide this for each message, and a branch costs them
    // about as much as all of these operations.
    let keeps_end = !last.end() | ((to == from) & (next.marks() & last.marks() == last.marks()));
    if next.is_well_formed() & keeps_end & (to >= from) & (to <= limit) {
        Ok(next)
    } else {
        Err(violation(last, next, limit))
    }
}

/// The reason that [`advance`] rejects a word. Inline: a kernel does not ask for it, and a call
/// would make its lanes keep values in local memory.
#[inline(always)]
fn violation(last: StreamWord, next: StreamWord, limit: u64) -> Violation {
    let (from, to) = (last.position(), next.position());
    if !next.is_well_formed() {
        Violation::Malformed { word: next.0 }
    } else if last.end() {
        Violation::MovedAfterEnd { end: from, to }
    } else if to < from {
        Violation::Regressed { from, to }
    } else {
        Violation::OutOfRange { limit, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns whether a CUDA stream that waits until `word >= value` continues
    /// (`CU_STREAM_WAIT_VALUE_GEQ`: the sign of the difference).
    fn releases(word: StreamWord, value: u64) -> bool {
        word.0.wrapping_sub(value).cast_signed() >= 0
    }

    #[test]
    fn marks_and_position_do_not_mix() {
        let word = StreamWord::at(12345).with_end();
        assert_eq!((word.position(), word.end(), word.err()), (12345, true, false));
        assert_eq!(StreamWord::at(u64::MAX).0, MASK);
        assert_eq!((word.marks(), word.with_err().marks(), StreamWord::at(7).marks()), (END, END | ERR, 0));
        assert_eq!((word.with_end(), word.with_err().with_err()), (word, word.with_err()));
        let failed = StreamWord::at(1).with_err();
        assert_eq!((failed.position(), failed.end(), failed.err()), (1, true, true));
        assert!(word.is_well_formed() && failed.is_well_formed());
    }

    #[test]
    fn a_position_may_stand_still_or_grow_up_to_the_limit() {
        let last = StreamWord::at(10);
        assert_eq!(advance(last, last, 10), Ok(last));
        assert_eq!(advance(last, StreamWord::at(20), 20), Ok(StreamWord::at(20)));
        assert_eq!(advance(last, StreamWord::at(20).with_end(), 20), Ok(StreamWord::at(20).with_end()));
    }

    #[test]
    fn a_lying_word_is_refused() {
        let last = StreamWord::at(10);
        assert!(matches!(advance(last, StreamWord::at(9), 99), Err(Violation::Regressed { .. })));
        assert!(matches!(advance(last, StreamWord::at(21), 20), Err(Violation::OutOfRange { .. })));
        // The position itself is possible, and one more is not.
        assert_eq!(advance(last, StreamWord::at(20), 20), Ok(StreamWord::at(20)));
        let end = last.with_end();
        let moved = advance(end, StreamWord::at(11).with_end(), 99);
        assert!(matches!(moved, Err(Violation::MovedAfterEnd { .. })));
        assert!(matches!(advance(end, last, 99), Err(Violation::MovedAfterEnd { .. })));
        // Beyond the limit and not gone back.
        assert!(matches!(advance(last, last, 9), Err(Violation::OutOfRange { limit: 9, to: 10 })));
        for word in [ERR | 10, SIGN | 10, SIGN | END | 10, u64::MAX] {
            assert!(
                matches!(advance(last, StreamWord(word), 99), Err(Violation::Malformed { .. })),
                "{word:x}"
            );
        }
        assert!(matches!(advance(last, StreamWord::read(u64::MAX), 99), Err(Violation::Malformed { .. })));
    }

    #[test]
    fn who_has_ended_may_still_give_up_but_takes_nothing_back() {
        let end = StreamWord::at(10).with_end();
        assert_eq!(advance(end, end, 99), Ok(end));
        assert_eq!(advance(end, end.with_err(), 99), Ok(end.with_err()));
        let failed = end.with_err();
        assert_eq!(advance(failed, failed, 99), Ok(failed));
        assert!(matches!(advance(failed, end, 99), Err(Violation::MovedAfterEnd { .. })));
    }

    proptest! {
        /// The position of a word that [`advance`] accepts decides whether it releases a wait. A
        /// word with a mark releases every wait, at any position.
        #[test]
        fn a_stream_waits_by_a_signed_cyclic_comparison(
            word in 0..=MASK, value in 0..=MASK, marks in 0..3u8,
        ) {
            let at = StreamWord::at(word);
            let marked = match marks {
                0 => at,
                1 => at.with_end(),
                _ => at.with_err(),
            };
            prop_assert!(marked.is_well_formed());
            prop_assert_eq!(releases(marked, value), marks > 0 || word >= value);
        }

        /// The reason that bit 63 stays 0: with it, a wait for a position that was reached would
        /// hang.
        #[test]
        fn a_word_with_the_sign_bit_is_malformed(word in 0..=MASK, below in 0..=MASK) {
            let signed = StreamWord(SIGN | word);
            prop_assert!(!signed.is_well_formed());
            prop_assert!(!releases(signed, word.saturating_sub(below)));
        }

        #[test]
        fn a_word_that_was_read_leaves_bit_63_free(raw in any::<u64>()) {
            prop_assert_eq!(StreamWord::read(raw).0 & SIGN, 0);
            prop_assert_eq!(StreamWord::read(raw).is_well_formed(), StreamWord(raw).is_well_formed());
        }
    }
}
