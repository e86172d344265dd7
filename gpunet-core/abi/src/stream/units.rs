//! Units: small messages that travel by their own tags alone.
//!
//! Beside a ring lies its *unit ring*, in the memory that the receiver polls. A small message goes
//! through it and not through the ring: the sender leaves the bytes' places in the ring as they
//! are. Nothing is published for it, so no release is waited for.
//!
//! ```text
//!          slot: 16 bytes, stored and loaded by one instruction
//! +----------------+----------------+
//! | tag | length   | tag | position |    the first slot of a message
//! | tag | 4 bytes  | tag | 4 bytes  |    each of the others, in order
//! +----------------+----------------+
//! half of a slot: bits 63-32 the tag, bits 31-0 four bytes; each half is stored at once
//! ```
//!
//! **Slots** are numbered from 0, modulo 2^32, and used in turn, whatever message they belong to.
//! Slot `n` lies at `n` modulo the number of slots, and its tag is the number of its lap plus 1. So
//! a place holds the tag of the lap before until the next one is written, or 0 in the first lap,
//! and never the tag that its reader waits for.
//!
//! **Why a right tag is enough.** Only the sender writes slots, each place once in a lap. A half is
//! stored by one store of eight bytes, and loaded by one load, so tag and bytes belong together,
//! in whatever order other accesses become visible.
//!
//! **Credit.** The receiver grants slots: it stores how many the sender may have used in all
//! ([`RingEnd::granted`](crate::ring::RingEnd::granted)), at first when it has set the unit ring to
//! zero. Later grants need no release: what was taken from a slot was returned by a load that is
//! over, and no later store can change it. A sender without credit sends by the ring.
//!
//! **Order.** The first slot of a message names its position in the stream, so a receiver knows
//! which bytes before it came through the ring. And whoever has observed a `published` that covers
//! a unit message finds that message's slots, because they were stored before the release. So if
//! the next slot is empty after that, the bytes up to `published` are all in the ring.

use crate::sync::word::Word;

/// The code is compiled for units: on CPUs always, in kernels of GPUs with the feature `units`
/// only, because kernels grow by a third.
pub const COMPILED: bool = cfg!(any(feature = "units", not(target_arch = "nvptx64")));
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 16;
/// Bytes of a message in one slot.
pub const SLOT_PAYLOAD: usize = 8;
/// Where the word of the credit lies behind the word that tells of consumed bytes.
pub const LIMIT_AT: usize = 16;
/// log2 of the bytes of a ring for which there is one slot: half of the room beside a ring.
const RING_LOG2: u32 = 11;

/// Bytes of the unit ring beside a ring of `capacity` bytes, which is at least 64 KiB.
#[inline(always)]
#[must_use]
pub const fn len(capacity: u64) -> u64 {
    (capacity >> RING_LOG2) * SLOT_BYTES as u64
}

/// Returns the longest message that goes by units beside a ring of `capacity` bytes: it fills half
/// of the unit ring.
#[inline(always)]
#[must_use]
pub const fn longest(capacity: u64) -> u64 {
    ((capacity >> (RING_LOG2 + 1)) - 1) * SLOT_PAYLOAD as u64
}

/// Returns how many slots a message of `len` bytes takes.
#[inline(always)]
#[must_use]
pub const fn slots_of(len: u32) -> u32 {
    1 + len.div_ceil(SLOT_PAYLOAD as u32)
}

/// A half of a slot.
#[inline(always)]
#[must_use]
pub const fn half(bytes: u32, tag: u32) -> u64 {
    (tag as u64) << 32 | bytes as u64
}

/// Returns what a slot holds, if both halves have the tag: its eight bytes, the first half's first.
#[inline(always)]
#[must_use]
pub const fn payload(slot: [u64; 2], tag: u32) -> Option<u64> {
    if (slot[0] >> 32) as u32 == tag && (slot[1] >> 32) as u32 == tag {
        Some(slot[0] & u32::MAX as u64 | slot[1] << 32)
    } else {
        None
    }
}

/// What the first slot of a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// Bytes of the message.
    pub len: u32,
    /// The low 32 bits of its position in the stream.
    pub position: u32,
}

impl UnitHeader {
    /// The header by the payload of its slot.
    #[inline(always)]
    #[must_use]
    pub const fn of(payload: u64) -> Self {
        Self { len: payload as u32, position: (payload >> 32) as u32 }
    }

    /// How many bytes of the stream lie between `from` and the message; negative: `from` lies
    /// behind its first byte.
    #[inline(always)]
    #[must_use]
    pub const fn distance(self, from: u64) -> i32 {
        self.position.wrapping_sub(from as u32).cast_signed()
    }

    /// Returns how many bytes of the message a reader at `from` has passed; `None`: what the header
    /// says cannot be, for a reader that believes its place: the message does not hold that byte,
    /// or is longer than one beside a ring of `capacity` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn passed(self, from: u64, capacity: u64) -> Option<u32> {
        let passed = self.distance(from).wrapping_neg();
        if passed >= 0 && (passed as u32) < self.len && self.len as u64 <= longest(capacity) {
            Some(passed as u32)
        } else {
            None
        }
    }
}

/// The unit ring beside a ring.
#[derive(Clone, Copy, Debug)]
pub struct UnitRing {
    /// Its first word.
    base: Word,
    /// log2 of the number of slots.
    log2: u32,
}

