//! The two ends of a ring: who may write where, and which words each publishes.
//!
//! ```text
//! sender  --- published --->   ring   <--- consumed ---  receiver
//! ```
//!
//! A [`Producer`] owns the bytes from its position up to `released + capacity`; a [`Consumer`] owns
//! those from its position up to `landed`. Both keep private copies of what they believe, and check
//! every word the other agent wrote. All lanes of a group hold the same value: one lane polls and
//! announces, all lanes `accept` what it saw and `advance` together.

use crate::stream::line::Line;
use crate::stream::position::{StreamWord, Violation, advance};
use crate::stream::span::RingSpan;
use crate::stream::units::{COMPILED, LIMIT_AT, UnitRing};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::device_scope;
use crate::sync::word::Word;
use crate::types::link::Link;

/// Where a ring and its two words lie, in the caller's address space.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RingEnd {
    /// First byte of the ring.
    pub base: *mut u8,
    /// Bytes in the ring, a power of two, at most 2^30.
    pub capacity: u64,
    /// The ring's [line](crate::line), or its [unit ring](crate::units); null: it has none.
    pub line: *mut u8,
    /// The word this end writes: `published` of a producer, `consumed` of a consumer.
    pub mine: Word,
    /// The word the other end writes: `released` of a producer, `landed` of a consumer.
    pub theirs: Word,
    /// Who is at the other side.
    pub link: Link,
    /// Small messages travel in a [unit ring](crate::units): ask [`RingEnd::has_units`].
    pub units: bool,
}

impl RingEnd {
    /// Returns whether the ring has a line.
    #[inline(always)]
    #[must_use]
    pub const fn has_line(&self) -> bool {
        !self.line.is_null() && !self.has_units()
    }

    /// Returns whether small messages travel in a [unit ring](crate::units); never in kernels that
    /// are compiled [without](crate::units::COMPILED) them.
    #[inline(always)]
    #[must_use]
    pub const fn has_units(&self) -> bool {
        COMPILED && self.units
    }

    /// The ring of units of a ring that has one.
    #[inline(always)]
    #[must_use]
    pub const fn unit_ring(&self) -> UnitRing {
        // SAFETY: the ring's units, which the maker of this value keeps mapped.
        unsafe { UnitRing::from_ptr(self.line, self.capacity) }
    }

    /// The word in which the receiver tells how far the unit ring may be used: beside the word that
    /// it writes, as the receiver has it.
    #[inline(always)]
    #[must_use]
    pub const fn granted(&self) -> Word {
        limit_beside(self.mine)
    }

    /// The same word, as the sender has it.
    #[inline(always)]
    #[must_use]
    pub const fn grant(&self) -> Word {
        limit_beside(self.theirs)
    }

    /// The line of a ring that has one.
    #[inline(always)]
    #[must_use]
    pub const fn line(&self) -> Line {
        // SAFETY: the ring's line, which the maker of this value keeps mapped.
        unsafe { Line::from_ptr(self.line) }
    }

    /// Observes the other end's word.
    #[inline(always)]
    #[must_use]
    pub fn observe(&self) -> StreamWord {
        StreamWord::read(if self.link.is_same_device() {
            device_scope::observe(self.theirs)
        } else {
            self.theirs.observe()
        })
    }

    /// Looks at the other end's word without ordering anything: a hint, to be confirmed by
    /// [`RingEnd::observe`].
    #[inline(always)]
    #[must_use]
    pub fn peek(&self) -> StreamWord {
        StreamWord::read(self.theirs.peek())
    }

    /// Publishes this end's word.
    #[inline(always)]
    pub fn publish(&self, word: StreamWord) {
        if self.link.is_same_device() {
            device_scope::publish(self.mine, word.0);
        } else {
            self.mine.publish(word.0);
        }
    }
}

/// The word behind one that a receiver writes, in which it tells how far units may be sent.
#[inline(always)]
const fn limit_beside(consumed: Word) -> Word {
    // SAFETY: both places where such a word lies have this one behind it: a `SocketLine`, and the
    // `OwnWords` of a socket.
    unsafe { Word::from_ptr(consumed.as_ptr().wrapping_byte_add(LIMIT_AT)) }
}

/// Bytes that the sender of a proxy-driven stream leaves unpublished at most, although they are in
/// the ring; less than a quarter of a smaller ring.
pub const MOST_UNPUBLISHED: u64 = 128 * 1024;

