//! Waiting for a descriptor to become readable, in tokio.

use crate::os::client_socket::ClientSocket;
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

/// Registers a client's socket that other threads may shut down, for both directions.
pub(crate) fn watch_shared(fd: Arc<ClientSocket>) -> io::Result<AsyncFd<Arc<ClientSocket>>> {
    // SAFETY: as above: the Arc keeps the descriptor, which does not change, open for as long as
    // the AsyncFd lives.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}
