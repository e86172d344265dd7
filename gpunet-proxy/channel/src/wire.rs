//! A connection of a channel: bytes in order, in both directions at once, with deadlines.

use crate::error::{ChannelError, errno_of};
use gpunet_proxy::host::{ReadHalf, Stream, WriteHalf};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection. One thread reads while another one writes.
pub(crate) trait Wire: Send + Sync {
    /// Reads some bytes; 0 at the end. Blocks until some are there.
    ///
    /// # Errors
    /// `TimedOut` at the deadline, or what the connection failed with.
    fn read(&self, to: &mut [IoSliceMut<'_>], deadline: Option<Instant>) -> io::Result<usize>;

    /// As [`read`](Self::read), but polls for `spin` before it sleeps: for what is due in
    /// microseconds.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn read_soon(
        &self,
        to: &mut [IoSliceMut<'_>],
        deadline: Option<Instant>,
        _spin: Duration,
    ) -> io::Result<usize> {
        self.read(to, deadline)
    }

    /// Writes some of the bytes. Blocks until there is room for some.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn write(&self, from: &[IoSlice<'_>], deadline: Option<Instant>) -> io::Result<usize>;

    /// Ends both directions, here and at the other end; whoever waits in a call returns.
    fn shut_down(&self);

    /// The descriptor that is readable when [`read`](Self::read) does not wait, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Reads all bytes that the pieces have room for.
///
/// # Errors
/// `UnexpectedEof` if the connection ends before, and what [`Wire::read`] fails with.
pub(crate) fn read_all(
    wire: &dyn Wire,
    mut to: &mut [IoSliceMut<'_>],
    deadline: Option<Instant>,
) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut to, 0);
    while !to.is_empty() {
        match wire.read(to, deadline)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => IoSliceMut::advance_slices(&mut to, n),
        }
    }
    Ok(())
}

/// Reads all bytes that `to` has room for.
///
/// # Errors
/// As [`read_all`].
pub(crate) fn read_exact(wire: &dyn Wire, to: &mut [u8], deadline: Option<Instant>) -> io::Result<()> {
    read_all(wire, &mut [IoSliceMut::new(to)], deadline)
}

/// Reads all bytes that `to` has room for, the first of which are due soon.
///
/// # Errors
/// As [`read_all`].
pub(crate) fn read_exact_soon(
    wire: &dyn Wire,
    to: &mut [u8],
    deadline: Option<Instant>,
    spin: Duration,
) -> io::Result<()> {
    match wire.read_soon(&mut [IoSliceMut::new(to)], deadline, spin)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => read_exact(wire, &mut to[n..], deadline),
    }
}

/// Writes all bytes.
///
/// # Errors
/// What [`Wire::write`] fails with.
pub(crate) fn write_all(
    wire: &dyn Wire,
    mut from: &mut [IoSlice<'_>],
    deadline: Option<Instant>,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut from, 0);
    while !from.is_empty() {
        match wire.write(from, deadline)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut from, n),
        }
    }
    Ok(())
}

