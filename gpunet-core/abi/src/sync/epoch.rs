//! The word that tells pollers of changes, and which socket changed last.

/// How many changes there were that a poll could wait for, and the slot of the last one.
///
/// ```text
///  63        40 39                0
/// +------------+------------------+
/// |    slot    |      count       |
/// +------------+------------------+
/// ```
///
/// A poller whose sockets are others need not look at them: of many thread blocks that poll, one
/// looks at what came and the others do not load the bus. The low half of the word is the futex
/// that CPU blocks sleep on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Epoch(pub u64);

/// The changes between two epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Nothing.
    None,
    /// The socket in that slot.
    Slot(u32),
    /// Several sockets, or it is not known which.
    Any,
}

impl Epoch {
    const COUNT_BITS: u32 = 40;
    const COUNT: u64 = (1 << Self::COUNT_BITS) - 1;
    /// The number that is added to the word for a change that names no socket: two changes at once
    /// name none.
    pub const ANY: u64 = 2;

    /// The epoch after one more change, of the socket in that slot. A program that overwrites the
    /// word can make it any number.
    #[must_use]
    pub const fn after(self, slot: u32) -> Self {
        Self((slot as u64) << Self::COUNT_BITS | self.0.wrapping_add(1) & Self::COUNT)
    }

    /// Which sleeping CPU blocks a change of the socket in `slot` wakes (`None`: any socket), as a
    /// futex's bit set: those that poll a socket with the same bit. Each socket has one of 32.
    #[must_use]
    pub const fn wakes(slot: Option<u32>) -> u32 {
        match slot {
            Some(slot) => 1 << (slot % u32::BITS),
            None => u32::MAX,
        }
    }

    /// Returns whether this is a later epoch than `other`: of two that lie less than half the count
    /// apart.
    #[inline(always)]
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0) & Self::COUNT;
        ahead != 0 && ahead <= Self::COUNT / 2
    }

    /// Returns the changes since `earlier`.
    #[inline(always)]
    #[must_use]
    pub const fn changes_since(self, earlier: Self) -> Changes {
        match self.0.wrapping_sub(earlier.0) & Self::COUNT {
            0 => Changes::None,
            1 => Changes::Slot((self.0 >> Self::COUNT_BITS) as u32),
            _ => Changes::Any,
        }
    }
}

impl Changes {
    /// Returns whether the socket in that slot may have changed.
    #[inline(always)]
    #[must_use]
    pub const fn may_concern(self, slot: u32) -> bool {
        match self {
            Self::None => false,
            Self::Slot(changed) => changed == slot,
            Self::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_names_its_slot_and_several_do_not() {
        let start = Epoch(7);
        assert_eq!(start.changes_since(start), Changes::None);
        for slot in [0, 9, 65_535] {
            let next = start.after(slot);
            assert_eq!(next.changes_since(start), Changes::Slot(slot));
            assert_eq!(next.after(slot).changes_since(start), Changes::Any, "perhaps two sockets");
            assert_eq!(next.changes_since(next), Changes::None);
            assert_eq!(Epoch(next.0 + Epoch::ANY).changes_since(next), Changes::Any);
        }
        assert!(Changes::Slot(9).may_concern(9) && !Changes::Slot(9).may_concern(8));
        assert!(Changes::Any.may_concern(0) && !Changes::None.may_concern(0));
    }

    #[test]
    fn a_change_wakes_who_polls_that_socket() {
        for slot in [0, 31, 32, 65_535] {
            let bits = Epoch::wakes(Some(slot));
            assert_eq!((bits.count_ones(), bits & Epoch::wakes(None)), (1, bits));
            assert_eq!(bits & Epoch::wakes(Some(slot + 1)), 0);
        }
    }

    #[test]
    fn the_count_wraps_without_touching_the_slot() {
        let last = Epoch(3 << Epoch::COUNT_BITS | Epoch::COUNT);
        let next = last.after(4);
        assert_eq!(next.0, 4 << Epoch::COUNT_BITS);
        assert_eq!(next.changes_since(last), Changes::Slot(4));
        assert!(next.is_after(last) && !last.is_after(next) && !next.is_after(next));
        assert_eq!(Epoch(u64::MAX).after(4), next, "whatever a program has written");
    }
}
