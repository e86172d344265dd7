//! The sending half of a stream.

use crate::buffer::Source;
use crate::copy::copy_into_ring;
use crate::outcome::{by_leader, unpack};
use crate::slots::{self, Half};
use crate::wait::{Patience, await_word};
use crate::{Group, Net, platform};
use core::mem::offset_of;
use gpunet_abi::entry::{Direction, Entry};
use gpunet_abi::layout::SocketLine;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::{Producer, RingEnd};
use gpunet_abi::{Error, Handle, Link, Options, Result, RingSpan, Word};

/// Bytes published at a time, at least. Larger: fewer system-scope releases (1.7 us each on an H200 while
/// a chunk's stores arrive); smaller: the other end starts earlier.
pub const PUBLISH_CHUNK: u64 = 128 * 1024;
/// The same from GPU to GPU through a large ring, of which it is a quarter at most: the other end copies as
/// fast as this one, so the releases are what counts. Between two H200s one block of 512 threads with
/// rings of 4 MiB moves 34 GB/s by [`PUBLISH_CHUNK`] and 41 by this.
pub const DIRECT_CHUNK: u64 = 1 << 20;

/// The sending half of a stream. One group uses it at a time.
#[derive(Clone, Copy, Debug)]
pub struct SendHalf {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    pub(crate) producer: Producer,
    patience: Patience,
    /// The slot's entry in the books: to find it takes two loads.
    entry: *mut Entry,
}

/// The ring's end that a direction in the books describes.
pub(crate) fn ring_end(d: &Direction, link: Link) -> RingEnd {
    // SAFETY: addresses that `slots::open` checked against the regions; they stay mapped while the
    // attachment lives.
    let (mine, theirs) =
        unsafe { (Word::from_ptr(d.mine as *mut u64), Word::from_ptr(d.theirs as *mut u64)) };
    RingEnd { base: d.base as *mut u8, capacity: d.capacity, mine, theirs, link }
}

impl SendHalf {
    /// The half as the device's books have it. All lanes.
    #[inline(always)]
    pub(crate) fn load(net: Net, handle: Handle, options: &Options) -> Self {
        let (d, link) = slots::half(net, handle, Half::Send);
        let position = StreamWord(d.position);
        // SAFETY: as `ring_end`; the handle's owner is the one group that uses this half.
        let mut producer = unsafe { Producer::new(ring_end(&d, link), position.position(), d.seen) };
        if position.fin() {
            producer.set_finished();
        }
        if position.err() {
            producer.fail();
        }
        let patience = Patience::of(options.has(Options::NONBLOCK), options.send_timeout_ns);
        Self { net, handle, producer, patience, entry: net.entry(handle.slot()) }
    }

    pub(crate) fn set_patience(&mut self, options: &Options) {
        self.patience = Patience::of(options.has(Options::NONBLOCK), options.send_timeout_ns);
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
    /// WouldBlock; Canceled; NetworkDown; Protocol.
    #[inline(always)]
    pub fn send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send_with(g, source.into(), self.patience)
    }

