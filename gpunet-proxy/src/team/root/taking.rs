//! Receives the descriptors that members pass, on a separate thread for each member.

use crate::os::client_socket::ClientSocket;
use crate::os::doorbell;
use crate::os::user_work::UserWork;
use crate::team::frames::ToRoot;
use crate::team::passed::{Passed, take};
use gpu_usermap::cuda::ExportCheck;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A member's rank, and the packet that it has passed.
type Taken = (u32, Passed<ToRoot>);

pub(super) struct Taking {
    work: Arc<UserWork>,
    taken: Receiver<Taken>,
    sender: Sender<Taken>,
    bell: Arc<OwnedFd>,
}

impl Taking {
    /// # Errors
    /// The system's.
    pub(super) fn new() -> io::Result<Self> {
        let (sender, taken) = channel();
        Ok(Self { work: Arc::default(), taken, sender, bell: Arc::new(doorbell::new()?) })
    }

    /// Returns a descriptor that is readable once something has been received.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Begins to receive a member's next packet, which has descriptors.
    pub(super) fn take(&self, rank: u32, socket: &Arc<ClientSocket>, exports: Option<ExportCheck>) {
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        take(&self.work, rank, socket, exports, move |passed| {
            // There is no receiver if the root has ended.
            let _ = sender.send((rank, passed));
            doorbell::ring(&bell);
        });
    }

    /// Returns the next packet that was received.
    pub(super) fn next(&self) -> Option<Taken> {
        self.taken.try_recv().ok()
    }

    /// Clears the bell, before the received packets are read.
    pub(super) fn quiet(&self) {
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
    }
}
