//! Listeners: bind, accept, close.

use crate::outcome::by_leader;
use crate::stream::{Stream, close};
use crate::wait::Timeout;
use crate::{Group, Net, request, slots, table};
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
    /// AddressInUse, AddressNotAvailable, AccessDenied, TooManySockets, TooManyFiles, NoBuffers (rings that can
    /// never be had), Canceled, NetworkDown, or another errno of bind(2) and listen(2).
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
            let timeout = Timeout::ns(options.send_timeout_ns);
            let (handle, reply) = request::open(net, g.index(), &options, timeout, |handle| {
                let mut request = request::new(net, Op::Bind, handle);
                (request.flags, request.backlog) = (Request::LISTEN, backlog);
                (request.options, request.address) = (options, addr);
                request
            })?;
            table::set_local(net, handle, reply.descriptor.local);
            if slots::turn_into(net, handle, Kind::Listener) {
                Ok(handle.raw() as u64)
            } else {
                Err(Error::BadHandle)
            }
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
    /// Where ring memory, descriptors or memory of the system are short, the connection stays in the
    /// backlog and the call waits for them, too; the proxy's log names the limit.
    ///
    /// # Cooperation
    /// All lanes call it and get the same stream.
    ///
    /// # Errors
    /// BadHandle when the listener was closed; TooManySockets (EMFILE) when no socket slot is free; TimedOut;
    /// WouldBlock; Canceled; NetworkDown. Of a call that does not wait also NoBuffers and TooManyFiles
    /// (ENFILE): what is short.
    pub fn accept<G: Group>(&self, g: &G) -> Result<Stream> {
        let options = table::options(self.net, self.handle);
        self.accept_with(g, Timeout::of(options.has(Options::NONBLOCK), options.recv_timeout_ns))
    }

    /// As [`Listener::accept`], waiting at most `timeout_ns` nanoseconds (0: without limit).
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept_timeout<G: Group>(&self, g: &G, timeout_ns: u64) -> Result<Stream> {
        self.accept_with(g, Timeout::ns(timeout_ns))
    }

    /// As [`Listener::accept`], without waiting.
    ///
    /// # Errors
    /// As [`Listener::accept`]; WouldBlock when no connection waits.
    pub fn try_accept<G: Group>(&self, g: &G) -> Result<Stream> {
        self.accept_with(g, Timeout::NON_BLOCKING)
    }

    #[inline(always)]
    fn accept_with<G: Group>(&self, g: &G, timeout: Timeout) -> Result<Stream> {
        Stream::of(self.net, self.accept_handle(g, timeout)?)
    }

    /// Accepts; returns the raw handle of the stream that is in the table now. All lanes.
    #[inline(never)]
    fn accept_handle<G: Group>(&self, g: &G, timeout: Timeout) -> Result<u64> {
        let (net, listener) = (self.net, self.handle);
        by_leader(g, || {
            if slots::kind_of(net, listener)? != Kind::Listener {
                return Err(Error::InvalidArgument);
            }
            // No request just to hear that nobody is there.
            if timeout == Timeout::NON_BLOCKING && net.ready(listener.slot()).observe() == 0 {
                return Err(Error::WouldBlock);
            }
            let options = table::options(net, listener).with_flag(Options::NONBLOCK, false);
            let (handle, reply) = request::open(net, g.index(), &options, timeout, |target| {
                let mut request = request::new(net, Op::Accept, listener);
                (request.target, request.target_generation) = (target.slot(), target.generation());
                request.flags = if timeout == Timeout::NON_BLOCKING { Request::NO_WAIT } else { 0 };
                request
            })?;
            table::open(net, handle, &reply.descriptor, slots::Caller::of(g).id(net))?;
            Ok(handle.raw() as u64)
        })
    }

    /// The address it listens at, with the port that was got.
    #[must_use]
    pub fn local_addr(&self) -> SockAddr {
        table::local(self.net, self.handle)
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
        by_leader(g, || close(self.net, self.handle, Kind::Listener))?;
        Ok(())
    }
}
