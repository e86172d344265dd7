//! A connected stream: connect, both halves together, close.

use crate::buffer::Source;
use crate::half::become_receiver;
use crate::outcome::by_leader;
use crate::recv::RecvHalf;
use crate::request::{self, Claim};
use crate::send::SendHalf;
use crate::slots::{self, Caller, Half};
use crate::wait::Timeout;
use crate::{Buffer, Group, Net, platform, table};
use gpunet_abi::control::{Op, Query};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Options, Result, RingSpan, SockAddr, TransportKind};

/// Which direction to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// No more will be received.
    Read,
    /// No more will be sent: the peer reads end-of-stream after the data.
    Write,
    /// Both.
    Both,
}

/// A connected stream.
///
/// All lanes of a group hold equal values. Dropping one does nothing: a stream lives until
/// [`Stream::close`], also across launches, and is found again by its [`Handle`]. A closed one cannot be used:
///
/// ```compile_fail,E0382
/// # use gpunet_device::{Group, Result, Stream};
/// fn late<G: Group>(g: &G, mut stream: Stream) -> Result<()> {
///     stream.close(g)?;
///     stream.send_all(g, b"too late")
/// }
/// ```
#[derive(Debug)]
pub struct Stream {
    send: SendHalf,
    recv: RecvHalf,
}

impl Stream {
    /// Connects to `addr`. To a listener under the same proxy, through memory unless the options ask for tcp, it
    /// returns when the other end accepts; by tcp, when the connection is in the listener's backlog.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same stream.
    ///
    /// # Errors
    /// ConnectionRefused, NetworkUnreachable, HostUnreachable, TimedOut, TooManySockets, TooManyFiles, NoBuffers,
    /// Canceled, NetworkDown, or another errno of connect(2).
    pub fn connect<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<Self> {
        Self::connect_with(g, net, addr, Options::DEFAULT)
    }

    /// Connects to `addr` with options: ring sizes, transport, timeouts and so on.
    ///
    /// # Errors
    /// As [`Stream::connect`]; InvalidArgument for options that cannot be.
    #[inline(always)]
    pub fn connect_with<G: Group>(g: &G, net: Net, addr: SockAddr, options: Options) -> Result<Self> {
        Self::of(net, connect_handle(g, net, addr, options)?)
    }

    /// As [`Stream::connect`], giving up after `timeout_ns` nanoseconds (0: without limit).
    ///
    /// # Errors
    /// As [`Stream::connect`].
    pub fn connect_timeout<G: Group>(g: &G, net: Net, addr: SockAddr, timeout_ns: u64) -> Result<Self> {
        let options = Options::DEFAULT.with_timeouts(timeout_ns, 0);
        let mut stream = Self::connect_with(g, net, addr, options)?;
        stream.set_local_options(g, Options::DEFAULT);
        Ok(stream)
    }

