//! Waiting that always ends: what the leader looks at beside the word it waits for.

use crate::{Net, platform};
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::{Error, Result};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all: EAGAIN.
    None,
    /// That many nanoseconds; 0 means without limit.
    Ns(u64),
}

impl Patience {
    /// The patience of a socket: non-blocking, or its timeout option.
    #[inline(always)]
    pub(crate) const fn of(nonblocking: bool, timeout_ns: u64) -> Self {
        if nonblocking { Self::None } else { Self::Ns(timeout_ns) }
    }
}

/// A time without a heartbeat counts at most so much per look: a process that was stopped and goes
/// on must not take its own absence for the proxy's.
const MAX_STEP_NS: u64 = 300_000_000;

/// The leader's watch during one wait: deadline, cancel, heartbeat.
pub(crate) struct Vigil {
    net: Net,
    /// A close goes on although its launch was cancelled.
    deaf: bool,
    rounds: u32,
    deadline: u64,
    last_look: u64,
    last_beat: u64,
    silent_ns: u64,
}

impl Vigil {
    /// Begins a wait.
    #[inline(always)]
    pub(crate) fn new(net: Net, limit_ns: u64) -> Self {
        let now = platform::now_ns();
        let deadline = if limit_ns == 0 { u64::MAX } else { now.saturating_add(limit_ns) };
        Self { net, deaf: false, rounds: 0, deadline, last_look: now, last_beat: 0, silent_ns: 0 }
    }

    /// The same wait, not ended by cancel: for what a cancelled kernel still has to say.
    #[inline(always)]
    pub(crate) fn deaf_if(mut self, deaf: bool) -> Self {
        self.deaf = deaf;
        self
    }

    /// Says whether it is time for the slow looks: every look on the CPU, every sixteenth on a GPU.
    #[inline(always)]
    pub(crate) fn due(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds % platform::SLOW_CHECK_EVERY == 0
    }

    /// Rounds waited so far.
    #[inline(always)]
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The slow looks.
    ///
    /// # Errors
    /// Canceled, NetworkDown or TimedOut.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Result<()> {
        if !self.deaf && self.net.cancel().peek() != 0 {
            return Err(Error::Canceled);
        }
        let now = platform::now_ns();
        let beat = self.net.heartbeat().peek();
        if beat == self.last_beat {
            let step = now.saturating_sub(self.last_look);
            self.silent_ns += if step < MAX_STEP_NS { step } else { MAX_STEP_NS };
        } else {
            self.last_beat = beat;
            self.silent_ns = 0;
        }
        self.last_look = now;
        if beat == HEARTBEAT_DOWN || self.silent_ns > self.net.context().heartbeat_timeout_ns {
            return Err(Error::NetworkDown);
        }
        if now >= self.deadline { Err(Error::TimedOut) } else { Ok(()) }
    }

    /// Nanoseconds until the deadline.
    #[inline(always)]
    pub(crate) fn remaining_ns(&self) -> u64 {
        self.deadline.saturating_sub(self.last_look)
    }
}