impl UnitRing {
    /// The unit ring at an address, beside a ring of `capacity` bytes.
    ///
    /// # Safety
    /// [`len`] bytes from `ptr` on, which is 16-byte aligned, stay mapped while the value is used,
    /// and all agents access them by atomic operations only.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn from_ptr(ptr: *mut u8, capacity: u64) -> Self {
        // SAFETY: the caller's contract.
        let base = unsafe { Word::from_ptr(ptr.cast()) };
        Self { base, log2: capacity.trailing_zeros().wrapping_sub(RING_LOG2) }
    }

    /// How many slots there are.
    #[inline(always)]
    #[must_use]
    pub const fn slots(self) -> u32 {
        1 << self.log2
    }

    /// The tag of a slot; never 0.
    #[inline(always)]
    #[must_use]
    pub const fn tag(self, slot: u32) -> u32 {
        (slot >> self.log2) + 1
    }

    /// The address of a slot's halves, 16-byte aligned.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, slot: u32) -> *mut u64 {
        let index = slot & (self.slots() - 1);
        self.base.as_ptr().wrapping_byte_add(index as usize * SLOT_BYTES)
    }

    /// Returns whether a receiver that goes on from slot `from` to slot `to` tells the sender: once
    /// in each quarter of the unit ring.
    #[inline(always)]
    #[must_use]
    pub const fn grants(self, from: u32, to: u32) -> bool {
        (from ^ to) & !(self.slots() / 4 - 1) != 0
    }

    /// What a receiver grants that has taken all slots before `next`: the word, which is not 0.
    #[inline(always)]
    #[must_use]
    pub const fn grant(self, next: u32) -> u64 {
        1 << 32 | next.wrapping_add(self.slots()) as u64
    }

    /// Returns how many slots a sender may use from `next` on, by the receiver's word; none if the
    /// receiver has not begun, or its word is impossible.
    #[inline(always)]
    #[must_use]
    pub const fn credit(self, word: u64, next: u32) -> u32 {
        let credit = (word as u32).wrapping_sub(next);
        if word != 0 && credit <= self.slots() { credit } else { 0 }
    }

    /// Sets the whole unit ring to zero. The receiver, before it first grants slots.
    pub fn clear(self) {
        for at in (0..SLOT_BYTES << self.log2).step_by(8) {
            // SAFETY: a word of the unit ring, by the contract of `from_ptr`.
            unsafe { Word::from_ptr(self.base.as_ptr().wrapping_byte_add(at)) }.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line;
    use proptest::prelude::*;

    const RINGS: std::ops::RangeInclusive<u32> = 16..=24;

    #[test]
    fn unit_rings_fit_beside_their_rings() {
        for log2 in RINGS {
            let capacity = 1 << log2;
            assert!(line::fits(capacity));
            assert!(line::PER_PAGE + len(capacity) <= line::room(capacity), "{log2}");
            let slots = slots_of(u32::try_from(longest(capacity)).unwrap());
            assert!(u64::from(slots) <= len(capacity) / 32, "{log2}");
        }
    }

    #[test]
    fn a_grant_is_told_from_none() {
        // SAFETY: never accessed.
        let ring = unsafe { UnitRing::from_ptr(std::ptr::null_mut(), 1 << 16) };
        assert_eq!(ring.credit(0, 0), 0);
        assert_eq!(ring.credit(ring.grant(0), 0), ring.slots());
        assert_eq!(ring.credit(ring.grant(u32::MAX), 5), ring.slots() - 6);
        // More than there is, and less than was used.
        assert_eq!(ring.credit(ring.grant(7), 6), 0);
        assert_eq!(ring.credit(ring.grant(7), 7 + ring.slots() + 1), 0);
    }

    #[test]
    fn a_header_that_cannot_be_is_refused() {
        let header = UnitHeader { len: 8, position: 100 };
        assert_eq!(header.passed(100, 1 << 16), Some(0));
        assert_eq!(header.passed(107, 1 << 16), Some(7));
        assert_eq!(header.passed(108, 1 << 16), None);
        assert_eq!(header.passed(99, 1 << 16), None);
        assert_eq!(UnitHeader { len: 1 << 20, position: 100 }.passed(100, 1 << 16), None);
        assert_eq!(UnitHeader { len: 0, position: 100 }.passed(100, 1 << 16), None);
        assert_eq!(UnitHeader { len: 8, position: 0 }.passed((1 << 40) + 2, 1 << 16), Some(2));
    }

    proptest! {
        /// A place never holds the tag that its reader waits for before that slot is written.
        #[test]
        fn the_tag_of_a_place_changes_with_each_lap(log2 in RINGS, slot in any::<u32>()) {
            // SAFETY: never accessed.
            let ring = unsafe { UnitRing::from_ptr(std::ptr::null_mut(), 1 << log2) };
            let before = slot.wrapping_sub(ring.slots());
            prop_assert_eq!(ring.at(slot), ring.at(before));
            prop_assert_ne!(ring.tag(slot), ring.tag(before));
            prop_assert_ne!(ring.tag(slot), 0);
        }

        #[test]
        fn a_slot_is_whole_or_not_there(bytes in any::<u64>(), tag in 1u32.., other in any::<u32>()) {
            let halves = |tags: [u32; 2]| [half(bytes as u32, tags[0]), half((bytes >> 32) as u32, tags[1])];
            prop_assert_eq!(payload(halves([tag, tag]), tag), Some(bytes));
            if other != tag {
                prop_assert_eq!(payload(halves([other, tag]), tag), None);
                prop_assert_eq!(payload(halves([tag, other]), tag), None);
            }
        }
    }
}
