//! How long a call may wait: timeouts as calls and options give them, and the deadlines they become.

use crate::platform;
use gpunet_abi::Direction;
use gpunet_abi::Options;

/// How long a call may wait, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(u64);

impl Timeout {
    /// Not at all: EAGAIN.
    pub const NON_BLOCKING: Self = Self(1 << 62);
    /// Without limit.
    pub const NEVER: Self = Self(0);
    /// As the options of the socket say when the wait begins. Lanes need not know them.
    pub const SOCKET: Self = Self(1 << 61);
    /// The same, but a call on a non-blocking socket waits, too: without limit.
    pub(crate) const SOCKET_BLOCKING: Self = Self(Self::SOCKET.0 + 1);

    /// That many nanoseconds; 0 means without limit, and so do more than 73 years.
    #[inline(always)]
    pub const fn ns(ns: u64) -> Self {
        if ns < Self::SOCKET.0 { Self(ns) } else { Self::NEVER }
    }

    /// The timeout of a half of a socket with these options.
    #[inline(always)]
    pub const fn of_half(half: Direction, options: &Options) -> Self {
        let ns = match half {
            Direction::Send => options.send_timeout_ns,
            Direction::Recv => options.recv_timeout_ns,
        };
        Self::of(options.has(Options::NONBLOCK), ns)
    }

    /// The timeout of a socket: non-blocking, or its timeout option.
    #[inline(always)]
    pub(crate) const fn of(nonblocking: bool, timeout_ns: u64) -> Self {
        if nonblocking { Self::NON_BLOCKING } else { Self::ns(timeout_ns) }
    }

    /// The timeout as a word, for a broadcast.
    #[inline(always)]
    pub const fn packed(self) -> u64 {
        self.0
    }

    /// What [`Timeout::packed`] packed.
    #[inline(always)]
    pub const fn unpacked(word: u64) -> Self {
        Self(word)
    }

    /// Returns whether a call does not wait.
    #[inline(always)]
    pub(crate) const fn is_non_blocking(self) -> bool {
        self.0 == Self::NON_BLOCKING.0
    }

    /// What is left of it for another wait of a call whose waits end at `deadline`. By the lane that waits.
    #[inline(always)]
    pub fn until(self, deadline: Deadline) -> Self {
        if deadline == Deadline::NEVER {
            return self;
        }
        match deadline.remaining_ns(platform::now_ns()) {
            0 => Self::NON_BLOCKING,
            ns => Self::ns(ns),
        }
    }

    /// When a wait that begins now ends.
    #[inline(always)]
    pub fn deadline(self) -> Deadline {
        if self.is_non_blocking() || self.0 == Self::NEVER.0 {
            Deadline::NEVER
        } else {
            Deadline::after(self.0)
        }
    }
}

/// An instant of the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(u64);

impl Deadline {
    /// Never passes.
    pub const NEVER: Self = Self(u64::MAX);

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
            assert_eq!(endless.until(endless.deadline()), endless);
        }
        let hour = Timeout::ns(3_600_000_000_000);
        let left = hour.until(hour.deadline()).packed();
        assert!(left > 0 && left <= hour.packed(), "{left}");
        assert_eq!(hour.until(Deadline::after(0)), Timeout::NON_BLOCKING);
    }

    #[test]
    fn no_number_of_nanoseconds_stands_for_something_else() {
        let marks = [Timeout::NON_BLOCKING, Timeout::SOCKET, Timeout::SOCKET_BLOCKING];
        let first = Timeout::SOCKET.0;
        for ns in [1, first - 1, first, first + 1, Timeout::NON_BLOCKING.0, u64::MAX] {
            assert!(!marks.contains(&Timeout::ns(ns)), "{ns}");
        }
        assert_ne!(Timeout::SOCKET, Timeout::SOCKET_BLOCKING);
        assert_eq!(Timeout::ns(first - 1).packed(), first - 1);
        assert_eq!(Timeout::ns(first), Timeout::NEVER);
    }
}
