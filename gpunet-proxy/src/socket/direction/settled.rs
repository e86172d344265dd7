//! What a direction's entry is set to when kernels get it back.

use super::hold::{Hold, half_at};
use crate::socket::DirectionError;
use gpunet_abi::Direction;
use gpunet_abi::entry::{Entry, HalfEntry};
use gpunet_abi::position::{MASK, StreamWord, advance};
use std::mem::offset_of;

/// The words of a direction's entry when it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    position: StreamWord,
    seen: StreamWord,
}

impl Settled {
    /// From the words as they stand, and the other end's, which is believed as far as it can be.
    fn of(
        direction: Direction,
        capacity: u64,
        (position, seen): (StreamWord, StreamWord),
        other: StreamWord,
        has_failed: impl FnOnce() -> bool,
    ) -> Self {
        let at = position.position();
        let limit = if direction == Direction::Send { at } else { at.saturating_add(capacity) };
        let seen = advance(seen, other, limit).unwrap_or(seen);
        // At least this much was released, or has landed, unless an end has cut it off.
        let (least, most) = match direction {
            Direction::Send if has_failed() => (0, seen.position().saturating_add(capacity)),
            Direction::Send => (at.saturating_sub(capacity), MASK),
            Direction::Recv if seen.end() => (0, seen.position()),
            // A receiver may be ahead of what it has seen: by lines, and where a CUDA stream has
            // believed more.
            Direction::Recv => (at.saturating_sub(capacity), MASK),
        };
        let seen = StreamWord(seen.0 + least.saturating_sub(seen.position()));
        Self { position: StreamWord(position.0 - at.saturating_sub(most)), seen }
    }
}

impl Hold {
    /// Leaves the table as kernels that use the direction by handle expect it: they count free and
    /// landed bytes from what was published and what was last believed of the other end. A CUDA
    /// stream stores the one and not the other; and where an end or a failure has released it, it
    /// has run on and published more than came, or than there was room for.
    pub(super) fn settle(&self) -> Result<(), DirectionError> {
        let (table, handle) = (&self.inner.shared.table, self.inner.handle);
        let at = half_at(self.direction);
        let word =
            |offset| table.entry_word(handle, at + offset).map(StreamWord).map_err(DirectionError::Memory);
        let (position, seen) = (word(offset_of!(HalfEntry, position))?, word(offset_of!(HalfEntry, seen))?);
        let settled = Settled::of(
            self.direction,
            u64::from(self.half.capacity),
            (position, seen),
            self.other()?,
            || self.failure().is_some(),
        );
        let set = |offset, word: StreamWord| {
            table.set_entry_word(handle, offset, word.0).map_err(DirectionError::Memory)
        };
        set(at + offset_of!(HalfEntry, position), settled.position)?;
        set(at + offset_of!(HalfEntry, seen), settled.seen)?;
        if self.direction == Direction::Recv {
            set(offset_of!(Entry, announced), StreamWord::at(settled.position.position()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RING: u64 = 64;

    fn settled(direction: Direction, words: [StreamWord; 3], has_failed: bool) -> [StreamWord; 2] {
        let [position, seen, other] = words;
        let Settled { position, seen } = Settled::of(direction, RING, (position, seen), other, || has_failed);
        [position, seen]
    }

    #[test]
    fn a_direction_is_given_back_as_kernels_would_have_left_it() {
        let at = StreamWord::at;
        for (direction, words, has_failed, expected) in [
            // Streams believe nothing of the other end.
            (Direction::Send, [at(1000), at(0), at(990)], false, [at(1000), at(990)]),
            (Direction::Recv, [at(1000), at(0), at(1010)], false, [at(1000), at(1010)]),
            // The other end's word cannot be read, or cannot be believed.
            (Direction::Send, [at(1000), at(0), at(0)], false, [at(1000), at(936)]),
            // A receiver may be ahead by what a line has brought, or a stream has believed.
            (Direction::Recv, [at(1000), at(0), at(0)], false, [at(1000), at(936)]),
            (Direction::Recv, [at(1000), at(900), StreamWord::MALFORMED], false, [at(1000), at(936)]),
            (Direction::Recv, [at(1000), at(990), at(995)], false, [at(1000), at(995)]),
            // They have run on.
            (Direction::Recv, [at(1000), at(0), at(100).with_end()], false, [at(100), at(100).with_end()]),
            (Direction::Recv, [at(1000), at(0), at(100).with_err()], true, [at(100), at(100).with_err()]),
            (Direction::Send, [at(1000), at(0), at(100)], true, [at(164), at(100)]),
            (Direction::Send, [at(1000), at(0), at(100).with_end()], false, [at(1000), at(936).with_end()]),
        ] {
            assert_eq!(settled(direction, words, has_failed), expected, "{direction:?} {words:?}");
        }
    }

    proptest! {
        /// No kernel counts more bytes than the ring has, and marks stay.
        #[test]
        fn what_is_given_back_fits_the_ring(
            position in 0..400u64, seen in 0..400u64, other in any::<u64>(), small in any::<bool>(),
            is_send in any::<bool>(), has_failed in any::<bool>(),
        ) {
            let other = StreamWord::read(if small { other % 400 } else { other });
            let direction = if is_send { Direction::Send } else { Direction::Recv };
            // What was believed, was believable.
            let seen = StreamWord::at(if is_send { seen.min(position) } else { seen.min(position + RING) });
            let [to, seen] = settled(direction, [StreamWord::at(position), seen, other], has_failed);
            // A receiver may be ahead of what it has seen.
            let is_ahead = is_send || seen.position() < to.position();
            let (from, until) = if is_ahead { (seen, to) } else { (to, seen) };
            prop_assert!(from.position() <= until.position(), "{from:?} {until:?}");
            prop_assert!(until.position() - from.position() <= RING, "{from:?} {until:?}");
            prop_assert!(to.position() <= position);
        }
    }
}
