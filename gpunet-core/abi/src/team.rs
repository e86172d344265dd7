//! The memory of a team: the words by which its members meet, and what each member keeps for
//! itself.
//!
//! Every member has a *block* in memory that it polls. All members of the team map it. A word in it
//! has one writer: the member after which its column is named, or the owner's own host program.
//!
//! ```text
//! block of member B:  header | broken | left | arrived[A], arrived[B], ... | signals[0][A], signals[0][B], ... signals[1][A], ...
//!                     bell     B's host program | written by A, by B, ...    | written by A, by B, ...
//! ```
//!
//! A member never reads back from shared memory what it wrote there. The values are in its
//! [`TeamState`], in its device's own memory, together with the addresses at which it maps every
//! block.

use crate::placement::arena::PartHeader;
use crate::placement::layout::PAGE;

/// Members of a team at most: a word has a bit for each.
pub const MAX_MEMBERS: u32 = 64;
/// Signals of a team at most.
pub const MAX_SIGNALS: u32 = 1 << 16;
/// The largest value of a signal. Bits 61 to 63 are 0, as in the words of streams: a CUDA stream
/// can wait for it.
pub const MAX_VALUE: u64 = (1 << 61) - 1;
/// The owner's host program adds this to a signal word that its source will not write any more, to
/// end the waits of CUDA streams. The value stays below it ([`MAX_VALUE`]).
pub const GONE: u64 = 3 << 61;

/// A member of a team, counted from 0.
///
/// # Examples
///
/// ```
/// use gpunet_abi::team::Rank;
///
/// assert_eq!(Rank(3).right_of(4), Rank(0));
/// assert_eq!(Rank(0).left_of(4), Rank(3));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// The next member in a ring of `size`.
    #[must_use]
    #[inline(always)]
    pub const fn right_of(self, size: u32) -> Self {
        Self(if self.0 + 1 < size { self.0 + 1 } else { 0 })
    }

    /// The previous member in a ring of `size`.
    #[must_use]
    #[inline(always)]
    pub const fn left_of(self, size: u32) -> Self {
        Self(if self.0 == 0 { size.saturating_sub(1) } else { self.0 - 1 })
    }
}

impl core::fmt::Display for Rank {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// A signal of a team: for each source a word, which grows.
///
/// # Examples
///
/// ```
/// use gpunet_abi::team::Signal;
///
/// const DATA_IS_THERE: Signal = Signal(0);
/// # assert_eq!(DATA_IS_THERE.0, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Signal(pub u32);

/// Offsets in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BlockLayout {
    /// Not 0 once the team is broken: the errno of everybody who waits. Written by the owner's host
    /// program.
    pub broken: u64,
    /// A bit for each member that has left in good order. Written by the owner's host program.
    pub left: u64,
    /// For each member the number of the last barrier that it has entered.
    pub arrived: u64,
    /// For each signal a word of each member.
    pub signals: u64,
    /// Bytes of a row of `signals`.
    pub row: u64,
    /// Length of the block, in whole pages.
    pub len: u64,
}

impl BlockLayout {
    /// Lays out the block of a team.
    #[must_use]
    pub const fn new(members: u32, signals: u32) -> Self {
        let broken = size_of::<PartHeader>() as u64;
        let row = members as u64 * 8;
        // The words that only the host program writes have a cache line of their own.
        let arrived = broken + 64;
        let at = (arrived + row).next_multiple_of(64);
        let len = (at + row * signals as u64).next_multiple_of(PAGE);
        Self { broken, left: broken + 8, arrived, signals: at, row, len }
    }

    /// The word that `source` writes for a signal.
    #[must_use]
    #[inline(always)]
    pub const fn signal(&self, signal: Signal, source: Rank) -> u64 {
        self.signals + signal.0 as u64 * self.row + source.0 as u64 * 8
    }

    /// The word that `source` writes at a barrier.
    #[must_use]
    #[inline(always)]
    pub const fn arrived_of(&self, source: Rank) -> u64 {
        self.arrived + source.0 as u64 * 8
    }
}

/// What a member knows of its team, in its device's own memory. Behind it lie the addresses of all
/// blocks, and then for each signal and member the value last sent.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct TeamState {
    /// [`crate::MAGIC`].
    pub magic: u32,
    /// [`crate::VERSION`].
    pub version: u32,
    /// This member.
    pub rank: u32,
    /// How many there are.
    pub members: u32,
    /// Signals of the team.
    pub signals: u32,
    /// 1: some member wakes nobody, so that sleeps are short.
    pub is_polled: u32,
    /// The parts of every block.
    pub layout: BlockLayout,
    /// A lock: the group that is at a barrier, or in a collective.
    pub collective_lock: u32,
    /// A lock: the group that adds to a signal.
    pub signal_lock: u32,
    /// Barriers that this member has passed. Written by the holder of `collective_lock`.
    pub passed: u64,
    /// Not 0 once a collective has failed in between: no further one can match those of the others.
    pub out_of_step: u64,
    /// 0.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<TeamState>() == 6 * 4 + 6 * 8 + 2 * 4 + 2 * 8 + 4 * 8, "no padding");

impl TeamState {
    /// Where the addresses of the blocks begin.
    pub const BLOCKS: u64 = size_of::<Self>() as u64;

    /// Where the values that were sent begin.
    #[must_use]
    #[inline(always)]
    pub const fn sent(members: u32) -> u64 {
        Self::BLOCKS + members as u64 * 8
    }

    /// Bytes of a state with all that lies behind it.
    #[must_use]
    pub const fn len(members: u32, signals: u32) -> u64 {
        Self::sent(members) + members as u64 * signals as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_word_of_a_block_has_a_place_of_its_own() {
        for (members, signals) in [(1, 1), (3, 5), (8, 256), (MAX_MEMBERS, 7)] {
            let layout = BlockLayout::new(members, signals);
            let mut words = BTreeSet::from([layout.broken, layout.left]);
            for source in (0..members).map(Rank) {
                assert!(words.insert(layout.arrived_of(source)));
                for signal in (0..signals).map(Signal) {
                    assert!(words.insert(layout.signal(signal, source)), "{signal:?} of {source}");
                }
            }
            assert!(words.iter().all(|word| word % 8 == 0 && *word >= size_of::<PartHeader>() as u64));
            assert!(words.last().is_some_and(|last| last + 8 <= layout.len));
            assert_eq!(layout.len % PAGE, 0);
        }
    }

    #[test]
    fn a_ring_goes_round() {
        for size in 1..5 {
            for rank in (0..size).map(Rank) {
                assert_eq!(rank.right_of(size).left_of(size), rank);
            }
        }
    }
}
