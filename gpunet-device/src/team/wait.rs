//! Waiting for other members.

use super::{SymmetricPtr, TeamHandle};
use crate::group::outcome::by_leader;
use crate::wait::guard::WaitGuard;
use crate::{Group, platform};
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::team::{MAX_VALUE, Rank, Signal};
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Error, Result, Word};

/// A signal of a source that has reached a value, or not yet: for [`TeamHandle::wait_until_any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Condition {
    /// The smallest value that will do.
    pub value: u64,
    /// The signal.
    pub signal: Signal,
    /// The member that writes it.
    pub source: Rank,
}

impl TeamHandle {
    /// Waits until the word that `source` writes for `signal` is at least `value`; returns what it
    /// is then.
    ///
    /// Whatever the source had stored before it signalled is visible to all lanes.
    ///
    /// # Cooperation
    /// All lanes call it together; one polls. Several groups may wait for one signal.
    ///
    /// # Errors
    /// InvalidArgument: no such member or signal, or a value above [`MAX_VALUE`]. ConnectionReset:
    /// a member has died. NotConnected: the source has left. TimedOut, Canceled, NetworkDown: as
    /// for sockets.
    #[inline(always)]
    pub fn wait_until<G: Group>(self, g: &G, signal: Signal, source: Rank, value: u64) -> Result<u64> {
        self.check_condition(Condition { value, signal, source })?;
        by_leader(g, || {
            let word = self.signal_word(signal, self.rank(), source);
            self.await_words(Self::all_left(1 << source.0), || {
                let seen = Self::value_of(word);
                if seen >= value { Some(seen) } else { None }
            })
        })
    }