    /// As [`SendHalf::send`], without waiting.
    ///
    /// # Errors
    /// As [`SendHalf::send`]; WouldBlock when the ring is full.
    #[inline(always)]
    pub fn try_send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send_with(g, source.into(), Patience::None)
    }

    /// As [`SendHalf::send`], waiting at most `timeout_ns` nanoseconds (0: without limit).
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    #[inline(always)]
    pub fn send_timeout<G: Group>(
        &mut self,
        g: &G,
        source: impl Into<Source>,
        timeout_ns: u64,
    ) -> Result<usize> {
        self.send_with(g, source.into(), Patience::Ns(timeout_ns))
    }

    /// Sends all bytes, waiting as often as needed (on a non-blocking stream too).
    ///
    /// # Errors
    /// As [`SendHalf::send`]; some of the bytes may have been sent then.
    #[inline(always)]
    pub fn send_all<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<()> {
        let mut rest = source.into();
        let patience = match self.patience {
            Patience::None => Patience::Ns(0),
            limited => limited,
        };
        while rest.len > 0 {
            let n = self.send_with(g, rest, patience)?;
            rest = rest.skip(n);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn send_with<G: Group>(&mut self, g: &G, source: Source, patience: Patience) -> Result<usize> {
        // Lanes may have written the source just now.
        g.sync();
        self.check()?;
        if source.len == 0 {
            return check_handle(g, self.net, self.handle);
        }
        let mut sent = 0;
        while sent < source.len {
            let (want, most) = ((source.len - sent) as u64, self.publish_most());
            let want = if want < most { want } else { most };
            if self.producer.free() < want {
                // Once something is sent, only take the space that is there already.
                let patience = if sent == 0 && self.producer.free() == 0 { patience } else { Patience::None };
                match self.refresh(g, patience) {
                    Ok(()) => {}
                    // No more space just now: what there is will do.
                    Err(Error::WouldBlock) if sent > 0 || self.producer.free() > 0 => {}
                    Err(_) if sent > 0 => break,
                    Err(error) => return Err(error),
                }
                if self.producer.free() == 0 || self.producer.reader_left() {
                    break;
                }
            }
            let span = self.producer.span(want);
            // SAFETY: the span is free space of this half's ring, and `source` is readable by its
            // constructor's contract.
            unsafe { copy_into_ring(g, span, source.ptr.wrapping_add(sent)) };
            sent += span.len();
            self.push(g, span.len() as u64);
        }
        if sent == 0 { Err(Error::BrokenPipe) } else { Ok(sent) }
    }

    /// Bytes published at a time.
    #[inline(always)]
    fn publish_most(&self) -> u64 {
        let (link, quarter) = (self.producer.end().link, self.producer.capacity() / 4);
        // A CPU's release waits for nothing, and what a CPU receives is best still in its cache.
        let to_gpu = platform::RELEASE_WAITS && (link.is_near() || link.is_silent());
        if !to_gpu || quarter < PUBLISH_CHUNK {
            PUBLISH_CHUNK
        } else if quarter < DIRECT_CHUNK {
            quarter
        } else {
            DIRECT_CHUNK
        }
    }

    /// Says why nothing can be sent any more, by what is known already.
    #[inline(always)]
    fn check(&self) -> Result<()> {
        if self.producer.failed() {
            return Err(Error::Protocol);
        }
        if self.producer.finished() || self.producer.reader_left() {
            return Err(Error::BrokenPipe);
        }
        Ok(())
    }

    /// Publishes `len` bytes that the lanes have written. Begins with a barrier.
    #[inline(always)]
    fn push<G: Group>(&mut self, g: &G, len: u64) {
        // The barrier and the leader's release store together publish what all lanes wrote.
        g.sync();
        let before = self.producer.position();
        self.producer.advance(len);
        if g.is_leader() {
            self.announce();
            mirror(
                self.net,
                self.handle.slot(),
                Half::Send,
                self.producer.end().link,
                before,
                self.producer.position(),
            );
        }
        if g.is_last() {
            self.keep();
        }
    }

    /// Keeps the position in the books, for the next call by handle or a later launch. By one lane.
    #[inline(always)]
    fn keep(&self) {
        let (position, seen) = (self.producer.word().0, self.producer.released());
        slots::store_positions(self.entry, Half::Send, position, seen);
    }

    /// Publishes the position and wakes who waits for it. By one lane.
    #[inline(always)]
    fn announce(&self) {
        self.producer.announce();
        notify(self.net, self.handle.slot(), self.producer.end(), Half::Send);
    }

    /// Looks for free space, waiting for it if `patience` says so. All lanes.
    #[inline(always)]
    fn refresh<G: Group>(&mut self, g: &G, patience: Patience) -> Result<()> {
        let word = if g.is_leader() { self.await_space(patience) } else { 0 };
        let word = unpack(g.broadcast(word))?;
        if self.producer.accept(StreamWord(word)).is_err() {
            return Err(self.violated(g));
        }
        Ok(())
    }

    /// The leader's part: the first word with free space, or why there will be none, packed. It
    /// looks at the status first: a sender with room left would else not learn of a failure.
    #[inline(always)]
    fn await_space(&self, patience: Patience) -> u64 {
        await_word(self.net, self.handle, Half::Send, self.producer.end(), self.producer.released(), patience)
    }

    #[inline(always)]
    fn violated<G: Group>(&mut self, g: &G) -> Error {
        self.producer.fail();
        if g.is_leader() {
            self.give_up();
        }
        Error::Protocol
    }

    /// Says so everywhere.
    #[cold]
    #[inline(never)]
    fn give_up(self) {
        slots::set_error(self.net, self.handle, Error::Protocol);
        self.keep();
        self.announce();
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
    pub fn reserve<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        if len == 0 {
            return Err(Error::InvalidArgument);
        }
        self.check()?;
        if self.producer.free() < len as u64 {
            let patience = if self.producer.free() == 0 { self.patience } else { Patience::None };
            match self.refresh(g, patience) {
                Err(Error::WouldBlock) if self.producer.free() > 0 => {}
                refreshed => refreshed?,
            }
            if self.producer.reader_left() {
                return Err(Error::BrokenPipe);
            }
        }
        Ok(self.producer.span(len as u64))
    }

    /// Publishes the first `len` bytes of the reserved span.
    ///
    /// # Cooperation
    /// All lanes call it, each after its own writes.
    pub fn commit<G: Group>(&mut self, g: &G, len: usize) {
        self.push(g, len as u64);
    }

    /// Ends the stream in this direction (SHUT_WR): the peer reads end-of-stream after the data.
    ///
    /// # Cooperation
    /// All lanes call it.
    pub fn shutdown<G: Group>(&mut self, g: &G) {
        if !self.producer.finished() {
            self.producer.finish();
            self.push(g, 0);
        }
    }

    /// Bytes sent so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.producer.position()
    }
}

