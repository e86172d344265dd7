//! Who may answer: each channel's answers, and what is counted.

use gpu_usermap::PinnedRegion;
use gpunet_calls::{Answers, Late, Return};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What has happened to calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that functions have answered, with a value or an error.
    pub answered: u64,
    /// Calls that wanted no answer.
    pub told: u64,
    /// Calls without a function, with other sizes, or whose function panicked or dropped them.
    pub failed: u64,
    /// Answers that were dropped: their callers had given them up.
    pub late: u64,
    /// Requests that no caller writes: they were passed over.
    pub malformed: u64,
}

/// The answers of all channels.
#[derive(Debug)]
pub(crate) struct Desk {
    channels: Vec<Mutex<Answers>>,
    answered: AtomicU64,
    told: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
    malformed: AtomicU64,
    /// The memory behind the answers: a [`crate::Reply`] may outlive all else.
    _region: Arc<PinnedRegion>,
}

impl Desk {
    pub(crate) fn new(channels: Vec<Answers>, region: Arc<PinnedRegion>) -> Self {
        let channels = channels.into_iter().map(Mutex::new).collect();
        let zero = || AtomicU64::new(0);
        Self {
            channels,
            answered: zero(),
            told: zero(),
            failed: zero(),
            late: zero(),
            malformed: zero(),
            _region: region,
        }
    }

    pub(crate) fn expect(&self, from: Return) {
        self.with(from, |answers| answers.expect(from));
    }

    /// Stores an answer by `store`, and counts it.
    pub(crate) fn answer(
        &self,
        to: Return,
        is_failure: bool,
        store: impl FnOnce(&mut Answers) -> Result<(), Late>,
    ) -> Result<(), Late> {
        if !to.is_wanted() {
            count(if is_failure { &self.failed } else { &self.told });
            return Ok(());
        }
        let stored = self.with(to, store).unwrap_or(Err(Late));
        count(match stored {
            Err(Late) => &self.late,
            Ok(()) if is_failure => &self.failed,
            Ok(()) => &self.answered,
        });
        stored
    }

    pub(crate) fn count_malformed(&self) {
        count(&self.malformed);
    }

    /// Calls `use_it` with the answers of a channel.
    fn with<T>(&self, from: Return, use_it: impl FnOnce(&mut Answers) -> T) -> Option<T> {
        let channel = self.channels.get(from.channel() as usize)?;
        Some(use_it(&mut channel.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn counts(&self) -> Counts {
        // Ordering: Relaxed; counts, nothing is ordered by them.
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Counts {
            answered: read(&self.answered),
            told: read(&self.told),
            failed: read(&self.failed),
            late: read(&self.late),
            malformed: read(&self.malformed),
        }
    }
}

fn count(word: &AtomicU64) {
    // Ordering: Relaxed, as where they are read.
    word.fetch_add(1, Ordering::Relaxed);
}
