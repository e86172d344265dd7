//! A connection of the operating system: over TCP, or between two processes of one machine.

use super::{Wire, ready};
use rustix::event::PollFlags;
use rustix::io::{Errno, readv};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType, sendmsg, shutdown,
    socketpair, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The kernel takes at most so many pieces in one call (`UIO_MAXIOV`).
const MOST_PIECES: usize = 1024;

/// A socket takes so many bytes of headers and payloads that nobody reads: half of what the kernel
/// gives by default (`net.core.wmem_max`, 208 KiB), of which it counts its own structures, too.
pub(crate) const HELD_BY_A_SOCKET: usize = 104 << 10;

/// A connected stream socket that does not block.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Takes a connection over TCP.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A host that is gone without a word is noticed within half a minute, by whoever waits.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(&stream, 4)?;
        sockopt::set_tcp_user_timeout(&stream, 30_000)?;
        Ok(Self(stream.into()))
    }

    /// Takes one end of a [`pair`](Self::pair).
    pub(crate) fn of_pair(end: OwnedFd) -> Self {
        Self(end)
    }

    /// Makes both ends of a connection between processes of this machine, which is faster than TCP.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
    }
}

impl Wire for Socket {
    fn read(&self, to: &mut [IoSliceMut<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        self.read_soon(to, deadline, Duration::ZERO)
    }

    fn read_soon(
        &self,
        to: &mut [IoSliceMut<'_>],
        deadline: Option<Instant>,
        spin: Duration,
    ) -> io::Result<usize> {
        let until = (!spin.is_zero()).then(|| Instant::now() + spin);
        loop {
            match readv(&self.0, to) {
                Err(Errno::AGAIN) if until.is_some_and(|until| Instant::now() < until) => {
                    std::hint::spin_loop();
                }
                Err(Errno::AGAIN) => ready(&self.0, PollFlags::IN, deadline)?,
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn write(&self, from: &[IoSlice<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        self.write_soon(from, deadline, Duration::ZERO)
    }

    fn write_soon(
        &self,
        from: &[IoSlice<'_>],
        deadline: Option<Instant>,
        spin: Duration,
    ) -> io::Result<usize> {
        let from = &from[..from.len().min(MOST_PIECES)];
        let until = (!spin.is_zero()).then(|| Instant::now() + spin);
        loop {
            // A program in another language may not ignore SIGPIPE.
            match sendmsg(&self.0, from, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) if until.is_some_and(|until| Instant::now() < until) => {
                    std::hint::spin_loop();
                }
                Err(Errno::AGAIN) => ready(&self.0, PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn shut_down(&self) {
        // Fails only if the other end has done it.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
