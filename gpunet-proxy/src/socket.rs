//! Sockets of an attachment that the host program opens: for its kernels, or to keep.
//!
//! A [`Socket`] is a stream in the socket table of a device, as a kernel's own: kernels use it by
//! its handle ([`Socket::handle`]), as if one of them had connected it. So a program connects
//! before it launches anything, and hands the connection over.
//!
//! Sockets of [`host`](crate::host) are for the program's own reads and writes.
//!
//! | file | holds |
//! |---|---|
//! | `socket` | [`Socket`], [`ListeningSocket`], and what they share |
//! | `open`, `pending` | a slot, a request, an entry in the device's table; sockets that are being opened |
//! | `table_socket` | [`TableSocket`]: sockets that others have opened |
//! | `direction` | [`Sender`] and [`Receiver`]: directions that the program has taken, and messages in them |
//! | `error` | [`SocketError`], [`DirectionError`] |
//! | `operations` | what the program tells the proxy in shared memory |

mod direction;
mod error;
mod open;
mod operations;
mod pending;
mod table_socket;

use direction::Holder;
pub(crate) use direction::{Appended, Hold};
pub use direction::{DirectionOutcome, Receiver, RecvMessage, SendMessage, Sender};
pub use error::{DirectionError, SocketError};
pub(crate) use operations::StreamOperations;
#[cfg(test)]
pub(crate) use operations::tell_operations;
pub use pending::PendingSocket;
pub use table_socket::TableSocket;

use crate::attached::device::AttachedDevice;
use crate::launch::token::LaunchToken;
use crate::model::error::TooManyLaunches;
use gpunet_abi::control::{Op, Reply, Request};
use gpunet_abi::opened::Opened;
use gpunet_abi::{Direction, Error, Handle, Options, SockAddr, TransportKind};
use gpunet_core::ids::LaunchId;
use gpunet_core::memory::SharedMemory;
use gpunet_device::Net;
use open::Opening;
use operations::Published;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The launch number that the host program's sockets belong to.
#[derive(Debug)]
pub(crate) struct HostLaunch {
    /// `None` once it is given back, by drop.
    token: Option<LaunchToken>,
    id: LaunchId,
    /// What the program tells the proxy in shared memory. Writers hold the lock.
    published: Mutex<Published>,
    /// Its open sockets.
    sockets: Mutex<HashMap<Handle, Weak<Inner>>>,
}

impl HostLaunch {
    pub(crate) const fn id(&self) -> LaunchId {
        self.id
    }

    fn token(&self) -> &LaunchToken {
        // Taken by drop alone.
        self.token.as_ref().expect("a number until it is dropped")
    }

    /// The region that the attachment shares with the proxy.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.token().shared().memory
    }

    /// Its open sockets.
    fn sockets(&self) -> MutexGuard<'_, HashMap<Handle, Weak<Inner>>> {
        // Nothing that is done under the lock panics.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What threads of the CPU device use the sockets with.
    pub(crate) fn net(&self) -> Net {
        self.token().net()
    }

    /// The right to a direction that the program has taken.
    ///
    /// # Errors
    /// [`DirectionError::BadHandle`] and [`DirectionError::NotTaken`].
    pub(crate) fn hold(&self, socket: i32, direction: u32) -> Result<Arc<Hold>, DirectionError> {
        let handle = Handle::from_raw(socket).ok_or(DirectionError::BadHandle)?;
        let direction = Direction::from_raw(direction).ok_or(DirectionError::NotTaken)?;
        let inner = self.sockets().get(&handle).cloned();
        let inner = inner.and_then(|inner| inner.upgrade()).ok_or(DirectionError::BadHandle)?;
        inner.hold(direction)
    }
}

impl Drop for HostLaunch {
    fn drop(&mut self) {
        // The attachment has closed its sockets, so there is nothing to reap.
        if let Some(token) = self.token.take() {
            token.release();
        }
    }
}

/// A connected stream of a device, opened by the host program.
///
/// Dropping it closes it; if launches that run know it, when the last of them has ended. What was
/// sent is still delivered. [`Socket::into_handle`] leaves it to the kernels instead.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = attachment.connect(server.local_addr()?, Options::DEFAULT).await?;
/// let parameter = socket.handle().raw(); // for a kernel: Stream::from_handle
/// # assert!(parameter > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Socket {
    inner: Arc<Inner>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

