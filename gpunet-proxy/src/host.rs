//! Sockets for programs of the host, on tokio.
//!
//! A [`Host`] is the CPU as a device: its tasks connect, bind and accept, and its [`Stream`]s are
//! tokio's `AsyncRead` and `AsyncWrite`. So a CPU program is the other end of any stream that a
//! kernel has, over every transport:
//!
//! | transport | between |
//! |---|---|
//! | `tcp` | any two programs |
//! | `rc` | two hosts with RDMA: the peer is a proxy, or a program that uses rsockets |
//! | `peer` | two sockets under one proxy: tasks and kernels, on CPU and GPU, of this program or of another one under the same daemon |
//!
//! The futures run on any flavour of tokio's runtime, and on other executors. They never block. All
//! of them are cancel safe: a dropped future has moved no bytes, taken no connection, and keeps no
//! slot.
//!
//! ```
//! use gpunet_proxy::abi::Options;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
//! let host = proxy.host()?;
//! let listener = host.bind("127.0.0.1:0".parse()?, Options::DEFAULT, 128).await?;
//! let addr = listener.local_addr()?;
//!
//! let server = tokio::spawn(async move {
//!     let (mut stream, _) = listener.accept().await?;
//!     let (mut read, mut write) = stream.split();
//!     tokio::io::copy(&mut read, &mut write).await?;
//!     write.shutdown().await
//! });
//! let mut client = host.connect(addr, Options::DEFAULT).await?;
//! client.write_all(b"hello").await?;
//! client.shutdown().await?;
//! let mut back = Vec::new();
//! client.read_to_end(&mut back).await?;
//! assert_eq!(back, b"hello");
//! server.await??;
//! # drop(client);
//! # assert_eq!(host.close().await.undelivered, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! The sockets are those of a CPU attachment: rings, words and slots are as a kernel's, and a read
//! or write is the device's own non-blocking call. Requests (connect, accept, close) go to the
//! control plane as messages, because a caller would have to wait for a control slot. The module
//! `reactor` says who wakes a task, and why no wake-up is lost.
//!
//! | file | holds |
//! |---|---|
//! | `host` | [`Host`] |
//! | `stream`, `listener` | [`Stream`] and its halves; [`Listener`] |
//! | `ask` | requests to the control plane as futures |
//! | `reactor` | the thread that wakes tasks |
//! | `waiter`, `blocking` | waits of threads; streams whose calls block |
//! | `bytes` | rings and the memory of programs |

mod ask;
mod blocking;
#[allow(unsafe_code)]
mod bytes;
mod listener;
mod reactor;
mod stream;
mod waiter;

pub use blocking::Blocking;
pub use listener::Listener;
pub use stream::{ReadHalf, Stream, WriteHalf};
pub use waiter::Waiter;

use crate::attached::device::{AttachedDevice, CloseReport, OwnedDevice, close_on_thread};
use crate::launch::token::LaunchToken;
use crate::model::attachment_state::{Stats, Usage};
use crate::model::error::AttachError;
use crate::socket::SocketError;
use ask::Asking;
use gpu_usermap::threads;
use gpunet_device::cpu::deferred::Opening;
use gpunet_device::{Error, Net, Options, SockAddr};
use reactor::Reactor;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The sockets of a host program. Clones share them.
///
/// They live until the last clone and the last socket are dropped. That drop closes the attachment
/// behind them; outside of a tokio runtime it blocks, as dropping an
/// [`Attachment`](crate::Attachment) does. [`Host::close`] waits until what was written is
/// delivered.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
/// use gpunet_proxy::{Config, embed};
/// use tokio::io::AsyncWriteExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = embed(Config::small())?.host()?;
/// let listener = host.bind("127.0.0.1:0".parse()?, Options::DEFAULT, 128).await?;
/// let (mut client, accepted) =
///     tokio::try_join!(host.connect(listener.local_addr()?, Options::DEFAULT), listener.accept())?;
/// client.write_all(b"hello").await?;
/// # drop((client, accepted));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    core: Arc<Core>,
}

/// What a host's sockets share.
#[derive(Debug)]
struct Core {
    net: Net,
    reactor: Arc<Reactor>,
    shared: Arc<AttachedDevice>,
    /// `None` once it is given back, by drop.
    token: Option<LaunchToken>,
    /// The attachment, if it is the host's own and not yet closed. Dropped last.
    own: Mutex<Option<OwnedDevice>>,
}

