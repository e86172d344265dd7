//! Plain sockets that threads of this process use: the references of measurements whose two ends are both in this process.

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

/// No call of a blocking socket waits longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a socket is.
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
    /// Listens on this machine at an address that nobody else uses.
    pub fn new(kind: Kind) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let listener = match kind {
            Kind::Tcp => Self::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
            Kind::Unix => {
                // Ordering: Relaxed; only the numbers are to differ.
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let name = abstract_name(&format!("gpunet-bench-{}.{count}", std::process::id()))?;
                Self::Unix(UnixListener::bind_addr(&name)?)
            }
        };
        // Of accept, too.
        let fd = match &listener {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        };
        set_socket_timeout(fd, Timeout::Recv, Some(PATIENCE))?;
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
            Self::Tcp(listener) => Socket::Tcp(listener.accept()?.0).patient(),
            Self::Unix(listener) => Socket::Unix(listener.accept()?.0).patient(),
        }
    }
}

impl Socket {
    pub fn connect(addr: &ListenAddr) -> Result<Self> {
        match addr {
            ListenAddr::Tcp(addr) => Self::Tcp(TcpStream::connect(addr)?).patient(),
            ListenAddr::Unix(name) => Self::Unix(UnixStream::connect_addr(name)?).patient(),
        }
    }

    /// So many connections with both their ends: those that connected first.
    pub fn pairs(kind: Kind, count: usize) -> Result<Vec<[Self; 2]>> {
        let listener = Listener::new(kind)?;
        let addr = listener.local_addr()?;
        // A backlog has room for the one.
        (0..count).map(|_| Ok([Self::connect(&addr)?, listener.accept()?])).collect()
    }

    /// Its waits end.
    fn patient(self) -> Result<Self> {
        match &self {
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
            }
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
            }
        }
        Ok(self)
    }

    /// Calls spin from now on, or block.
    pub fn spin(&self, spin: bool) -> Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_nonblocking(spin),
            Self::Unix(socket) => socket.set_nonblocking(spin),
        }
    }

    /// What is there, at most a message; 0 at the end. An error after the patience is over.
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
                    if start.elapsed() > PATIENCE {
                        return Err(error);
                    }
                    spin(few);
                }
                result => return result,
            }
        }
    }

    /// Fills a message; false at the end.
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

    /// Sends a message: a small one where sockets spin.
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

    /// The nanoseconds of a round trip.
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

/// A Unix-domain name that is no file: it is gone with the socket, however the program ends.
pub fn abstract_name(name: &str) -> Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(name)
}

/// Says whether two ends that spin, and what else runs, have no core each.
pub fn are_cores_few() -> bool {
    static FEW: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from) < 4);
    *FEW
}

/// Between two looks: where cores are few the other end may need this one.
fn spin(few: bool) {
    if few {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// A thread of this process, if the system gives it one.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, body)
}

/// What a thread of this process returns.
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