/// Returns whether a ring lacks room for a sender that waits until `low` bytes are free, as far as
/// the proxy can tell: by the bytes that are published and `unread`.
///
/// The sender also counts those that it has left unpublished. A full ring has none, because bytes
/// that fill it are published. So a sender that waits for any room at all
/// ([`Options::low_water`](crate::Options::low_water) of 1) finds room when it is woken.
const fn lacks_room(unread: u64, low: u64, capacity: u64) -> bool {
    let quarter = capacity / 4;
    let unpublished = match low {
        0 | 1 => 0,
        _ if quarter < MOST_UNPUBLISHED => quarter,
        _ => MOST_UNPUBLISHED,
    };
    unread + unpublished + low > capacity
}

/// Gives `freed` more bytes back to a sender, up to the position of `now`; returns whether the ring
/// may have lacked room before for one that waits until `low` bytes are free, so that it is to be
/// told. By the proxy.
#[must_use]
pub fn give_room(
    released: Word,
    now: StreamWord,
    freed: u64,
    published: Word,
    (low, capacity): (u64, u64),
) -> bool {
    // Pairs with the sender's observe: what was read there is read.
    released.publish(now.0);
    // Ordering: SeqCst, pairs with the fence of a poller that waits for space after it has filled
    // the ring (a CPU's passes it when it registers, a GPU's before it loads the epoch, a poll
    // group's when it arms the socket): either it sees the new word, or its `published` is seen
    // here.
    fence(Ordering::SeqCst);
    let before = now.position().saturating_sub(freed);
    let unread = StreamWord(published.observe()).position().saturating_sub(before);
    lacks_room(unread, low, capacity)
}

/// The bytes from one position of a ring to a later one: at most its capacity, so 32 bits of both
/// are enough.
#[inline(always)]
const fn distance(from: StreamWord, to: StreamWord) -> u64 {
    (to.0 as u32).wrapping_sub(from.0 as u32) as u64
}

/// How far a position is past another one of the same ring, by 32 bits of both; 0 if it is behind.
#[inline(always)]
fn excess(from: StreamWord, to: StreamWord) -> u64 {
    (to.0 as u32).wrapping_sub(from.0 as u32).cast_signed().max(0) as u64
}

/// The sending end of a ring.
///
/// There is one for each ring at a time: it is neither `Clone` nor `Copy`.
///
/// ```compile_fail,E0382
/// fn twice(producer: gpunet_abi::ring::Producer) -> [gpunet_abi::ring::Producer; 2] {
///     [producer, producer]
/// }
/// ```
#[derive(Debug)]
pub struct Producer {
    end: RingEnd,
    /// This end's own word, as it stands once it is announced.
    word: StreamWord,
    /// The other end's word as last believed.
    released: StreamWord,
}

