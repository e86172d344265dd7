//! The receiving half of a stream.

mod by_units;

use crate::group::outcome::by_leader;
use crate::group::{Front, Lane};
use crate::memory::copy::copy_out_of_ring_by;
use crate::memory::line;
use crate::platform::CallGuard;
use crate::socket::awaiting::{
    GO_ON, NOTHING_YET, Wait, await_line, await_units, await_word, awaited, differs, is_news, taken,
    taken_len,
};
use crate::socket::half::{self, check_handle, give_up, ring_end};
use crate::socket::ownership::{Halves, check_stream};
use crate::socket::unpublished::publish_deferred;
use crate::table::entry::{self, Deferred};
use crate::wait::deadline::Deadline;
use crate::{Buffer, Group, Net, platform};
use gpunet_abi::entry::Entry;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::Consumer;
use gpunet_abi::{Direction, Error, Handle, Link, Result, RingSpan, Timeout, line as abi_line, units};

/// The result of a receive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The end of the stream.
    End,
    /// Bytes in the ring.
    Landed,
    /// A message of that length, which was taken from its line.
    Taken(usize),
}

/// The receiving half of a stream. One group uses it at a time.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, Stream};
/// # fn example<G: Group>(g: &G, net: Net, stream: Stream, buffer: Buffer) -> Result<()> {
/// let (send, mut recv) = stream.split();
/// while recv.recv(g, buffer)? > 0 {} // until the peer has sent all
/// # let _ = send;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecvHalf {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    pub(crate) consumer: Consumer,
    /// The last position that was announced, as the leader knows it; other lanes may have an older
    /// one, with which they would only announce sooner. Announcing costs a system-scope release, so
    /// it is done when a quarter of the ring is consumed, and when a wait begins. It cannot
    /// deadlock: a sender waits for only one free byte, and a full ring with less than a quarter
    /// consumed still has data that this half will read.
    announced: u64,
    /// Calls by handle had left bytes of the other direction unpublished when this half was loaded.
    /// Those that were left later are published once a wait has lasted a while.
    deferred: bool,
    /// The last message came by the ring, and so the next one may.
    was_in_ring: bool,
    /// Slots of the unit ring that were taken.
    units: u32,
    /// The slot's entry in the table: to find it takes two loads.
    entry: *mut Entry,
}

impl RecvHalf {
    /// The half as the table has it. All lanes.
    #[inline(always)]
    #[doc(hidden)]
    pub fn load(net: Net, handle: Handle) -> Self {
        let entry = net.entry(handle.slot());
        Self::load_at(net, handle, entry, entry::link_of(entry))
    }

    /// As [`RecvHalf::load`], of the entry of that handle. All lanes.
    #[inline(always)]
    pub(crate) fn load_at(net: Net, handle: Handle, entry: *mut Entry, link: Link) -> Self {
        let d = entry::half_entry(entry, Direction::Recv);
        // SAFETY: as `ring_end`; the handle's owner is the one group that uses this half.
        let consumer =
            unsafe { Consumer::new(ring_end(&d, link), StreamWord(d.position), StreamWord(d.seen)) };
        let announced = entry::announced(entry).peek();
        let deferred = entry::deferred(entry) == Deferred::ByHandle;
        let units = if units::COMPILED { entry::unit_slots(entry, Direction::Recv) } else { 0 };
        Self { net, handle, consumer, announced, deferred, was_in_ring: false, units, entry }
    }

