//! A connected stream: connect, both halves together, close.

use crate::group::outcome::by_leader;
use crate::memory::buffer::Source;
use crate::socket::close::close_stream;
use crate::socket::ownership::{Halves, check_stream};
use crate::socket::recv::RecvHalf;
use crate::socket::request;
use crate::socket::send::SendHalf;
use crate::table::entry::{self, Deferred};
use crate::table::slots::{self, Caller};
use crate::wait::deadline::Deadline;
use crate::{Buffer, Group, Net};
use gpunet_abi::control::{Op, Query, Reply};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Options, Result, RingSpan, SockAddr, Timeout, TransportKind};

/// Which direction to shut down.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, Shutdown, Stream};
/// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
/// stream.send_all(g, b"GET / HTTP/1.0\r\n\r\n")?;
/// stream.shutdown(g, Shutdown::Write); // nothing more to ask
/// while stream.recv(g, buffer)? > 0 {}
/// # Ok(())
/// # }
/// ```
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
/// [`Stream::close`], also across launches, and is found again by its [`Handle`].
///
/// # Examples
///
/// ```
/// use gpunet_device::{Buffer, Group, Net, Result, SockAddr, Stream};
///
/// /// Asks a server for its greeting; returns how long it is.
/// fn greeting<G: Group>(g: &G, net: Net, buffer: Buffer) -> Result<usize> {
///     let mut stream = Stream::connect(g, net, SockAddr::v4([10, 0, 0, 2], 7777))?;
///     stream.send_all(g, b"HELLO\n")?;
///     let len = stream.recv(g, buffer)?;
///     stream.close(g)?;
///     Ok(len)
/// }
/// ```
///
/// A closed stream cannot be used:
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
    /// Connects to `addr`. To a listener under the same proxy, through memory unless the options
    /// ask for tcp, it returns when the other end accepts; by tcp, when the connection is in the
    /// listener's backlog.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same stream.
    ///
    /// # Errors
    /// ConnectionRefused, NetworkUnreachable, HostUnreachable, TimedOut, TooManySockets,
    /// TooManyFiles, NoBuffers, Canceled, NetworkDown, or another errno of connect(2).
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Result, SockAddr, Stream};
    /// # fn example<G: Group>(g: &G, net: Net) -> Result<()> {
    /// let mut stream = Stream::connect(g, net, SockAddr::v4([10, 0, 0, 2], 7777))?;
    /// stream.send_all(g, b"hello")?;
    /// stream.close(g)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<Self> {
        Self::connect_with(g, net, addr, Options::DEFAULT)
    }

    /// Connects to `addr` with options: ring sizes, transport, timeouts and so on.
    ///
    /// # Errors
    /// As [`Stream::connect`]; InvalidArgument for invalid options.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Options, Result, SockAddr, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<()> {
    /// // RDMA or an error, with rings of 4 MiB.
    /// let options = Options::DEFAULT.with_transport(TransportKind::Rc).with_rings(4 << 20, 4 << 20);
    /// let stream = Stream::connect_with(g, net, addr, options)?;
    /// # stream.close(g)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn connect_with<G: Group>(g: &G, net: Net, addr: SockAddr, options: Options) -> Result<Self> {
        Self::of(net, connect_handle(g, net, addr, options)?)
    }

    /// As [`Stream::connect`], giving up after `timeout`; [`Timeout::NON_BLOCKING`] gives up at
    /// once.
    ///
    /// # Errors
    /// As [`Stream::connect`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Result, SockAddr, Stream, Timeout};
    /// # fn example<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<()> {
    /// let stream = Stream::connect_timeout(g, net, addr, Timeout::secs(3))?;
    /// # stream.close(g)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout<G: Group>(g: &G, net: Net, addr: SockAddr, timeout: Timeout) -> Result<Self> {
        let options = Options::DEFAULT.with_timeouts(timeout, Timeout::NEVER);
        let mut stream = Self::connect_with(g, net, addr, options)?;
        stream.set_local_options(g, Options::DEFAULT);
        Ok(stream)
    }

    /// The stream that a handle names: from the C functions, another block, or an earlier launch.
    /// The caller's group becomes the one that uses it.
    ///
    /// # Errors
    /// BadHandle when it is stale; NotConnected when it is no stream; Busy when the host has taken
    /// one of its directions: [`SendHalf::from_handle`] and [`RecvHalf::from_handle`] find the
    /// other.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, Handle, Net, Result, Stream};
    /// # fn example<G: Group>(g: &G, net: Net, raw: i32) -> Result<()> {
    /// // A kernel that kept its stream's handle in memory serves it again in a later launch.
    /// let handle = Handle::from_raw(raw).ok_or(Error::BadHandle)?;
    /// let mut stream = Stream::from_handle(g, net, handle)?;
    /// stream.send_all(g, b"still here")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        let deferred = check_stream(g, net, handle, Halves::Both)?;
        Ok(Self::load_with(net, handle, deferred))
    }

    /// As [`Stream::from_handle`], for the group that has accepted the stream in this launch, while
    /// no other uses it: nothing has to be found out. A stream that the proxy has closed since, for
    /// a launch that is over, still has its rings; its calls fail by its status.
    ///
    /// # Cooperation
    /// All lanes call it; it begins with a barrier.
    #[doc(hidden)]
    #[inline(always)]
    pub fn resume<G: Group>(g: &G, net: Net, handle: Handle) -> Self {
        g.sync();
        // Nobody else changes it: all lanes find the same.
        let deferred = entry::deferred(net.entry(handle.slot())) != Deferred::None;
        Self::load_with(net, handle, deferred)
    }

    /// The stream in the table under a handle that the leader has just opened. After a barrier.
    #[inline(always)]
    pub(crate) fn of(net: Net, raw: u64) -> Result<Self> {
        match Handle::from_raw(raw as i32) {
            Some(handle) => Ok(Self::load(net, handle)),
            None => Err(Error::Protocol),
        }
    }

    /// A stream that was just opened, as the table has it. All lanes.
    #[inline(always)]
    pub(crate) fn load(net: Net, handle: Handle) -> Self {
        Self::load_with(net, handle, false)
    }

    /// The stream as the table has it; `deferred` is as for [`SendHalf::load_at`]. Inline, so that
    /// what its halves have in common is one value in one register of each lane. All lanes.
    #[inline(always)]
    fn load_with(net: Net, handle: Handle, deferred: bool) -> Self {
        let entry = net.entry(handle.slot());
        let link = entry::link_of(entry);
        Self {
            send: SendHalf::load_at(net, handle, entry, link, deferred),
            recv: RecvHalf::load_at(net, handle, entry, link),
        }
    }

    /// Separates the halves, for two groups or two parts of a program. They still share the handle;
    /// [`Stream::join`] puts them together again to close.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Net, Result, Stream};
    /// # fn example<G: Group>(g: &G, net: Net, stream: Stream, buffer: Buffer) -> Result<()> {
    /// let (mut send, mut recv) = stream.split();
    /// let n = recv.recv(g, buffer)?;
    /// send.send_all(g, buffer.first(n))?;
    /// if let Some(stream) = Stream::join(send, recv) {
    ///     stream.close(g)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn split(self) -> (SendHalf, RecvHalf) {
        (self.send, self.recv)
    }

    /// Puts two halves together again; `None` when they are of different streams.
    #[must_use]
    pub fn join(send: SendHalf, recv: RecvHalf) -> Option<Self> {
        if send.handle == recv.handle { Some(Self { send, recv }) } else { None }
    }

    /// The sending half, which has the calls that the stream lacks: with a timeout
    /// ([`SendHalf::send_timeout`]), with a message in pieces ([`SendHalf::send_more`],
    /// [`SendHalf::flush`]), and about the ring's space ([`SendHalf::try_reserve`],
    /// [`SendHalf::free_space`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Result, Stream};
    /// # fn example<G: Group>(g: &G, stream: &mut Stream, head: Buffer, buffer: Buffer) -> Result<()> {
    /// stream.sender().send_more(g, head)?;
    /// stream.recv(g, buffer)?; // publishes the head first
    /// # Ok(())
    /// # }
    /// ```
    pub const fn sender(&mut self) -> &mut SendHalf {
        &mut self.send
    }

    /// The receiving half, which has the calls that the stream lacks: with a timeout
    /// ([`RecvHalf::recv_timeout`]), and [`RecvHalf::try_peek`] and [`RecvHalf::peek_more`].
    ///
    /// Receives of the half do not publish what [`SendHalf::send_more`] has left unpublished, as
    /// those of the stream do: call [`SendHalf::flush`] before.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Result, Stream, Timeout};
    /// # fn example<G: Group>(g: &G, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// if stream.receiver().recv_timeout(g, buffer, Timeout::ms(10)) == Err(Error::TimedOut) {
    ///     stream.send_all(g, b"are you there?\n")?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub const fn receiver(&mut self) -> &mut RecvHalf {
        &mut self.recv
    }

    /// The stream's handle, good until it is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Result, Stream};
    /// # fn example<G: Group>(g: &G, net: Net, stream: Stream, kept: *mut i32) -> Result<()> {
    /// // Leaves the stream to a later launch: its handle, in memory that outlives the kernel.
    /// if g.is_leader() {
    ///     // SAFETY: the kernel's own memory.
    ///     unsafe { kept.write(stream.handle().raw()) };
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.send.handle
    }

    /// Sends bytes; returns how many. See [`SendHalf::send`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// let sent = stream.send(g, buffer)?;
    /// if sent < buffer.len() {
    ///     stream.send_all(g, buffer.skip(sent))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send.send(g, source)
    }

    /// Sends what fits into the ring, without waiting. See [`SendHalf::try_send`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn try_send<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<usize> {
        self.send.try_send(g, source)
    }

    /// Sends all bytes. See [`SendHalf::send_all`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// stream.send_all(g, b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn send_all<G: Group>(&mut self, g: &G, source: impl Into<Source>) -> Result<()> {
        self.send.send_all(g, source)
    }

    /// Receives up to `buffer.len()` bytes; returns how many, and 0 at the end of the stream. See
    /// [`RecvHalf::recv`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// match stream.recv(g, buffer)? {
    ///     0 => {} // the end of the stream
    ///     n => stream.send_all(g, buffer.first(n))?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.send.flush(g);
        self.recv.recv(g, buffer)
    }

    /// Receives what has come, without waiting. See [`RecvHalf::try_recv`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn try_recv<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.send.flush(g);
        self.recv.try_recv(g, buffer)
    }

    /// Fills the whole buffer; returns fewer bytes only when the stream ends first. See
    /// [`RecvHalf::recv_exact`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// let n = stream.recv_exact(g, buffer)?;
    /// let ended_early = n < buffer.len();
    /// # let _ = ended_early;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn recv_exact<G: Group>(&mut self, g: &G, buffer: Buffer) -> Result<usize> {
        self.send.flush(g);
        self.recv.recv_exact(g, buffer)
    }

    /// Reserves ring space to write in place. See [`SendHalf::reserve`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// let span = stream.reserve(g, 1)?;
    /// if g.is_leader() {
    ///     // SAFETY: the first byte of the reserved span.
    ///     unsafe { span.first.ptr.write_volatile(b'!') };
    /// }
    /// stream.commit(g, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.send.reserve(g, len)
    }

    /// Publishes the first `len` bytes of the reserved span. See [`SendHalf::commit`].
    pub fn commit<G: Group>(&mut self, g: &G, len: usize) {
        self.send.commit(g, len);
    }

    /// Shows received bytes in place. See [`RecvHalf::peek`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// // Looks at the first byte and leaves it to the next receive.
    /// let span = stream.peek(g, 1)?;
    /// if !span.is_empty() {
    ///     // SAFETY: inside the peeked span.
    ///     let first = unsafe { span.first.ptr.read_volatile() };
    ///     # let _ = first;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek<G: Group>(&mut self, g: &G, len: usize) -> Result<RingSpan> {
        self.send.flush(g);
        self.recv.peek(g, len)
    }

    /// Gives the first `len` bytes of the peeked span back. See [`RecvHalf::release`].
    pub fn release<G: Group>(&mut self, g: &G, len: usize) {
        self.recv.release(g, len);
    }

    /// Bytes that can be received without waiting. See [`RecvHalf::available`].
    ///
    /// # Errors
    /// As there.
    pub fn available<G: Group>(&mut self, g: &G) -> Result<usize> {
        self.recv.available(g)
    }

    /// Ends one direction or both. A direction that is not ended stays open.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Net, Result, Shutdown, Stream};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// stream.shutdown(g, Shutdown::Read); // no answer is wanted
    /// stream.send_all(g, buffer)?;
    /// # Ok(())
    /// # }
    /// ```
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
    /// BadHandle when it is closed already; Busy when the host has taken one of its directions.
    /// NetworkDown, TimedOut: [`Stream::from_handle`] tells whether it is still open. If it is not,
    /// the proxy closes it when the launch is finished.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Result, Stream};
    /// # fn example<G: Group>(g: &G, net: Net, mut stream: Stream) -> Result<()> {
    /// stream.send_all(g, b"bye")?;
    /// stream.close(g)?; // "bye" still arrives
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn close<G: Group>(self, g: &G) -> Result<()> {
        close_stream(g, self.send.net, self.handle())
    }

    /// The other end's address.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// let from_this_host = stream.peer_addr().ip[0] == 127;
    /// # let _ = from_this_host;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn peer_addr(&self) -> SockAddr {
        entry::peer(self.send.net, self.handle())
    }

    /// This end's address.
    #[must_use]
    pub fn local_addr(&self) -> SockAddr {
        entry::local(self.send.net, self.handle())
    }

    /// The transport of the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// let is_rdma = stream.transport() == TransportKind::Rc;
    /// # let _ = is_rdma;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn transport(&self) -> TransportKind {
        let raw = entry::transport(self.send.net, self.handle());
        u8::try_from(raw).ok().and_then(TransportKind::from_raw).unwrap_or_default()
    }

    /// The socket's options.
    #[must_use]
    pub fn options(&self) -> Options {
        entry::options(self.send.net, self.handle())
    }

    /// Changes options of the open stream: flags, timeouts, linger. Ring sizes and transport stay.
    ///
    /// # Cooperation
    /// All lanes call it with the same options.
    ///
    /// # Errors
    /// InvalidArgument; NetworkDown.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind, Timeout};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// // Receives give up after 1 s from now on.
    /// stream.set_options(g, stream.options().with_timeouts(Timeout::NEVER, Timeout::secs(1)))?;
    /// # Ok(())
    /// # }
    /// ```
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
            entry::set_options(self.send.net, self.handle(), &options);
        }
        g.sync();
    }

    /// Bytes sent that the peer's side has not acknowledged (SIOCOUTQ). The other end of a peer
    /// stream acknowledges by quarters of the ring, and when it waits, in a receive or a poll: a
    /// rest may stay although it has read everything.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    ///
    /// # Errors
    /// NotConnected; NetworkDown.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Error, Group, Net, Options, Result, Stream, TransportKind};
    /// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
    /// // Waits until the peer's side has acknowledged everything.
    /// while stream.out_queue(g)? > 0 {}
    /// # Ok(())
    /// # }
    /// ```
    pub fn out_queue<G: Group>(&mut self, g: &G) -> Result<u64> {
        by_leader(g, || out_queue(&self.send))
    }
}

