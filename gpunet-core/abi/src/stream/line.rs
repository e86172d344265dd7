//! Lines: small messages whose flag travels with their bytes.
//!
//! A message of at most [`MAX`] bytes travels twice: through the ring, as every message does, and
//! before that in a *line* in the memory that its receiver polls. A line consists of units of eight
//! bytes: four bytes of the message and a tag, by one store. If the tag is right, the bytes are
//! there: a receiver waits for no release, and looks once. NCCL names this LL, its low-latency
//! protocol.
//!
//! ```text
//! 0         8        16                        528
//! +---------+---------+------+------+-- - - --+
//! | header  | unused  |unit 0|unit 1|         |     a line
//! +---------+---------+------+------+-- - - --+
//! unit:    bits 63-32 tag, bits 31-0 four bytes of the message
//! header:  bits 63-32 tag, bits 31-9 the position's bits from 31 on, bits 8-0 the length
//! ```
//!
//! **The line is a copy, the ring stays the truth.** A receiver that finds the whole message at its
//! position may take it from the line, and is then ahead of `landed`. A receiver that finds another
//! tag, or wants a part of a message, uses the ring. There are no credits: the next small message
//! is written over it.
//!
//! A tag is the position's low 31 bits and a 1, so a line of zeros has no right tag. A sender that
//! passes a multiple of 2^30 bytes sets the line to zero ([`passes_segment`]), so tags of a stream
//! never repeat within what a line can still have. A ring's line is zero when a stream begins.

use crate::stream::socket_line::SocketLine;
use crate::stream::units;
use crate::sync::word::Word;
use crate::types::options::MIN_RING_LOG2;

/// The longest message that has a line: 256 bytes, which the 32 lanes of a warp store by 16 bytes
/// each.
pub const MAX: usize = 256;
/// Bytes of the message in one chunk of two units, which one lane stores.
pub const CHUNK_BYTES: usize = 8;
/// Where a line's first unit lies.
const UNITS: usize = 16;
/// Length of a line.
pub const LEN: usize = UNITS + 2 * MAX;
/// Bytes of lines beside each page of a ring: a socket's line in an arena, room for these lines
/// elsewhere.
pub const PER_PAGE: u64 = size_of::<SocketLine>() as u64;
/// Bits of the header that hold the length.
const LEN_BITS: u32 = 9;
/// log2 of the bytes after which a line is set to zero.
const SEGMENT_LOG2: u32 = 30;

const _: () = assert!(MAX < 1 << LEN_BITS && LEN.is_multiple_of(16));

/// Bytes beside a ring of `capacity` bytes that are kept for its words and lines.
#[inline(always)]
#[must_use]
pub(crate) const fn room(capacity: u64) -> u64 {
    (capacity >> MIN_RING_LOG2) * PER_PAGE
}

/// Returns whether a ring of `capacity` bytes may have a line: whether it fits behind the first
/// [`PER_PAGE`] bytes of the ring's room. A ring of 64 KiB is large enough.
#[inline(always)]
#[must_use]
pub const fn fits(capacity: u64) -> bool {
    room(capacity) >= PER_PAGE + LEN as u64
}

/// The first bytes beside a ring, which are used: a socket's line, and behind it the line of
/// messages or the [unit ring](crate::units). They are zero while the ring is free: smaller rings
/// in its place have their words there.
#[inline(always)]
#[must_use]
pub const fn used(capacity: u64) -> u64 {
    let units = units::len(capacity);
    match fits(capacity) {
        true if units > LEN as u64 => PER_PAGE + units,
        true => PER_PAGE + LEN as u64,
        false => PER_PAGE,
    }
}

/// The tag of the message at `position`; never 0.
#[inline(always)]
#[must_use]
pub const fn tag(position: u64) -> u32 {
    (position as u32) << 1 | 1
}

/// A unit: four bytes, as a little-endian number, and their tag.
#[inline(always)]
#[must_use]
pub const fn unit(data: u32, tag: u32) -> u64 {
    (tag as u64) << 32 | data as u64
}

/// Returns whether a unit has the tag.
#[inline(always)]
#[must_use]
pub const fn has_tag(unit: u64, tag: u32) -> bool {
    (unit >> 32) as u32 == tag
}

/// The header of the message of `len` bytes at `position`.
#[inline(always)]
#[must_use]
pub const fn header(position: u64, len: usize) -> u64 {
    unit(((position >> 31) as u32) << LEN_BITS | len as u32, tag(position))
}

