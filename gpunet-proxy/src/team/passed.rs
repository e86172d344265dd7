//! Descriptors of memory that members and the root pass to each other.
//!
//! A sender can make it slow to receive and to close its descriptor: a TCP socket may linger for
//! hours. So threads of [`UserWork`] do this, not the root's thread or a member's thread. They
//! check what has arrived, and pass on memory only, which is always quick to close.

use super::frames::HasMemory;
use crate::os::client_socket::ClientSocket;
use crate::os::user_work::UserWork;
use crate::wire::{self, MAX_FRAME};
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::ExportCheck;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long it may take to receive a descriptor. If it takes longer, its sender is the cause.
pub(super) const TAKE_WITHIN: Duration = Duration::from_secs(5);

/// A packet with descriptors.
#[derive(Debug)]
pub(super) enum Passed<F> {
    Memory(F, OwnedFd),
    /// The descriptor that came with the frame is not the memory that the frame describes, and why.
    NoMemory(F, String),
    /// This process had no descriptor number left.
    NoDescriptor(F),
    /// An invalid frame.
    Invalid,
}

/// Receives the next packet of a connection, which has descriptors, on a thread of `sender`, and
/// passes it to `done` there. With `exports` the memory must be exported by a GPU, without it a
/// sealed memfd.
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
        // Last, because this may take long.
        drop(fds);
    };
    // `done` reports its end.
    drop(work.run(sender, take));
}

fn check(fd: BorrowedFd<'_>, exports: Option<ExportCheck>, frame: &impl HasMemory) -> Result<(), String> {
    if let Some(exports) = exports {
        // Its length cannot be queried. CUDA refuses to map more than it has.
        return exports.check(fd).map_err(|error| error.to_string());
    }
    let check = if frame.is_reserved() { PinnedRegion::check_growing } else { PinnedRegion::check };
    let found = check(fd).map_err(|error| error.to_string())?;
    let said = frame.memory_len().unwrap_or(0);
    (found as u64 == said).then_some(()).ok_or_else(|| format!("{found} bytes came instead of {said}"))
}