/// What a socket and its taken directions share; the last one closes it.
pub(crate) struct Inner {
    shared: Arc<AttachedDevice>,
    host: Arc<HostLaunch>,
    handle: Handle,
    /// The data thread that moves its bytes, if one does.
    data_thread: Option<u32>,
    transport: TransportKind,
    /// It belongs to the kernels.
    left: AtomicBool,
    /// Where its rings and words lie.
    opened: Opened,
    /// The holder of each direction.
    holders: [Mutex<Holder>; 2],
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.launches().forget_socket(self.handle);
        self.host.sockets().remove(&self.handle);
        if !*self.left.get_mut() {
            self.shared.close_when_unknown(self.handle, &self.host);
        }
    }
}

/// A listening socket of a device, opened by the host program. Kernels accept at it by its handle,
/// as at one of their own ([`gpunet_device::Listener`]), and the host program by
/// [`ListeningSocket::accept`].
///
/// Dropping it closes it; if launches that run know it, when the last of them has ended.
#[derive(Debug)]
pub struct ListeningSocket {
    inner: Arc<Inner>,
    local: SocketAddr,
    options: Options,
}

/// The sockets that the host program opens on a device.
#[derive(Debug)]
pub(crate) struct HostSockets {
    device: Arc<AttachedDevice>,
    /// The launch that they belong to, from the first on. Dropped when they are closed.
    launch: OnceLock<Arc<HostLaunch>>,
}

impl HostSockets {
    pub(crate) const fn new(device: Arc<AttachedDevice>) -> Self {
        Self { device, launch: OnceLock::new() }
    }

    pub(crate) const fn device(&self) -> &Arc<AttachedDevice> {
        &self.device
    }

    /// The launch that the sockets belong to, from the first on.
    pub(crate) fn launch(&self) -> Result<&Arc<HostLaunch>, TooManyLaunches> {
        if let Some(launch) = self.launch.get() {
            return Ok(launch);
        }
        // Streams count as running launches while they have work.
        let token = LaunchToken::number(&self.device)?;
        let launch = Arc::new(HostLaunch {
            id: token.launch(),
            token: Some(token),
            published: Mutex::default(),
            sockets: Mutex::default(),
        });
        let launch = self.launch.get_or_init(|| launch);
        let _ = self.device.host_launch.set(launch.id());
        Ok(launch)
    }

    /// Asks for a socket of these options; `request` is for the slot that it gets.
    fn open(
        &self,
        options: Options,
        mut request: Request,
    ) -> Result<(Opening, Arc<HostLaunch>), SocketError> {
        let host = self.launch()?;
        request.options = options;
        let opening = Opening::ask(&self.device, host, request, |request, handle| {
            (request.slot, request.generation) = (handle.slot(), handle.generation());
        })?;
        Ok((opening, host.clone()))
    }

    fn connecting(
        &self,
        addr: SocketAddr,
        options: Options,
    ) -> Result<(Opening, Arc<HostLaunch>), SocketError> {
        let mut request = Request::new(Op::Connect, 0, 0, 0);
        request.address = SockAddr::from_std(addr);
        self.open(options, request)
    }

    fn listening(
        &self,
        addr: SocketAddr,
        options: Options,
        backlog: u32,
    ) -> Result<(Opening, Arc<HostLaunch>), SocketError> {
        let mut request = Request::new(Op::Bind, 0, 0, 0);
        (request.flags, request.backlog) = (Request::LISTEN, backlog);
        request.address = SockAddr::from_std(addr);
        self.open(options, request)
    }

    /// See [`Attachment::connect`](crate::Attachment::connect).
    pub(crate) fn connect(&self, addr: SocketAddr, options: Options) -> PendingSocket {
        PendingSocket::new(self.connecting(addr, options), options)
    }

    /// See [`Attachment::listen`](crate::Attachment::listen).
    pub(crate) async fn listen(
        &self,
        addr: SocketAddr,
        options: Options,
        backlog: u32,
    ) -> Result<ListeningSocket, SocketError> {
        let (mut opening, host) = self.listening(addr, options, backlog)?;
        let reply = (&mut opening).await?;
        ListeningSocket::new(&self.device, host, opening.handle(), options, &reply)
    }

    /// See [`Attachment::listen_blocking`](crate::Attachment::listen_blocking).
    pub(crate) fn listen_blocking(
        &self,
        addr: SocketAddr,
        options: Options,
        backlog: u32,
    ) -> Result<ListeningSocket, SocketError> {
        let (opening, host) = self.listening(addr, options, backlog)?;
        let (opening, reply) = opening.wait()?;
        ListeningSocket::new(&self.device, host, opening.handle(), options, &reply)
    }
}