/// The length of a message by a line's header; 0: it is longer than `room`, which is at most
/// [`MAX`], or of another position. `empty` is the [`header`] of no bytes at the reader's position.
#[inline(always)]
#[must_use]
pub const fn len_within(found: u64, empty: u64, room: u64) -> u64 {
    let len = found ^ empty;
    if len <= room { len } else { 0 }
}

/// Returns whether `len` bytes from `position` on pass the end of a segment, so that a sender
/// clears its line.
#[inline(always)]
#[must_use]
pub const fn passes_segment(position: u64, len: u64) -> bool {
    (position ^ (position + len)) >> SEGMENT_LOG2 != 0
}

/// The addresses of a line's parts.
#[derive(Clone, Copy, Debug)]
pub struct Line(*mut u8);

impl Line {
    /// The line at an address.
    ///
    /// # Safety
    /// [`LEN`] bytes from `ptr` on, which is 16-byte aligned, stay mapped while the value is used,
    /// and all agents access them by atomic operations only.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn from_ptr(ptr: *mut u8) -> Self {
        Self(ptr)
    }

    /// The header.
    #[inline(always)]
    #[must_use]
    pub const fn header(self) -> Word {
        // SAFETY: an aligned word of the line, by the contract of `from_ptr`.
        unsafe { Word::from_ptr(self.0.cast()) }
    }

    /// Chunk `index` of the line: the address of two units, 16-byte aligned. It is at most 31.
    #[inline(always)]
    #[must_use]
    pub const fn chunk(self, index: usize) -> *mut u64 {
        self.0.wrapping_add(UNITS + 2 * CHUNK_BYTES * index).cast()
    }

    /// Sets the whole line to zero, so that it belongs to nobody. Its writer calls, or its reader
    /// while nobody writes it.
    fn clear(self) {
        for at in (0..LEN).step_by(8) {
            // SAFETY: a word of the line; its padding is nobody's.
            unsafe { Word::from_ptr(self.0.wrapping_add(at).cast()) }.set(0);
        }
    }
}

/// Sets the whole line of a ring to zero, if the ring has one, so that it belongs to nobody. The
/// line's writer calls, or its reader while nobody writes it.
///
/// # Safety
/// `line` is null, or as for [`Line::from_ptr`].
#[cold]
#[inline(never)]
pub unsafe fn clear(line: *mut u8) {
    if !line.is_null() {
        // SAFETY: the caller's contract.
        unsafe { Line::from_ptr(line) }.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn len_at(found: u64, position: u64) -> u64 {
        len_within(found, header(position, 0), MAX as u64)
    }

    #[test]
    fn a_large_ring_has_room_for_a_line() {
        assert_eq!([12, 15, 16, 24].map(|log2| fits(1 << log2)), [false, false, true, true]);
        for log2 in 12..=24 {
            assert!(used(1 << log2) <= room(1 << log2), "{log2}");
        }
    }

    #[test]
    fn a_cleared_line_is_no_messages() {
        assert_eq!(len_at(0, 0), 0);
        assert!(!has_tag(0, tag(0)));
    }

    #[test]
    fn a_length_beyond_the_longest_is_refused() {
        assert_eq!(len_at(header(64, MAX), 64), MAX as u64);
        assert_eq!(len_at(header(64, MAX + 1), 64), 0);
        assert_eq!(len_at(header(64, 0), 64), 0);
    }

    proptest! {
        /// A header is that of its own position only, as long as lines are cleared once a segment;
        /// and of no other position below 2^54 even if they are not.
        #[test]
        fn a_header_names_its_position(a in 0u64..1 << 54, b in 0u64..1 << 54, len in 1usize..=MAX) {
            prop_assert_eq!(len_at(header(a, len), a), len as u64);
            let within = |at, room| len_within(header(a, len), header(at, 0), room);
            prop_assert_eq!((within(a, MAX as u64), within(a, len as u64)), (len as u64, len as u64));
            prop_assert_eq!(within(a, len as u64 - 1), 0);
            if a != b {
                prop_assert_eq!(len_at(header(a, len), b), 0);
                prop_assert_eq!(within(b, MAX as u64), 0);
            }
        }

        /// Tags of one segment and of the next are all different.
        #[test]
        fn tags_do_not_repeat_within_two_segments(at in 0u64..1 << 60, ahead in 1u64..1 << 31) {
            prop_assert_ne!(tag(at), tag(at + ahead));
            prop_assert_ne!(tag(at), 0);
        }

        #[test]
        fn a_segment_is_passed_once(at in 0u64..1 << 40, len in 1u64..1 << 24) {
            prop_assert_eq!(passes_segment(at, len), at >> SEGMENT_LOG2 != (at + len) >> SEGMENT_LOG2);
        }
    }
}
