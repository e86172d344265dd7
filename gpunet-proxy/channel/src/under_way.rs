//! Transfers of a pipeline: those that are under way, and the results of those that are over.

use crate::error::ChannelError;
use crate::header::MAX_AHEAD;
use crate::shared::Outcome;
use std::collections::VecDeque;

/// The transfers of one pipeline, the oldest first.
pub(crate) struct UnderWay<T> {
    most: usize,
    transfers: VecDeque<T>,
    results: VecDeque<Result<Outcome, ChannelError>>,
}

impl<T> UnderWay<T> {
    /// Makes room for `most` transfers, as far as a channel allows it.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(1, MAX_AHEAD);
        Self { most, transfers: VecDeque::new(), results: VecDeque::new() }
    }

    /// Returns whether no further one may begin.
    pub(crate) fn is_full(&self) -> bool {
        self.transfers.len() >= self.most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.transfers.iter()
    }

    pub(crate) fn push(&mut self, transfer: T) {
        self.transfers.push_back(transfer);
    }

    pub(crate) fn take_oldest(&mut self) -> Option<T> {
        self.transfers.pop_front()
    }

    pub(crate) fn push_result(&mut self, result: Result<Outcome, ChannelError>) {
        self.results.push_back(result);
    }

    pub(crate) fn has_result(&self) -> bool {
        !self.results.is_empty()
    }

    pub(crate) fn take_result(&mut self) -> Option<Result<Outcome, ChannelError>> {
        self.results.pop_front()
    }
}

impl<T> std::fmt::Debug for UnderWay<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnderWay")
            .field("transfers", &self.transfers.len())
            .field("results", &self.results.len())
            .finish_non_exhaustive()
    }
}

/// The calls that both kinds of pipelines have; `complete_oldest` is theirs.
macro_rules! results {
    () => {
        /// Returns whether [`next`](Self::next) has a result without a wait.
        #[must_use]
        pub fn has_result(&self) -> bool {
            self.under_way.has_result()
        }

        /// Waits for the oldest transfer whose result was not returned yet; `None` if there is
        /// none.
        #[allow(clippy::should_implement_trait, reason = "a transfer can begin between two results")]
        pub fn next(&mut self) -> Option<Result<Outcome, ChannelError>> {
            if !self.under_way.has_result() {
                self.complete_oldest();
            }
            self.under_way.take_result()
        }

        /// Waits for all transfers, and returns the outcomes of those whose results were not
        /// returned yet.
        ///
        /// # Errors
        /// The first transfer's that failed.
        pub fn finish(mut self) -> Result<Vec<Outcome>, ChannelError> {
            std::iter::from_fn(|| self.next()).collect()
        }

        fn complete_all(&mut self) {
            while !self.under_way.is_empty() {
                self.complete_oldest();
            }
        }
    };
}

pub(crate) use results;
