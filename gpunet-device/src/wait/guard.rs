//! The conditions that end any wait.

use crate::wait::deadline::Deadline;
use crate::{Net, platform};
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::waiting::{self, Awaited, Call};
use gpunet_abi::{Error, Result};

/// The time without a heartbeat grows by at most this much per check: a process that was stopped
/// and continued must not take its own absence for the proxy's.
const MAX_STEP_NS: u64 = 300_000_000;

/// A wait is shown to operators once it has lasted so long.
const SHOWN_AFTER_NS: u64 = 20_000;
/// log2 of the nanoseconds after which a wait that goes on is shown anew: a millisecond.
const SHOWN_EVERY_LOG2: u32 = 20;

/// The conditions that end any wait: the deadline, cancel, or a proxy without a heartbeat.
pub struct WaitGuard {
    net: Net,
    /// A close continues although its launch was cancelled.
    ignore_cancel: bool,
    rounds: u32,
    deadline: Deadline,
    /// The clock at the last check; before the first one, later than it can be.
    last_check: u64,
    last_beat: u64,
    silent_ns: u64,
    /// The clock at the first check; before it, later than it can be.
    first_check: u64,
    awaited: Awaited,
}

impl WaitGuard {
    /// Begins a wait. It does not read the clock yet: most waits are over before the first check.
    #[inline(always)]
    pub fn new(net: Net, deadline: Deadline) -> Self {
        Self {
            net,
            ignore_cancel: false,
            rounds: 0,
            deadline,
            last_check: u64::MAX,
            last_beat: 0,
            silent_ns: 0,
            first_check: u64::MAX,
            awaited: Awaited::new(Call::Other),
        }
    }

    /// The same wait, and what operators are shown of it if it lasts.
    #[inline(always)]
    #[must_use]
    pub fn waiting_for(mut self, awaited: Awaited) -> Self {
        self.awaited = awaited;
        self
    }

    /// The same wait, not ended by cancel: for the closes of a cancelled kernel.
    #[inline(always)]
    pub(crate) fn ignoring_cancel(mut self, ignore_cancel: bool) -> Self {
        self.ignore_cancel = ignore_cancel;
        self
    }

    /// Counts a round; returns whether it is time for a check: in every round on the CPU, in every
    /// 128th on a GPU.
    #[inline(always)]
    pub fn is_due(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds.is_multiple_of(platform::slow_check_every())
    }

    /// Counts rounds that the caller has waited.
    #[inline(always)]
    pub(crate) fn count(&mut self, rounds: u32) {
        self.rounds = self.rounds.wrapping_add(rounds);
    }

    /// Rounds waited so far.
    #[inline(always)]
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Checks whether the wait is to end.
    ///
    /// # Errors
    /// Canceled, NetworkDown or TimedOut.
    #[inline(always)]
    pub fn check(&mut self) -> Result<()> {
        // Both before either is looked at: to a GPU they lie behind the bus, and the loads overlap.
        let (cancel, beat) = (self.net.cancel().peek(), self.net.heartbeat().peek());
        if platform::is_abandoned() || (!self.ignore_cancel && cancel != 0) {
            return Err(Error::Canceled);
        }
        let now = platform::now_ns();
        if beat == self.last_beat {
            let step = now.saturating_sub(self.last_check);
            self.silent_ns += if step < MAX_STEP_NS { step } else { MAX_STEP_NS };
        } else {
            self.last_beat = beat;
            self.silent_ns = 0;
        }
        self.show(now);
        self.last_check = now;
        if beat == HEARTBEAT_DOWN || self.silent_ns > self.net.context().heartbeat_timeout_ns {
            return Err(Error::NetworkDown);
        }
        if self.deadline.has_passed(now) { Err(Error::TimedOut) } else { Ok(()) }
    }

    /// Shows the wait, once it has lasted, and then each millisecond: another group of the block
    /// may have stored what it waits for.
    #[inline(always)]
    fn show(&mut self, now: u64) {
        // A model's executions differ in nothing that the clock decides.
        if cfg!(loom) {
            return;
        }
        if self.first_check == u64::MAX {
            self.first_check = now;
            return;
        }
        let (before, waited) = (self.waited_ns(), now.saturating_sub(self.first_check));
        let is_due = before < SHOWN_AFTER_NS || before >> SHOWN_EVERY_LOG2 != waited >> SHOWN_EVERY_LOG2;
        if waited >= SHOWN_AFTER_NS && is_due {
            show(self.net, self.awaited, waited);
        }
    }

    /// From the first check to the last one.
    #[inline(always)]
    const fn waited_ns(&self) -> u64 {
        self.last_check.saturating_sub(self.first_check)
    }

    /// Returns whether the deadline has passed: a look at the clock alone, for rounds without a
    /// check.
    #[inline(always)]
    pub(crate) fn is_late(&self) -> bool {
        self.deadline != Deadline::NEVER && self.deadline.has_passed(platform::now_ns())
    }

    /// Nanoseconds from the last check until the deadline; 0 before the first one.
    #[inline(always)]
    pub(crate) fn remaining_ns(&self) -> u64 {
        self.deadline.remaining_ns(self.last_check)
    }
}

impl Drop for WaitGuard {
    /// What was shown is over.
    #[inline(always)]
    fn drop(&mut self) {
        if self.waited_ns() >= SHOWN_AFTER_NS {
            hide(self.net);
        }
    }
}

/// Shows a wait of the calling block. Far from the loops that wait: their code stays small.
#[cold]
#[inline(never)]
fn show(net: Net, awaited: Awaited, waited_ns: u64) {
    let block = platform::block();
    net.waiting(block).set(waiting::pack(awaited, block, waited_ns));
}

/// Shows that the calling block waits no longer.
#[cold]
#[inline(never)]
fn hide(net: Net) {
    net.waiting(platform::block()).set(0);
}
