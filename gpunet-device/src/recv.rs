//! The receiving half of a stream.

use crate::copy::copy_out_of_ring;
use crate::half::{check_handle, mirror, notify, ring_end};
use crate::outcome::{by_leader, unpack};
use crate::slots::{self, Half};
use crate::stream::check_stream;
use crate::wait::{Patience, await_word};
use crate::{Buffer, Group, Net};
use gpunet_abi::entry::Entry;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::Consumer;
use gpunet_abi::{Error, Handle, Options, Result, RingSpan};

/// The receiving half of a stream. One group uses it at a time.
#[derive(Debug)]
pub struct RecvHalf {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    pub(crate) consumer: Consumer,
    patience: Patience,
    /// The last position that was announced, as the leader knows it; other lanes may have an older
    /// one, with which they would only announce sooner. Announcing costs a system-scope release, so
    /// it is done when a quarter of the ring is consumed, and when a wait begins. It cannot
    /// deadlock: a sender waits for one free byte only, and a full ring of which less than a quarter
    /// is consumed still has data that this half will read.
    announced: u64,
    /// The slot's entry in the books: to find it takes two loads.
    entry: *mut Entry,
}

impl RecvHalf {
    /// The half as the device's books have it. All lanes.
    #[inline(always)]
    pub(crate) fn load(net: Net, handle: Handle, options: &Options) -> Self {
        let (d, link) = slots::half(net, handle, Half::Recv);
        let position = StreamWord(d.position);
        // SAFETY: as `ring_end`; the handle's owner is the one group that uses this half.
        let mut consumer = unsafe { Consumer::new(ring_end(&d, link), position.position(), d.seen) };
        if position.fin() {
            consumer.finish();
        }
        if position.err() {
            consumer.fail();
        }
        let patience = Patience::of(options.has(Options::NONBLOCK), options.recv_timeout_ns);
        let announced = slots::announced(net.entry(handle.slot())).peek();
        Self { net, handle, consumer, patience, announced, entry: net.entry(handle.slot()) }
    }

