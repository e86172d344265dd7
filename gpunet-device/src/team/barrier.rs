//! Meeting all members.

use super::TeamHandle;
use crate::group::outcome::by_leader;
use crate::{Group, platform};
use core::mem::offset_of;
use gpunet_abi::team::{Rank, TeamState};
use gpunet_abi::{Error, Result};

impl TeamHandle {
    /// Waits until all members have called it: what any of their calling groups had stored before
    /// is visible to all lanes.
    ///
    /// One group of each device takes part. After TimedOut the group may call it again, and meets
    /// the others at the same barrier.
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// Busy: another group of this device is at a barrier or in a collective. ConnectionReset: a
    /// member has died. NotConnected: a member has left. ConnectionAborted: a collective of this
    /// member failed before, so that nobody knows which barrier this would be. TimedOut, Canceled,
    /// NetworkDown: as for sockets.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result, team::TeamHandle};
    /// # fn example<G: Group>(g: &G, team: TeamHandle) -> Result<()> {
    /// team.barrier(g)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn barrier<G: Group>(self, g: &G) -> Result<()> {
        g.sync();
        by_leader(g, || self.locked(Self::meet))?;
        Ok(())
    }

    /// Runs a collective between its two barriers. The first: all members are in it, so that what
    /// it writes is no longer used for what came before. The second: it is complete, and what it
    /// reads may be changed.
    #[inline(always)]
    #[doc(hidden)]
    pub fn collectively<G: Group>(self, g: &G, body: impl FnOnce()) -> Result<()> {
        g.sync();
        by_leader(g, || self.enter())?;
        body();
        g.sync();
        by_leader(g, || self.leave())?;
        Ok(())
    }

    /// Makes all later barriers and collectives of this member fail with ConnectionAborted. This
    /// one was left out, and the other members would take the next one for it. It is for a caller
    /// that does not know how this one ended.
    #[doc(hidden)]
    pub fn leave_step<G: Group>(self, g: &G) {
        g.sync();
        if g.is_leader() {
            self.out_of_step().set(1);
        }
    }

    /// Enters a collective, by its first barrier, and keeps the lock. By one lane.
    fn enter(self) -> Result<u64> {
        self.lock()?;
        let met = self.meet();
        if met.is_err() {
            self.unlock();
        }
        met
    }

    /// Ends the collective that [`TeamHandle::enter`] has begun. By one lane.
    fn leave(self) -> Result<u64> {
        let met = self.meet();
        if met.is_err() {
            // The next barrier of this member would be this one.
            self.out_of_step().set(1);
        }
        self.unlock();
        met
    }

    fn locked(self, body: impl FnOnce(Self) -> Result<u64>) -> Result<u64> {
        self.lock()?;
        let result = body(self);
        self.unlock();
        result
    }

    #[inline(always)]
    fn collective_lock(self) -> *mut u32 {
        (self.state + offset_of!(TeamState, collective_lock) as u64) as *mut u32
    }

    fn lock(self) -> Result<()> {
        // SAFETY: a lock of the state, among this device's threads.
        if unsafe { platform::lock(self.collective_lock(), 0, 1) } { Ok(()) } else { Err(Error::Busy) }
    }

    fn unlock(self) {
        // SAFETY: taken by `lock`.
        unsafe { platform::unlock(self.collective_lock(), 1, 0) };
    }

    /// Meets all members. By the lane that has the lock, after a barrier of its group.
    fn meet(self) -> Result<u64> {
        if self.out_of_step().peek() != 0 {
            return Err(Error::ConnectionAborted);
        }
        // SAFETY: the layout lies in the device's own memory and does not change.
        let layout = unsafe { (&raw const (*self.state()).layout).read() };
        let number = self.passed().peek() + 1;
        let mut at = 0;
        while at < self.size() {
            // Oneself last: all start with their right neighbour, so that no member's block gets
            // all stores at once.
            let to = Rank((self.rank + 1 + at) % self.size);
            self.publish(self.block_word(to, layout.arrived_of(self.rank())), number, to);
            at += 1;
        }
        let arrived =
            |member| self.block_word(self.rank(), layout.arrived_of(Rank(member))).observe() >= number;
        // One who has left before it has come never will, whomever this member waits for first.
        let in_vain = |left: u64| {
            let mut member = 0;
            while member < self.size() && (left >> member & 1 == 0 || arrived(member)) {
                member += 1;
            }
            member < self.size()
        };
        let mut from = 0;
        while from < self.size() {
            self.await_words(in_vain, || if arrived(from) { Some(0) } else { None })?;
            from += 1;
        }
        self.passed().set(number);
        Ok(number)
    }
}
