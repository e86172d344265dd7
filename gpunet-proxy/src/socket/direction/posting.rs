//! How far queues will certainly publish a direction, and whether anything may follow.

use super::hold::{Hold, Posted};
use crate::model::ids::QueueId;
use crate::socket::DirectionError;
use gpunet_abi::Error;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

impl Hold {
    pub(super) fn posted(&self) -> MutexGuard<'_, Posted> {
        // Nothing that is done under the lock panics.
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a queue will publish the direction up to that position, if `submit` enqueues
    /// the operation that does so.
    ///
    /// # Errors
    /// [`DirectionError::InUseByQueue`], as long as another queue has not published what was
    /// enqueued there; EPROTO, when a queue has given the direction up; those of `submit`.
    pub(crate) fn post<T, E: From<DirectionError>>(
        &self,
        queue: QueueId,
        position: u64,
        submit: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.is_given_up() {
            return Err(DirectionError::Failed(Error::Protocol).into());
        }
        let (before, after) = {
            let mut posted = self.posted();
            if posted.queue.is_some_and(|other| other != queue) && self.position()? < posted.position {
                return Err(DirectionError::InUseByQueue.into());
            }
            let after = Posted { position: posted.position.max(position), queue: Some(queue) };
            (std::mem::replace(&mut *posted, after), after)
        };
        submit().inspect_err(|_| {
            let mut posted = self.posted();
            if *posted == after {
                *posted = before;
            }
        })
    }

    /// Records that the rest of a message will not come, so nothing may be published behind it.
    pub(crate) fn give_up(&self) {
        // Ordering: Relaxed; a flag. The queue's thread, which sets it, carries out what comes
        // later itself.
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Returns whether a queue has given the direction up.
    pub(crate) fn is_given_up(&self) -> bool {
        // Ordering: Relaxed, as in `give_up`.
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Returns how far the direction is published, or will be by operations that are enqueued.
    pub(crate) fn published(&self) -> Result<u64, DirectionError> {
        let posted = self.posted().position;
        Ok(posted.max(self.position()?))
    }

    /// Whether operations of it are in a graph.
    pub(crate) fn is_captured(&self) -> bool {
        // Ordering: Relaxed; it is set once, by the thread that enqueues.
        self.is_captured.load(Ordering::Relaxed)
    }
}
