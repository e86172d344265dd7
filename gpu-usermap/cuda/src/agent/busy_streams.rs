//! How many streams count as running launches. The threads that enqueue count them, and the agent
//! holds the count still while it makes a call that waits for all work of the context.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The count of one device.
#[derive(Default)]
pub(crate) struct BusyStreams(Mutex<State>);

#[derive(Default)]
struct State {
    streams: usize,
    /// Launches that ran, were announced or left streams when the agent looked last.
    launches: usize,
    /// Something is to be given back when no stream counts any more.
    is_awaited: bool,
}

/// Keeps streams from beginning for as long as it lives.
pub(crate) struct Stillness<'a>(MutexGuard<'a, State>);

impl BusyStreams {
    /// Counts a stream. Returns when no call that waits for all work is in progress any more.
    pub(crate) fn begin(&self) {
        self.state().streams += 1;
    }

    /// Ends the count of a stream. Returns whether the agent waits for that.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        let mut state = self.state();
        state.streams = state.streams.saturating_sub(1);
        state.streams == 0 && state.is_awaited
    }

    /// Notes how many launches run. Called by the agent alone.
    pub(crate) fn set_launches(&self, launches: usize) {
        self.state().launches = launches;
    }

    /// Returns whether nothing but `own` streams runs or has run since the agent looked last, so
    /// that it need not be asked.
    pub(crate) fn is_quiet(&self, own: usize) -> bool {
        let state = self.state();
        state.streams <= own && state.launches == 0
    }

    /// Lets no stream begin until the result drops.
    pub(crate) fn hold(&self) -> Stillness<'_> {
        Stillness(self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stillness<'_> {
    /// Returns whether streams count.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_more_than(0)
    }

    /// Returns whether more than `own` streams count.
    pub(crate) fn has_more_than(&self, own: usize) -> bool {
        self.0.streams > own
    }

    /// Sets whether the agent is told when no stream counts any more.
    pub(crate) fn await_end(&mut self, is_awaited: bool) {
        self.0.is_awaited = is_awaited;
    }
}