    /// Waits until one of the conditions holds; returns the number of the first that does.
    ///
    /// # Cooperation
    /// All lanes call it together, with the same conditions; one polls them in turn.
    ///
    /// # Errors
    /// As [`TeamHandle::wait_until`]. NotConnected only when all sources have left.
    /// InvalidArgument: no conditions.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result, team::{Condition, Rank, Signal, TeamHandle}};
    /// # fn example<G: Group>(g: &G, team: TeamHandle) -> Result<()> {
    /// let first = |source| Condition { value: 1, signal: Signal(0), source };
    /// let which = team.wait_until_any(g, &[first(Rank(0)), first(Rank(1))])?;
    /// # let _ = which;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn wait_until_any<G: Group>(self, g: &G, conditions: &[Condition]) -> Result<usize> {
        let (mut sources, mut at) = (0, 0);
        while at < conditions.len() {
            self.check_condition(conditions[at])?;
            sources |= 1 << conditions[at].source.0;
            at += 1;
        }
        if sources == 0 {
            return Err(Error::InvalidArgument);
        }
        let found = by_leader(g, || {
            self.await_words(Self::all_left(sources), || {
                let mut at = 0;
                while at < conditions.len() {
                    let Condition { value, signal, source } = conditions[at];
                    if Self::value_of(self.signal_word(signal, self.rank(), source)) >= value {
                        return Some(at as u64);
                    }
                    at += 1;
                }
                None
            })
        })?;
        Ok(found as usize)
    }

    /// Returns whether the word that `source` writes for `signal` is at least `value`, without
    /// waiting. If so, what the source had stored before is visible to all lanes.
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// InvalidArgument: no such member or signal.
    #[inline(always)]
    pub fn test<G: Group>(self, g: &G, signal: Signal, source: Rank, value: u64) -> Result<bool> {
        self.check_condition(Condition { value, signal, source })?;
        let word = self.signal_word(signal, self.rank(), source);
        Ok(by_leader(g, || Ok(u64::from(Self::value_of(word) >= value)))? != 0)
    }

    /// What a signal's word says: its host program marks one whose source is gone, for streams that
    /// wait.
    #[inline(always)]
    fn value_of(word: Word) -> u64 {
        word.observe() & MAX_VALUE
    }

    /// Waits until the first element of `word` in this member's own part is at least `value`, which
    /// another member stores there ([`TeamHandle::signal_at`]); returns what it is then. What that
    /// member had stored before is visible to all lanes.
    ///
    /// # Cooperation
    /// All lanes call it together; one polls.
    ///
    /// # Errors
    /// InvalidArgument: a pointer of another team, no element there, or a value above
    /// [`MAX_VALUE`]. NotConnected: all others have left. Else as [`TeamHandle::wait_until`].
    #[inline(always)]
    pub fn wait_until_at<G: Group>(self, g: &G, word: SymmetricPtr<u64>, value: u64) -> Result<u64> {
        let word = self.word(word, value, self.rank())?;
        let others = (u64::MAX >> (64 - self.size())) & !(1 << self.rank().0);
        by_leader(g, || {
            self.await_words(Self::all_left(others), || {
                let seen = word.observe();
                if seen >= value { Some(seen) } else { None }
            })
        })
    }

    #[inline(always)]
    fn check_condition(self, condition: Condition) -> Result<()> {
        self.check_signal(condition.signal)?;
        self.check_rank(condition.source)?;
        if condition.value <= MAX_VALUE { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// A wait for one of `sources` (a bit each) cannot succeed once all of them have left.
    #[inline(always)]
    const fn all_left(sources: u64) -> impl Fn(u64) -> bool {
        move |left| sources & !left == 0
    }

    /// Waits until `poll` finds something, unless that is `in_vain` because these members (a bit
    /// each) have left. By one lane.
    #[inline(always)]
    pub(super) fn await_words(
        self,
        in_vain: impl Fn(u64) -> bool,
        poll: impl Fn() -> Option<u64>,
    ) -> Result<u64> {
        match poll() {
            Some(found) => Ok(found),
            None => self.await_slowly(in_vain, poll),
        }
    }

    fn await_slowly(self, in_vain: impl Fn(u64) -> bool, poll: impl Fn() -> Option<u64>) -> Result<u64> {
        let mut guard = WaitGuard::new(self.net, self.deadline()).waiting_for(Awaited::new(Call::Team));
        loop {
            if let Some(found) = poll() {
                return Ok(found);
            }
            if guard.is_due() {
                if let Some(error) = self.failure(&in_vain) {
                    return poll().ok_or(error);
                }
                guard.check()?;
                let (round, limit) = (guard.rounds(), guard.remaining_ns());
                platform::pause_for_bell(round, self.header(self.rank()), limit, self.is_polled(), || {
                    poll().is_some() || self.failure(&in_vain).is_some()
                });
            }
        }
    }

    /// Why the wait cannot succeed, if it cannot.
    #[inline(always)]
    fn failure(self, in_vain: impl Fn(u64) -> bool) -> Option<Error> {
        let broken = self.own_word(|layout| layout.broken).peek();
        let left = self.own_word(|layout| layout.left).peek();
        if broken == 0 && left == 0 {
            return None;
        }
        // Ordering: Acquire, pairs with the Release store of the host program, which comes after
        // the end of a member has come to it: what that member signalled before is found by the
        // looks that follow.
        fence(Ordering::Acquire);
        if broken != 0 {
            return Some(Error::from_errno(broken as u32 as i32));
        }
        if in_vain(left) { Some(Error::NotConnected) } else { None }
    }

    #[inline(always)]
    fn own_word(self, offset: impl FnOnce(&gpunet_abi::team::BlockLayout) -> u64) -> Word {
        // SAFETY: the layout lies in the device's own memory and does not change.
        let layout = unsafe { (&raw const (*self.state()).layout).read() };
        self.block_word(self.rank(), offset(&layout))
    }

    #[inline(always)]
    fn is_polled(self) -> bool {
        // SAFETY: the field does not change.
        unsafe { (*self.state()).is_polled != 0 }
    }
}
