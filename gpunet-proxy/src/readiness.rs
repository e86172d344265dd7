//! Waiting for a descriptor to become readable, in tokio.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `fd` with the runtime, for readability.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor, and closes it only when the AsyncFd, which owns
    // it from here on and never hands it out, is dropped and deregistered.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}

/// Registers a socket that other threads may shut down, for both directions.
pub(crate) fn watch_shared(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: as above: the Arc keeps the descriptor open for as long as the AsyncFd lives.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}
