//! The settings of a host socket.

use gpunet_device::Options;
use gpunet_device::Timeout;
use std::time::{Duration, Instant};

/// The settings that a program has made.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) options: Options,
    /// How long a call that waits for bytes or room polls before it sleeps.
    pub(super) spin: Duration,
}

impl Settings {
    pub(super) const DEFAULT: Self = Self { options: Options::DEFAULT, spin: Duration::ZERO };

    /// Returns the options of a connection. Time limits and waiting concern this side only.
    pub(super) fn of_connection(&self) -> Options {
        self.options.with_timeouts(Timeout::NEVER, Timeout::NEVER).with_flag(Options::NONBLOCK, false)
    }

    /// Returns the settings of a connection that was accepted by a listener with these settings:
    /// its calls wait, as after accept(2).
    pub(super) fn accepted(self) -> Self {
        Self { options: self.options.with_flag(Options::NONBLOCK, false), ..self }
    }

    /// Returns whether calls do not wait.
    pub(super) fn nonblocking(&self) -> bool {
        self.options.has(Options::NONBLOCK)
    }

    pub(super) fn set_nonblocking(&mut self, on: bool) {
        self.options = self.options.with_flag(Options::NONBLOCK, on);
    }

    /// Returns when the timeout of a send that begins now expires. `None`: never.
    pub(super) fn send_deadline(&self) -> Option<Instant> {
        deadline(self.options.send_timeout_ns)
    }

    /// Returns when the timeout of a receive that begins now expires. `None`: never.
    pub(super) fn recv_deadline(&self) -> Option<Instant> {
        deadline(self.options.recv_timeout_ns)
    }
}

fn deadline(ns: u64) -> Option<Instant> {
    if ns == 0 { None } else { Instant::now().checked_add(Duration::from_nanos(ns)) }
}