    /// The stream that a handle names: from the C functions, another block, or an earlier launch.
    /// The caller's group becomes the one that uses it.
    ///
    /// # Errors
    /// BadHandle when it is stale; NotConnected when it is no stream.
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        check_stream(g, net, handle, Half::Recv)?;
        Ok(Self::load(net, handle))
    }

    /// The stream in the table under a handle that the leader has just opened. After a barrier.
    #[inline(always)]
    pub(crate) fn of(net: Net, raw: u64) -> Result<Self> {
        match Handle::from_raw(raw as i32) {
            Some(handle) => Ok(Self::load(net, handle)),
            None => Err(Error::Protocol),
        }
    }

    /// The stream as the table has it. Inline, so that what its halves have in common is one value in one
    /// register of each lane. All lanes.
    #[inline(always)]
    pub(crate) fn load(net: Net, handle: Handle) -> Self {
        let entry = net.entry(handle.slot());
        let link = table::link_of(entry);
        Self {
            send: SendHalf::load_at(net, handle, entry, link),
            recv: RecvHalf::load_at(net, handle, entry, link),
        }
    }

    /// Separates the halves, for two groups or two parts of a program. They still share the handle;
    /// [`Stream::join`] puts them together again to close.
    #[must_use]
    pub const fn split(self) -> (SendHalf, RecvHalf) {
        (self.send, self.recv)
    }

    /// Puts two halves together again; `None` when they are of different streams.
    #[must_use]
    pub fn join(send: SendHalf, recv: RecvHalf) -> Option<Self> {
        if send.handle == recv.handle { Some(Self { send, recv }) } else { None }
    }

    /// The sending half.
    pub const fn sender(&mut self) -> &mut SendHalf {
        &mut self.send
    }

    /// The receiving half.
    pub const fn receiver(&mut self) -> &mut RecvHalf {
        &mut self.recv
    }

    /// The stream's handle, good until it is closed.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.send.handle
    }

    /// See [`SendHalf::send`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send.send(g, source)
    }

    /// See [`SendHalf::try_send`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn try_send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send.try_send(g, source)
    }

    /// See [`SendHalf::send_timeout`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn send_timeout<G: Group>(
        &mut self,
        g: &G,
        source: impl Into<Source>,
        timeout_ns: u64,
    ) -> Result<usize> {
        self.send.send_timeout(g, source, timeout_ns)
    }

    /// See [`SendHalf::send_all`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn send_all<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<()> {
        self.send.send_all(g, source)
    }

    /// See [`RecvHalf::recv`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv.recv(g, buffer)
    }

    /// See [`RecvHalf::try_recv`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn try_recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv.try_recv(g, buffer)
    }

    /// See [`RecvHalf::recv_timeout`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn recv_timeout<G: Group>(&mut self, g: &G, buffer: Buffer, timeout_ns: u64) -> Result<usize> {
        self.recv.recv_timeout(g, buffer, timeout_ns)
    }

    /// See [`RecvHalf::recv_exact`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn recv_exact<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.recv.recv_exact(g, buffer)
    }

    /// See [`SendHalf::reserve`].
    ///
    /// # Errors
    /// As there.
    pub fn reserve<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.send.reserve(g, len)
    }

    /// See [`SendHalf::commit`].
    pub fn commit<G: Group>(&mut self, g: &G, len: usize) {
        self.send.commit(g, len);
    }

    /// See [`RecvHalf::peek`].
    ///
    /// # Errors
    /// As there.
    pub fn peek<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.recv.peek(g, len)
    }

    /// See [`RecvHalf::release`].
    pub fn release<G: Group>(&mut self, g: &G, len: usize) {
        self.recv.release(g, len);
    }

    /// See [`RecvHalf::available`].
    ///
    /// # Errors
    /// As there.
    pub fn available<G: Group>(&mut self, g: &G) -> Result<usize> {
        self.recv.available(g)
    }

    /// Ends one direction or both; the other goes on.
    ///
    /// # Cooperation
    /// All lanes call it.
    pub fn shutdown<G: Group>(&mut self, g: &G, how: Shutdown) {
        if how != Shutdown::Read {
            self.send.shutdown(g);
        }
        if how != Shutdown::Write {
            self.recv.shutdown(g);
        }
    }

    /// Closes the stream. What was sent before still goes out, bounded by linger; the call returns
    /// once the close is queued.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// BadHandle when it is closed already. NetworkDown: [`Stream::from_handle`] says whether it is still open.
    #[inline(always)]
    pub fn close<G: Group>(self, g: &G) -> Result<()> {
        close_stream(g, self.send.net, self.handle())
    }

    /// The other end's address.
    #[must_use]
    pub fn peer_addr(&self) -> SockAddr {
        table::peer(self.send.net, self.handle())
    }

    /// This end's address.
    #[must_use]
    pub fn local_addr(&self) -> SockAddr {
        table::local(self.send.net, self.handle())
    }

    /// What carries the stream.
    #[must_use]
    pub fn transport(&self) -> TransportKind {
        let raw = table::transport(self.send.net, self.handle());
        u8::try_from(raw).ok().and_then(TransportKind::from_raw).unwrap_or_default()
    }

    /// The socket's options.
    #[must_use]
    pub fn options(&self) -> Options {
        table::options(self.send.net, self.handle())
    }

    /// Changes options of the open stream: flags, timeouts, linger. Ring sizes and transport stay.
    ///
    /// # Cooperation
    /// All lanes call it with the same options.
    ///
    /// # Errors
    /// InvalidArgument; NetworkDown.
    pub fn set_options<G: Group>(&mut self, g: &G, options: Options) -> Result<()> {
        let net = self.send.net;
        let handle = self.handle();
        by_leader(g, || {
            let mut request = request::new(net, Op::SetOptions, handle);
            request.options = options;
            request::call(net, &request, handle).map(|_| 0)
        })?;
        self.set_local_options(g, options);
        Ok(())
    }

    fn set_local_options<G: Group>(&mut self, g: &G, options: Options) {
        if g.is_leader() {
            table::set_options(self.send.net, self.handle(), &options);
        }
        g.sync();
    }

    /// Bytes sent that the peer's side has not acknowledged (SIOCOUTQ). The other end of a peer stream acknowledges by
    /// quarters of the ring, and when it waits, in a receive or a poll: a rest may stay although it has read everything.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    ///
    /// # Errors
    /// NotConnected; NetworkDown.
    pub fn out_queue<G: Group>(&mut self, g: &G) -> Result<u64> {
        let (net, handle) = (self.send.net, self.handle());
        by_leader(g, || {
            if table::link_of(net.entry(handle.slot())).is_direct() {
                // What the other end has not consumed.
                let word = self.send.producer.look();
                return Ok(self.send.position().saturating_sub(word.position()));
            }
            let mut request = request::new(net, Op::Query, handle);
            request.value = Query::OutQueue as u64;
            request::call(net, &request, handle).map(|reply| reply.value)
        })
    }
}