impl Producer {
    /// Makes the sending end, with the words of both ends as this end knew them last: `word` is its
    /// own, `released` the other end's.
    ///
    /// # Safety
    /// The ring and both words stay mapped while the value is used; nobody else writes `end.mine`
    /// or the ring's free bytes.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(end: RingEnd, word: StreamWord, released: StreamWord) -> Self {
        Self { end, word, released }
    }

    /// Where the ring and its words lie.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> RingEnd {
        self.end
    }

    /// Observes what the other end consumed. One lane polls; all lanes [`Producer::accept`].
    #[inline(always)]
    #[must_use]
    pub fn poll(&self) -> StreamWord {
        self.end.observe()
    }

    /// Believes a word that [`Producer::poll`] returned.
    ///
    /// # Errors
    /// The [`Violation`], when the word is malformed, regressed, moved after END, or claims bytes
    /// that were never published.
    #[inline(always)]
    pub fn accept(&mut self, seen: StreamWord) -> Result<(), Violation> {
        self.released = advance(self.released, seen, self.position())?;
        Ok(())
    }

    /// Free bytes, by what was accepted so far; none after [`Producer::finish`].
    #[inline(always)]
    #[must_use]
    pub const fn free(&self) -> u64 {
        if self.finished() { 0 } else { self.end.capacity - distance(self.released, self.word) }
    }

    /// Returns whether more can be sent, by what is known of both ends: neither has ended.
    #[inline(always)]
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !StreamWord(self.word.0 | self.released.0).end()
    }

    /// Returns whether the reader wants no more (END in `consumed`, with or without ERR).
    #[inline(always)]
    #[must_use]
    pub const fn reader_left(&self) -> bool {
        self.released.end()
    }

    /// Returns whether [`Producer::finish`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.word.end()
    }

    /// Bytes sent so far.
    #[inline(always)]
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.word.position()
    }

    /// The other end's word, by what was accepted so far: bytes it has consumed.
    #[inline(always)]
    #[must_use]
    pub const fn released(&self) -> StreamWord {
        self.released
    }

    /// Bytes in the ring.
    #[inline(always)]
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.end.capacity
    }

    /// The next `len` bytes to write, cut to what is free.
    #[inline(always)]
    pub fn span(&self, len: u64) -> RingSpan {
        let free = self.free();
        RingSpan::new(self.end.base, self.end.capacity, self.position(), if len < free { len } else { free })
    }

    /// Moves past `len` written bytes (at most what is free). All lanes; nothing is published yet.
    #[inline(always)]
    pub fn advance(&mut self, len: u64) {
        let free = self.free();
        self.word = self.word.moved_by(if len < free { len } else { free });
    }

    /// Marks the stream's end (SHUT_WR): the position is frozen. All lanes.
    #[inline(always)]
    pub const fn finish(&mut self) {
        self.word = self.word.with_end();
    }

    /// Publishes the position. One lane, after the group's barrier.
    #[inline(always)]
    pub fn announce(&self) {
        self.end.publish(self.word());
    }

    /// Marks that this end gives up (ERR, and so END), because the other wrote an invalid word. All
    /// lanes.
    #[inline(always)]
    pub const fn fail(&mut self) {
        self.word = self.word.with_err();
    }

    /// Returns whether [`Producer::fail`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.word.err()
    }

    /// The word that [`Producer::announce`] publishes.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self) -> StreamWord {
        self.word
    }
}

/// The receiving end of a ring.
///
/// There is one for each ring at a time: it is neither `Clone` nor `Copy`.
///
/// ```compile_fail,E0382
/// fn twice(consumer: gpunet_abi::ring::Consumer) -> [gpunet_abi::ring::Consumer; 2] {
///     [consumer, consumer]
/// }
/// ```
#[derive(Debug)]
pub struct Consumer {
    end: RingEnd,
    /// This end's own word, as it stands once it is announced.
    word: StreamWord,
    /// The other end's word as last believed.
    landed: StreamWord,
}