/// Waits until a descriptor is ready.
pub(crate) fn ready(fd: impl AsFd, events: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let limit = left.map(timespec);
        match poll(&mut [PollFd::new(&fd, events)], limit.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    // More seconds than a poll takes are as good as no limit.
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX).min(1 << 30);
    Timespec { tv_sec, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// A connection of the operating system.
pub(crate) struct Tcp(TcpStream);

impl Tcp {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A host that is gone without a word is noticed within half a minute, by whoever waits.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(&stream, 4)?;
        sockopt::set_tcp_user_timeout(&stream, 30_000)?;
        Ok(Self(stream))
    }
}

impl Wire for Tcp {
    fn read(&self, to: &mut [IoSliceMut<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match (&self.0).read_vectored(to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready(&self.0, PollFlags::IN, deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn read_soon(
        &self,
        to: &mut [IoSliceMut<'_>],
        deadline: Option<Instant>,
        spin: Duration,
    ) -> io::Result<usize> {
        let until = Instant::now() + spin;
        loop {
            match (&self.0).read_vectored(to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::hint::spin_loop();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.read(to, deadline),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write(&self, from: &[IoSlice<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match (&self.0).write_vectored(from) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready(&self.0, PollFlags::OUT, deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn shut_down(&self) {
        // Fails only if the other end has done it.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// A stream of gpunet's, over any transport.
pub(crate) struct Hosted {
    read: Mutex<ReadHalf>,
    write: Mutex<WriteHalf>,
    /// The threads that wait in a read and in a write.
    waiting: [Mutex<Option<Thread>>; 2],
    closed: AtomicBool,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hosted {
    pub(crate) fn new(stream: Stream) -> Self {
        let (read, write) = stream.into_split();
        let waiting = [Mutex::new(None), Mutex::new(None)];
        Self { read: Mutex::new(read), write: Mutex::new(write), waiting, closed: AtomicBool::new(false) }
    }

    /// Calls `call` until it is ready; sleeps meanwhile.
    fn wait<T>(
        &self,
        direction: usize,
        deadline: Option<Instant>,
        mut call: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        *lock(&self.waiting[direction]) = Some(thread::current());
        let result = loop {
            // Ordering: SeqCst; pairs with the store in `shut_down`, which unparks whoever is
            // registered then: the thread sees the store here, or is unparked.
            if self.closed.load(Ordering::SeqCst) {
                break Err(io::ErrorKind::ConnectionAborted.into());
            }
            if let Poll::Ready(result) = call(&mut context) {
                break result;
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => break Err(io::ErrorKind::TimedOut.into()),
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        };
        *lock(&self.waiting[direction]) = None;
        result
    }
}

impl Wire for Hosted {
    fn read(&self, to: &mut [IoSliceMut<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        let Some(to) = to.iter_mut().find(|piece| !piece.is_empty()) else { return Ok(0) };
        let mut half = lock(&self.read);
        let mut room = ReadBuf::new(to);
        self.wait(0, deadline, |context| Pin::new(&mut *half).poll_read(context, &mut room))?;
        Ok(room.filled().len())
    }

    fn write(&self, from: &[IoSlice<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        let Some(from) = from.iter().find(|piece| !piece.is_empty()) else { return Ok(0) };
        let mut half = lock(&self.write);
        self.wait(1, deadline, |context| Pin::new(&mut *half).poll_write(context, from))
    }

    fn shut_down(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for waiting in &self.waiting {
            if let Some(thread) = &*lock(waiting) {
                thread.unpark();
            }
        }
        // The other end reads the end, unless a write is in progress; that one returns first.
        if let Ok(mut write) = self.write.try_lock() {
            let mut context = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut *write).poll_shutdown(&mut context);
        }
    }
}

/// The connections of a channel. Those at the front carry transfers, the last the answers.
pub(crate) struct Wires {
    wires: Vec<Box<dyn Wire>>,
    broken: Mutex<Option<String>>,
}

impl Wires {
    pub(crate) fn new(wires: Vec<Box<dyn Wire>>) -> Self {
        Self { wires, broken: Mutex::new(None) }
    }

    /// The connections that carry transfers.
    pub(crate) fn data(&self) -> &[Box<dyn Wire>] {
        &self.wires[..self.wires.len() - 1]
    }

    /// The connection by which the receivers answer.
    pub(crate) fn answers(&self) -> &dyn Wire {
        self.wires[self.wires.len() - 1].as_ref()
    }

    /// Ends the channel. The first reason stays.
    pub(crate) fn abort(&self, why: &ChannelError) {
        lock(&self.broken).get_or_insert_with(|| why.to_string());
        self.shut_down();
    }

    fn shut_down(&self) {
        self.wires.iter().for_each(|wire| wire.shut_down());
    }

    /// # Errors
    /// [`ChannelError::Broken`], once the channel has ended by [`abort`](Self::abort).
    pub(crate) fn check(&self) -> Result<(), ChannelError> {
        match &*lock(&self.broken) {
            Some(why) => Err(ChannelError::Broken(why.clone())),
            None => Ok(()),
        }
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// A connection that ends in the middle of a transfer was reset, whatever the kernel calls it.
pub(crate) fn lost(what: &'static str, error: io::Error) -> ChannelError {
    let error = match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            io::Error::from_raw_os_error(libc::ECONNRESET)
        }
        io::ErrorKind::TimedOut => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        _ => io::Error::from_raw_os_error(errno_of(&error)),
    };
    ChannelError::failed(what, error)
}