impl Inner {
    fn new(
        shared: &Arc<AttachedDevice>,
        host: Arc<HostLaunch>,
        handle: Handle,
        opened: Opened,
        (transport, data_thread): (TransportKind, Option<u32>),
    ) -> Arc<Self> {
        let (shared, left, holders) = (shared.clone(), false.into(), Default::default());
        let inner =
            Self { shared: shared.clone(), host, handle, data_thread, transport, left, opened, holders };
        let inner = Arc::new(inner);
        inner.host.sockets().insert(handle, Arc::downgrade(&inner));
        shared.launches().note_socket(handle);
        inner
    }
}

impl Socket {
    fn new(
        shared: &Arc<AttachedDevice>,
        host: Arc<HostLaunch>,
        handle: Handle,
        options: Options,
        reply: &Reply,
    ) -> Result<Self, SocketError> {
        let descriptor = &reply.descriptor;
        let opened = shared.enter_stream(handle, &host, options, descriptor)?;
        let data_thread = descriptor.link.data_thread();
        let transport = u8::try_from(descriptor.transport).ok().and_then(TransportKind::from_raw);
        let transport = transport.unwrap_or_default();
        Ok(Self {
            inner: Inner::new(shared, host, handle, opened, (transport, data_thread)),
            local: descriptor.local.to_std(),
            peer: descriptor.peer.to_std(),
        })
    }

    /// The handle by which kernels of this device use the socket.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Leaves the socket to the kernels: one of them closes it, or the end of the attachment.
    #[must_use]
    pub fn into_handle(self) -> Handle {
        // Ordering: Relaxed; the count of the `Arc` orders it before the drop.
        self.inner.left.store(true, Ordering::Relaxed);
        self.inner.handle
    }

    /// Returns the transport that carries the stream.
    #[must_use]
    pub fn transport(&self) -> TransportKind {
        self.inner.transport
    }

    /// Returns this end's address.
    ///
    /// # Errors
    /// None in practice: an open stream has addresses.
    pub fn local_addr(&self) -> Result<SocketAddr, SocketError> {
        self.local.ok_or(SocketError::Failed(Error::NotConnected))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// None in practice: an open stream has addresses.
    pub fn peer_addr(&self) -> Result<SocketAddr, SocketError> {
        self.peer.ok_or(SocketError::Failed(Error::NotConnected))
    }
}

impl ListeningSocket {
    fn new(
        shared: &Arc<AttachedDevice>,
        host: Arc<HostLaunch>,
        handle: Handle,
        options: Options,
        reply: &Reply,
    ) -> Result<Self, SocketError> {
        let local = reply.descriptor.local;
        shared.enter_listener(handle, &host, options, local)?;
        let inner = Inner::new(shared, host, handle, Opened::default(), Default::default());
        let local = local.to_std().ok_or(SocketError::Failed(Error::Protocol))?;
        Ok(Self { inner, local, options })
    }

    /// Accepts a connection as a socket of this device.
    ///
    /// Cancel safe: a dropped future has taken no connection, or closes the one that it has just
    /// received. To stop waiting without losing that connection, [abandon](PendingSocket::abandon)
    /// the future.
    ///
    /// # Errors
    /// [`SocketError::TooManyHostSockets`]; [`SocketError::Failed`] with [`Error::BadHandle`], when
    /// a kernel has closed the listener, [`Error::NetworkDown`], or [`Error::Canceled`], when the
    /// attachment is closed or the accept was [abandoned](PendingSocket::abandon).
    pub fn accept(&self) -> PendingSocket {
        let Inner { shared, host, handle, .. } = &*self.inner;
        let opening = table_socket::accepting(shared, host, *handle, self.options);
        PendingSocket::new(opening.map(|opening| (opening, host.clone())), self.options)
    }

    /// As [`ListeningSocket::accept`], blocking until a connection arrives.
    ///
    /// # Errors
    /// As [`ListeningSocket::accept`].
    pub fn accept_blocking(&self) -> Result<Socket, SocketError> {
        self.accept().wait()
    }

    /// The address that it listens at, with the actual port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The handle by which kernels of this device accept at it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Leaves the listener to the kernels: one of them closes it, or the end of the attachment.
    #[must_use]
    pub fn into_handle(self) -> Handle {
        // Ordering: Relaxed; the count of the `Arc` orders it before the drop.
        self.inner.left.store(true, Ordering::Relaxed);
        self.inner.handle
    }
}
