//! Liveness: each worker counts its turns, and the heartbeat thread checks the counts.

use crate::model::attachment_state::AttachmentState;
use gpunet_core::ids::AttachmentId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One worker's count of turns.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    turns: AtomicU64,
    ended: AtomicBool,
}

impl Pulse {
    // Ordering: Relaxed; only "did it change since I last looked" matters, seconds apart.
    pub(crate) fn beat(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// How long a data thread has worked: the time of its turns that did something.
#[derive(Debug, Default)]
pub(crate) struct Load(AtomicU64);

impl Load {
    // Ordering: Relaxed; one thread writes it, and nothing else is read after it.
    pub(crate) fn add(&self, busy: Duration) {
        self.0.store(self.busy_ns() + busy.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn busy_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Marks the worker as ended when it is dropped: by return or by panic.
pub(crate) struct PulseGuard(pub(crate) Arc<Pulse>);

impl Drop for PulseGuard {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// A worker as the heartbeat thread sees it.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) pulse: Arc<Pulse>,
    /// Makes the worker take a turn.
    pub(crate) wake: Box<dyn Fn() + Send>,
}

/// What the heartbeat thread shares with the proxy.
#[derive(Debug, Default)]
pub(crate) struct Heart {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// When all workers had last taken a turn.
    beaten: Option<Instant>,
    attachments: Vec<Arc<AttachmentState>>,
}

impl Heart {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere does not invalidate the list of attachments.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, attachment: Arc<AttachmentState>) {
        self.lock().attachments.push(attachment);
    }

    pub(crate) fn remove(&self, id: AttachmentId) {
        self.lock().attachments.retain(|attachment| attachment.id != id);
    }

    /// Returns whether all workers have taken a turn within that time.
    pub(crate) fn beats(&self, within: Duration) -> bool {
        let state = self.lock();
        !state.stop && state.beaten.is_none_or(|at| at.elapsed() <= within)
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_all();
    }

    /// Beats for all attachments every `period` while every worker takes turns. Writes "down" once
    /// one has ended, or when told to stop.
    pub(crate) fn run(&self, period: Duration, workers: &[Worker]) {
        let mut seen: Vec<u64> = workers.iter().map(|w| w.pulse.turns()).collect();
        let mut reported = false;
        loop {
            for worker in workers {
                (worker.wake)();
            }
            let guard = self.lock();
            let (mut state, _) = self
                .wake
                .wait_timeout_while(guard, period, |state| !state.stop)
                .unwrap_or_else(PoisonError::into_inner);
            let ended = workers.iter().find(|w| w.pulse.ended());
            if let (Some(worker), false) = (ended, state.stop || reported) {
                reported = true;
                tracing::error!(worker = worker.name, "a proxy thread ended: sockets report ENETDOWN");
            }
            if state.stop || ended.is_some() {
                state.attachments.iter().for_each(|attachment| attachment.memory.beat_down());
                if state.stop {
                    return;
                }
                continue;
            }
            let turns: Vec<u64> = workers.iter().map(|w| w.pulse.turns()).collect();
            // A worker that did not take a turn is stuck: no beat, and the devices time out.
            if turns.iter().zip(&seen).all(|(now, before)| now != before) {
                state.attachments.iter().for_each(|attachment| attachment.memory.beat());
                state.beaten = Some(Instant::now());
            }
            seen = turns;
        }
    }
}
