//! The descriptor of a client's connection.

use crate::os::peer::{accepts_descriptors, set_accepts_descriptors};
use crate::os::user_work::UserWork;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A connection that can be dropped anywhere: if descriptors may lie in its queue, a thread of its
/// user closes it.
pub(crate) struct ClientSocket {
    /// `None` once it is being dropped.
    socket: Option<OwnedFd>,
    uid: u32,
    work: Arc<UserWork>,
    /// The client can send descriptors, or could.
    takes_descriptors: AtomicBool,
}

impl ClientSocket {
    /// Takes over a connection of that user.
    pub(crate) fn new(socket: OwnedFd, uid: u32, work: Arc<UserWork>) -> Self {
        // Before Linux 6.16 nobody can refuse them.
        let takes_descriptors = AtomicBool::new(accepts_descriptors(socket.as_fd()).unwrap_or(true));
        Self { socket: Some(socket), uid, work, takes_descriptors }
    }

    /// Lets the client send descriptors from now on.
    pub(crate) fn take_descriptors(&self) {
        // Ordering: Relaxed; the Arc orders its drop after every use.
        if !self.takes_descriptors.swap(true, Ordering::Relaxed) {
            // Refused where nobody can refuse them either.
            let _ = set_accepts_descriptors(self.as_fd(), true);
        }
    }

    /// Returns whether descriptors of the client may come.
    pub(crate) fn takes_descriptors(&self) -> bool {
        self.takes_descriptors.load(Ordering::Relaxed)
    }

    /// Shuts both directions down.
    pub(crate) fn shut_down(&self) {
        let _ = shutdown(self, Shutdown::Both);
    }
}

impl std::fmt::Debug for ClientSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is open until it is dropped").as_fd()
    }
}

impl AsRawFd for ClientSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        // The client notices at once, and its queue stops growing.
        self.shut_down();
        let takes_descriptors = *self.takes_descriptors.get_mut();
        if let (true, Some(socket)) = (takes_descriptors, self.socket.take()) {
            drop(self.work.run(self.uid, move || drop(socket)));
        }
    }
}
