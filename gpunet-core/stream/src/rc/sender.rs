//! One direction out: the peer's areas, the credits it gave, and what is on its way.

use super::hello::Remote;
use super::violation::Violation;
use super::work::{Op, Source};

/// Entries of our table, into which the peer writes its areas.
const ENTRIES: usize = 2;

/// Our send ring as work requests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRing {
    /// First byte.
    pub address: u64,
    /// Bytes, a power of two.
    pub len: u64,
}

/// The sending direction.
#[derive(Clone, Debug)]
pub struct Sender {
    ring: SendRing,
    /// Most bytes of one message.
    chunk: u64,
    /// What is left of the areas that the peer published, by entry of our table.
    areas: [Remote; ENTRIES],
    /// The entry in use, and the one that the peer writes next.
    current: usize,
    expected: usize,
    /// Data messages sent, and how many may be; 16 bits, and only their difference has a meaning.
    messages: u16,
    limit: u16,
    /// Messages that the peer can take at a time.
    depth: u16,
    /// Positions: posted to the send queue, and free again.
    posted: u64,
    completed: u64,
}

impl Sender {
    /// The direction out of `ring` to a peer whose first area and credits these are.
    #[must_use]
    pub const fn new(ring: SendRing, area: Remote, credits: u16) -> Self {
        // A quarter of the ring: one part is on its way while the kernel fills the next. Large
        // messages cost fewer credits and completions; beyond 1 MiB that is no gain.
        let quarter = ring.len / 4;
        let chunk = if quarter < 1 << 20 { quarter } else { 1 << 20 };
        let none = Remote { address: 0, rkey: 0, len: 0 };
        Self {
            ring,
            chunk,
            areas: [area, none],
            current: 0,
            expected: 1,
            messages: 0,
            limit: credits,
            depth: credits,
            posted: 0,
            completed: 0,
        }
    }

    /// Takes in a credit limit.
    ///
    /// # Errors
    /// [`Violation::CreditsRegress`]: the limit test is one of equality, so a limit that went
    /// backwards would let 65 thousand messages through.
    pub const fn handle_limit(&mut self, limit: u16) -> Result<(), Violation> {
        let left = self.limit.wrapping_sub(self.messages);
        let new = limit.wrapping_sub(self.messages);
        // A peer takes `depth` messages beyond those that have come, which were all sent. Not a
        // signed comparison of the limits: one update may give back all of 65,534 credits.
        if new < left || new > self.depth {
            return Err(Violation::CreditsRegress(self.limit.wrapping_sub(limit)));
        }
        self.limit = limit;
        Ok(())
    }

    /// The entry of our table where the next area will appear.
    #[must_use]
    pub const fn expected_entry(&self) -> usize {
        self.expected
    }

    /// Takes in the area that appeared there.
    ///
    /// # Errors
    /// [`Violation::BadArea`], when the last area of that entry is not used up yet, or the new one
    /// is invalid.
    pub fn handle_area(&mut self, area: Remote) -> Result<(), Violation> {
        if self.areas[self.expected].len != 0
            || area.len == 0
            || area.address.checked_add(u64::from(area.len)).is_none()
        {
            return Err(Violation::BadArea);
        }
        self.areas[self.expected] = area;
        self.expected = (self.expected + 1) % ENTRIES;
        Ok(())
    }

    /// Returns whether data may be sent, as far as the peer is concerned.
    #[must_use]
    pub const fn may_send(&self) -> bool {
        self.messages != self.limit && self.areas[self.current].len > 0
    }

    /// The next data message, of at most `len` bytes: its length and what to post, but for the
    /// message itself.
    pub fn next(&mut self, len: u64) -> Option<(u32, Op)> {
        if len == 0 || !self.may_send() {
            return None;
        }
        let area = &mut self.areas[self.current];
        let len = len.min(self.chunk).min(u64::from(area.len)) as u32;
        let (to, rkey) = (area.address, area.rkey);
        // Before the request is posted: once the peer has the last byte, it may write the entry
        // anew.
        area.address += u64::from(len);
        area.len -= len;
        if area.len == 0 {
            self.current = (self.current + 1) % ENTRIES;
        }
        self.messages = self.messages.wrapping_add(1);
        let from = Source::Ring(self.pieces(len));
        self.posted += u64::from(len);
        Some((len, Op::Write { from, to, rkey, immediate: None }))
    }

