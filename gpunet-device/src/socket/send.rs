//! The sending half of a stream.
//!
//! All sends are `SendHalf::send_with`: wait for space, copy into the ring, publish one word. Who
//! takes the bytes from there is not known here: the proxy, or the other end of a direct stream.
//! Small messages may go by units instead (`by_units`).

mod by_units;

use crate::group::Lane;
use crate::memory::buffer::Source;
use crate::memory::copy::{copy_into_ring_by, copy_small_into_ring_by};
use crate::platform::CallGuard;
use crate::socket::awaiting::{await_word, awaited};
use crate::socket::half::{check_handle, give_up, mirror, notify, ring_end, wake_own_pollers};
use crate::socket::ownership::{Halves, check_stream};
use crate::table::entry::{self, Deferred};
use crate::{Group, Net, platform};
use gpunet_abi::entry::Entry;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::Producer;
use gpunet_abi::{Direction, Error, Handle, Link, Result, RingSpan, Timeout, line, ring, units};

/// Bytes published at a time, at least. Larger: fewer system-scope releases (1.7 us each on an H200
/// while a piece's stores arrive); smaller: the other end starts earlier.
pub const PUBLISH_CHUNK: u64 = 128 * 1024;
// So many bytes a proxy takes into account.
const _: () = assert!(PUBLISH_CHUNK == ring::MOST_UNPUBLISHED);
/// The same from GPU to GPU through a large ring, at most: the other end copies as fast as this
/// one, so the releases are what counts. It is a quarter of the ring, or half of it in calls that
/// send at least a ring's worth. Between two H200s one block of 512 threads with rings of 4 MiB
/// moves 34 GB/s by [`PUBLISH_CHUNK`], 41 by 1 MiB and 42 by this.
pub const DIRECT_CHUNK: u64 = 2 << 20;
/// Lanes from which on the leader's warp is spared all pieces of a call but the first: it is late,
/// because it releases the piece before and polls for space. Smaller groups would miss its loads.
const SPARES_LEADER: u32 = 512;
/// Lanes of a warp.
const WARP: u32 = 32;

/// The sending half of a stream. One group uses it at a time.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, Stream};
/// # fn example<G: Group>(g: &G, net: Net, stream: Stream, buffer: Buffer) -> Result<()> {
/// let (mut send, recv) = stream.split();
/// send.send_all(g, buffer)?;
/// send.shutdown(g); // the peer reads the end; `recv` goes on
/// # let _ = recv;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendHalf {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    pub(crate) producer: Producer,
    /// The slot's entry in the table: to find it takes two loads.
    entry: *mut Entry,
    /// Messages of this end that had a line, or went by units.
    lines_sent: u64,
    /// A message that ends here or before may have a line, as far as the ring decides: it has one,
    /// both ends are open, half of the ring is free, nothing is deferred, and no poll is due. 0 if
    /// that is to be found out. Of a ring with units likewise, but a free byte is enough.
    line_until: u64,
    /// Slots of the unit ring that were used.
    units: u32,
    /// How many more may be used, as far as is known.
    credit: u32,
    /// Some of what is in the ring is not published.
    deferred: bool,
    /// It is a call by handle that uses the half, under its lock.
    by_handle: bool,
}

impl SendHalf {
    /// The half as the table has it, for a call by handle that has it locked. All lanes.
    #[inline(always)]
    #[doc(hidden)]
    pub fn load_locked(net: Net, handle: Handle) -> Self {
        let entry = net.entry(handle.slot());
        // Nobody changes it now: all lanes find the same.
        let deferred = entry::deferred(entry) != Deferred::None;
        Self { by_handle: true, ..Self::load_at(net, handle, entry, entry::link_of(entry), deferred) }
    }

