//! What a poll knows of its set from the last one.

use crate::platform;
use gpunet_abi::epoch::Epoch;

/// What a group knows of a set from its last poll ([`crate::poll_again`]): up to which epoch none
/// of its sockets was ready but those whose entries have `revents`.
///
/// A block of the CPU device keeps nothing: its epoch does not tell of everything.
///
/// # Examples
///
/// ```
/// // Before the first poll of a set.
/// let cache = gpunet_device::PollCache::EMPTY;
/// # let _ = cache;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PollCache {
    seen: Option<Epoch>,
}

impl PollCache {
    /// Nothing is known: the next poll examines all sockets.
    pub const EMPTY: Self = Self { seen: None };

    /// Takes what is known: a poll that fails leaves nothing.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Epoch> {
        if platform::may_sleep() { None } else { self.seen.take() }
    }

    /// Keeps the epoch before which all sockets of the set were examined, or had not changed since
    /// they were.
    #[inline(always)]
    pub(super) fn keep(&mut self, seen: Option<Epoch>) {
        self.seen = seen;
    }
}
