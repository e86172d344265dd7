//! What a program has set on a host socket.

use gpunet_device::Options;
use gpunet_device::Timeout;
use std::time::{Duration, Instant};

/// What a program has set.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) options: Options,
}

impl Settings {
    pub(super) const DEFAULT: Self = Self { options: Options::DEFAULT };

    /// The options of a connection: time limits and waiting are this side's own business.
    pub(super) fn of_connection(&self) -> Options {
        self.options.with_timeouts(Timeout::NEVER, Timeout::NEVER).with_flag(Options::NONBLOCK, false)
    }

    /// The settings of a connection that a listener with these accepted: it waits, as accept(2) has
    /// it.
    pub(super) fn accepted(self) -> Self {
        Self { options: self.options.with_flag(Options::NONBLOCK, false) }
    }

    /// Whether calls do not wait.
    pub(super) fn nonblocking(&self) -> bool {
        self.options.has(Options::NONBLOCK)
    }

    pub(super) fn set_nonblocking(&mut self, on: bool) {
        self.options = self.options.with_flag(Options::NONBLOCK, on);
    }

    /// When the time of a send that begins now is over. `None`: never.
    pub(super) fn send_deadline(&self) -> Option<Instant> {
        deadline(self.options.send_timeout_ns)
    }

    /// When the time of a receive that begins now is over. `None`: never.
    pub(super) fn recv_deadline(&self) -> Option<Instant> {
        deadline(self.options.recv_timeout_ns)
    }
}

fn deadline(ns: u64) -> Option<Instant> {
    if ns == 0 { None } else { Instant::now().checked_add(Duration::from_nanos(ns)) }
}