/// Connects; returns the raw handle of the stream that is in the table now. All lanes.
///
/// # Errors
/// As [`Stream::connect_with`].
#[inline(never)]
fn connect_handle<G: Group>(g: &G, net: Net, addr: SockAddr, options: Options) -> Result<u64> {
    by_leader(g, || {
        let timeout = Timeout::ns(options.send_timeout_ns);
        let (handle, reply) = request::open(net, g.index(), &options, timeout, |handle| {
            let mut request = request::new(net, Op::Connect, handle);
            (request.options, request.address) = (options, addr);
            request
        })?;
        table::open(net, handle, &reply.descriptor, Caller::of(g).id(net))?;
        Ok(handle.raw() as u64)
    })
}

/// Checks that the handle names a stream, of which the group is going to use `half` (a whole stream: the
/// receiving one counts). Begins with a barrier.
///
/// # Errors
/// BadHandle; NotConnected; NetworkDown, when there is no attachment.
#[inline(always)]
pub(crate) fn check_stream<G: Group>(g: &G, net: Net, handle: Handle, half: Half) -> Result<()> {
    g.sync();
    // One lane decides for all: another group may be closing it just now.
    by_leader(g, || use_stream(net, handle, half, Caller::of(g)))?;
    Ok(())
}

/// The leader's part of [`check_stream`].
#[inline(never)]
fn use_stream(net: Net, handle: Handle, half: Half, caller: Caller) -> Result<u64> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    if slots::use_handle(net, handle)? != Kind::Stream {
        return Err(Error::NotConnected);
    }
    if half == Half::Recv {
        become_receiver(net, handle, caller.id(net))?;
    }
    Ok(0)
}

/// A socket whose handle is dead and whose proxy does not know it yet: the caller still has its slot.
pub(crate) struct Closing {
    net: Net,
    handle: Handle,
    claim: Claim,
}

impl Closing {
    /// Retires the state of a socket. By one lane.
    ///
    /// # Errors
    /// BadHandle when it is closed already, or of another kind; TimedOut; NetworkDown.
    #[inline(never)]
    pub(crate) fn begin(net: Net, handle: Handle, kind: Kind) -> Result<Self> {
        if slots::kind_of(net, handle)? != kind {
            return Err(Error::BadHandle);
        }
        // The claim first: it may have to be waited for, and the handle is good until the close is sure to
        // be posted.
        let claim = Claim::for_close(net, handle)?;
        if !slots::retire(net, handle, kind) {
            claim.release();
            return Err(Error::BadHandle);
        }
        wake_waiters(net, handle);
        Ok(Self { net, handle, claim })
    }

    /// Tells the proxy, and how far a stream was. By the same lane; in a cancelled launch, too.
    ///
    /// # Errors
    /// As [`Claim::post_close`].
    #[inline(never)]
    pub(crate) fn post(self, sent: u64, consumed: u64) -> Result<u64> {
        let mut request = request::new(self.net, Op::Close, self.handle);
        (request.send_position, request.recv_position) = (sent, consumed);
        self.claim.post_close(&request, self.handle).map(|_| 0)
    }
}

/// [`Stream::close`], of the stream as the table has it, where each call leaves it. All lanes.
///
/// It takes no [`Stream`]: a value whose address is passed on is kept in local memory all its life, and not in
/// registers, and each call then waits for it (0.6 us of 1.9 for 64 bytes between two blocks of an H200).
///
/// # Errors
/// As [`Stream::close`].
#[inline(never)]
pub(crate) fn close_stream<G: Group>(g: &G, net: Net, handle: Handle) -> Result<()> {
    g.sync();
    let mut closing = None;
    // One lane decides for all: another group may be closing it just now, or changing its options. And
    // the handle is dead before the other end hears of it: who waits is not told of an end that it
    // answers with.
    let says_end = by_leader(g, || {
        closing = Some(Closing::begin(net, handle, Kind::Stream)?);
        // A close that resets (SO_LINGER 0) does not say the end of the stream before.
        Ok(u64::from(table::options(net, handle).linger_ms != 0))
    })?;
    let mut stream = Stream::load(net, handle);
    if says_end != 0 {
        stream.send.shutdown(g);
        stream.recv.shutdown(g);
    }
    let (sent, consumed) = (stream.send.position(), stream.recv.position());
    by_leader(g, || closing.map_or(Ok(0), |closing| closing.post(sent, consumed)))?;
    Ok(())
}

/// Closes what is no stream. By one lane.
///
/// # Errors
/// As [`Closing::begin`] and [`Closing::post`].
pub(crate) fn close(net: Net, handle: Handle, kind: Kind) -> Result<u64> {
    Closing::begin(net, handle, kind)?.post(0, 0)
}

/// Wakes groups that wait on a handle that has just been closed. By one lane.
pub(crate) fn wake_waiters(net: Net, handle: Handle) {
    platform::wake(net.recv_park(handle.slot()));
    platform::wake(net.send_park(handle.slot()));
    platform::wake_pollers(net.pollers(), net.epoch().as_ptr());
}
