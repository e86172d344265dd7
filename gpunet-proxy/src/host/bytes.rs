//! Rings and the memory of host programs: the only unsafe code of the host's sockets.

use gpunet_device::cpu::watch::Watch;
use gpunet_device::group::Solo;
use gpunet_device::{Buffer, Error, RecvHalf, SendHalf};
use tokio::io::ReadBuf;

/// A host task calls as a group of one lane.
pub(super) const SOLO: Solo = Solo::new(0, 1);

/// Bytes that are received at a time.
const PIECE: usize = 128 << 10;

/// A sending half of the CPU device that may go from thread to thread.
#[derive(Debug)]
pub(super) struct Sending(SendHalf);

// SAFETY: a half holds addresses of an attachment's regions, which its owner keeps mapped (it holds
// the attachment beside it), and numbers; nothing of it belongs to a thread. It is neither `Copy`
// nor `Clone` in here, so one thread uses it at a time, and a move from one to another orders them.
unsafe impl Send for Sending {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for Sending {}

/// A receiving half of the CPU device that may go from thread to thread.
#[derive(Debug)]
pub(super) struct Receiving(RecvHalf);

// SAFETY: as for `Sending`.
unsafe impl Send for Receiving {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for Receiving {}

impl Sending {
    pub(super) const fn new(half: SendHalf) -> Self {
        Self(half)
    }

    /// Sends what there is room for, unless the stream is known to have failed.
    ///
    /// # Errors
    /// As [`SendHalf::try_send`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.watch().check()?;
        // SAFETY: the bytes are borrowed for the call, after which nobody uses the buffer; a send
        // only reads them.
        let buffer = unsafe { Buffer::from_raw_parts(bytes.as_ptr().cast_mut(), bytes.len()) };
        self.0.try_send(&SOLO, buffer)
    }

    /// Returns once a send would take something, or fail.
    ///
    /// # Errors
    /// WouldBlock when it would wait; the failure that it would report.
    pub(super) fn ready(&mut self) -> Result<(), Error> {
        self.watch().check()?;
        // The socket does not wait: see `Stream::new`.
        self.0.reserve(&SOLO, 1).map(drop)
    }

    /// Ends the stream in this direction.
    pub(super) fn finish(&mut self) {
        self.0.shutdown(&SOLO);
    }

    pub(super) fn watch(&self) -> Watch {
        Watch::space(&self.0)
    }
}

impl Receiving {
    pub(super) const fn new(half: RecvHalf) -> Self {
        Self(half)
    }

    /// Receives the bytes that have arrived into the unfilled part of `buf`; nothing at the end of
    /// the stream.
    ///
    /// What has arrived in a full ring is received in pieces: the sender may write into the place
    /// of one while the next is copied.
    ///
    /// # Errors
    /// As [`RecvHalf::try_recv`].
    pub(super) fn receive(&mut self, buf: &mut ReadBuf<'_>) -> Result<(), Error> {
        let before = buf.filled().len();
        loop {
            let len = buf.remaining().min(PIECE);
            match self.receive_piece(buf, len) {
                // All that had arrived, or nothing more, or the end. A failure is the next call's.
                Ok(n) if n == len && buf.remaining() > 0 => {}
                Err(_) if buf.filled().len() > before => return Ok(()),
                result => return result.map(drop),
            }
        }
    }

    /// Receives at most `len` bytes; returns how many.
    fn receive_piece(&mut self, buf: &mut ReadBuf<'_>, len: usize) -> Result<usize, Error> {
        // SAFETY: a receive writes initialised bytes, and only those.
        let room = unsafe { buf.unfilled_mut() };
        // SAFETY: the memory is borrowed for the call, after which nobody uses the buffer.
        let buffer = unsafe { Buffer::from_raw_parts(room.as_mut_ptr().cast(), len.min(room.len())) };
        let n = self.0.try_recv(&SOLO, buffer)?;
        // SAFETY: the receive has written the first `n` bytes.
        unsafe { buf.assume_init(n) };
        buf.advance(n);
        Ok(n)
    }

    /// Copies the bytes that have arrived into the unfilled part of `buf`, and leaves them in the
    /// ring; nothing at the end of the stream.
    ///
    /// # Errors
    /// As [`RecvHalf::try_recv`].
    pub(super) fn peek(&mut self, buf: &mut ReadBuf<'_>) -> Result<(), Error> {
        // The socket does not wait: see `Stream::new`.
        let span = self.0.peek(&SOLO, buf.remaining())?;
        for piece in span.pieces() {
            // SAFETY: nothing is made uninitialised below.
            let room = unsafe { buf.unfilled_mut() };
            // SAFETY: the piece lies in the ring, which the half keeps mapped, and is no longer
            // than what is unfilled; the caller's buffer is not in the ring.
            unsafe { room.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(piece.ptr, piece.len) };
            // SAFETY: these bytes were just written.
            unsafe { buf.assume_init(piece.len) };
            buf.advance(piece.len);
        }
        Ok(())
    }

    /// Returns once a receive would get something, or the end of the stream, or fail.
    ///
    /// # Errors
    /// WouldBlock when it would wait; the failure that it would report.
    pub(super) fn ready(&mut self) -> Result<(), Error> {
        self.0.peek(&SOLO, 1).map(drop)
    }

    /// Ends the stream in this direction: receives return nothing, and what still comes is
    /// discarded.
    pub(super) fn finish(&mut self) {
        self.0.shutdown(&SOLO);
    }

    pub(super) fn watch(&self) -> Watch {
        Watch::bytes(&self.0)
    }
}
