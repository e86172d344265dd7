//! One direction in: the ring published to the sender area by area, and the messages it may send.
//!
//! # Areas
//! The first area is the whole ring, announced in the private data. Later ones are the bytes
//! consumed since, published by writing a descriptor into the sender's table. At most two areas are
//! under way: an entry of the table may be written again only after every byte of the area it named
//! has come. An area is granted as soon as there is an entry for it and it reaches a quarter of the
//! ring or 64 KiB, whichever is less, or cannot grow because the ring ends there. So a sender never
//! waits for half a ring, and never gets small pieces while larger ones are available.
//!
//! # Credits
//! A credit stands for a posted receive. The driver posts one in the place of each that completed,
//! so a data message gives its credit back when it has come, not when its bytes are consumed: how
//! much a sender may be ahead is a matter of bytes, as with TCP, and 400 unread messages of one
//! byte do not stop a stream whose ring is empty. Limits are absolute and never go backwards.

use super::hello::Remote;
use super::violation::Violation;

/// Areas under way.
const AREAS: usize = 2;
/// An area of this many bytes is always granted.
const WORTH: u64 = 64 * 1024;

/// Returns the least area that is granted of a ring of this many bytes, unless the ring ends there.
/// So a receiver that gives nothing back gets all of its ring except for less than this.
#[must_use]
pub const fn least_area(capacity: u64) -> u64 {
    if capacity / 4 < WORTH { capacity / 4 } else { WORTH }
}

/// What one control message grants: a credit limit, and perhaps a new area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Absolute credit limit, its low 16 bits.
    pub limit: u16,
    /// Index in the sender's table, and the area to write there.
    pub area: Option<(u32, Remote)>,
}

/// The receiving direction.
#[derive(Clone, Debug)]
pub struct Receiver {
    ring: Remote,
    /// Receives that are posted, as announced to the peer.
    depth: u16,
    /// Entries of the sender's table, and the next one to write.
    entries: u32,
    entry: u32,
    consumed: u64,
    received: u64,
    granted: u64,
    /// Where the areas under way end, oldest first.
    ends: [u64; AREAS],
    areas: usize,
    /// Data messages that came, and how many the sender may send.
    messages: u64,
    limit: u64,
}

impl Receiver {
    /// The direction into `ring` (of a power of two bytes), with `depth` posted receives, for a
    /// sender whose table has `entries` entries. The whole ring is granted.
    #[must_use]
    pub const fn new(ring: Remote, depth: u16, entries: u32) -> Self {
        Self {
            ring,
            depth,
            entries,
            entry: 1,
            consumed: 0,
            received: 0,
            granted: ring.len as u64,
            ends: [ring.len as u64, 0],
            areas: 1,
            messages: 0,
            limit: depth as u64,
        }
    }

    /// Notes a data message of `len` bytes.
    ///
    /// # Errors
    /// [`Violation`], when it has no credit or the bytes do not fit the area.
    pub fn handle_data(&mut self, len: u32) -> Result<(), Violation> {
        self.handle_counted()?;
        let end = if self.areas > 0 { self.ends[0] } else { self.received };
        let room = end - self.received;
        if u64::from(len) > room {
            return Err(Violation::Overrun { claimed: len, room });
        }
        self.received += u64::from(len);
        if self.received == end {
            // This area is full, and its entry in the sender's table may be used again.
            self.ends.copy_within(1.., 0);
            self.areas -= 1;
        }
        Ok(())
    }

    /// Notes a message that took a credit.
    ///
    /// # Errors
    /// [`Violation::NoCredit`].
    pub const fn handle_counted(&mut self) -> Result<(), Violation> {
        if self.messages == self.limit {
            return Err(Violation::NoCredit);
        }
        self.messages += 1;
        Ok(())
    }

    /// Notes that the bytes before `position` are free again. Older positions are ignored.
    pub const fn handle_consumed(&mut self, position: u64) {
        debug_assert!(position <= self.received);
        if position > self.consumed {
            self.consumed = position;
        }
    }

    /// Position behind the last byte that has come.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether [`Receiver::grant`] would give an area.
    #[must_use]
    pub const fn wants_area(&self) -> bool {
        self.areas < AREAS && self.next_area() > 0
    }

    /// The next update, if one is due: an area, or credits because half of them are used up. The
    /// caller sends it.
    pub fn grant(&mut self, with_area: bool) -> Option<Grant> {
        let area = if with_area && self.wants_area() { Some(self.take_area()) } else { None };
        if area.is_none() && self.messages + u64::from(self.depth) - self.limit < self.half() {
            return None;
        }
        self.limit = self.messages + u64::from(self.depth);
        Some(Grant { limit: self.limit as u16, area })
    }

