//! Requests in two steps, for callers that must not wait: programs of the host.
//!
//! A thread block posts a request in a control slot and waits there for the reply. A program in the
//! proxy's own process hands the same request over as a message, and continues when the reply
//! comes. These are the two steps: what the device's table needs before, and after.

use crate::group::Solo;
use crate::socket::close::{retire, wake_waiters};
use crate::socket::{accept_queue, request};
use crate::table::{accepted, entry, free_slots, slots};
use crate::{Listener, Net, Stream};
use gpunet_abi::control::{Op, Reply, Request};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Options, Result, SockAddr};

const SOLO: Solo = Solo::new(0, 1);

/// A socket slot that was taken, and the request that is to open it.
///
/// # Examples
///
/// ```
/// use gpunet_device::abi::control::{Reply, Request};
/// use gpunet_device::{Net, Options, Result, SockAddr, Stream, cpu::deferred::Opening};
///
/// fn connect(net: Net, addr: SockAddr, proxy: impl Fn(&Request) -> Option<Reply>) -> Result<Option<Stream>> {
///     let opening = Opening::connect(net, addr, Options::DEFAULT)?;
///     match proxy(opening.request()) {
///         Some(reply) => opening.stream(&reply).map(Some),
///         None => {
///             opening.forget(); // the proxy is gone
///             Ok(None)
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a slot was taken for it"]
pub struct Opening {
    net: Net,
    handle: Handle,
    kind: Kind,
    request: Request,
}

impl Opening {
    /// Prepares to connect to `addr`.
    ///
    /// # Errors
    /// TooManySockets; NetworkDown.
    pub fn connect(net: Net, addr: SockAddr, options: Options) -> Result<Self> {
        let handle = take(net, &options)?;
        let mut request = request::new(net, Op::Connect, handle);
        (request.options, request.address) = (options, addr);
        Ok(Self { net, handle, kind: Kind::Stream, request })
    }

    /// Prepares to listen at `addr`.
    ///
    /// # Errors
    /// TooManySockets; NetworkDown.
    pub fn bind(net: Net, addr: SockAddr, options: Options, backlog: u32) -> Result<Self> {
        let handle = take(net, &options)?;
        let mut request = request::new(net, Op::Bind, handle);
        (request.flags, request.backlog) = (Request::LISTEN, backlog);
        (request.options, request.address) = (options, addr);
        Ok(Self { net, handle, kind: Kind::Listener, request })
    }

    /// Prepares to accept a connection of the listener, without waiting for one: the reply is
    /// WouldBlock if there is none.
    ///
    /// # Errors
    /// BadHandle when the listener was closed; TooManySockets; NetworkDown.
    pub fn accept(net: Net, listener: Handle) -> Result<Self> {
        if slots::kind_of(net, listener)? != Kind::Listener {
            return Err(Error::InvalidArgument);
        }
        let handle = take(net, &entry::options(net, listener))?;
        let mut request = request::new(net, Op::Accept, listener);
        (request.target, request.target_generation) = (handle.slot(), handle.generation());
        request.flags = Request::NO_WAIT;
        request.value = accepted::taken(net, listener);
        Ok(Self { net, handle, kind: Kind::Stream, request })
    }

    /// The request to post, once.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Enters the socket in the table, as the reply describes it.
    ///
    /// # Errors
    /// The reply's errno; Protocol for an invalid reply.
    fn enter(&self, reply: &Reply) -> Result<()> {
        let entered = match (reply.errno, self.kind) {
            (0, Kind::Stream) => {
                let group = slots::Caller::of(&SOLO).id(self.net);
                entry::open(self.net, self.handle, &reply.descriptor, group)
            }
            (0, kind) => {
                entry::set_local(self.net, self.handle, reply.descriptor.local);
                if slots::turn_into(self.net, self.handle, kind) { Ok(()) } else { Err(Error::BadHandle) }
            }
            (errno, _) => Err(Error::from_errno(errno as i32)),
        };
        entered.inspect_err(|_| self.forget())
    }

    /// The stream that the reply to [`Opening::connect`] or [`Opening::accept`] opened.
    ///
    /// # Errors
    /// The reply's errno.
    pub fn stream(self, reply: &Reply) -> Result<Stream> {
        self.enter(reply)?;
        Ok(Stream::load(self.net, self.handle))
    }

    /// The listener that the reply to [`Opening::bind`] opened.
    ///
    /// # Errors
    /// The reply's errno.
    pub fn listener(self, reply: &Reply) -> Result<Listener> {
        self.enter(reply)?;
        Listener::from_handle(&SOLO, self.net, self.handle)
    }

    /// Takes in a reply that is no longer wanted; returns the request that closes what it opened.
    #[must_use]
    pub fn discard(self, reply: &Reply) -> Option<Request> {
        self.enter(reply).ok()?;
        close(self.net, self.handle).ok()
    }

    /// Frees the slot's entry: there will be no reply, or it was an error.
    pub fn forget(&self) {
        slots::retire(self.net, self.handle, Kind::Fresh);
    }
}

fn take(net: Net, options: &Options) -> Result<Handle> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    let options = options.with_flag(Options::NONBLOCK, false);
    free_slots::take(net, &options)
}

/// Ends a socket as [`Stream::close`] and [`Listener::close`] do, up to the request that is to be
/// posted, whose reply carries nothing.
///
/// # Errors
/// BadHandle when it is closed already; Busy while the host has taken one of its directions;
/// TimedOut or NetworkDown, when a group that prepares slots for a listener does not come to an
/// end: the listener stays open.
///
/// # Examples
///
/// ```
/// # use gpunet_device::abi::control::Request;
/// # use gpunet_device::{Net, Result, Stream, cpu::deferred};
/// # fn example(net: Net, stream: Stream, post: impl FnOnce(Request)) -> Result<()> {
/// post(deferred::close(net, stream.handle())?);
/// # Ok(())
/// # }
/// ```
pub fn close(net: Net, handle: Handle) -> Result<Request> {
    let kind = slots::kind_of(net, handle)?;
    let mut request = request::new(net, Op::Close, handle);
    if kind == Kind::Stream {
        let mut stream = Stream::from_handle(&SOLO, net, handle)?;
        // A close that resets (SO_LINGER 0) does not announce the end of the stream before.
        if stream.options().linger_ms != 0 {
            stream.sender().end();
            stream.receiver().end();
        }
        request.send_position = stream.sender().position();
        request.recv_position = stream.receiver().position();
    }
    retire(net, handle, kind)?;
    if kind == Kind::Listener {
        request.recv_position = accept_queue::close(net, handle);
    }
    wake_waiters(net, handle, kind);
    Ok(request)
}
