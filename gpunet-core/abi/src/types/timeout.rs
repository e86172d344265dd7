//! How long a call may wait.

use core::time::Duration;

/// How long a call may wait, in one word.
///
/// All calls of kernels that may wait for a time take one. A host's [`Duration`], or
/// `Option<Duration>` with `None` for no limit, becomes one by `from`.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use gpunet_abi::Timeout;
///
/// assert_eq!(Timeout::ms(5), Timeout::from(Duration::from_millis(5)));
/// assert_eq!(Timeout::ns(0), Timeout::NON_BLOCKING);
/// assert_eq!(Timeout::from(None), Timeout::NEVER);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Timeout(u64);

impl Timeout {
    /// The call waits without limit.
    pub const NEVER: Self = Self(0);
    /// The call does not wait: it fails with EAGAIN, and a poll returns 0.
    pub const NON_BLOCKING: Self = Self(1 << 62);
    /// The call waits as the options of its socket say when the wait begins. A call on no single
    /// socket waits without limit.
    pub const SOCKET: Self = Self(Self::END);
    /// The same, but a call on a non-blocking socket waits, too: without limit.
    pub const SOCKET_BLOCKING: Self = Self(Self::END + 1);

    /// More nanoseconds than this, 73 years, are no limit.
    const END: u64 = 1 << 61;

    /// At most `ns` nanoseconds. 0: the call does not wait. More than 73 years: no limit.
    #[inline(always)]
    #[must_use]
    pub const fn ns(ns: u64) -> Self {
        if ns == 0 { Self::NON_BLOCKING } else { Self::of_option(ns) }
    }

    /// At most `us` microseconds, as [`Timeout::ns`].
    #[inline(always)]
    #[must_use]
    pub const fn us(us: u64) -> Self {
        Self::ns(us.saturating_mul(1_000))
    }

    /// At most `ms` milliseconds, as [`Timeout::ns`].
    #[inline(always)]
    #[must_use]
    pub const fn ms(ms: u64) -> Self {
        Self::ns(ms.saturating_mul(1_000_000))
    }

    /// At most `secs` seconds, as [`Timeout::ns`].
    #[inline(always)]
    #[must_use]
    pub const fn secs(secs: u64) -> Self {
        Self::ns(secs.saturating_mul(1_000_000_000))
    }

    /// The timeout in a word of [`Options`](crate::Options): nanoseconds, as in SO_RCVTIMEO; 0: no
    /// limit.
    #[inline(always)]
    #[must_use]
    pub const fn of_option(ns: u64) -> Self {
        if ns < Self::END { Self(ns) } else { Self::NEVER }
    }

    /// The word of [`Options`](crate::Options) that says this: nanoseconds; 0: without limit. An
    /// option cannot say that a call does not wait ([`Options::NONBLOCK`](crate::Options::NONBLOCK)
    /// does): it becomes one nanosecond.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn option_ns(self) -> u64 {
        match self.0 {
            ns if ns < Self::END => ns,
            _ if self.is_non_blocking() => 1,
            _ => 0,
        }
    }

    /// Returns whether a call does not wait.
    #[inline(always)]
    #[must_use]
    pub const fn is_non_blocking(self) -> bool {
        self.0 == Self::NON_BLOCKING.0
    }

    /// The timeout as a word, for a broadcast.
    #[inline(always)]
    #[must_use]
    pub const fn packed(self) -> u64 {
        self.0
    }

    /// What [`Timeout::packed`] packed.
    #[inline(always)]
    #[must_use]
    pub const fn unpacked(word: u64) -> Self {
        Self(word)
    }
}

impl From<Duration> for Timeout {
    fn from(limit: Duration) -> Self {
        Self::ns(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Option<Duration>> for Timeout {
    fn from(limit: Option<Duration>) -> Self {
        limit.map_or(Self::NEVER, Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Timeout::secs(u64::MAX), Timeout::NEVER);
    }

    #[test]
    fn an_option_is_read_as_it_was_written() {
        for timeout in [Timeout::NEVER, Timeout::ns(1), Timeout::us(7), Timeout::secs(3)] {
            assert_eq!(Timeout::of_option(timeout.option_ns()), timeout);
        }
        assert_eq!(Timeout::of_option(Timeout::NON_BLOCKING.option_ns()), Timeout::ns(1));
        assert_eq!(Timeout::SOCKET.option_ns(), 0);
    }

    #[test]
    fn a_duration_of_nothing_does_not_wait() {
        assert_eq!(Timeout::from(Some(Duration::ZERO)), Timeout::NON_BLOCKING);
    }
}