/// An error of the device API as tokio's traits have it.
fn io_error(error: Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

impl Host {
    /// See [`Attachment::host`](crate::Attachment::host).
    pub(crate) fn start(device: &Arc<AttachedDevice>) -> Result<Self, AttachError> {
        if device.cuda().is_some() {
            return Err(AttachError::HostOnGpu);
        }
        let token = LaunchToken::take(device)?;
        let (net, shared) = (token.net(), device.clone());
        let reactor = Arc::new(Reactor::new(net));
        let (looker, keep) = (reactor.clone(), shared.clone());
        let look = move || {
            looker.run();
            // The words that it looked at were mapped until now.
            drop(keep);
        };
        threads::spawn("gpunet-host", look).map_err(AttachError::Thread)?;
        Ok(Self { core: Arc::new(Core { net, reactor, shared, token: Some(token), own: Mutex::new(None) }) })
    }

    /// Makes the attachment the host's own: it ends with the last socket.
    pub(crate) fn keep(&self, own: OwnedDevice) {
        *self.core.own() = Some(own);
    }

    /// Connects to `addr`.
    ///
    /// The time limits in the options are for kernels; a task uses `tokio::time::timeout`.
    ///
    /// # Errors
    /// [`SocketError::TooManySockets`], [`SocketError::TooManyFiles`], [`SocketError::NoBuffers`];
    /// [`SocketError::Failed`] with ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, ETIMEDOUT, EINVAL
    /// (options), EOPNOTSUPP (no such transport here), ENETDOWN or ECANCELED.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::abi::{Options, TransportKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = gpunet_proxy::embed(gpunet_proxy::Config::small())?.host()?;
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let options = Options::DEFAULT.with_transport(TransportKind::Tcp);
    /// let stream = host.connect(server.local_addr()?, options).await?;
    /// assert_eq!(stream.peer_addr()?, server.local_addr()?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(&self, addr: SocketAddr, options: Options) -> Result<Stream, SocketError> {
        let opening = Opening::connect(self.core.net, SockAddr::from_std(addr), options)?;
        let reply = Asking::new(&self.core, opening).await?;
        let stream = opening.stream(&reply)?;
        Ok(Stream::new(&self.core, stream, &reply.descriptor))
    }

    /// Listens at `addr`; port 0 takes a free one. Accepted streams inherit the options.
    ///
    /// # Errors
    /// [`SocketError::TooManySockets`], [`SocketError::TooManyFiles`]; [`SocketError::NoBuffers`],
    /// when the proxy can never have such rings; [`SocketError::Failed`] with EADDRINUSE,
    /// EADDRNOTAVAIL, EACCES, EINVAL, EOPNOTSUPP, ENETDOWN or ECANCELED.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::abi::Options;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = gpunet_proxy::embed(gpunet_proxy::Config::small())?.host()?;
    /// let listener = host.bind("127.0.0.1:0".parse()?, Options::DEFAULT, 128).await?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn bind(
        &self,
        addr: SocketAddr,
        options: Options,
        backlog: u32,
    ) -> Result<Listener, SocketError> {
        let addr = SockAddr::from_std(addr);
        let opening = Opening::bind(self.core.net, addr, options, backlog)?;
        let reply = Asking::new(&self.core, opening).await?;
        Listener::new(&self.core, opening.listener(&reply)?)
    }

    /// Returns the totals of the attachment behind it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.shared.link.stats()
    }

    /// Returns what the attachment behind it holds. Blocks for a turn of the control thread.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.core.shared.link.usage()
    }

    /// Closes all sockets of [`Proxy::host`](crate::Proxy::host) and of its clones, and waits until
    /// what was written is delivered, for at most [`Config::linger`](crate::Config::linger). Calls
    /// on sockets that are still open fail with ECANCELED.
    ///
    /// A host made by [`Attachment::host`](crate::Attachment::host) closes nothing; close the
    /// attachment instead.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = gpunet_proxy::embed(gpunet_proxy::Config::small())?.host()?;
    /// let report = host.close().await;
    /// assert_eq!((report.undelivered, report.unfinished), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) -> CloseReport {
        let own = self.core.own().take();
        match own {
            Some(own) => close_on_thread(move || own.close()).await,
            None => CloseReport::default(),
        }
    }
}

impl Core {
    fn own(&self) -> std::sync::MutexGuard<'_, Option<OwnedDevice>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.reactor.stop();
        // It keeps the attachment's memory, and may keep the proxy: no sleep delays its end.
        self.shared.memory.bump_epoch(None);
        // The sockets have closed themselves, so there is nothing to reap and to wait for.
        if let Some(token) = self.token.take() {
            token.release();
        }
    }
}