/// As [`Stream::out_queue`], for the half in the table, whichever group uses it. By one lane.
///
/// # Errors
/// As [`Stream::out_queue`]; BadHandle; NotConnected.
pub fn out_queue_of(net: Net, handle: Handle) -> Result<u64> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    match slots::use_handle(net, handle)? {
        Kind::Stream => {
            let entry = net.entry(handle.slot());
            out_queue(&SendHalf::load_at(net, handle, entry, entry::link_of(entry), false))
        }
        _ => Err(Error::NotConnected),
    }
}

/// The leader's part of [`Stream::out_queue`].
fn out_queue(send: &SendHalf) -> Result<u64> {
    let (net, handle) = (send.net, send.handle);
    if entry::link_of(net.entry(handle.slot())).is_direct() {
        // The bytes that the other end has not consumed.
        let word = send.producer.poll();
        return Ok(send.position().saturating_sub(word.position()));
    }
    let mut request = request::new(net, Op::Query, handle);
    request.value = Query::OutQueue as u64;
    request::call(net, &request, handle)
}

/// Connects; returns the raw handle of the stream that is in the table now. All lanes.
///
/// # Errors
/// As [`Stream::connect_with`].
#[inline(never)]
fn connect_handle<G: Group>(g: &G, net: Net, addr: SockAddr, options: Options) -> Result<u64> {
    by_leader(g, || connect(net, Caller::of(g), &addr, &options))
}

/// The leader's part of [`connect_handle`].
#[inline(never)]
fn connect(net: Net, caller: Caller, addr: &SockAddr, options: &Options) -> Result<u64> {
    let (mut request, mut reply) = (request::fresh(net, Op::Connect), Reply::new(0, 0));
    (request.options, request.address) = (*options, *addr);
    let deadline = Deadline::of(Timeout::of_option(options.send_timeout_ns));
    let handle = request::open(net, caller, options, true, deadline, &mut request, &mut reply)?;
    entry::open(net, handle, &reply.descriptor, caller.id(net))?;
    Ok(handle.raw() as u64)
}
