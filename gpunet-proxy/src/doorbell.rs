//! The eventfds that wake data threads.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Makes the eventfd that wakes a data thread.
pub(crate) fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// Wakes the data thread that sleeps on `bell`.
pub(crate) fn ring(bell: &OwnedFd) {
    // Fails only when the counter is full, and then it is rung already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Makes the eventfds of one attachment: one for each data thread. Each attachment has its own: one
/// that a hostile client has as well must not be another's.
pub(crate) fn one_for_each(shards: usize) -> io::Result<Arc<[OwnedFd]>> {
    (0..shards).map(|_| new()).collect()
}
