//! Who is at the other side of a stream's words, and so how far a publish must reach and whom it wakes.

/// The other side of a stream. As a number: the slot of the other end if that is a socket of the same
/// device, else one of three special values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Link(u32);

impl Link {
    /// The proxy, which moves the bytes: its data thread is woken by a doorbell.
    pub const DRIVEN: Self = Self(u32::MAX);
    /// A device of another attachment, through an [arena](crate::arena): its sleepers are woken there.
    pub const REMOTE: Self = Self(u32::MAX - 1);
    /// As [`Link::REMOTE`], but the other device wakes nobody, because it is a GPU: a waiter naps and
    /// polls again.
    pub const POLLED: Self = Self(u32::MAX - 2);

    /// A socket of the same device.
    #[must_use]
    pub const fn same_device(slot: u32) -> Self {
        Self(slot)
    }

    /// The other end's slot, if it is a socket of the same device.
    #[inline(always)]
    #[must_use]
    pub const fn partner(self) -> Option<u32> {
        if self.is_same_device() { Some(self.0) } else { None }
    }

    /// Returns whether both ends are threads of one device, so that device scope is enough.
    #[inline(always)]
    #[must_use]
    pub const fn is_same_device(self) -> bool {
        self.0 < Self::POLLED.0
    }

    /// Returns whether the other end is a device, so that no proxy moves the bytes.
    #[inline(always)]
    #[must_use]
    pub const fn is_direct(self) -> bool {
        self.0 != Self::DRIVEN.0
    }

    /// Returns whether the stream lies in an arena.
    #[inline(always)]
    #[must_use]
    pub const fn is_remote(self) -> bool {
        self.0 == Self::REMOTE.0 || self.0 == Self::POLLED.0
    }

    /// Returns whether the other end wakes no sleeper, so that waiters poll.
    #[inline(always)]
    #[must_use]
    pub const fn is_polled(self) -> bool {
        self.0 == Self::POLLED.0
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::DRIVEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values_are_no_slots() {
        assert_eq!(Link::same_device(65_535).partner(), Some(65_535));
        for link in [Link::DRIVEN, Link::REMOTE, Link::POLLED] {
            assert_eq!(link.partner(), None);
        }
        assert!(Link::REMOTE.is_direct() && Link::POLLED.is_remote() && !Link::DRIVEN.is_direct());
    }
}
