//! A connection of a channel: bytes in order, in both directions at once, with deadlines.
//!
//! | file | holds |
//! |---|---|
//! | `socket` | connections of the operating system |
//! | `hosted` | streams of gpunet's |
//! | `read_ahead` | one whose small reads share a call |

mod hosted;
mod read_ahead;
mod socket;

use crate::error::{ChannelError, errno_of};
pub(crate) use hosted::Hosted;
pub(crate) use read_ahead::ReadAhead;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub(crate) use socket::{HELD_BY_A_SOCKET, Socket};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

    /// As [`write`](Self::write), but polls for `spin` before it sleeps: for room that is due in
    /// microseconds.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn write_soon(
        &self,
        from: &[IoSlice<'_>],
        deadline: Option<Instant>,
        _spin: Duration,
    ) -> io::Result<usize> {
        self.write(from, deadline)
    }

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
    to: &mut [IoSliceMut<'_>],
    deadline: Option<Instant>,
) -> io::Result<()> {
    read_all_soon(wire, to, deadline, Duration::ZERO)
}

/// Reads all bytes that the pieces have room for, which are due soon.
///
/// # Errors
/// As [`read_all`].
pub(crate) fn read_all_soon(
    wire: &dyn Wire,
    mut to: &mut [IoSliceMut<'_>],
    deadline: Option<Instant>,
    spin: Duration,
) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut to, 0);
    while !to.is_empty() {
        match wire.read_soon(to, deadline, spin)? {
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

/// Reads all bytes that `to` has room for, which are due soon.
///
/// # Errors
/// As [`read_all`].
pub(crate) fn read_exact_soon(
    wire: &dyn Wire,
    to: &mut [u8],
    deadline: Option<Instant>,
    spin: Duration,
) -> io::Result<()> {
    read_all_soon(wire, &mut [IoSliceMut::new(to)], deadline, spin)
}

/// Writes all bytes.
///
/// # Errors
/// What [`Wire::write`] fails with.
pub(crate) fn write_all(
    wire: &dyn Wire,
    from: &mut [IoSlice<'_>],
    deadline: Option<Instant>,
) -> io::Result<()> {
    write_all_soon(wire, from, deadline, Duration::ZERO)
}

/// Writes all bytes, for which room is due soon.
///
/// # Errors
/// What [`Wire::write`] fails with.
pub(crate) fn write_all_soon(
    wire: &dyn Wire,
    mut from: &mut [IoSlice<'_>],
    deadline: Option<Instant>,
    spin: Duration,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut from, 0);
    while !from.is_empty() {
        match wire.write_soon(from, deadline, spin)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut from, n),
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
