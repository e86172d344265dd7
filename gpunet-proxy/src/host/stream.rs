//! Streams of host programs, as tokio reads and writes them. `ready` has their other calls:
//! readiness and peeking, and calls that do not wait.

mod ready;

use super::ask::tell;
use super::bytes::{Receiving, SOLO, Sending};
use super::reactor::WaitId;
use super::waiter::{Changes, Waiter};
use super::{Core, io_error};
use gpunet_abi::control::Descriptor;
use gpunet_device::cpu::deferred;
use gpunet_device::cpu::watch::Watch;
use gpunet_device::{Error, Handle, TransportKind};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// A connected stream.
///
/// A write copies the bytes into the stream's ring, publishes them at once, and returns; so there
/// is nothing to flush. Shutting down ends the stream in this direction: the peer reads the end
/// after the data. Dropping the stream closes it without blocking: what was written is still
/// delivered, for as long as linger allows.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = gpunet_proxy::embed(gpunet_proxy::Config::small())?.host()?;
/// # let listener = host.bind("127.0.0.1:0".parse()?, Options::DEFAULT, 128).await?;
/// # let addr = listener.local_addr()?;
/// let (mut client, (mut server, _)) =
///     tokio::try_join!(host.connect(addr, Options::DEFAULT), listener.accept())?;
/// client.write_all(b"question").await?;
/// client.shutdown().await?; // the server reads the end after the question
///
/// let mut question = String::new();
/// server.read_to_string(&mut question).await?;
/// assert_eq!(question, "question");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading half of a [`Stream`].
///
/// # Examples
/// ```no_run
/// use tokio::io::AsyncReadExt;
///
/// # async fn read(stream: gpunet_proxy::host::Stream) -> std::io::Result<()> {
/// let (mut read, write) = stream.into_split();
/// let mut header = [0; 16];
/// read.read_exact(&mut header).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReadHalf {
    ring: Receiving,
    seat: Seat,
}

/// The writing half of a [`Stream`]. Dropping it ends the stream in this direction.
///
/// # Examples
/// ```no_run
/// use tokio::io::AsyncWriteExt;
///
/// # async fn write(stream: gpunet_proxy::host::Stream) -> std::io::Result<()> {
/// let (read, mut write) = stream.into_split();
/// write.write_all(b"the last message").await?;
/// drop(write); // the peer reads the end; `read` stays open
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WriteHalf {
    ring: Sending,
    /// The halves have different owners.
    apart: bool,
    seat: Seat,
}

/// What both halves share; the last one closes it.
#[derive(Debug)]
struct Socket {
    core: Arc<Core>,
    handle: Handle,
    transport: TransportKind,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

/// A half's registration with the reactor, and what threads that wait for it look at.
#[derive(Debug)]
struct Seat {
    id: WaitId,
    changes: Changes,
    socket: Arc<Socket>,
}

impl Socket {
    fn local(&self) -> Result<SocketAddr, Error> {
        self.local.ok_or(Error::NotConnected)
    }

    fn peer(&self) -> Result<SocketAddr, Error> {
        self.peer.ok_or(Error::NotConnected)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Both halves are gone, and what they did happened before (the count of the `Arc`): the
        // table has their positions.
        if let Ok(close) = deferred::close(self.core.net, self.handle) {
            tell(&self.core.shared, close);
        }
    }
}

impl Seat {
    fn new(socket: &Arc<Socket>) -> Self {
        Self { id: socket.core.reactor.id(), changes: Changes::default(), socket: socket.clone() }
    }

    fn waiter(&self, watch: Watch) -> Waiter {
        Waiter::new(&self.socket.core, &self.changes, watch)
    }

