//! Listeners: bind, accept, close.
//!
//! An accept takes a connection that the proxy has accepted ahead (`accept_queue`), and asks for
//! one only if there is none.

use crate::group::outcome::by_leader;
use crate::socket::accept_turn::AcceptTurn;
use crate::socket::close::close;
use crate::socket::stream::Stream;
use crate::socket::{accept_queue, request};
use crate::table::slots::{self, Caller};
use crate::table::{accepted, entry};
use crate::wait::deadline::Deadline;
use crate::{Group, Net};
use gpunet_abi::control::{Op, Reply, Request};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Direction, Error, Handle, Options, Result, SockAddr, Timeout};

/// How many connections may wait in a listener's backlog by default.
pub const DEFAULT_BACKLOG: u32 = 128;

/// A listening socket of kernels, shared by any number of groups of one device.
///
/// Connections go to the groups that wait in accept, in order, or to the group that accepts next.
/// Dropping one does nothing; see [`Listener::close`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Listener, Net, Result, SockAddr};
/// # fn example<G: Group>(g: &G, net: Net) -> Result<()> {
/// let listener = Listener::bind(g, net, SockAddr::v4([0, 0, 0, 0], 7777))?;
/// while let Ok(mut stream) = listener.accept(g) {
///     stream.send_all(g, b"hello\n")?;
///     stream.close(g)?;
/// }
/// listener.close(g)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    net: Net,
    handle: Handle,
}

impl Listener {
    /// Listens at `addr`. Port 0 takes a free port; see [`Listener::local_addr`].
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same listener.
    ///
    /// # Errors
    /// AddressInUse, AddressNotAvailable, AccessDenied, TooManySockets, TooManyFiles, NoBuffers
    /// (rings that can never be had), Canceled, NetworkDown, or another errno of bind(2) and
    /// listen(2).
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Listener, Net, Result, SockAddr};
    /// # fn example<G: Group>(g: &G, net: Net) -> Result<()> {
    /// let listener = Listener::bind(g, net, SockAddr::v4([127, 0, 0, 1], 0))?;
    /// let port = listener.local_addr().port; // the port that was free
    /// # let _ = port;
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<Self> {
        Self::bind_with(g, net, addr, Options::DEFAULT, DEFAULT_BACKLOG)
    }

    /// Listens with options, which accepted streams inherit, and a backlog.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Listener, Net, Options, Result, SockAddr};
    /// # fn example<G: Group>(g: &G, net: Net) -> Result<()> {
    /// // Streams with rings of 1 MiB, and a long queue.
    /// let options = Options::DEFAULT.with_rings(1 << 20, 1 << 20);
    /// let listener = Listener::bind_with(g, net, SockAddr::v6([0; 16], 7777), options, 1024)?;
    /// # listener.close(g)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(never)]
    pub fn bind_with<G: Group>(
        g: &G,
        net: Net,
        addr: SockAddr,
        options: Options,
        backlog: u32,
    ) -> Result<Self> {
        let raw = by_leader(g, || bind(net, Caller::of(g), &addr, &options, backlog))?;
        match Handle::from_raw(raw as i32) {
            Some(handle) => Ok(Self { net, handle }),
            None => Err(Error::Protocol),
        }
    }

    /// The listener that a handle names.
    ///
    /// # Errors
    /// BadHandle when it is stale; InvalidArgument when it does not listen.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, Handle, Listener, Net, Result};
    /// # fn example<G: Group>(g: &G, net: Net, raw: i32) -> Result<()> {
    /// // One block listened and left `raw`, the handle's number, in memory.
    /// let handle = Handle::from_raw(raw).ok_or(Error::BadHandle)?;
    /// let stream = Listener::from_handle(g, net, handle)?.accept(g)?;
    /// # stream.close(g)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        g.sync();
        // One lane decides for all: another group may be closing it just now.
        by_leader(g, || match slots::kind_of(net, handle)? {
            Kind::Listener => Ok(0),
            _ => Err(Error::InvalidArgument),
        })?;
        Ok(Self { net, handle })
    }

    /// Accepts a connection, waiting for one (up to the receive timeout).
    ///
    /// Where ring memory, descriptors or memory of the system are short, the connection stays in
    /// the backlog and the call waits for them, too; the proxy's log names the limit.
    ///
    /// # Cooperation
    /// All lanes call it and get the same stream.
    ///
    /// # Errors
    /// BadHandle when the listener was closed; TooManySockets (EMFILE) when no socket slot is free;
    /// TimedOut; WouldBlock; Canceled; NetworkDown. Of a call that does not wait also NoBuffers and
    /// TooManyFiles (ENFILE): what is short.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Listener, Net, Result};
    /// # fn example<G: Group>(g: &G, net: Net, listener: Listener, buffer: Buffer) -> Result<()> {
    /// let mut stream = listener.accept(g)?;
    /// let n = stream.recv(g, buffer)?;
    /// # let _ = n;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept<G: Group>(&self, g: &G) -> Result<Stream> {
        self.accept_timeout(g, self.timeout())
    }

    /// How long its options let an accept wait.
    #[inline(always)]
    #[doc(hidden)]
    pub fn timeout(&self) -> Timeout {
        let options = entry::options(self.net, self.handle);
        options.timeout(Direction::Recv)
    }

    /// As [`Listener::accept`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, Listener, Result, Timeout};
    /// # fn example<G: Group>(g: &G, listener: Listener) -> Result<()> {
    /// match listener.accept_timeout(g, Timeout::secs(5)) {
    ///     Ok(stream) => stream.close(g)?,
    ///     Err(Error::TimedOut) => {} // nobody came for 5 s
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn accept_timeout<G: Group>(&self, g: &G, timeout: Timeout) -> Result<Stream> {
        Stream::of(self.net, self.accept_handle(g, timeout)?)
    }

    /// As [`Listener::accept`], without waiting.
    ///
    /// # Errors
    /// As [`Listener::accept`]; WouldBlock when no connection waits.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, Listener, Net, Result};
    /// # fn example<G: Group>(g: &G, net: Net, listener: Listener) -> Result<()> {
    /// match listener.try_accept(g) {
    ///     Ok(stream) => stream.close(g)?,
    ///     Err(Error::WouldBlock) => {} // do other work first
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_accept<G: Group>(&self, g: &G) -> Result<Stream> {
        self.accept_timeout(g, Timeout::NON_BLOCKING)
    }

    /// Accepts; returns the raw handle of the stream that is in the table now. All lanes.
    #[inline(never)]
    fn accept_handle<G: Group>(&self, g: &G, timeout: Timeout) -> Result<u64> {
        by_leader(g, || accept(self.net, Caller::of(g), self.handle, timeout))
    }

    /// The address it listens at, with the port that was assigned.
    #[must_use]
    pub fn local_addr(&self) -> SockAddr {
        entry::local(self.net, self.handle)
    }

    /// The listener's handle, good until it is closed.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Stops listening. Accepts that wait get BadHandle, connects in the backlog are refused.
    ///
    /// # Cooperation
    /// All lanes of one group call it.
    ///
    /// # Errors
    /// BadHandle when it is closed already. TimedOut; NetworkDown: a proxy that was only suspended
    /// closes the listener when it continues; otherwise the listener stays open.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Listener, Net, Result};
    /// # fn example<G: Group>(g: &G, net: Net, listener: Listener) -> Result<()> {
    /// // One block of the launch closes for all; accepts of the others return BadHandle.
    /// if g.index() == 0 {
    ///     listener.close(g)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(never)]
    pub fn close<G: Group>(self, g: &G) -> Result<()> {
        g.sync();
        by_leader(g, || close(self.net, self.handle, Kind::Listener))?;
        Ok(())
    }
}

