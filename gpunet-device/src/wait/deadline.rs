//! The deadlines that timeouts become.

use crate::platform;
use gpunet_abi::Timeout;

/// An instant of the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(u64);

impl Deadline {
    /// Never passes.
    pub const NEVER: Self = Self(u64::MAX);

    /// When a wait that begins now ends. Never, if something else keeps the call from waiting.
    #[inline(always)]
    pub fn of(timeout: Timeout) -> Self {
        // What stands for a socket's options lies far in the future, too.
        if timeout.is_non_blocking() || timeout == Timeout::NEVER {
            Self::NEVER
        } else {
            Self::after(timeout.packed())
        }
    }

    /// The same for a wait that looks at a word, whatever its timeout: [`Timeout::NON_BLOCKING`] is
    /// over at its first check.
    #[inline(always)]
    pub(crate) fn of_word(timeout: Timeout) -> Self {
        if timeout.is_non_blocking() { Self(0) } else { Self::of(timeout) }
    }

    /// Returns the rest of `timeout` for another wait of a call whose waits end at this deadline.
    /// By the lane that waits.
    #[inline(always)]
    pub fn left_of(self, timeout: Timeout) -> Timeout {
        if self == Self::NEVER { timeout } else { Timeout::ns(self.remaining_ns(platform::now_ns())) }
    }

    /// So many nanoseconds from now.
    #[inline(always)]
    pub(crate) fn after(ns: u64) -> Self {
        Self(platform::now_ns().saturating_add(ns))
    }

    /// Returns whether the deadline has passed at `now`.
    #[inline(always)]
    pub(crate) const fn has_passed(self, now: u64) -> bool {
        now >= self.0
    }

    /// Nanoseconds from `now` until the deadline; 0 once it has passed.
    #[inline(always)]
    pub(crate) const fn remaining_ns(self, now: u64) -> u64 {
        self.0.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_once_more_for_what_is_left_of_its_timeout() {
        for endless in [Timeout::NEVER, Timeout::NON_BLOCKING] {
            assert_eq!(Deadline::of(endless).left_of(endless), endless);
        }
        let hour = Timeout::ns(3_600_000_000_000);
        let left = Deadline::of(hour).left_of(hour).packed();
        assert!(left > 0 && left <= hour.packed(), "{left}");
        assert_eq!(Deadline::after(0).left_of(hour), Timeout::NON_BLOCKING);
    }
}
