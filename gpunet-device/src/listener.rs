//! Listeners: bind, accept, close.

use crate::outcome::by_leader;
use crate::stream::{Stream, close};
use crate::wait::Patience;
use crate::{Group, Net, request, slots};
use gpunet_abi::control::{Op, Request};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Options, Result, SockAddr};

/// How many connections may wait when nothing else is said.
pub const DEFAULT_BACKLOG: u32 = 128;

/// A listening socket, shared by any number of groups of one device.
///
/// It is served by whoever accepts, in order. Dropping one does nothing; see [`Listener::close`].
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
    /// AddressInUse, AddressNotAvailable, AccessDenied, TooManySockets, Canceled, NetworkDown, or
    /// another errno of bind(2) and listen(2).
    pub fn bind<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<Self> {
        Self::bind_with(g, net, addr, Options::DEFAULT, DEFAULT_BACKLOG)
    }

    /// Listens with options, which accepted streams inherit, and a backlog.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    #[inline(never)]
    pub fn bind_with<G: Group>(
        g: &G,
        net: Net,
        addr: SockAddr,
        options: Options,
        backlog: u32,
    ) -> Result<Self> {
        let raw = by_leader(g, || {
            // As connect; the receive timeout is accept's, and says nothing of how soon a busy proxy answers.
            let patience = Patience::Ns(options.send_timeout_ns);
            let (handle, reply) = request::open(net, g.index(), &options, patience, |handle| {
                let mut request = request::new(net, Op::Bind, handle);
                (request.flags, request.backlog) = (Request::LISTEN, backlog);
                (request.options, request.address) = (options, addr);
                request
            })?;
            slots::set_local(net, handle, reply.descriptor.local);
            slots::set_state(net, handle, Kind::Listener);
            Ok(handle.raw() as u64)
        })?;
        match Handle::from_raw(raw as i32) {
            Some(handle) => Ok(Self { net, handle }),
            None => Err(Error::Protocol),
        }
    }

    /// The listener that a handle names.
    ///
    /// # Errors
    /// BadHandle when it is stale; InvalidArgument when it does not listen.
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        g.sync();
        // One lane decides for all: another group may be closing it just now.
        by_leader(g, || match slots::kind_of(net, handle)? {
            Kind::Listener => Ok(0),
            _ => Err(Error::InvalidArgument),
        })?;
        Ok(Self { net, handle })
    }

    /// Accepts a connection, waiting for one (as long as the receive timeout says).
    ///
    /// # Cooperation
    /// All lanes call it and get the same stream.
    ///
    /// # Errors
    /// BadHandle when the listener was closed; TooManySockets; NoBuffers (the connection stays in
    /// the backlog); TimedOut; WouldBlock; Canceled; NetworkDown.
    pub fn accept<G: Group>(&self, g: &G) -> Result<Stream> {
        let options = slots::options(self.net, self.handle);
        self.accept_with(g, Patience::of(options.has(Options::NONBLOCK), options.recv_timeout_ns))
    }

    /// As [`Listener::accept`], waiting at most `timeout_ns` nanoseconds (0: without limit).
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept_timeout<G: Group>(&self, g: &G, timeout_ns: u64) -> Result<Stream> {
        self.accept_with(g, Patience::Ns(timeout_ns))
    }

    /// As [`Listener::accept`], without waiting.
    ///
    /// # Errors
    /// As [`Listener::accept`]; WouldBlock when no connection waits.
    pub fn try_accept<G: Group>(&self, g: &G) -> Result<Stream> {
        self.accept_with(g, Patience::None)
    }

    #[inline(never)]
    fn accept_with<G: Group>(&self, g: &G, patience: Patience) -> Result<Stream> {
        let (net, listener) = (self.net, self.handle);
        let raw = by_leader(g, || {
            if slots::kind_of(net, listener)? != Kind::Listener {
                return Err(Error::InvalidArgument);
            }
            // No request just to hear that nobody is there.
            if patience == Patience::None && net.ready(listener.slot()).observe() == 0 {
                return Err(Error::WouldBlock);
            }
            let options = slots::options(net, listener).with_flag(Options::NONBLOCK, false);
            let (handle, reply) = request::open(net, g.index(), &options, patience, |target| {
                let mut request = request::new(net, Op::Accept, listener);
                (request.target, request.target_generation) = (target.slot(), target.generation());
                request.flags = if patience == Patience::None { Request::NO_WAIT } else { 0 };
                request
            })?;
            slots::open(net, handle, &reply.descriptor)?;
            Ok(handle.raw() as u64)
        })?;
        Stream::of(net, raw)
    }

    /// The address it listens at, with the port that was got.
    #[must_use]
    pub fn local_addr(&self) -> SockAddr {
        slots::local(self.net, self.handle)
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
    /// BadHandle when it is closed already; NetworkDown.
    #[inline(never)]
    pub fn close<G: Group>(self, g: &G) -> Result<()> {
        g.sync();
        by_leader(g, || close(self.net, self.handle, Kind::Listener, 0, 0))?;
        Ok(())
    }
}
