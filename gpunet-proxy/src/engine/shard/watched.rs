//! Data threads that sleep for long, although a GPU writes words for their streams: thread 0
//! watches these words.
//!
//! A GPU's store wakes no thread, so the words must be polled every few milliseconds. One thread
//! polls for all: eight threads that each poll their own words would cost eight times as much, for
//! streams that are silent.

use super::streams::Seen;
use crate::model::attachment_state::AttachmentState;
use crate::os::doorbell::Bell;
use gpunet_abi::hand_off::{self, HandOff};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The words of one attachment's streams, as their thread saw them last.
pub(super) struct WatchedWords {
    pub(super) state: Arc<AttachmentState>,
    pub(super) slots: Vec<u32>,
    pub(super) seen: Seen,
}

impl WatchedWords {
    /// Returns whether a word differs from what was seen.
    fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for (words, seen) in self.state.memory.stream_words().iter().zip(&mut self.seen) {
            words.scan(&self.slots, seen, |_, _| changed = true);
        }
        changed
    }
}

/// One data thread, as the one that watches sees it.
pub(crate) struct WatchedThread {
    bell: Arc<Bell>,
    /// Empty while the thread polls its own words.
    watched: Mutex<Vec<WatchedWords>>,
}

impl WatchedThread {
    /// The thread of that bell; nothing is watched yet.
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Self { bell, watched: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WatchedWords>> {
        // Nothing under the lock panics halfway.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves words to be watched. By the thread itself, before it sleeps.
    pub(super) fn leave(&self, watched: Vec<WatchedWords>) {
        *self.lock() = watched;
    }

    /// Ends the watch. Called by the thread itself, once it is awake.
    pub(super) fn take_back(&self) {
        let watched = std::mem::take(&mut *self.lock());
        drop(watched);
    }

    /// Returns whether another thread watches its words.
    #[cfg(test)]
    pub(super) fn is_watched(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Wakes the thread if one of its words has changed. By the thread that watches.
    pub(super) fn check(&self) {
        if self.lock().iter_mut().any(WatchedWords::has_changed) {
            hand_off::at(HandOff::ChangeFound);
            self.bell.ring();
        }
    }
}
