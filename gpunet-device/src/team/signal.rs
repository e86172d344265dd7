//! Telling a member how far this one is.

use super::{Element, SymmetricPtr, TeamHandle};
use crate::wait::guard::WaitGuard;
use crate::{Group, Source, platform};
use core::mem::offset_of;
use gpunet_abi::team::{MAX_VALUE, Rank, Signal, TeamState};
use gpunet_abi::{Error, Result, Word};

impl TeamHandle {
    /// Sets this member's word of a signal at `member` to `value`: what the group has stored before
    /// is there when the member sees it.
    ///
    /// Values only grow: waiters wait for "at least". One group at a time sets a signal; several
    /// groups [add](TeamHandle::signal_add).
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// InvalidArgument: no such member or signal, or a value above [`MAX_VALUE`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result, team::{Rank, Signal, TeamHandle}};
    /// # fn example<G: Group>(g: &G, team: TeamHandle) -> Result<()> {
    /// let right = team.rank().right_of(team.size());
    /// let left = team.rank().left_of(team.size());
    /// for round in 1..=10 {
    ///     team.signal(g, Signal(0), round, right)?;
    ///     team.wait_until(g, Signal(0), left, round)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn signal<G: Group>(self, g: &G, signal: Signal, value: u64, member: Rank) -> Result<()> {
        self.check_signal_to(signal, value, member)?;
        g.sync();
        if g.is_leader() {
            self.sent(signal, member).set(value);
            self.publish(self.signal_word(signal, member, self.rank()), value, member);
        }
        Ok(())
    }

    /// Adds `value` to this member's word of a signal at `member`, as [`TeamHandle::signal`] sets
    /// it. Any number of groups of this device may do so at a time.
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// InvalidArgument: no such member or signal, or a sum above [`MAX_VALUE`], which is not
    /// stored. Canceled, NetworkDown, TimedOut, when another group that adds does not come to an
    /// end.
    #[inline(always)]
    pub fn signal_add<G: Group>(self, g: &G, signal: Signal, value: u64, member: Rank) -> Result<()> {
        self.check_signal_to(signal, value, member)?;
        g.sync();
        crate::group::outcome::by_leader(g, || self.add(signal, value, member))?;
        Ok(())
    }

    /// Puts `source` ([`TeamHandle::put`]) and then signals ([`TeamHandle::signal`]): who sees the
    /// value sees the elements.
    ///
    /// # Cooperation
    /// All lanes call it together. When it returns, the source may be reused.
    ///
    /// # Errors
    /// Those of both.
    #[inline(always)]
    pub fn put_signal<G: Group, T: Element>(
        self,
        g: &G,
        to: SymmetricPtr<T>,
        source: impl Into<Source>,
        signal: Signal,
        value: u64,
        member: Rank,
    ) -> Result<()> {
        self.check_signal_to(signal, value, member)?;
        self.put_nbi(g, to, source, member)?;
        self.signal(g, signal, value, member)
    }

    /// Stores `value` into the first element of `to` in the part of `member`, as
    /// [`TeamHandle::signal`] stores into a signal's word: what the group has stored before is
    /// there when the member sees it ([`TeamHandle::wait_until_at`]).
    ///
    /// A word has one source, and its values grow, as those of signals do; but nothing keeps for it
    /// who writes it, and the one that waits does not say for whom. Programs that were written for
    /// NVSHMEM have their signals in symmetric memory.
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// InvalidArgument: no such member, a pointer of another team, no element there, or a value
    /// above [`MAX_VALUE`].
    #[inline(always)]
    pub fn signal_at<G: Group>(self, g: &G, to: SymmetricPtr<u64>, value: u64, member: Rank) -> Result<()> {
        let word = self.word(to, value, member)?;
        g.sync();
        if g.is_leader() {
            self.publish(word, value, member);
        }
        Ok(())
    }

    /// The word of symmetric memory that holds values up to `value`.
    #[inline(always)]
    pub(super) fn word(self, at: SymmetricPtr<u64>, value: u64, member: Rank) -> Result<Word> {
        let first = at.ptr(self, member)?;
        if at.is_empty() || value > MAX_VALUE {
            return Err(Error::InvalidArgument);
        }
        // SAFETY: an aligned element of that part, which stays mapped
        // (`SymmetricPtr::from_raw_parts`).
        Ok(unsafe { Word::from_ptr(first) })
    }

    #[inline(always)]
    fn check_signal_to(self, signal: Signal, value: u64, member: Rank) -> Result<()> {
        self.check_signal(signal)?;
        self.check_rank(member)?;
        if value <= MAX_VALUE { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// By one lane.
    fn add(self, signal: Signal, value: u64, member: Rank) -> Result<u64> {
        let lock = (self.state + offset_of!(TeamState, signal_lock) as u64) as *mut u32;
        let mut guard = WaitGuard::new(self.net(), self.deadline());
        // SAFETY: a lock of the state, among this device's threads.
        while !unsafe { platform::lock(lock, 0, 1) } {
            // Another group has it for some stores, unless it has died.
            if guard.is_due() {
                guard.check()?;
            }
            platform::back_off();
        }
        let sent = self.sent(signal, member);
        // Under the lock: no smaller value may be stored after a larger one.
        let sum = sent.peek() + value;
        let is_possible = sum <= MAX_VALUE;
        if is_possible {
            sent.set(sum);
            self.publish(self.signal_word(signal, member, self.rank()), sum, member);
        }
        // SAFETY: taken above.
        unsafe { platform::unlock(lock, 1, 0) };
        if is_possible { Ok(sum) } else { Err(Error::InvalidArgument) }
    }

    /// Publishes a word of a block and wakes its owner's CPU blocks. By one lane, after a barrier
    /// of its group.
    #[inline(always)]
    pub(super) fn publish(self, word: Word, value: u64, member: Rank) {
        word.publish(value);
        platform::ring_bell(self.header(member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timeout;
    use crate::test_device::with_device;

    /// A group that has the lock dies, and with it the proxy.
    #[test]
    fn an_addition_does_not_wait_for_ever() {
        with_device(|net| {
            let mut state = [0u64; size_of::<TeamState>() / 8];
            let at = offset_of!(TeamState, signal_lock);
            state[at / 8] = 1 << (at % 8 * 8);
            // SAFETY: a state of zeros; the call touches only its lock.
            let team = unsafe { TeamHandle::from_raw(net, state.as_mut_ptr() as u64, 0, 2) };
            assert_eq!(team.add(Signal(0), 1, Rank(1)), Err(Error::NetworkDown));
            for timeout in [Timeout::ns(1), Timeout::NON_BLOCKING] {
                assert_eq!(team.timeout(timeout).add(Signal(0), 1, Rank(1)), Err(Error::TimedOut));
            }
        });
    }
}
