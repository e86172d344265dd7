//! The eventfds that wake data threads.

use gpunet_abi::park::{ParkFlag, must_wake};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A data thread's own eventfd, by which the proxy's other threads wake it.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
}

impl Bell {
    /// The bell of a thread that is awake.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { fd: new()?, asleep: AtomicBool::new(false) })
    }

    /// Wakes the thread, or ends its next sleep at once.
    pub(crate) fn ring(&self) {
        ring(&self.fd);
    }

    /// Wakes the thread if it sleeps. Called after something was left for it.
    pub(crate) fn wake(&self) {
        if must_wake(self) {
            self.ring();
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// Ordering: Relaxed, with the full fence between; see `gpunet_abi::park`.
impl ParkFlag for Bell {
    fn store(&self, sleeping: bool) {
        self.asleep.store(sleeping, Ordering::Relaxed);
    }

    fn load(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

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
