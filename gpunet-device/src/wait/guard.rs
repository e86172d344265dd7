//! The conditions that end any wait.

use crate::wait::deadline::Deadline;
use crate::{Net, platform};
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::{Error, Result};

/// The time without a heartbeat grows by at most this much per check: a process that was stopped
/// and continued must not take its own absence for the proxy's.
const MAX_STEP_NS: u64 = 300_000_000;

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
}

impl WaitGuard {
    /// Begins a wait. It does not read the clock yet: most waits are over before the first check.
    #[inline(always)]
    pub fn new(net: Net, deadline: Deadline) -> Self {
        let last_check = u64::MAX;
        Self { net, ignore_cancel: false, rounds: 0, deadline, last_check, last_beat: 0, silent_ns: 0 }
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
        self.last_check = now;
        if beat == HEARTBEAT_DOWN || self.silent_ns > self.net.context().heartbeat_timeout_ns {
            return Err(Error::NetworkDown);
        }
        if self.deadline.has_passed(now) { Err(Error::TimedOut) } else { Ok(()) }
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