    /// The receiving half of the stream that a handle names, as [`crate::Stream::from_handle`] has both: half of what each
    /// lane has to load, for a group that serves many streams.
    ///
    /// # Cooperation
    /// All lanes call it with the same handle; the group becomes the one that uses this half.
    ///
    /// # Errors
    /// BadHandle when it is stale; NotConnected when it is no stream.
    #[inline(always)]
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        check_stream(g, net, handle)?;
        Ok(Self::load(net, handle, &slots::options(net, handle)))
    }

    pub(crate) fn set_patience(&mut self, options: &Options) {
        self.patience = Patience::of(options.has(Options::NONBLOCK), options.recv_timeout_ns);
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
    /// ConnectionReset; TimedOut; WouldBlock; Canceled; NetworkDown; Protocol. What came before an
    /// error is received first.
    #[inline(always)]
    pub fn recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv_with(g, buffer, self.patience, false)
    }

    /// As [`RecvHalf::recv`], without waiting.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`]; WouldBlock when nothing has come.
    #[inline(always)]
    pub fn try_recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv_with(g, buffer, Patience::None, false)
    }

    /// As [`RecvHalf::recv`], waiting at most `timeout_ns` nanoseconds (0: without limit).
    ///
    /// # Errors
    /// As [`RecvHalf::recv`].
    #[inline(always)]
    pub fn recv_timeout<G: Group>(&mut self, g: &G, buffer: Buffer, timeout_ns: u64) -> Result<usize> {
        self.recv_with(g, buffer, Patience::Ns(timeout_ns), false)
    }

    /// Fills the whole buffer, waiting as often as needed; returns fewer bytes only when the stream
    /// ends first.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`]; some bytes may have been received then.
    #[inline(always)]
    pub fn recv_exact<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        let patience = match self.patience {
            Patience::None => Patience::Ns(0),
            limited => limited,
        };
        let mut have = 0;
        while have < buffer.len() {
            match self.recv_with(g, buffer.skip(have), patience, false)? {
                0 => break,
                n => have += n,
            }
        }
        Ok(have)
    }

    #[inline]
    pub(crate) fn recv_with<G: Group>(
        &mut self,
        g: &G,
        buffer: Buffer,
        patience: Patience,
        keep: bool,
    ) -> Result<usize> {
        if buffer.is_empty() {
            return check_handle(g, self.net, self.handle);
        }
        if !self.await_data(g, patience)? {
            return Ok(0);
        }
        let span = self.consumer.span(buffer.len() as u64);
        // SAFETY: the span is what has landed, and the buffer is writable by its constructor's
        // contract.
        unsafe { copy_out_of_ring(g, buffer.as_ptr(), span) };
        self.pop(g, if keep { 0 } else { span.len() as u64 });
        Ok(span.len())
    }

    /// Makes sure that bytes are available; false at the end of the stream. All lanes.
    #[inline(always)]
    fn await_data<G: Group>(&mut self, g: &G, patience: Patience) -> Result<bool> {
        if self.consumer.failed() {
            return Err(Error::Protocol);
        }
        if self.consumer.available() > 0 {
            // Lanes may still read what an earlier call put into the buffer.
            g.sync();
            return Ok(true);
        }
        if self.consumer.ended() || self.consumer.finished() {
            return Ok(false);
        }
        let word = if g.is_leader() { self.await_landed(patience) } else { 0 };
        let word = StreamWord(unpack(g.broadcast(word))?);
        if self.consumer.accept(word).is_err() {
            return Err(self.violated(g));
        }
        Ok(self.consumer.available() > 0)
    }

    /// Moves past `len` bytes that all lanes have read. Begins with a barrier.
    #[inline(always)]
    fn pop<G: Group>(&mut self, g: &G, len: u64) {
        // All lanes have read the ring before the sender may learn that it is free, and every lane
        // sees the whole buffer.
        g.sync();
        self.consumer.advance(len);
        if g.is_last() {
            self.keep();
        }
        if g.is_leader() && self.consumer.position() - self.announced >= self.consumer.capacity() / 4 {
            self.announce();
        }
    }

    #[inline(always)]
    fn violated<G: Group>(&mut self, g: &G) -> Error {
        self.consumer.fail();
        if g.is_leader() {
            Self { ..*self }.give_up();
        }
        Error::Protocol
    }

    /// Says so everywhere.
    #[cold]
    #[inline(never)]
    fn give_up(mut self) {
        slots::set_error(self.net, self.handle, Error::Protocol);
        self.keep();
        self.announce();
    }

    #[inline(always)]
    fn keep(&self) {
        let (position, seen) = (self.consumer.word().0, self.consumer.landed());
        slots::store_positions(self.entry, Half::Recv, position, seen);
    }

    #[inline(always)]
    fn announce(&mut self) {
        self.consumer.announce();
        let before = self.announced;
        self.announced = self.consumer.position();
        mirror(self.net, self.handle.slot(), Half::Recv, self.consumer.end().link, before, self.announced);
        slots::announced(self.entry).set(self.announced);
        notify(self.net, self.handle.slot(), self.consumer.end(), Half::Recv);
    }

    /// The leader's part: the first word that says something new, or why there will be none, packed.
    #[inline(always)]
    fn await_landed(&mut self, patience: Patience) -> u64 {
        let word = self.consumer.look();
        if word.position() > self.consumer.landed() && !word.err() {
            return word.0;
        }
        // While nothing comes anyway: the release takes about a microsecond.
        if self.consumer.position() != self.announced {
            self.announce();
        }
        await_word(self.net, self.handle, Half::Recv, self.consumer.end(), self.consumer.landed(), patience)
    }

    /// Shows up to `len` received bytes in place (zero copy), waiting for the first; an empty span
    /// at the end of the stream.
    ///
    /// # Cooperation
    /// All lanes call it and get the same span.
    ///
    /// # Errors
    /// As [`RecvHalf::recv`].
    pub fn peek<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.await_data(g, self.patience)?;
        Ok(self.consumer.span(len as u64))
    }

    /// Gives the first `len` bytes of the peeked span back to the sender.
    ///
    /// # Cooperation
    /// All lanes call it, each after its own reads.
    pub fn release<G: Group>(&mut self, g: &G, len: usize) {
        self.pop(g, len as u64);
    }

    /// Wants no more (SHUT_RD): receives return 0, and what still comes is thrown away.
    ///
    /// # Cooperation
    /// All lanes call it.
    pub fn shutdown<G: Group>(&mut self, g: &G) {
        if self.consumer.finished() {
            return;
        }
        self.consumer.finish();
        let unread = self.consumer.available();
        self.consumer.advance(unread);
        g.sync();
        if g.is_leader() {
            self.keep();
            self.announce();
        }
    }

    /// Bytes that can be received without waiting (FIONREAD), by a fresh look.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    ///
    /// # Errors
    /// Protocol.
    pub fn available<G: Group>(&mut self, g: &G) -> Result<usize> {
        let word = StreamWord(by_leader(g, || Ok(self.consumer.look().0 & !gpunet_abi::position::ERR))?);
        if self.consumer.accept(word).is_err() {
            return Err(self.violated(g));
        }
        Ok(self.consumer.available() as usize)
    }

    /// Bytes received so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.consumer.position()
    }
}