    const fn half(&self) -> u64 {
        let half = self.depth as u64 / 2;
        if half == 0 { 1 } else { half }
    }

    /// Bytes to grant now.
    const fn next_area(&self) -> u64 {
        let capacity = self.ring.len as u64;
        let free = self.consumed + capacity - self.granted;
        let to_end = capacity - (self.granted & (capacity - 1));
        let worth = least_area(capacity);
        if free >= to_end {
            to_end
        } else if free >= worth {
            free
        } else {
            0
        }
    }

    fn take_area(&mut self) -> (u32, Remote) {
        let len = self.next_area();
        let offset = self.granted & (u64::from(self.ring.len) - 1);
        let area = Remote { address: self.ring.address + offset, rkey: self.ring.rkey, len: len as u32 };
        self.granted += len;
        self.ends[self.areas] = self.granted;
        self.areas += 1;
        let entry = self.entry;
        self.entry = (entry + 1) % self.entries;
        (entry, area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(len: u32) -> Receiver {
        Receiver::new(Remote { address: 0x1000, rkey: 9, len }, 8, 2)
    }

    #[test]
    fn consumed_bytes_are_granted_in_pieces_worth_having() {
        let mut r = receiver(4096);
        assert_eq!(r.grant(true), None, "all is granted from the start");
        r.handle_data(1023).unwrap();
        r.handle_consumed(1023);
        assert_eq!(r.grant(true), None, "less than a quarter");
        r.handle_data(1).unwrap();
        r.handle_consumed(1024);
        let area = Remote { address: 0x1000, rkey: 9, len: 1024 };
        assert_eq!(r.grant(true), Some(Grant { limit: 10, area: Some((1, area)) }));
        r.handle_data(2048).unwrap();
        r.handle_consumed(3072);
        assert!(!r.wants_area(), "two areas are under way");
        r.handle_data(1024).unwrap();
        let area = Remote { address: 0x1400, rkey: 9, len: 2048 };
        assert_eq!(r.grant(true), Some(Grant { limit: 12, area: Some((0, area)) }), "the first area is full");
    }

    #[test]
    fn a_quarter_of_a_small_ring_and_64_kib_of_a_large_one_are_worth_granting() {
        for (ring, worth) in [(1 << 16, 1 << 14), (1 << 18, 1 << 16), (1 << 20, 1 << 16)] {
            let mut r = receiver(ring);
            r.handle_data(worth).unwrap();
            r.handle_consumed(u64::from(worth) - 1);
            assert!(!r.wants_area());
            r.handle_consumed(u64::from(worth));
            let area = Remote { address: 0x1000, rkey: 9, len: worth };
            assert_eq!(r.grant(true).unwrap().area, Some((1, area)));
        }
    }

    #[test]
    fn an_area_ends_with_the_ring() {
        let mut r = receiver(4096);
        r.handle_data(4000).unwrap();
        r.handle_consumed(4000);
        assert_eq!(r.grant(true).unwrap().area.unwrap().1.len, 4000);
        r.handle_data(96).unwrap();
        r.handle_consumed(4096);
        assert_eq!(
            r.grant(true).unwrap().area.unwrap().1,
            Remote { address: 0x1000 + 4000, rkey: 9, len: 96 }
        );
    }

    #[test]
    fn what_was_not_granted_is_refused() {
        let mut r = receiver(4096);
        assert_eq!(r.handle_data(4097), Err(Violation::Overrun { claimed: 4097, room: 4096 }));
        let mut r = receiver(4096);
        r.handle_data(4096).unwrap();
        assert_eq!(r.handle_data(1), Err(Violation::Overrun { claimed: 1, room: 0 }));
        let mut r = receiver(4096);
        for _ in 0..8 {
            r.handle_data(1).unwrap();
        }
        assert_eq!(r.handle_data(1), Err(Violation::NoCredit));
    }

    #[test]
    fn credits_come_back_when_half_are_used() {
        let mut r = receiver(4096);
        for _ in 0..3 {
            r.handle_data(1).unwrap();
        }
        assert_eq!(r.grant(false), None);
        r.handle_data(1).unwrap();
        assert_eq!(r.grant(false), Some(Grant { limit: 12, area: None }));
        assert_eq!(r.grant(false), None);
    }
}
