//! Calls of the two halves of a stream other than reading and writing as tokio does: readiness,
//! peeking, the end of the reading half, and calls that do not wait.

use super::{ReadHalf, WriteHalf, io_error};
use crate::host::Waiter;
use crate::host::bytes::{Receiving, Sending};
use std::io;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

impl ReadHalf {
    /// Returns once a read would get bytes, or the end of the stream, or an error. It moves
    /// nothing.
    ///
    /// # Errors
    /// What a read would report.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn wait(read: &mut gpunet_proxy::host::ReadHalf) -> std::io::Result<()> {
    /// std::future::poll_fn(|cx| read.poll_ready(cx)).await
    /// # }
    /// ```
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.seat.poll(cx, &mut self.ring, Receiving::watch, Receiving::ready)
    }

    /// Reads as tokio's `poll_read` does, and leaves the bytes where they are: the next read gets
    /// them again.
    ///
    /// # Errors
    /// As a read.
    ///
    /// # Examples
    /// ```no_run
    /// use tokio::io::ReadBuf;
    ///
    /// /// The first byte of a message.
    /// async fn kind(read: &mut gpunet_proxy::host::ReadHalf) -> std::io::Result<Option<u8>> {
    ///     let mut byte = [0];
    ///     let mut buf = ReadBuf::new(&mut byte);
    ///     std::future::poll_fn(|cx| read.poll_peek(cx, &mut buf)).await?;
    ///     Ok(buf.filled().first().copied())
    /// }
    /// ```
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.seat.poll(cx, &mut self.ring, Receiving::watch, |ring| ring.peek(buf))
    }

    /// Ends the stream in this direction: reads return nothing, and what still comes is discarded.
    ///
    /// # Examples
    /// ```no_run
    /// # fn ignore(stream: gpunet_proxy::host::Stream) -> gpunet_proxy::host::WriteHalf {
    /// let (mut read, write) = stream.into_split();
    /// read.stop(); // the answers are of no interest
    /// # write }
    /// ```
    pub fn stop(&mut self) {
        self.ring.finish();
        self.seat.changes.tell(&self.ring.watch());
    }

    /// Reads what has come; nothing at the end of the stream. It does not wait.
    ///
    /// # Errors
    /// As a read; [`io::ErrorKind::WouldBlock`] when nothing has come: [`ReadHalf::waiter`] waits.
    pub fn try_read(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        match buf.remaining() {
            0 => Ok(()),
            _ => self.ring.receive(buf).map_err(io_error),
        }
    }

    /// Reads as [`ReadHalf::try_read`] does, and leaves the bytes where they are: the next read
    /// gets them again.
    ///
    /// # Errors
    /// As [`ReadHalf::try_read`].
    pub fn try_peek(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        match buf.remaining() {
            0 => Ok(()),
            _ => self.ring.peek(buf).map_err(io_error),
        }
    }

    /// Waits in a thread until [`ReadHalf::try_read`], which found nothing, is to be called again:
    /// see [`Waiter`].
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.seat.waiter(self.ring.watch())
    }

    /// Ends the waits of threads at present, as if bytes had come: for a program that has bytes of
    /// its own for them.
    pub fn wake_waiters(&self) {
        self.seat.changes.tell(&self.ring.watch());
    }
}

impl WriteHalf {
    /// Returns once a write would take bytes, or fail. It moves nothing.
    ///
    /// # Errors
    /// What a write would report.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn wait(write: &mut gpunet_proxy::host::WriteHalf) -> std::io::Result<()> {
    /// std::future::poll_fn(|cx| write.poll_ready(cx)).await
    /// # }
    /// ```
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.seat.poll(cx, &mut self.ring, Sending::watch, Sending::ready)
    }

    /// Writes what there is room for; returns how many bytes. It does not wait.
    ///
    /// # Errors
    /// As a write; [`io::ErrorKind::WouldBlock`] when there is no room: [`WriteHalf::waiter`]
    /// waits.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ring.send(bytes).map_err(io_error)
    }

    /// Waits in a thread until [`WriteHalf::try_write`], which found no room, is to be called
    /// again: see [`Waiter`].
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.seat.waiter(self.ring.watch())
    }

    /// Ends the stream in this direction.
    pub(super) fn finish(&mut self) {
        self.ring.finish();
        self.seat.changes.tell(&self.ring.watch());
    }
}
