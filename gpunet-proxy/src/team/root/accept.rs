//! How the root takes connections: a few at a time, because strangers can make as many as they
//! like.

use crate::os::descriptors::hint;
use std::io;
use std::time::{Duration, Instant};

/// Connections that each socket may have and the root has not taken.
pub(super) const BACKLOG: i32 = 1024;
/// Connections that the root takes from a socket before it looks at the members again.
pub(super) const ACCEPTS: usize = 16;
/// How long a connection may take to say who it is.
pub(super) const SPEAK_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait before the next accept when descriptors have run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What an accept has given; `None` if nobody waits.
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

/// Until when nobody is accepted, after a failure.
pub(super) fn pause(error: &io::Error) -> Instant {
    tracing::warn!(%error, "cannot accept a member of a team{}", hint(error));
    Instant::now() + ACCEPT_RETRY
}
