//! A descriptor that becomes readable.

use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A channel of events: readable from `raise` to `clear`.
///
/// A pipe, since its reading end reports input and never output, as the descriptors of completion
/// channels and of rdma_cm's event channels do.
#[derive(Debug)]
pub(super) struct EventChannel {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl EventChannel {
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        Ok(Self { reader, writer })
    }

    pub fn raise(&self) {
        // It fails only when the pipe is full: then it is readable already.
        let _ = rustix::io::write(&self.writer, &[0]);
    }

    pub fn clear(&self) {
        // It fails when the pipe is empty.
        while let Ok(1..) = rustix::io::read(&self.reader, &mut [0_u8; 64]) {}
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
