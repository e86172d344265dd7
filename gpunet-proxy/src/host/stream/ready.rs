//! Calls of the two halves of a stream other than reading and writing: readiness, peeking, the end
//! of the reading half.

use super::{ReadHalf, WriteHalf};
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
}
