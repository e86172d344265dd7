//! The two ends of a ring: who may write where, and what has to be said to whom.
//!
//! ```text
//! sender  --- published --->   ring   <--- consumed ---  receiver
//! ```
//!
//! A [`Producer`] owns the bytes from its position up to `released + capacity`; a [`Consumer`] owns
//! those from its position up to `landed`. Both keep private copies of what they believe, and check
//! every word the other agent wrote. All lanes of a group hold the same value: one lane looks and
//! announces, all lanes `accept` what it saw and `advance` together.

use crate::position::{StreamWord, Violation, advance};
use crate::{Link, RingSpan, Word, near};

/// Where a ring and its two words lie, in the caller's address space.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RingEnd {
    /// First byte of the ring.
    pub base: *mut u8,
    /// Bytes in the ring, a power of two.
    pub capacity: u64,
    /// The word this end writes: `published` of a producer, `consumed` of a consumer.
    pub mine: Word,
    /// The word the other end writes: `released` of a producer, `landed` of a consumer.
    pub theirs: Word,
    /// Who is at the other side.
    pub link: Link,
}

impl RingEnd {
    /// Observes the other end's word.
    #[inline(always)]
    #[must_use]
    pub fn observe(&self) -> StreamWord {
        StreamWord(if self.link.is_near() { near::observe(self.theirs) } else { self.theirs.observe() })
    }

    /// Publishes this end's word.
    #[inline(always)]
    pub fn publish(&self, word: StreamWord) {
        if self.link.is_near() {
            near::publish(self.mine, word.0);
        } else {
            self.mine.publish(word.0);
        }
    }
}

/// The sending end of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Producer {
    end: RingEnd,
    position: u64,
    released: u64,
    reader_left: bool,
    finished: bool,
    failed: bool,
}

impl Producer {
    /// Makes the sending end, with `position` bytes sent so far of which `released` were consumed.
    ///
    /// # Safety
    /// The ring and both words stay mapped while the value is used; nobody else writes `end.mine`
    /// or the ring's free bytes.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(end: RingEnd, position: u64, released: u64) -> Self {
        Self { end, position, released, reader_left: false, finished: false, failed: false }
    }

    /// Where the ring and its words lie.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> RingEnd {
        self.end
    }

    /// Observes what the other end consumed. One lane looks; all lanes [`Producer::accept`].
    #[inline(always)]
    #[must_use]
    pub fn look(&self) -> StreamWord {
        self.end.observe()
    }

    /// Believes a word that [`Producer::look`] returned.
    ///
    /// # Errors
    /// The [`Violation`], when the word regressed or claims bytes that were never published.
    #[inline(always)]
    pub fn accept(&mut self, seen: StreamWord) -> Result<(), Violation> {
        advance(StreamWord::at(self.released), StreamWord::at(seen.position()), self.position)?;
        self.released = seen.position();
        self.reader_left |= seen.fin() || seen.err();
        Ok(())
    }

    /// Free bytes, by what was accepted so far.
    #[inline(always)]
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.end.capacity - (self.position - self.released)
    }

    /// Says whether the reader wants no more (FIN or ERR in `consumed`).
    #[inline(always)]
    #[must_use]
    pub const fn reader_left(&self) -> bool {
        self.reader_left
    }

    /// Says whether [`Producer::finish`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.finished
    }

    /// Marks the stream as finished, as a word read back from the device's books says.
    #[inline(always)]
    pub const fn set_finished(&mut self) {
        self.finished = true;
    }

    /// Bytes sent so far.
    #[inline(always)]
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Bytes the other end has consumed, by what was accepted so far.
    #[inline(always)]
    #[must_use]
    pub const fn released(&self) -> u64 {
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
        RingSpan::new(self.end.base, self.end.capacity, self.position, if len < free { len } else { free })
    }

    /// Moves past `len` written bytes (at most what is free). All lanes; nothing is published yet.
    #[inline(always)]
    pub fn advance(&mut self, len: u64) {
        let free = self.free();
        self.position += if len < free { len } else { free };
    }

    /// Marks the stream's end (SHUT_WR): the position is frozen. All lanes.
    #[inline(always)]
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Publishes the position. One lane, after the group's barrier.
    #[inline(always)]
    pub fn announce(&self) {
        self.end.publish(self.word());
    }

    /// Marks that this end gives up (ERR), because the other wrote what cannot be. All lanes.
    #[inline(always)]
    pub const fn fail(&mut self) {
        self.failed = true;
    }

    /// Says whether [`Producer::fail`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.failed
    }

    /// The word that [`Producer::announce`] publishes.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self) -> StreamWord {
        let word = StreamWord::at(self.position);
        let word = if self.finished { word.with_fin() } else { word };
        if self.failed { word.with_err() } else { word }
    }
}