/// A call that moves nothing still says whether the handle is dead.
#[cold]
pub(crate) fn check_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<usize> {
    by_leader(g, || slots::kind_of(net, handle).map(|_| 0)).map(|_| 0)
}

/// Tells whoever advances the other side of a half that its word has changed. By one lane.
#[inline(always)]
pub(crate) fn notify(net: Net, slot: u32, end: RingEnd, half: Half) {
    if !platform::MAY_SLEEP {
        // A GPU wakes nobody.
        return;
    }
    if let Some(partner) = end.link.partner() {
        platform::wake(match half {
            Half::Send => net.recv_park(partner),
            Half::Recv => net.send_park(partner),
        });
        platform::wake_pollers(net.pollers(), net.epoch().as_ptr());
    } else if end.link.is_far() {
        platform::wake(far_park(end.mine, half.other()));
        platform::ring_bell(slots::far(net, slot));
    } else {
        let (sleeping, doorbell) = net.data_thread(slot);
        platform::ring_doorbell(sleeping, doorbell);
    }
}

/// The flag of who waits for a word of a stream in an arena, for the half of theirs that polls it: in
/// the line that the word lies in.
#[inline(always)]
pub(crate) fn far_park(word: Word, half: Half) -> *mut u32 {
    let (word_at, flag_at) = match half {
        Half::Recv => (offset_of!(SocketLine, landed), offset_of!(SocketLine, recv_park)),
        Half::Send => (offset_of!(SocketLine, released), offset_of!(SocketLine, send_park)),
    };
    word.as_ptr().cast::<u8>().wrapping_sub(word_at).wrapping_add(flag_at).cast()
}

/// Bytes of a direct stream after which its totals are shown to the proxy.
const MIRROR_EVERY: u64 = 1 << 20;

/// Shows the proxy how far a half of a direct stream is, now and then: the words that it would scan of a
/// driven one. By one lane.
#[inline(always)]
pub(crate) fn mirror(net: Net, slot: u32, half: Half, link: Link, before: u64, now: u64) {
    if link.is_direct() && before / MIRROR_EVERY != now / MIRROR_EVERY {
        show(net, slot, half, now);
    }
}

/// Shows the proxy the position of a half of a direct stream. Nobody acts on it.
#[inline(always)]
pub(crate) fn show(net: Net, slot: u32, half: Half, position: u64) {
    match half {
        Half::Send => net.published(slot).set(position),
        Half::Recv => net.consumed(slot).set(position),
    }
}
