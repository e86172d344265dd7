//! TCP: any program in the world is the other end.
//!
//! Ring memory goes to and comes from the kernel by vectored calls, without a buffer between; `raw`
//! has those calls.

#[allow(unsafe_code)]
mod raw;

use super::{Accepted, Bound, Connect, Connecting, Listen, Opened, StreamIo, Transport};
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Options, RingSpan};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The TCP transport.
#[derive(Debug)]
pub struct Tcp;

impl Transport for Tcp {
    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn listen(&self, bound: &Bound, backlog: u32) -> io::Result<Box<dyn Listen>> {
        let socket = Socket::from(bound.socket.try_clone()?);
        // Accepted sockets have the options of the socket that listens when their connection comes.
        set_options(&socket, &bound.options)?;
        socket.listen(backlog.clamp(1, i32::MAX as u32) as i32)?;
        let local = Some(bound.addr).filter(|addr| !addr.ip().is_unspecified());
        Ok(Box::new(TcpListening { listener: socket.into(), local, is_empty: false }))
    }

    fn connect(&self, request: Connect) -> Connecting {
        Connecting::Pending(Box::pin(connect(request)))
    }
}

/// Takes `addr` for a later listen or connect. Port 0 takes any free port.
///
/// # Errors
/// As socket(2) and bind(2).
pub fn bind(addr: SocketAddr, options: Options) -> io::Result<Bound> {
    let socket = new_socket(addr)?;
    socket.set_reuse_address(options.has(Options::REUSEADDR))?;
    if addr.is_ipv6() {
        socket.set_only_v6(options.has(Options::V6ONLY))?;
    }
    socket.bind(&addr.into())?;
    let addr = local_addr(&socket)?;
    Ok(Bound { socket: socket.into(), addr, options })
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn local_addr(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

async fn connect(request: Connect) -> io::Result<Opened> {
    let socket = match request.from {
        Some(bound) => Socket::from(bound.socket.try_clone()?),
        None => new_socket(request.to)?,
    };
    let stream = tokio::net::TcpSocket::from_std_stream(socket.into()).connect(request.to).await?;
    let peer = stream.peer_addr()?;
    open(stream.into_std()?, peer, &request.options)
}

fn open(stream: TcpStream, peer: SocketAddr, options: &Options) -> io::Result<Opened> {
    stream.set_nonblocking(true)?;
    let local = stream.local_addr()?;
    set_options(&stream, options)?;
    Ok(opened(stream, local, peer))
}

fn set_options(socket: &impl AsFd, options: &Options) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(options.has(Options::NODELAY))?;
    socket.set_keepalive(options.has(Options::KEEPALIVE))
}

fn opened(stream: TcpStream, local: SocketAddr, peer: SocketAddr) -> Opened {
    let io = TcpIo { stream, shut: false, completed: 0 };
    Opened { kind: TransportKind::Tcp, io: Box::new(io), local, peer }
}

struct TcpListening {
    listener: TcpListener,
    /// The address of this end, unless it differs from connection to connection.
    local: Option<SocketAddr>,
    /// No connection waited at the last look, and none has been announced since.
    is_empty: bool,
}

impl TcpListening {
    /// Takes a connection. It has the options of the listener (tcp(7), socket(7): Linux copies
    /// them).
    fn take(&self) -> io::Result<Opened> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (stream, peer) = acceptfrom_with(&self.listener, flags)?;
        let stream = TcpStream::from(stream);
        // The address that accept(2) gives: a connection that was reset in the backlog has none
        // any more, but still what was sent on it before.
        let peer =
            peer.and_then(|peer| SocketAddr::try_from(peer).ok()).ok_or(io::ErrorKind::NotConnected)?;
        let local = self.local.map_or_else(|| stream.local_addr(), Ok)?;
        Ok(opened(stream, local, peer))
    }
}

impl Listen for TcpListening {
    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn accept(&mut self) -> io::Result<Accepted> {
        loop {
            match self.take() {
                Ok(opened) => return Ok(Accepted::Driven(opened)),
                // The client was gone before it was accepted: the next one is as good.
                Err(e) if is_aborted(&e) => {}
                Err(e) => {
                    self.is_empty = e.kind() == io::ErrorKind::WouldBlock;
                    return Err(e);
                }
            }
        }
    }

    fn ready(&mut self) -> u64 {
        if !self.is_empty {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
            let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            self.is_empty = !matches!(poll(&mut fds, Some(&none)), Ok(n) if n > 0);
        }
        u64::from(!self.is_empty)
    }

    fn may_be_ready(&mut self) -> bool {
        !self.is_empty
    }

    fn handle_readable(&mut self) {
        self.is_empty = false;
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.listener.as_fd())
    }
}

impl Drop for TcpListening {
    fn drop(&mut self) {
        // Other descriptors of the same socket (the one that is watched) may live a little longer;
        // on Linux this ends the listening, and frees the address, for all of them. It fails only
        // on what does not listen.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Read);
    }
}

fn is_aborted(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | NotConnected)
        || error.raw_os_error() == Some(libc::EPROTO)
}

struct TcpIo {
    stream: TcpStream,
    /// The end of the stream was sent, or waits behind the bytes.
    shut: bool,
    /// Bytes sent that `completed` has not reported yet: the kernel has a copy of its own.
    completed: u64,
}

impl StreamIo for TcpIo {
    fn offer(&mut self, span: RingSpan) -> io::Result<usize> {
        let sent = raw::send(self.stream.as_fd(), span)?;
        self.completed += sent as u64;
        Ok(sent)
    }

    fn completed(&mut self) -> u64 {
        std::mem::take(&mut self.completed)
    }

    fn take(&mut self, span: RingSpan) -> io::Result<usize> {
        raw::recv(self.stream.as_fd(), span)
    }

    fn discard(&mut self) -> io::Result<usize> {
        let mut scratch = [0; 16 * 1024];
        io::Read::read(&mut self.stream, &mut scratch)
    }

    fn failure(&mut self) -> Option<io::Error> {
        self.stream.take_error().ok().flatten()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.shut = true;
        match self.stream.shutdown(Shutdown::Write) {
            // The peer reset the connection: the next read or write reports it.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    fn reset(&mut self) {
        // Fails only on a descriptor that is no socket.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    fn set_options(&mut self, options: &Options) -> io::Result<()> {
        set_options(&self.stream, options)
    }

    fn unacknowledged(&self) -> u64 {
        // tcp(7) counts the end of the stream as one more.
        raw::out_queue(self.stream.as_fd()).saturating_sub(u64::from(self.shut))
    }

    fn readiness(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.stream.as_fd()), None]
    }
}