/// The receiving end of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    end: RingEnd,
    position: u64,
    landed: u64,
    ended: bool,
    broken: bool,
    finished: bool,
    failed: bool,
}

impl Consumer {
    /// Makes the receiving end, with `position` bytes consumed so far and `landed` seen.
    ///
    /// # Safety
    /// As [`Producer::new`], for `end.mine` and the ring's filled bytes.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(end: RingEnd, position: u64, landed: u64) -> Self {
        Self { end, position, landed, ended: false, broken: false, finished: false, failed: false }
    }

    /// Where the ring and its words lie.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> RingEnd {
        self.end
    }

    /// Observes what has landed. One lane looks; all lanes [`Consumer::accept`].
    #[inline(always)]
    #[must_use]
    pub fn look(&self) -> StreamWord {
        self.end.observe()
    }

    /// Believes a word that [`Consumer::look`] returned.
    ///
    /// # Errors
    /// The [`Violation`], when the word regressed or claims more bytes than the ring holds.
    #[inline(always)]
    pub fn accept(&mut self, seen: StreamWord) -> Result<(), Violation> {
        let limit = self.position + self.end.capacity;
        advance(StreamWord::at(self.landed), StreamWord::at(seen.position()), limit)?;
        self.landed = seen.position();
        self.ended |= seen.fin();
        self.broken |= seen.err();
        Ok(())
    }

    /// Bytes that can be read now, by what was accepted so far.
    #[inline(always)]
    #[must_use]
    pub const fn available(&self) -> u64 {
        self.landed - self.position
    }

    /// Says whether the sender finished: after the available bytes comes end of stream.
    #[inline(always)]
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// Says whether the sender gave up (ERR): after the available bytes comes an error.
    #[inline(always)]
    #[must_use]
    pub const fn broken(&self) -> bool {
        self.broken
    }

    /// Bytes consumed so far.
    #[inline(always)]
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Bytes landed, by what was accepted so far.
    #[inline(always)]
    #[must_use]
    pub const fn landed(&self) -> u64 {
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
        RingSpan::new(self.end.base, self.end.capacity, self.position, if len < have { len } else { have })
    }

    /// Moves past `len` read bytes (at most what is available). All lanes; nothing is published yet.
    #[inline(always)]
    pub fn advance(&mut self, len: u64) {
        let have = self.available();
        self.position += if len < have { len } else { have };
    }

    /// Marks that no more is wanted (SHUT_RD). All lanes.
    #[inline(always)]
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Says whether [`Consumer::finish`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.finished
    }

    /// Publishes the position. One lane, after the group's barrier.
    #[inline(always)]
    pub fn announce(&self) {
        self.end.publish(self.word());
    }

    /// Marks that this end gives up (ERR), because the other wrote what cannot be. All lanes.
    #[inline(always)]
    pub const fn fail(&mut self) {
        self.failed = true;
    }

    /// Says whether [`Consumer::fail`] was called.
    #[inline(always)]
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.failed
    }

    /// The word that [`Consumer::announce`] publishes.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self) -> StreamWord {
        let word = StreamWord::at(self.position);
        let word = if self.finished { word.with_fin() } else { word };
        if self.failed { word.with_err() } else { word }
    }
}