/// The leader's part of [`Listener::bind_with`]; returns the raw handle.
#[inline(never)]
fn bind(net: Net, caller: Caller, addr: &SockAddr, options: &Options, backlog: u32) -> Result<u64> {
    let (mut request, mut reply) = (request::fresh(net, Op::Bind), Reply::new(0, 0));
    (request.flags, request.backlog) = (Request::LISTEN, backlog);
    (request.options, request.address) = (*options, *addr);
    // As connect; the receive timeout is accept's, and does not bound how soon a busy proxy
    // answers.
    let deadline = Deadline::of(Timeout::of_option(options.send_timeout_ns));
    let handle = request::open(net, caller, options, true, deadline, &mut request, &mut reply)?;
    entry::set_local(net, handle, reply.descriptor.local);
    if slots::turn_into(net, handle, Kind::Listener) {
        Ok(handle.raw() as u64)
    } else {
        Err(Error::BadHandle)
    }
}

/// The leader's part of [`Listener::accept_handle`].
#[inline(never)]
fn accept(net: Net, caller: Caller, listener: Handle, timeout: Timeout) -> Result<u64> {
    if slots::use_handle(net, listener)? != Kind::Listener {
        return Err(Error::InvalidArgument);
    }
    let options = entry::options(net, listener).with_flag(Options::NONBLOCK, false);
    let (waits, deadline) = (timeout != Timeout::NON_BLOCKING, Deadline::of(timeout));
    let handle = loop {
        if let Some(handle) = accept_queue::take(net, listener, &options, caller)? {
            break handle;
        }
        match ask(net, caller, listener, &options, waits, deadline) {
            // Meanwhile one was accepted ahead.
            Err(Error::WouldBlock) if waits || accepted::has_untaken(net, listener) => {}
            asked => break asked?,
        }
    };
    accept_queue::prepare(net, listener, &options);
    Ok(handle.raw() as u64)
}

/// Asks the proxy for a connection, after none was found that it has accepted ahead. By one lane.
#[inline(never)]
fn ask(
    net: Net,
    caller: Caller,
    listener: Handle,
    options: &Options,
    waits: bool,
    deadline: Deadline,
) -> Result<Handle> {
    // No request just to learn that no connection waits, or that another group takes it.
    let mut turn = None;
    if !waits {
        match net.ready(listener.slot()).observe() {
            0 => return Err(Error::WouldBlock),
            1 => turn = Some(AcceptTurn::take(net, listener.slot()).ok_or(Error::WouldBlock)?),
            _ => {}
        }
    }
    let (mut request, mut reply) = (request::new(net, Op::Accept, listener), Reply::new(0, 0));
    request.flags = if waits { 0 } else { Request::NO_WAIT };
    request.value = accepted::taken(net, listener);
    let handle = request::open(net, caller, options, waits, deadline, &mut request, &mut reply)?;
    drop(turn);
    entry::open(net, handle, &reply.descriptor, caller.id(net))?;
    Ok(handle)
}
