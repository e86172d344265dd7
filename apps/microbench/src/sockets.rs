//! Plain sockets of threads in this process: the references for measurements with both ends in this
//! process.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener, UnixStream};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The timeout of every call of a blocking socket.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tcp,
    Unix,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "plain TCP",
            Self::Unix => "Unix sockets",
        }
    }
}

/// A connected socket.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A listening socket.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listener's address.
#[derive(Clone, Debug)]
pub enum ListenAddr {
    Tcp(SocketAddr),
    Unix(net::SocketAddr),
}

impl Listener {
    /// Listens on this machine at an unused address.
    pub fn new(kind: Kind) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let listener = match kind {
            Kind::Tcp => Self::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
            Kind::Unix => {
                // Ordering: Relaxed; the numbers only need to differ.
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let name = abstract_name(&format!("gpunet-bench-{}.{count}", std::process::id()))?;
                Self::Unix(UnixListener::bind_addr(&name)?)
            }
        };
        // The timeout also applies to accept.
        let fd = match &listener {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        };
        set_socket_timeout(fd, Timeout::Recv, Some(TIMEOUT))?;
        Ok(listener)
    }

    pub fn local_addr(&self) -> Result<ListenAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddr::Tcp),
            Self::Unix(listener) => listener.local_addr().map(ListenAddr::Unix),
        }
    }

    pub fn accept(&self) -> Result<Socket> {
        match self {
            Self::Tcp(listener) => Socket::Tcp(listener.accept()?.0).with_timeouts(),
            Self::Unix(listener) => Socket::Unix(listener.accept()?.0).with_timeouts(),
        }
    }
}

impl Socket {
    pub fn connect(addr: &ListenAddr) -> Result<Self> {
        match addr {
            ListenAddr::Tcp(addr) => Self::Tcp(TcpStream::connect(addr)?).with_timeouts(),
            ListenAddr::Unix(name) => Self::Unix(UnixStream::connect_addr(name)?).with_timeouts(),
        }
    }

    /// Makes `count` connections. Returns both ends of each, the connecting one first.
    pub fn pairs(kind: Kind, count: usize) -> Result<Vec<[Self; 2]>> {
        let listener = Listener::new(kind)?;
        let addr = listener.local_addr()?;
        // The backlog has room for this one.
        (0..count).map(|_| Ok([Self::connect(&addr)?, listener.accept()?])).collect()
    }

    /// Sets the timeouts of its calls.
    fn with_timeouts(self) -> Result<Self> {
        match &self {
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(TIMEOUT))?;
                socket.set_write_timeout(Some(TIMEOUT))?;
            }
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(TIMEOUT))?;
                socket.set_write_timeout(Some(TIMEOUT))?;
            }
        }
        Ok(self)
    }

    /// Sets whether calls spin or block from now on.
    pub fn spin(&self, spin: bool) -> Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_nonblocking(spin),
            Self::Unix(socket) => socket.set_nonblocking(spin),
        }
    }

    /// Receives at most a message. Returns 0 at the end, and an error after the timeout.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize> {
        let (mut start, few) = (None, are_cores_few());
        loop {
            let result = match self {
                Self::Tcp(socket) => socket.read(into),
                Self::Unix(socket) => socket.read(into),
            };
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let start = start.get_or_insert_with(Instant::now);
                    if start.elapsed() > TIMEOUT {
                        return Err(error);
                    }
                    spin(few);
                }
                result => return result,
            }
        }
    }

    /// Fills a message. Returns false at the end.
    pub fn receive_all(&mut self, message: &mut [u8]) -> Result<bool> {
        let mut have = 0;
        while have < message.len() {
            match self.receive(&mut message[have..])? {
                0 if have == 0 => return Ok(false),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => have += n,
            }
        }
        Ok(true)
    }

    /// Sends a message, which must be small if sockets spin.
    pub fn send_all(&mut self, message: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(socket) => socket.write_all(message),
            Self::Unix(socket) => socket.write_all(message),
        }
    }

    /// Sends back messages of `size` bytes, until the end.
    pub fn echo(&mut self, size: usize) -> Result<()> {
        let mut message = vec![0; size];
        while self.receive_all(&mut message)? {
            self.send_all(&message)?;
        }
        Ok(())
    }

    /// Returns the nanoseconds of a round trip.
    pub fn round_trip(&mut self, message: &mut [u8]) -> Result<u64> {
        let start = Instant::now();
        self.send_all(message)?;
        if !self.receive_all(message)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(start.elapsed().as_nanos() as u64)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// An abstract Unix-domain name: it disappears with the socket, however the program ends.
pub fn abstract_name(name: &str) -> Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(name)
}

/// Returns whether there are too few cores for two spinning ends and the other threads.
pub fn are_cores_few() -> bool {
    static FEW: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from) < 4);
    *FEW
}

/// Spins between two polls. If cores are few, it yields this one, which the other end may need.
pub fn spin(few: bool) {
    if few {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Starts a thread of this process.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, body)
}

/// Waits for a thread and returns its result.
pub fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| Error::other("a thread panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_connected_and_echo() {
        for kind in [Kind::Tcp, Kind::Unix] {
            for [mut near, mut far] in Socket::pairs(kind, 2).unwrap() {
                std::thread::scope(|scope| {
                    let echo = scope.spawn(move || far.echo(64));
                    let mut message = [7; 64];
                    near.round_trip(&mut message).unwrap();
                    assert_eq!(message, [7; 64]);
                    drop(near);
                    join(echo).unwrap();
                });
            }
        }
    }
}