    /// The next `len` bytes of the ring.
    const fn pieces(&self, len: u32) -> [(u64, u32); 2] {
        let offset = self.posted & (self.ring.len - 1);
        let to_end = self.ring.len - offset;
        let first = if (len as u64) < to_end { len } else { to_end as u32 };
        [(self.ring.address + offset, first), (self.ring.address, len - first)]
    }

    /// Notes that the first `len` bytes under way have arrived.
    pub const fn handle_completed(&mut self, len: u32) {
        self.completed += len as u64;
    }

    /// Position behind the last byte posted.
    #[must_use]
    pub const fn posted(&self) -> u64 {
        self.posted
    }

    /// Position behind the last byte that has arrived.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(area: u32, credits: u16) -> Sender {
        Sender::new(
            SendRing { address: 0x8000, len: 4096 },
            Remote { address: 0x100, rkey: 5, len: area },
            credits,
        )
    }

    #[test]
    fn an_area_is_filled_before_the_next_is_used() {
        let mut s = sender(100, 8);
        s.handle_area(Remote { address: 0x900, rkey: 6, len: 50 }).unwrap();
        let write = |from, to, rkey| Op::Write { from: Source::Ring(from), to, rkey, immediate: None };
        assert_eq!(s.next(60), Some((60, write([(0x8000, 60), (0x8000, 0)], 0x100, 5))));
        assert_eq!(s.next(60), Some((40, write([(0x8000 + 60, 40), (0x8000, 0)], 0x100 + 60, 5))));
        assert_eq!(s.next(60), Some((50, write([(0x8000 + 100, 50), (0x8000, 0)], 0x900, 6))));
        assert_eq!(s.next(60), None);
        s.handle_area(Remote { address: 0x100, rkey: 5, len: 4096 }).unwrap();
        s.handle_area(Remote { address: 0x900, rkey: 6, len: 4096 }).unwrap();
        assert_eq!(s.handle_area(Remote { address: 0, rkey: 0, len: 1 }), Err(Violation::BadArea));
        assert_eq!(s.next(9999).unwrap().0, 1024, "a quarter of the ring at a time");
    }

    #[test]
    fn a_message_may_wrap_round_the_ring() {
        let mut s = sender(9000, 100);
        for _ in 0..3 {
            s.next(1000).unwrap();
        }
        s.next(1000).unwrap();
        let Some((200, Op::Write { from: Source::Ring(pieces), .. })) = s.next(200) else {
            panic!("no message")
        };
        assert_eq!(pieces, [(0x8000 + 4000, 96), (0x8000, 104)]);
    }

    #[test]
    fn credits_are_absolute_and_wrap() {
        let mut s = sender(4096, 2);
        assert!(s.next(1).is_some() && s.next(1).is_some());
        assert_eq!(s.next(1), None);
        s.handle_limit(3).unwrap();
        assert!(s.next(1).is_some() && s.next(1).is_none());
        assert_eq!(s.handle_limit(2), Err(Violation::CreditsRegress(1)));
        s.handle_limit(3).unwrap();
        s.handle_limit(5).unwrap();
        assert_eq!(s.handle_limit(6), Err(Violation::CreditsRegress(u16::MAX)), "more than it has");
    }

    #[test]
    fn all_of_many_credits_may_come_back_at_once() {
        let mut s = sender(70_000, 65_534);
        for _ in 0..65_534 {
            s.next(1).unwrap();
        }
        assert!(!s.may_send());
        s.handle_limit(65_534u16.wrapping_mul(2)).unwrap();
        assert!(s.may_send());
    }
}
