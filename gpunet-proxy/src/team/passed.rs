//! Descriptors of memory that members and the root pass to each other.
//!
//! To receive a descriptor and to close it may take as long as its sender likes: a TCP socket may
//! linger for hours. So neither the root's thread nor that of a member does it, but threads of
//! [`UserWork`]. They check what has come, and hand over memory only, which nobody can make slow to
//! close.

use super::frames::HasMemory;
use crate::os::client_socket::ClientSocket;
use crate::os::user_work::UserWork;
use crate::wire::{self, MAX_FRAME};
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::ExportCheck;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long it may take to receive a descriptor. One that takes longer depends on its sender.
pub(super) const TAKE_WITHIN: Duration = Duration::from_secs(5);

/// A packet with descriptors.
#[derive(Debug)]
pub(super) enum Passed<F> {
    Memory(F, OwnedFd),
    /// What has come with the frame is not the memory that it speaks of, and why.
    NoMemory(F, String),
    /// There was no number for the descriptor in this process.
    NoDescriptor(F),
    /// A frame that cannot be.
    Invalid,
}

/// Receives the next packet of a connection, which has descriptors, on a thread of `sender`, and
/// passes it to `done` there. The memory is what a GPU has exported, or without `exports` a sealed
/// memfd.
pub(super) fn take<F: HasMemory + Send + 'static>(
    work: &Arc<UserWork>,
    sender: u32,
    socket: &Arc<ClientSocket>,
    exports: Option<ExportCheck>,
    done: impl FnOnce(Passed<F>) + Send + 'static,
) {
    let socket = socket.clone();
    let take = move || {
        let Ok(Some(packet)) = wire::recv(socket.as_fd(), &mut vec![0; MAX_FRAME]) else {
            return done(Passed::Invalid);
        };
        if packet.lost {
            let frame = wire::without_descriptors(&packet.bytes);
            return done(frame.map_or(Passed::Invalid, Passed::NoDescriptor));
        }
        let (frame, mut fds) = wire::split::<F>(packet);
        let checked = match (frame, fds.pop()) {
            (Ok(frame), Some(fd)) => match check(fd.as_fd(), exports, &frame) {
                Ok(()) => Passed::Memory(frame, fd),
                Err(reason) => {
                    fds.push(fd);
                    Passed::NoMemory(frame, reason)
                }
            },
            (_, fd) => {
                fds.extend(fd);
                Passed::Invalid
            }
        };
        done(checked);
        // Last, because this may take its time.
        drop(fds);
    };
    // Its end is heard of by `done`.
    drop(work.run(sender, take));
}

fn check(fd: BorrowedFd<'_>, exports: Option<ExportCheck>, frame: &impl HasMemory) -> Result<(), String> {
    if let Some(exports) = exports {
        // Its length cannot be queried; CUDA refuses to map more than there is.
        return exports.check(fd).map_err(|error| error.to_string());
    }
    let check = if frame.is_reserved() { PinnedRegion::check_growing } else { PinnedRegion::check };
    let found = check(fd).map_err(|error| error.to_string())?;
    let said = frame.memory_len().unwrap_or(0);
    (found as u64 == said).then_some(()).ok_or_else(|| format!("{found} bytes came instead of {said}"))
}