    /// The receiving half of the stream that a handle names, as [`crate::Stream::from_handle`] has
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
    /// # use gpunet_device::{Buffer, Group, Handle, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, handle: Handle, buffer: Buffer) -> Result<()> {
    /// let n = RecvHalf::from_handle(g, net, handle)?.recv(g, buffer)?;
    /// # let _ = n;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        check_stream(g, net, handle, Halves::One(Direction::Recv))?;
        Ok(Self::load(net, handle))
    }

    /// Receives up to `buffer.len()` bytes; returns how many, and 0 at the end of the stream.
    ///
    /// It waits for the first byte only. A non-blocking stream does not wait.
    ///
    /// # Cooperation
    /// All lanes call it with the same buffer and get the same result; on return every lane sees
    /// all bytes.
    ///
    /// # Errors
    /// ConnectionReset; TimedOut; WouldBlock; BadHandle; Canceled; NetworkDown; Protocol. What came
    /// before an error is received first.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// let mut total = 0;
    /// loop {
    ///     match recv.recv(g, buffer)? {
    ///         0 => break, // the end of the stream
    ///         n => total += n,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv_with(g, buffer, Timeout::SOCKET, false)
    }

    /// As [`RecvHalf::recv`], without waiting.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`]; WouldBlock when nothing has come.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// # let mut total = 0;
    /// match recv.try_recv(g, buffer) {
    ///     Ok(n) => total += n,
    ///     Err(Error::WouldBlock) => {} // nothing has come yet
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn try_recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv_with(g, buffer, Timeout::NON_BLOCKING, false)
    }

    /// As [`RecvHalf::recv`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, RecvHalf, Result, Timeout};
    /// # fn example<G: Group>(g: &G, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// let n = match recv.recv_timeout(g, buffer, Timeout::ms(1)) {
    ///     Err(Error::TimedOut) => 0, // nothing came for 1 ms
    ///     received => received?,
    /// };
    /// # let _ = n;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn recv_timeout<G: Group>(&mut self, g: &G, buffer: Buffer, timeout: Timeout) -> Result<usize> {
        self.recv_with(g, buffer, timeout, false)
    }

    /// Fills the whole buffer, waiting as often as needed; returns fewer bytes only when the stream
    /// ends first.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`]; some bytes may have been received then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// let header = buffer.first(16);
    /// if recv.recv_exact(g, header)? < header.len() {
    ///     return Err(Error::ConnectionReset); // the stream ended within a header
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn recv_exact<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        let timeout = Timeout::SOCKET_BLOCKING;
        let mut have = 0;
        while have < buffer.len() {
            match self.recv_with(g, buffer.skip(have), timeout, false)? {
                0 => break,
                n => have += n,
            }
        }
        Ok(have)
    }

    /// Inline in kernels, as `SendHalf::send_with` is.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), inline)]
    #[doc(hidden)]
    pub fn recv_with<G: Group>(
        &mut self,
        g: &G,
        buffer: Buffer,
        timeout: Timeout,
        keep: bool,
    ) -> Result<usize> {
        if buffer.is_empty() {
            return check_handle(g, self.net, self.handle);
        }
        let _call = CallGuard::enter(self.net, self.consumer.end().mine);
        let lane = Lane::of(g);
        match self.await_data(g, lane, timeout, if keep { None } else { Some(buffer) })? {
            Found::End => return Ok(0),
            Found::Taken(len) => {
                self.was_in_ring = false;
                self.pop_line(lane);
                return Ok(len);
            }
            Found::Landed => self.was_in_ring = true,
        }
        let span = self.consumer.span(buffer.len() as u64);
        // SAFETY: the span is what has landed, and the buffer is writable by its constructor's
        // contract.
        unsafe { copy_out_of_ring_by(lane.rank(), lane.size(), buffer.as_ptr(), span) };
        hand_off::at(HandOff::Copied);
        self.pop(g, lane, if keep { 0 } else { span.len() as u64 });
        Ok(span.len())
    }

    /// Makes sure that bytes are available. If none are and a whole message comes in a line, it is
    /// taken into `buffer`. All lanes, which meet at least once more unless the stream has ended
    /// ([`Group::broadcast_once`]).
    #[inline(always)]
    fn await_data<G: Group>(
        &mut self,
        g: &G,
        lane: Lane,
        timeout: Timeout,
        buffer: Option<Buffer>,
    ) -> Result<Found> {
        if self.consumer.available() == 0 && self.consumer.is_open() {
            let found = match buffer {
                _ if self.consumer.end().has_units() => match self.await_units(g, lane, timeout, buffer)? {
                    Ok(found) => return Ok(found),
                    Err(found) => found,
                },
                Some(buffer) if self.consumer.end().has_line() && g.has_front(lane) => {
                    let found = self.await_line(g, lane, timeout, buffer);
                    if let Some(len) = taken_len(found) {
                        self.consumer.take(len as u64);
                        return Ok(Found::Taken(len));
                    }
                    found
                }
                _ => {
                    let word = if lane.is_leader() { self.await_landed(timeout) } else { 0 };
                    g.broadcast_once::<0>(lane, word)
                }
            };
            match awaited(found).inspect_err(|_| g.sync())? {
                Some(word) => self.accept(g, lane, word)?,
                None => self.consumer.end_here(),
            }
        } else {
            // Lanes may still read what an earlier call put into the buffer.
            g.sync();
        }
        if self.consumer.available() > 0 {
            return Ok(Found::Landed);
        }
        g.sync();
        self.ended().map(|()| Found::End)
    }

    /// Waits for the next message in its line or in the ring; returns what [`taken_len`] and
    /// [`awaited`] unpack. All lanes.
    #[inline(always)]
    fn await_line<G: Group>(&mut self, g: &G, lane: Lane, timeout: Timeout, buffer: Buffer) -> u64 {
        // Lanes may still read what an earlier call put into the buffer. The front waits for them
        // before it looks, so that one barrier is left between a message's arrival and the return.
        g.sync();
        let found = match g.front(lane) {
            Some(front) => self.await_line_by(&front, timeout, buffer),
            None => 0,
        };
        g.broadcast_once::<2>(lane, found)
    }

    /// As [`RecvHalf::await_line`], by the front, which leaves a message that it takes in `buffer`.
    #[inline(always)]
    fn await_line_by<F: Front>(&mut self, front: &F, timeout: Timeout, buffer: Buffer) -> u64 {
        if self.deferred && front.is_first() {
            publish_deferred(self.net, self.handle);
        }
        let (end, position) = (self.consumer.end(), self.consumer.position());
        let (seen, ahead) = (self.consumer.landed(), self.consumer.ahead());
        let (line, empty) = (end.line(), abi_line::header(position, 0));
        let room =
            self.consumer.line_room(if buffer.len() < abi_line::MAX { buffer.len() } else { abi_line::MAX })
                as u64;
        let was_in_ring = self.was_in_ring;
        let look = || {
            let header = line.header().peek();
            let units = if F::IS_WARP {
                // SAFETY: one of the line's chunks.
                unsafe { platform::load_units(line.chunk(front.rank())) }
            } else {
                [0; 2]
            };
            // A hint only, unless it is likely to be news: the loads of the next look wait for an
            // acquire, and bytes of the ring need one.
            let word = if was_in_ring { end.observe() } else { end.peek() };
            let len = abi_line::len_within(header, empty, room);
            let is_news = differs(word, seen, ahead);
            // More than this message is better taken from the ring.
            let is_wanted = len > 0 && (!is_news || word.position() == position + len);
            let len = len as usize;
            if F::IS_WARP {
                // One vote decides. The header of a position has one length, so all lanes have it.
                if front.all(is_wanted & line::is_there(units, front.rank(), position, len)) {
                    // SAFETY: the buffer has room for the message.
                    unsafe { line::store_chunk(units, front.rank(), buffer.as_ptr(), len) };
                    return taken(len);
                }
            // SAFETY: the buffer has room for the message.
            } else if is_wanted && unsafe { line::take(line, position, buffer.as_ptr(), len) } {
                return taken(len);
            }
            if !front.any(is_news) {
                return NOTHING_YET;
            }
            let word = if was_in_ring { word } else { end.observe() };
            // Lanes may see different words: the first one's counts.
            front.first_of(if !differs(word, seen, ahead) {
                NOTHING_YET
            } else if word.end() {
                GO_ON
            } else {
                word.0
            })
        };
        let wait = self.wait();
        await_line(front, self.entry, wait, timeout, look, || self.announce_late())
    }

    /// What a wait of this half is for.
    #[inline(always)]
    fn wait(&self) -> Wait {
        let end = self.consumer.end();
        Wait {
            net: self.net,
            handle: self.handle,
            half: Direction::Recv,
            end,
            seen: self.consumer.landed(),
            ahead: self.consumer.ahead(),
            units: if end.has_units() { Some(self.next_units()) } else { None },
        }
    }

    /// How the stream has ended, when no byte is available: in good order (also by a shutdown of
    /// this half), or by an error.
    #[inline(always)]
    fn ended(&self) -> Result<()> {
        if self.consumer.failed() {
            Err(Error::Protocol)
        } else if self.consumer.broken() && !self.consumer.finished() {
            Err(Error::ConnectionReset)
        } else {
            Ok(())
        }
    }

    /// If some bytes are known but fewer than `len`, polls for more: before a peek, which would
    /// otherwise show the same as the last one. All lanes.
    #[inline(always)]
    #[doc(hidden)]
    pub fn poll_more<G: Group>(&mut self, g: &G, len: u64) -> Result<()> {
        let have = self.consumer.available();
        if have > 0 && have < len { self.refresh(g) } else { Ok(()) }
    }

    /// Believes a word of the other end that the leader has observed. All lanes.
    #[inline(always)]
    fn accept<G: Group>(&mut self, g: &G, lane: Lane, word: StreamWord) -> Result<()> {
        if self.consumer.accept(word).is_ok() {
            return Ok(());
        }
        self.refuse(g, lane)
    }

    /// Gives the stream up, because the other end has stored something impossible. All lanes.
    ///
    /// # Errors
    /// Protocol.
    #[inline(always)]
    fn refuse<G: Group, T>(&mut self, g: &G, lane: Lane) -> Result<T> {
        self.consumer.fail();
        if lane.is_leader() {
            give_up(self.net, self.handle, Direction::Recv, self.consumer.word(), self.consumer.landed());
        }
        g.sync();
        Err(Error::Protocol)
    }

    /// Moves past `len` bytes that all lanes have read. Begins with a barrier.
    #[inline(always)]
    fn pop<G: Group>(&mut self, g: &G, lane: Lane, len: u64) {
        // All lanes have read the ring before the sender may learn that it is free, and every lane
        // sees the whole buffer.
        g.sync();
        self.consumer.advance(len);
        if lane.is_last() {
            self.keep();
        }
        if lane.is_leader() && self.consumer.position() - self.announced >= self.consumer.capacity() / 4 {
            self.announce();
        }
    }

    /// Keeps, and may announce, the position behind a message that was taken from a line. The lanes
    /// have met since.
    #[inline(always)]
    fn pop_line(&mut self, lane: Lane) {
        if lane.is_last() {
            self.keep();
        }
        if lane.is_leader() && self.consumer.position() - self.announced >= self.consumer.capacity() / 4 {
            self.announce_late();
        }
    }

    /// Bytes in the ring, as far as the half knows.
    #[inline(always)]
    #[doc(hidden)]
    pub fn known_available(&self) -> u64 {
        self.consumer.available()
    }

    /// Keeps the positions in the table, for the next call by handle or a later launch. By one
    /// lane.
    #[inline(always)]
    #[doc(hidden)]
    pub fn keep(&self) {
        entry::store_positions(self.entry, Direction::Recv, self.consumer.word(), self.consumer.landed());
        if self.consumer.end().has_units() {
            entry::set_unit_slots(self.entry, Direction::Recv, self.units);
        }
    }

    #[inline(always)]
    fn announce(&mut self) {
        let (slot, end) = (self.handle.slot(), self.consumer.end());
        half::announce(self.net, slot, self.entry, end, self.consumer.word(), self.announced);
        self.announced = self.consumer.position();
    }

    /// As [`RecvHalf::announce_all`], where a message of a line goes by: by a called function, so
    /// that a kernel has little code to skip.
    #[inline(always)]
    fn announce_late(&mut self) {
        if self.consumer.position() != self.announced {
            let (slot, end) = (self.handle.slot(), self.consumer.end());
            half::announce_late(self.net, slot, self.entry, end, self.consumer.word(), self.announced);
            self.announced = self.consumer.position();
        }
    }

    /// Announces what has not been announced yet. By one lane.
    #[inline(always)]
    fn announce_all(&mut self) {
        if self.consumer.position() != self.announced {
            self.announce();
        }
    }

    /// The leader's part: the first word that is new, or why there will be none, packed.
    #[inline(always)]
    fn await_landed(&mut self, timeout: Timeout) -> u64 {
        if self.consumer.end().has_units() {
            let wait = self.wait();
            if let Some(found) = wait.poll() {
                return found;
            }
            self.announce_late();
            if self.deferred {
                publish_deferred(self.net, self.handle);
            }
            return await_units(wait, self.entry, timeout);
        }
        let (seen, ahead) = (self.consumer.landed(), self.consumer.ahead());
        let word = self.consumer.poll();
        if is_news(word, seen, ahead) {
            return word.0;
        }
        // While nothing comes anyway: the release takes about a microsecond.
        self.announce_all();
        if self.deferred {
            publish_deferred(self.net, self.handle);
        }
        await_word(
            (self.net, self.entry),
            self.handle,
            Direction::Recv,
            self.consumer.end(),
            (seen, ahead),
            timeout,
        )
    }

    /// Shows up to `len` received bytes in place (zero copy), waiting for the first; an empty span
    /// at the end of the stream. Of what has come by now it shows all that it is asked for.
    ///
    /// # Cooperation
    /// All lanes call it and get the same span.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// // Counts the zeros in what has come, in the ring, each lane a share of the first piece.
    /// let span = recv.peek(g, 4096)?;
    /// let mut zeros = 0;
    /// let mut at = g.rank() as usize;
    /// while at < span.first.len {
    ///     // SAFETY: inside the peeked span.
    ///     zeros += u32::from(unsafe { span.first.ptr.add(at).read_volatile() } == 0);
    ///     at += g.size() as usize;
    /// }
    /// let zeros = g.sum(zeros);
    /// recv.release(g, span.first.len);
    /// # let _ = zeros;
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.peek_timeout(g, len, Timeout::SOCKET)
    }

    /// As [`RecvHalf::peek`], without waiting.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`]; WouldBlock when nothing has come.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, recv: &mut RecvHalf) -> Result<()> {
    /// match recv.try_peek(g, 4096) {
    ///     Ok(span) => recv.release(g, span.len()),
    ///     Err(Error::WouldBlock) => {} // nothing has come yet
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_peek<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.peek_timeout(g, len, Timeout::NON_BLOCKING)
    }

    /// Waits until more than `have` received bytes are there, and shows up to `len` of them in
    /// place, for a request that is not complete. At the end of the stream it shows what there is,
    /// which may be `have` bytes or fewer.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same span.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`], also if some bytes are there; MessageTooLong when the ring holds no
    /// more than `have` bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, RecvHalf, Result, RingSpan};
    /// # fn example<G: Group>(g: &G, recv: &mut RecvHalf, is_complete: fn(RingSpan) -> bool) -> Result<()> {
    /// let mut request = recv.peek(g, usize::MAX)?;
    /// while !is_complete(request) {
    ///     let seen = request.len();
    ///     request = recv.peek_more(g, seen, usize::MAX)?;
    ///     if request.len() <= seen {
    ///         return Ok(()); // the stream ended within a request
    ///     }
    /// }
    /// recv.release(g, request.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek_more<G: Group>(&mut self, g: &G, have: usize, len: usize) -> Result<RingSpan> {
        self.peek_more_timeout(g, have, len, Timeout::SOCKET)
    }

    /// As [`RecvHalf::peek_more`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`RecvHalf::peek_more`].
    // Inline nowhere: it is called where a kernel waits anyway.
    pub fn peek_more_timeout<G: Group>(
        &mut self,
        g: &G,
        have: usize,
        len: usize,
        timeout: Timeout,
    ) -> Result<RingSpan> {
        if have as u64 >= self.consumer.capacity() {
            return Err(Error::MessageTooLong);
        }
        let _call = CallGuard::enter(self.net, self.consumer.end().mine);
        // How long this call may wait, however often something comes.
        let deadline = Deadline::of(entry::resolve_timeout(self.entry, timeout, Direction::Recv));
        while self.consumer.available() <= have as u64 && self.consumer.is_open() {
            let lane = Lane::of(g);
            let left = deadline.left_of(timeout);
            let found = if self.consumer.end().has_units() {
                match self.await_units(g, lane, left, None)? {
                    Ok(_) => continue,
                    Err(found) => found,
                }
            } else {
                let found = if lane.is_leader() { self.await_landed(left) } else { 0 };
                g.broadcast_once::<0>(lane, found)
            };
            match awaited(found).inspect_err(|_| g.sync())? {
                Some(word) => self.accept(g, lane, word)?,
                None => self.consumer.end_here(),
            }
            g.sync();
        }
        g.sync();
        if self.consumer.available() == 0 {
            self.ended()?;
        }
        Ok(self.consumer.span(len as u64))
    }

    /// As [`RecvHalf::peek`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`RecvHalf::peek`].
    #[inline(always)]
    pub fn peek_timeout<G: Group>(&mut self, g: &G, len: usize, timeout: Timeout) -> Result<RingSpan> {
        let _call = CallGuard::enter(self.net, self.consumer.end().mine);
        self.poll_more(g, len as u64)?;
        if self.await_data(g, Lane::of(g), timeout, None)? == Found::Landed {
            // A receive meets after its copy; this call has none.
            g.sync();
        }
        Ok(self.consumer.span(len as u64))
    }

    /// Gives the first `len` bytes of the peeked span back to the sender.
    ///
    /// # Cooperation
    /// All lanes call it, each after its own reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// let span = recv.peek(g, 4096)?;
    /// recv.release(g, span.len()); // reads none of it: this skips up to 4 KiB
    /// # Ok(())
    /// # }
    /// ```
    pub fn release<G: Group>(&mut self, g: &G, len: usize) {
        let _call = CallGuard::enter(self.net, self.consumer.end().mine);
        self.pop(g, Lane::of(g), len as u64);
    }

    /// Stops receiving (SHUT_RD): receives return 0, and what still comes is discarded.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// recv.shutdown(g);
    /// assert_eq!(recv.recv(g, buffer)?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown<G: Group>(&mut self, g: &G) {
        let _call = CallGuard::enter(self.net, self.consumer.end().mine);
        if self.consumer.finished() {
            return;
        }
        self.consumer.finish();
        g.sync();
        if g.is_leader() {
            self.tell();
            half::wake_own_pollers(self.net, self.handle.slot());
        }
    }

    /// As [`RecvHalf::shutdown`], by one lane, after a barrier of the group.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        if !self.consumer.finished() {
            self.consumer.finish();
            self.tell();
        }
    }

    /// Keeps and publishes the position. By one lane.
    #[inline(always)]
    fn tell(&mut self) {
        self.keep();
        self.announce();
    }

    /// Bytes that can be received without waiting (FIONREAD), by a fresh poll; none after a
    /// shutdown.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    ///
    /// # Errors
    /// Protocol.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// // Takes whole records of 64 bytes only.
    /// if recv.available(g)? >= 64 {
    ///     recv.recv_exact(g, buffer.first(64))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn available<G: Group>(&mut self, g: &G) -> Result<usize> {
        let _call = CallGuard::enter(self.net, self.consumer.end().mine);
        self.refresh(g)?;
        Ok(self.consumer.available() as usize)
    }

    /// Takes in what has landed by now, without waiting. Also a barrier. All lanes.
    ///
    /// # Errors
    /// Protocol.
    #[inline(always)]
    fn refresh<G: Group>(&mut self, g: &G) -> Result<()> {
        if self.consumer.failed() {
            return Err(Error::Protocol);
        }
        // After the end there is nothing new; and if only the status showed it, the word does not.
        if self.consumer.finished() || self.consumer.landed().end() {
            g.sync();
            return Ok(());
        }
        loop {
            let before = self.consumer.landed();
            let word = StreamWord(by_leader(g, || Ok(self.look().0))?);
            self.accept(g, Lane::of(g), word)?;
            if !self.consumer.end().has_units() {
                return Ok(());
            }
            // Bytes in units may follow those in the ring, and others in the ring again.
            self.unpack(g, Lane::of(g))?;
            if self.consumer.landed() == before {
                return Ok(());
            }
        }
    }

    /// Returns whether the peer has ended its stream in good order and nothing comes after
    /// [`RecvHalf::available`], as the last call that looked has found it.
    ///
    /// A peek may show fewer bytes than have come: [`RecvHalf::ends_after`] tells whether nothing
    /// comes after what it shows.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, recv: &mut RecvHalf) -> Result<bool> {
    /// Ok(recv.available(g)? == 0 && recv.has_ended()) // a receive would return 0
    /// # }
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn has_ended(&self) -> bool {
        self.consumer.ended()
    }

    /// Returns whether the stream ends with the next `len` bytes: the peer has ended it in good
    /// order, and of what has come no byte lies behind them, as the last call that looked has found
    /// it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, recv: &mut RecvHalf) -> Result<bool> {
    /// let span = recv.peek(g, 4096)?;
    /// Ok(recv.ends_after(span.len())) // these are the last bytes of the stream
    /// # }
    /// ```
    #[must_use]
    #[inline(always)]
    pub fn ends_after(&self, len: usize) -> bool {
        self.consumer.ended() && self.consumer.available() <= len as u64
    }

    /// Bytes received so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result};
    /// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
    /// let before = recv.position();
    /// let n = recv.recv(g, buffer)?;
    /// assert_eq!(recv.position() - before, n as u64);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.consumer.position()
    }
}
