//! The lock around a network's state, and the thread that lets time pass in it.

use super::state::State;
use gpu_usermap::threads;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The users' side: when the last one goes, the thread ends.
pub(super) struct Users(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// An earlier timer was set, or the users are gone.
    changed: Condvar,
}

impl Users {
    pub fn new(state: State) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Does something with the state; then gives the answers that came of it, outside the lock.
    pub fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.0.lock();
        let before = state.next_timer();
        let result = work(&mut state);
        let next = state.next_timer();
        let is_earlier = next.is_some_and(|next| before.is_none_or(|before| next < before));
        if is_earlier && !state.has_thread {
            state.has_thread = true;
            let shared = self.0.clone();
            threads::spawn("gpunet-sim-nic", move || shared.run())
                .expect("a thread for the simulated network");
        }
        settle(state);
        if is_earlier {
            self.0.changed.notify_one();
        }
        result
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    /// A test that panicked elsewhere must not hide its reason behind this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_over {
            let now = Instant::now();
            state.advance(now);
            if !(state.answers.is_empty() && state.trash.is_empty()) {
                settle(state);
                state = self.lock();
                continue;
            }
            state = match state.next_timer() {
                Some(next) => {
                    let wait = next.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Opens the lock, then wakes who waits and lets memory go: both may run other people's code, which
/// may come back here.
fn settle(mut state: MutexGuard<'_, State>) {
    let answers = std::mem::take(&mut state.answers);
    let trash = std::mem::take(&mut state.trash);
    drop(state);
    for answer in answers {
        // It fails when the caller no longer waits.
        let _ = answer.to.send(answer.what);
    }
    drop(trash);
}