    /// The half as the table has it, for a group that uses it without its lock. `deferred`: some of
    /// what is in the ring is unpublished, as one lane has found for all. All lanes.
    #[inline(always)]
    pub(crate) fn load_at(net: Net, handle: Handle, entry: *mut Entry, link: Link, deferred: bool) -> Self {
        let d = entry::half_entry(entry, Direction::Send);
        // SAFETY: as `ring_end`; the handle's owner is the one group that uses this half.
        let producer =
            unsafe { Producer::new(ring_end(&d, link), StreamWord(d.position), StreamWord(d.seen)) };
        let lines_sent = entry::lines_sent(entry);
        let units = if units::COMPILED { entry::unit_slots(entry, Direction::Send) } else { 0 };
        let (line_until, credit, by_handle) = (0, 0, false);
        Self { net, handle, producer, entry, lines_sent, line_until, units, credit, deferred, by_handle }
    }

    /// The sending half of the stream that a handle names, as [`crate::Stream::from_handle`] has
    /// both: half of what each lane has to load, for a group that serves many streams.
    ///
    /// # Cooperation
    /// All lanes call it with the same handle; the group becomes the one that uses this half.
    ///
    /// # Errors
    /// BadHandle when it is stale; NotConnected when it is no stream; Busy when the host has taken
    /// this direction.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Handle, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, handle: Handle, buffer: Buffer) -> Result<()> {
    /// SendHalf::from_handle(g, net, handle)?.send_all(g, buffer)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        let deferred = check_stream(g, net, handle, Halves::One(Direction::Send))?;
        let entry = net.entry(handle.slot());
        Ok(Self::load_at(net, handle, entry, entry::link_of(entry), deferred))
    }

    /// Sends bytes: copies them into the ring and publishes. Returns how many.
    ///
    /// At least one, and fewer than asked for when the ring is full: partial sends are normal, and
    /// [`SendHalf::send_all`] loops. A return means "in the ring", not "delivered". A long send
    /// publishes as it goes. A non-blocking stream does not wait.
    ///
    /// # Cooperation
    /// All lanes call it with the same source and get the same result; the source may be reused
    /// at once.
    ///
    /// # Errors
    /// BrokenPipe after shutdown, or when the peer reads no more; ConnectionReset; TimedOut;
    /// WouldBlock; BadHandle; Canceled; NetworkDown; Protocol.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// let sent = send.send(g, buffer)?;
    /// let rest = buffer.skip(sent); // for the next call
    /// # let _ = rest;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send_with(g, source.into(), Timeout::SOCKET, false)
    }

    /// As [`SendHalf::send`], but does not publish the bytes yet: the next send without `more`
    /// does, or [`SendHalf::flush`], a shutdown or a close. A message that a kernel sends in many
    /// small pieces then costs one release.
    ///
    /// Each time the pieces have filled a quarter of the ring, or 128 KiB (2 MiB to a GPU), and
    /// when the ring is full, what is there is published anyway. [`crate::Stream::recv`] publishes
    /// first: the peer may wait for the bytes before it answers. A kernel that ends without either
    /// leaves them unsent.
    ///
    /// # Cooperation
    /// As [`SendHalf::send`].
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, records: &[Buffer]) -> Result<()> {
    /// for record in records {
    ///     let mut rest = *record;
    ///     while !rest.is_empty() {
    ///         rest = rest.skip(send.send_more(g, rest)?);
    ///     }
    /// }
    /// send.flush(g); // one publish for all of them
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn send_more<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send_with(g, source.into(), Timeout::SOCKET, true)
    }

    /// Publishes what [`SendHalf::send_more`] has left unpublished. Without such bytes it does
    /// nothing.
    ///
    /// # Cooperation
    /// All lanes call it.
    #[inline(always)]
    pub fn flush<G: Group>(&mut self, g: &G) {
        let _call = CallGuard::enter(self.net, self.producer.end().mine);
        if self.deferred && !self.producer.finished() {
            self.push(g, Lane::of(g), 0);
        }
    }

    /// As [`SendHalf::send`], without waiting.
    ///
    /// # Errors
    /// As [`SendHalf::send`]; WouldBlock when the ring is full.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// let sent = match send.try_send(g, buffer) {
    ///     Err(Error::WouldBlock) => 0, // the ring is full
    ///     sent => sent?,
    /// };
    /// # let _ = sent;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn try_send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send_with(g, source.into(), Timeout::NON_BLOCKING, false)
    }

    /// As [`SendHalf::send`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Result, SendHalf, Timeout};
    /// # fn example<G: Group>(g: &G, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// # let mut total = 0;
    /// match send.send_timeout(g, buffer, Timeout::ms(10)) {
    ///     Ok(n) => total += n,
    ///     Err(Error::TimedOut) => send.shutdown(g), // no space for 10 ms
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn send_timeout<G: Group>(
        &mut self,
        g: &G,
        source: impl Into<Source>,
        timeout: Timeout,
    ) -> Result<usize> {
        self.send_with(g, source.into(), timeout, false)
    }

    /// Sends all bytes, waiting as often as needed (on a non-blocking stream too).
    ///
    /// # Errors
    /// As [`SendHalf::send`]; some of the bytes may have been sent then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// send.send_all(g, b"length: 3\n")?;
    /// send.send_all(g, buffer.first(3))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn send_all<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<()> {
        let mut rest = source.into();
        let timeout = Timeout::SOCKET_BLOCKING;
        while rest.len > 0 {
            let n = self.send_with(g, rest, timeout, false)?;
            rest = rest.skip(n);
        }
        Ok(())
    }

    /// Inline wherever a kernel calls it: a called function finds the half in local memory, which
    /// each acquire drives out of the cache. On a CPU that would only take the compiler's time.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), inline)]
    #[doc(hidden)]
    pub fn send_with<G: Group>(
        &mut self,
        g: &G,
        source: Source,
        timeout: Timeout,
        more: bool,
    ) -> Result<usize> {
        let _call = CallGuard::enter(self.net, self.producer.end().mine);
        let lane = Lane::of(g);
        // Lanes may have written the source just now.
        g.sync();
        // First, and by few instructions: a line is there sooner than they are through.
        if source.len.wrapping_sub(1) < line::MAX
            && self.producer.position() + source.len as u64 <= self.line_until
            && !more
            && g.has_front(lane)
            && !self.producer.end().has_units()
        {
            self.send_line(g, lane, source);
            return Ok(source.len);
        }
        if self.producer.end().has_units()
            && self.goes_by_units(source.len)
            && self.producer.position() + source.len as u64 <= self.line_until
            && !more
            && units::slots_of(source.len as u32) <= self.credit
        {
            self.send_units(g, lane, source);
            return Ok(source.len);
        }
        self.check()?;
        if source.len == 0 {
            if !more {
                self.flush(g);
            }
            return check_handle(g, self.net, self.handle);
        }
        let most = self.publish_most(source.len);
        let is_small = source.len <= line::MAX
            && self.producer.end().has_line()
            && g.has_front(lane)
            && !(more | self.deferred);
        let want = if is_small { self.space_for_line(source.len) } else { piece(source.len, most) };
        self.await_space(g, lane, want, timeout)?;
        if is_small && self.producer.free() >= self.producer.capacity() / 2 {
            self.line_until = self.line_limit();
            self.send_line(g, lane, source);
            return Ok(source.len);
        }
        if self.producer.end().has_units()
            && self.goes_by_units(source.len)
            && !(more | self.deferred)
            && self.producer.free() >= source.len as u64
            && self.has_credit(g, lane, units::slots_of(source.len as u32))
        {
            self.line_until = self.producer.position() + self.producer.free();
            self.send_units(g, lane, source);
            return Ok(source.len);
        }
        let (mut sent, mut spared, mut odd) = (0, 0, false);
        loop {
            let span = self.producer.span(piece(source.len - sent, most));
            // SAFETY: the span is free space of this half's ring, and `source` is readable by its
            // constructor's contract.
            unsafe {
                copy_into_ring_by(
                    lane.rank().wrapping_sub(spared),
                    lane.size() - spared,
                    span,
                    source.ptr.wrapping_add(sent),
                )
            };
            hand_off::at(HandOff::Copied);
            sent += span.len();
            if sent == source.len {
                if more && self.may_defer(span.len() as u64) {
                    self.defer(g, lane, span.len() as u64);
                } else {
                    self.push(g, lane, span.len() as u64);
                }
                return Ok(sent);
            }
            // One barrier for both: all lanes have written the piece, and all learn what is free
            // for the next.
            let word = if lane.is_leader() {
                self.poll_released(span.len(), piece(source.len - sent, most)).0
            } else {
                0
            };
            odd = !odd;
            let word =
                if odd { g.broadcast_once::<1>(lane, word) } else { g.broadcast_once::<0>(lane, word) };
            let word = StreamWord(word);
            self.publish(lane, span.len() as u64, lane.is_leader());
            // An impossible word ends this call, and the next one reports it. What is free already
            // is taken; more would have to be waited for.
            if self.accept(g, lane, word).is_err() || self.producer.reader_left() || self.producer.free() == 0
            {
                g.sync();
                return Ok(sent);
            }
            if platform::RELEASE_WAITS && lane.size() >= SPARES_LEADER {
                spared = WARP;
            }
        }
    }

    /// How much free space a poll makes sure of, if it is not known, before a message that may have
    /// a line. A line needs at least half of the ring to be free. The sender checks this by one
    /// poll for each eighth of the ring.
    #[inline(always)]
    fn space_for_line(&self, len: usize) -> u64 {
        let (position, capacity) = (self.producer.position(), self.producer.capacity());
        let next = position + len as u64;
        // The capacity is a power of two. So much lasts until the next poll.
        if (position ^ next) & !(capacity / 8 - 1) == 0 { len as u64 } else { capacity / 8 * 5 + len as u64 }
    }

    /// What [`SendHalf::line_until`] is while the other end's word is not looked at again, of an
    /// open stream whose ring has a line: the end of this eighth of the ring, and of the half that
    /// is free.
    #[inline(always)]
    fn line_limit(&self) -> u64 {
        let (position, capacity) = (self.producer.position(), self.producer.capacity());
        let poll_due = position | (capacity / 8 - 1);
        let half_full = position + self.producer.free().saturating_sub(capacity / 2);
        if half_full < poll_due { half_full } else { poll_due }
    }

    /// Sends a small message, for which there is room, in a line and through the ring.
    ///
    /// The receiver has it as soon as the line arrives. The release, which takes longer than that
    /// on a GPU, is the last lane's: in a block of several warps it overlaps with what the others
    /// do next.
    #[inline(always)]
    fn send_line<G: Group>(&mut self, g: &G, lane: Lane, source: Source) {
        let (position, len) = (self.producer.position(), source.len);
        if let Some(front) = g.front(lane) {
            // SAFETY: the source is readable by its constructor's contract; this half's owner is
            // the one that writes the ring's line.
            unsafe {
                crate::memory::line::store(&front, self.producer.end().line(), position, source.ptr, len)
            };
        }
        hand_off::at(HandOff::LineStored);
        let span = self.producer.span(len as u64);
        // SAFETY: as in `send_with`.
        unsafe { copy_small_into_ring_by(lane.rank(), lane.size(), span, source.ptr) };
        hand_off::at(HandOff::Copied);
        g.sync();
        self.lines_sent += 1;
        self.publish(lane, len as u64, lane.is_last());
    }

    /// What is known of the other end once `len` more bytes are in the ring: its word is polled
    /// when `want` bytes would not fit by what is known already. The leader's part.
    #[inline(always)]
    fn poll_released(&self, len: usize, want: u64) -> StreamWord {
        if self.producer.free() - (len as u64) < want {
            self.producer.poll()
        } else {
            self.producer.released()
        }
    }

    /// Makes sure that there is free space, and polls for `want` bytes of it. All lanes, which meet
    /// at least once more when there is some ([`Group::broadcast_once`]).
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    #[inline(always)]
    fn await_space<G: Group>(&mut self, g: &G, lane: Lane, want: u64, timeout: Timeout) -> Result<()> {
        if self.producer.free() < want {
            // Space that is there already is not waited for.
            let timeout = if self.producer.free() == 0 { timeout } else { Timeout::NON_BLOCKING };
            match self.refresh(g, lane, timeout) {
                Err(Error::WouldBlock) if self.producer.free() > 0 => {}
                refreshed => refreshed?,
            }
            if self.producer.free() == 0 || self.producer.reader_left() {
                g.sync();
                return Err(Error::BrokenPipe);
            }
        }
        Ok(())
    }

    /// Bytes that a call for `len` bytes publishes at a time.
    #[inline(always)]
    fn publish_most(&self, len: usize) -> u64 {
        if len as u64 <= PUBLISH_CHUNK {
            return PUBLISH_CHUNK;
        }
        let (link, capacity) = (self.producer.end().link, self.producer.capacity());
        // A single message arrives sooner in more pieces: the other end copies one while the next
        // is sent.
        let share = if len as u64 >= capacity { capacity / 2 } else { capacity / 4 };
        // A CPU's release waits for nothing, and what a CPU receives is best still in its cache.
        let to_gpu = platform::RELEASE_WAITS && (link.is_same_device() || link.is_polled());
        if !to_gpu || share < PUBLISH_CHUNK {
            PUBLISH_CHUNK
        } else if share < DIRECT_CHUNK {
            share
        } else {
            DIRECT_CHUNK
        }
    }

    /// Returns whether `len` more bytes may be left unpublished. Not if they pass a multiple of a
    /// quarter of the ring, or of less in a large one, so that the other end always has something
    /// to read when the ring is full. And not if they fill the ring: then its reader, or the proxy,
    /// tells of space only because it sees that there was none.
    #[inline(always)]
    fn may_defer(&self, len: u64) -> bool {
        let position = self.producer.position();
        let most = self.publish_most(PUBLISH_CHUNK as usize + 1);
        let quarter = self.producer.capacity() / 4;
        // Both are powers of two.
        let share = if most < quarter { most } else { quarter };
        (position ^ (position + len)) & !(share - 1) == 0 && len < self.producer.free()
    }

    /// Moves past `len` bytes that the lanes write, and leaves them unpublished. All lanes, whose
    /// source may be reused after it.
    #[inline(always)]
    fn defer<G: Group>(&mut self, g: &G, lane: Lane, len: u64) {
        g.sync();
        self.producer.advance(len);
        self.deferred = true;
        self.line_until = 0;
        if lane.is_last() {
            self.keep();
        }
    }

    /// Checks whether anything can still be sent, by what is known already.
    #[inline(always)]
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        if self.producer.is_open() {
            return Ok(());
        }
        Err(if self.producer.failed() { Error::Protocol } else { Error::BrokenPipe })
    }

    /// Publishes `len` bytes that the lanes have written. Begins with a barrier.
    #[inline(always)]
    fn push<G: Group>(&mut self, g: &G, lane: Lane, len: u64) {
        g.sync();
        self.publish(lane, len, lane.is_leader());
    }

    /// As [`Self::push`], after a barrier: it and the release store of the lane that publishes
    /// together publish what all lanes wrote.
    #[inline(always)]
    fn publish(&mut self, lane: Lane, len: u64, is_publisher: bool) {
        let before = self.producer.position();
        self.producer.advance(len);
        self.deferred = false;
        if is_publisher {
            if line::passes_segment(before, len) && self.producer.end().has_line() {
                // Before tags repeat.
                // SAFETY: the ring's line, which this half's owner alone writes.
                unsafe { line::clear(self.producer.end().line) };
            }
            self.announce();
            mirror(
                self.net,
                self.handle.slot(),
                Direction::Send,
                self.producer.end().link,
                before,
                self.producer.position(),
            );
        }
        if lane.is_last() {
            self.keep();
        }
    }

    /// Free bytes of the ring, as far as the half knows.
    #[inline(always)]
    #[doc(hidden)]
    pub fn known_free(&self) -> u64 {
        self.producer.free()
    }

    /// Keeps the position in the table, for the next call by handle or a later launch. By one lane.
    #[inline(always)]
    #[doc(hidden)]
    pub fn keep(&self) {
        entry::store_positions(self.entry, Direction::Send, self.producer.word(), self.producer.released());
        let deferred = match (self.deferred, self.by_handle) {
            (false, _) => Deferred::None,
            (true, false) => Deferred::ByOwner,
            (true, true) => Deferred::ByHandle,
        };
        entry::set_lines_sent(self.entry, self.lines_sent, deferred);
        if self.producer.end().has_units() {
            entry::set_unit_slots(self.entry, Direction::Send, self.units);
        }
    }

    /// Publishes the position and wakes who waits for it. By one lane.
    #[inline(always)]
    fn announce(&self) {
        self.producer.announce();
        notify(self.net, self.handle.slot(), self.producer.end(), Direction::Send);
    }

    /// Polls for free space, waiting for it up to `timeout`. All lanes.
    #[inline(always)]
    fn refresh<G: Group>(&mut self, g: &G, lane: Lane, timeout: Timeout) -> Result<()> {
        let word = if lane.is_leader() { self.await_released(timeout) } else { 0 };
        match awaited(g.broadcast_once::<0>(lane, word)).inspect_err(|_| g.sync())? {
            Some(word) => self.accept(g, lane, word),
            // For the receiving half only.
            None => Ok(()),
        }
    }

    /// The leader's part: the first word with free space, or why there will be none, packed. It
    /// checks the status first: otherwise a sender with room left would not learn of a failure.
    #[inline(always)]
    fn await_released(&self, timeout: Timeout) -> u64 {
        await_word(
            (self.net, self.entry),
            self.handle,
            Direction::Send,
            self.producer.end(),
            (self.producer.released(), 0),
            timeout,
        )
    }

    /// Believes a word of the other end that the leader has observed. All lanes.
    #[inline(always)]
    fn accept<G: Group>(&mut self, g: &G, lane: Lane, word: StreamWord) -> Result<()> {
        self.line_until = 0;
        if self.producer.accept(word).is_ok() {
            return Ok(());
        }
        self.producer.fail();
        if lane.is_leader() {
            give_up(self.net, self.handle, Direction::Send, self.producer.word(), self.producer.released());
        }
        g.sync();
        Err(Error::Protocol)
    }

    /// Reserves up to `len` bytes of ring space to write in place (zero copy): at least one.
    ///
    /// The span is the caller's until [`SendHalf::commit`] or the next call on this half. It never
    /// waits for more than one byte: a peer may hold back up to a quarter of the ring.
    ///
    /// # Cooperation
    /// All lanes call it and get the same span.
    ///
    /// # Errors
    /// As [`SendHalf::send`]; InvalidArgument for `len` 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// // Writes zeros in the ring, each lane a share.
    /// let span = send.reserve(g, 4096)?;
    /// for piece in span.pieces() {
    ///     let mut at = g.rank() as usize;
    ///     while at < piece.len {
    ///         // SAFETY: inside the reserved span.
    ///         unsafe { piece.ptr.add(at).write_volatile(0) };
    ///         at += g.size() as usize;
    ///     }
    /// }
    /// send.commit(g, span.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.reserve_timeout(g, len, Timeout::SOCKET)
    }

    /// As [`SendHalf::reserve`], without waiting.
    ///
    /// # Errors
    /// As [`SendHalf::reserve`]; WouldBlock when no byte is free.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, send: &mut SendHalf) -> Result<()> {
    /// match send.try_reserve(g, 4096) {
    ///     Ok(span) => send.commit(g, span.len().min(100)), // after all lanes have written
    ///     Err(Error::WouldBlock) => {} // the peer is behind
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_reserve<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.reserve_timeout(g, len, Timeout::NON_BLOCKING)
    }

    /// Bytes that can be sent without waiting, by a fresh poll.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, send: &mut SendHalf, answer: Buffer) -> Result<()> {
    /// // The whole answer or nothing.
    /// if send.free_space(g)? >= answer.len() {
    ///     send.send_all(g, answer)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn free_space<G: Group>(&mut self, g: &G) -> Result<usize> {
        let _call = CallGuard::enter(self.net, self.producer.end().mine);
        self.check()?;
        match self.await_space(g, Lane::of(g), self.producer.capacity(), Timeout::NON_BLOCKING) {
            Ok(()) | Err(Error::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        g.sync();
        Ok(self.producer.free() as usize)
    }

    /// As [`SendHalf::reserve`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`SendHalf::reserve`].
    #[inline(always)]
    pub fn reserve_timeout<G: Group>(&mut self, g: &G, len: usize, timeout: Timeout) -> Result<RingSpan> {
        if len == 0 {
            return Err(Error::InvalidArgument);
        }
        let _call = CallGuard::enter(self.net, self.producer.end().mine);
        self.check()?;
        self.await_space(g, Lane::of(g), len as u64, timeout)?;
        // A send meets after its copy; this call has none.
        g.sync();
        Ok(self.producer.span(len as u64))
    }

    /// Publishes the first `len` bytes of the reserved span; all that is free, if `len` is more.
    ///
    /// # Cooperation
    /// All lanes call it, each after its own writes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// let span = send.reserve(g, 4096)?;
    /// // ... all lanes write the first 100 bytes of it ...
    /// send.commit(g, span.len().min(100));
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit<G: Group>(&mut self, g: &G, len: usize) {
        let _call = CallGuard::enter(self.net, self.producer.end().mine);
        // A shutdown in between has ended the stream: the reservation is void.
        if !self.producer.finished() {
            let (len, free) = (len as u64, self.producer.free());
            self.push(g, Lane::of(g), if len < free { len } else { free });
        }
    }

    /// Ends the stream in this direction (SHUT_WR): the peer reads end-of-stream after the data.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// send.shutdown(g);
    /// assert_eq!(send.send(g, buffer), Err(Error::BrokenPipe));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown<G: Group>(&mut self, g: &G) {
        let _call = CallGuard::enter(self.net, self.producer.end().mine);
        if self.producer.finished() {
            return;
        }
        self.producer.finish();
        self.line_until = 0;
        self.deferred = false;
        g.sync();
        if g.is_leader() {
            self.tell();
            wake_own_pollers(self.net, self.handle.slot());
        }
    }

    /// As [`SendHalf::shutdown`], by one lane, after a barrier of the group.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        if !self.producer.finished() {
            self.producer.finish();
            self.line_until = 0;
            self.deferred = false;
            self.tell();
        }
    }

    /// Publishes and keeps the position. By one lane.
    #[inline(always)]
    fn tell(&self) {
        self.announce();
        self.keep();
    }

    /// Bytes sent so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};
    /// # fn example<G: Group>(g: &G, net: Net, send: &mut SendHalf, buffer: Buffer) -> Result<()> {
    /// let before = send.position();
    /// let n = send.send(g, buffer)?;
    /// assert_eq!(send.position() - before, n as u64);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.producer.position()
    }
}

/// As much of `len` bytes as is published at a time.
#[inline(always)]
const fn piece(len: usize, most: u64) -> u64 {
    if (len as u64) < most { len as u64 } else { most }
}
