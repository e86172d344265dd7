//! Who is at the other side of a stream's words, and so how far a publish must reach and whom it
//! wakes.

/// Data threads of a proxy at most.
pub const SHARDS: usize = 16;

/// The other side of a stream. As a number: the slot of the other end if that is a socket of the
/// same device, else a special value at the end of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Link(u32);

impl Link {
    /// A device of another attachment, through an [arena](crate::arena): its sleepers are woken
    /// there.
    pub const REMOTE: Self = Self(u32::MAX - SHARDS as u32);
    /// As [`Link::REMOTE`], but the other device wakes nobody, because it is a GPU: a waiter naps
    /// and polls again.
    pub const POLLED: Self = Self(Self::REMOTE.0 - 1);

    /// A data thread of the proxy, which moves the bytes and is woken by its doorbell. The thread's
    /// number is at most 15.
    #[must_use]
    pub const fn driven(thread: u32) -> Self {
        debug_assert!(thread < SHARDS as u32);
        Self(u32::MAX - thread)
    }

    /// The number of the data thread, if one moves the bytes; at most 15.
    #[inline(always)]
    #[must_use]
    pub const fn data_thread(self) -> Option<u32> {
        if self.is_direct() { None } else { Some(u32::MAX - self.0) }
    }

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
        self.0 <= Self::REMOTE.0
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
        Self::driven(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values_are_no_slots() {
        assert_eq!(Link::same_device(65_535).partner(), Some(65_535));
        let driven = (0..SHARDS as u32).map(Link::driven);
        for link in driven.chain([Link::REMOTE, Link::POLLED]) {
            assert_eq!(link.partner(), None);
        }
    }

    #[test]
    fn a_driven_link_names_its_thread_and_no_other_does() {
        for thread in 0..SHARDS as u32 {
            let link = Link::driven(thread);
            assert_eq!(
                (link.data_thread(), link.is_direct(), link.is_remote()),
                (Some(thread), false, false)
            );
        }
        for link in [Link::REMOTE, Link::POLLED, Link::same_device(0), Link::same_device(65_535)] {
            assert_eq!((link.data_thread(), link.is_direct()), (None, true));
        }
        assert!(Link::REMOTE.is_remote() && Link::POLLED.is_remote() && Link::POLLED.is_polled());
        assert!(!Link::REMOTE.is_polled() && !Link::REMOTE.is_same_device());
    }
}