    /// Makes a non-blocking call, and registers the task if the call would block.
    fn poll<R, T>(
        &self,
        cx: &mut Context<'_>,
        ring: &mut R,
        watch: impl Fn(&R) -> Watch,
        mut call: impl FnMut(&mut R) -> Result<T, Error>,
    ) -> Poll<io::Result<T>> {
        // A stream that is always ready must let other tasks run, as tokio's own do.
        let coop = ready!(coop::poll_proceed(cx));
        let reactor = &self.socket.core.reactor;
        let result = match call(ring) {
            Err(Error::WouldBlock) => match reactor.register(self.id, Some(watch(ring)), cx.waker()) {
                // Called again after the registration: see `reactor`.
                Ok(()) => match call(ring) {
                    Err(Error::WouldBlock) => return Poll::Pending,
                    result => result,
                },
                Err(fault) => Err(fault),
            },
            result => result,
        };
        coop.made_progress();
        Poll::Ready(result.map_err(io_error))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.socket.core.reactor.forget(self.id);
    }
}

impl Stream {
    pub(super) fn new(core: &Arc<Core>, stream: gpunet_device::Stream, descriptor: &Descriptor) -> Self {
        let transport = u8::try_from(descriptor.transport).ok().and_then(TransportKind::from_raw);
        let socket = Arc::new(Socket {
            core: core.clone(),
            handle: stream.handle(),
            transport: transport.unwrap_or_default(),
            local: descriptor.local.to_std(),
            peer: descriptor.peer.to_std(),
        });
        // What these halves have no call for that does not wait is then one: see `bytes`. It fails
        // only for a stale handle.
        let _ = gpunet_posix::ioctl::nonblocking(&SOLO, core.net, socket.handle.raw(), true);
        let (send, recv) = stream.split();
        Self {
            read: ReadHalf { ring: Receiving::new(recv), seat: Seat::new(&socket) },
            write: WriteHalf { ring: Sending::new(send), apart: false, seat: Seat::new(&socket) },
        }
    }

    fn socket(&self) -> &Socket {
        &self.read.seat.socket
    }

    /// The peer's address.
    pub(super) fn peer(&self) -> Result<SocketAddr, Error> {
        self.socket().peer()
    }

    /// Returns this end's address.
    ///
    /// # Errors
    /// None in practice: an open stream has addresses. The signature is that of tokio's streams.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket().local().map_err(io_error)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// None in practice, as [`Stream::local_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer().map_err(io_error)
    }

    /// Returns the transport that carries the stream.
    #[must_use]
    pub fn transport(&self) -> TransportKind {
        self.socket().transport
    }

    /// Borrows the two halves, for use within one task.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn echo(mut stream: gpunet_proxy::host::Stream) -> std::io::Result<()> {
    /// let (read, write) = stream.split();
    /// let bytes = tokio::io::copy(read, write).await?;
    /// println!("{bytes} bytes echoed");
    /// # Ok(())
    /// # }
    /// ```
    pub const fn split(&mut self) -> (&mut ReadHalf, &mut WriteHalf) {
        (&mut self.read, &mut self.write)
    }

    /// Splits the stream into owned halves, for two tasks. The stream is closed when both are
    /// dropped.
    ///
    /// # Examples
    /// ```no_run
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # async fn exchange(stream: gpunet_proxy::host::Stream) -> Result<(), Box<dyn std::error::Error>> {
    /// let (mut read, mut write) = stream.into_split();
    /// let sender = tokio::spawn(async move { write.write_all(b"requests").await });
    /// let mut answers = Vec::new();
    /// read.read_to_end(&mut answers).await?;
    /// sender.await??;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_split(mut self) -> (ReadHalf, WriteHalf) {
        self.write.apart = true;
        (self.read, self.write)
    }

    /// Joins the two halves of a stream.
    ///
    /// # Errors
    /// Returns the halves, when they belong to different streams.
    ///
    /// # Examples
    /// ```no_run
    /// # use gpunet_proxy::host::Stream;
    /// # fn reunite(stream: Stream) {
    /// let (read, write) = stream.into_split();
    /// let stream = Stream::reunite(read, write).expect("the halves of one stream");
    /// # }
    /// ```
    pub fn reunite(read: ReadHalf, mut write: WriteHalf) -> Result<Self, Box<(ReadHalf, WriteHalf)>> {
        if !Arc::ptr_eq(&read.seat.socket, &write.seat.socket) {
            return Err(Box::new((read, write)));
        }
        write.apart = false;
        Ok(Self { read, write })
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        self.seat.changes.tell(&self.ring.watch());
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // As part of a stream it leaves that to the close, which may be a reset.
        if self.apart {
            self.ring.finish();
        }
        self.seat.changes.tell(&self.ring.watch());
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { ring, seat } = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        seat.poll(cx, ring, Receiving::watch, |ring| ring.receive(buf))
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { ring, seat, .. } = self.get_mut();
        seat.poll(cx, ring, Sending::watch, |ring| ring.send(bytes))
    }

    /// Does nothing: a write has published its bytes when it returns.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the stream in this direction: the peer reads the end after the data.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().finish();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().read).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_shutdown(cx)
    }
}
