//! How the root accepts connections: a few at a time, because any program can open as many as it
//! likes.

use crate::os::descriptors::hint;
use std::io;
use std::time::{Duration, Instant};

/// The most connections of each socket that wait to be accepted.
pub(super) const BACKLOG: i32 = 1024;
/// Connections that the root accepts from a socket before it serves the members again.
pub(super) const ACCEPTS: usize = 16;
/// How long a connection may take to identify itself.
pub(super) const SPEAK_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait before the next accept when descriptors have run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Returns the result of an accept; `None` if no connection waits.
///
/// # Errors
/// There are no descriptors left, or no memory.
pub(super) fn accepted<T>(accepted: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    match accepted {
        Ok(accepted) => Ok(Some(accepted)),
        // The next turn tries again.
        Err(error) if matches!(error.kind(), WouldBlock | ConnectionAborted | Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns until when no connection is accepted, after a failure.
pub(super) fn pause(error: &io::Error) -> Instant {
    tracing::warn!(%error, "cannot accept a member of a team{}", hint(error));
    Instant::now() + ACCEPT_RETRY
}