impl Consumer {
    /// Makes the receiving end, with the words of both ends as this end knew them last: `word` is
    /// its own, `landed` the other end's.
    ///
    /// # Safety
    /// As [`Producer::new`], for `end.mine` and the ring's filled bytes.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(end: RingEnd, word: StreamWord, landed: StreamWord) -> Self {
        Self { end, word, landed }
    }

    /// Where the ring and its words lie.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> RingEnd {
        self.end
    }

    /// Observes what has landed. One lane polls; all lanes [`Consumer::accept`].
    #[inline(always)]
    #[must_use]
    pub fn poll(&self) -> StreamWord {
        self.end.observe()
    }

    /// Believes a word that [`Consumer::poll`] returned.
    ///
    /// # Errors
    /// The [`Violation`], when the word is malformed, regressed, moved after END, or claims more
    /// bytes than the ring holds.
    #[inline(always)]
    pub fn accept(&mut self, seen: StreamWord) -> Result<(), Violation> {
        self.landed = advance(self.landed, self.up_to_date(seen), self.position() + self.end.capacity)?;
        if self.landed.end() && self.ahead() > 0 && !self.finished() {
            // The end comes before what a line has brought already.
            return Err(Violation::MovedAfterEnd { end: seen.position(), to: self.position() });
        }
        Ok(())
    }

    /// A word of the other end, or what is believed already if the word lags behind it: of a stream
    /// with units, `published` tells of a small message only with the next large one.
    #[inline(always)]
    fn up_to_date(&self, seen: StreamWord) -> StreamWord {
        let lags = self.end.has_units() && !seen.end() && seen.0 < self.landed.position();
        if lags { self.landed } else { seen }
    }

    /// Moves past the next `len` bytes, which all lanes have taken from units. Nothing of the ring
    /// may be available.
    #[inline(always)]
    pub const fn take_units(&mut self, len: u64) {
        self.word = self.word.moved_by(len);
        if self.landed.position() < self.word.position() {
            self.landed = StreamWord::at(self.word.position());
        }
    }

    /// Notes that the next `len` bytes behind what has landed are in the ring: all lanes have
    /// copied them there from units.
    #[inline(always)]
    pub const fn unpacked(&mut self, len: u64) {
        self.landed = self.landed.moved_by(len);
    }

    /// How far this end is ahead of what has landed: bytes that it has taken from lines.
    #[inline(always)]
    #[must_use]
    pub fn ahead(&self) -> u64 {
        excess(self.landed, self.word)
    }

    /// The longest message that may be taken from a line into a buffer of `len` bytes: the ring
    /// holds it, too, behind what has landed.
    #[inline(always)]
    #[must_use]
    pub fn line_room(&self, len: usize) -> usize {
        (len as u64).min(self.end.capacity.saturating_sub(self.ahead())) as usize
    }

    /// Moves past a message that all lanes have taken from a line. Nothing of the ring may be
    /// available.
    #[inline(always)]
    pub const fn take(&mut self, len: u64) {
        self.word = self.word.moved_by(len);
    }

    /// Notes that nothing more will land although the word does not show it: its writer is gone.
    /// All lanes; the word is not accepted again after it.
    #[inline(always)]
    pub const fn end_here(&mut self) {
        self.landed = self.landed.with_end();
    }

    /// Bytes that can be read now, by what was accepted so far; none after [`Consumer::finish`].
    #[inline(always)]
    #[must_use]
    pub fn available(&self) -> u64 {
        if self.finished() { 0 } else { excess(self.word, self.landed) }
    }

    /// Returns whether more can land, by what is known of both ends: neither has ended.
    #[inline(always)]
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !StreamWord(self.word.0 | self.landed.0).end()
    }

    /// Returns whether the sender finished in good order: after the available bytes comes end of
    /// stream.
    #[inline(always)]
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.landed.end() && !self.landed.err()
    }

    /// Returns whether the sender gave up (ERR): after the available bytes comes an error.
    #[inline(always)]
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.landed.err()
    }

    /// Bytes consumed so far.
    #[inline(always)]
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.word.position()
    }

    /// The other end's word, by what was accepted so far: bytes that have landed.
    #[inline(always)]
    #[must_use]
    pub const fn landed(&self) -> StreamWord {
        self.landed
    }

    /// Bytes in the ring.
    #[inline(always)]
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.end.capacity
    }

    /// The next `len` bytes to read, cut to what is available.
    #[inline(always)]
    pub fn span(&self, len: u64) -> RingSpan {
        let have = self.available();
        RingSpan::new(self.end.base, self.end.capacity, self.position(), if len < have { len } else { have })
    }

    /// Moves past `len` read bytes (at most what is available). All lanes; nothing is published
    /// yet.
    #[inline(always)]
    pub fn advance(&mut self, len: u64) {
        let have = self.available();
        self.word = self.word.moved_by(if len < have { len } else { have });
    }

    /// Marks that no more is wanted (SHUT_RD): what has landed counts as read, and the position is
    /// frozen. All lanes.
    #[inline(always)]
    pub fn finish(&mut self) {
        if !self.finished() {
            let landed = self.landed.position() + self.ahead();
            self.word = StreamWord::at(landed).with_end();
        }
    }

    /// Returns whether [`Consumer::finish`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.word.end()
    }

    /// Publishes the position. One lane, after the group's barrier.
    #[inline(always)]
    pub fn announce(&self) {
        self.end.publish(self.word());
    }

    /// Marks that this end gives up (ERR, and so END), because the other wrote an invalid word. All
    /// lanes.
    #[inline(always)]
    pub const fn fail(&mut self) {
        self.word = self.word.with_err();
    }

    /// Returns whether [`Consumer::fail`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.word.err()
    }

    /// The word that [`Consumer::announce`] publishes.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self) -> StreamWord {
        self.word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a ring of 4096 bytes, a sender may have left 1024 unpublished, unless any room will do.
    #[test]
    fn a_ring_lacks_room_for_a_sender_by_its_low_water_mark() {
        for (unread, low, lacks) in [
            (4096, 1, true),
            (4095, 1, false),
            (4095, 2, true),
            (3071, 2, true),
            (3070, 2, false),
            (2048, 1024, false),
            (2049, 1024, true),
        ] {
            assert_eq!(lacks_room(unread, low, 4096), lacks, "{unread} unread, {low} wanted");
        }
        let (large, room) = (1 << 24, MOST_UNPUBLISHED + 2);
        assert!(!lacks_room(large - room, 2, large) && lacks_room(large - room + 1, 2, large));
    }
}
