//! What a poll group knows of one socket: its state, its token, and its place on the group's stack.

use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Net, platform};
use gpunet_abi::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::poll_group::{Holder, Phase, PollState, StackTop};
use gpunet_abi::poll_stack::{self, SlotStack};
use gpunet_abi::{Handle, Result};

/// The present launch of that number as a holder.
pub(crate) fn holder(net: Net, launch: u32) -> Holder {
    Holder::new(launch, net.ended(launch))
}

/// The socket in a slot, as its poll group knows it.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) net: Net,
    pub(crate) slot: u32,
}

impl Member {
    fn state_word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: an aligned word of the device region, which only this device's threads touch,
        // atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.net.poll_entry(self.slot)).state) }
    }

    fn token_word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.net.poll_entry(self.slot)).token) }
    }

    fn group_word<'a>(self) -> &'a AtomicI32 {
        // SAFETY: as above.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.net.poll_entry(self.slot)).group) }
    }

    fn next_word<'a>(self) -> &'a AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.net.poll_entry(self.slot)).next) }
    }

    fn arm_word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.net.poll_entry(self.slot)).arm) }
    }

    /// The state.
    pub(crate) fn state(self) -> PollState {
        // Ordering: Acquire, pairs with the Release of `change` in another block: token and group.
        PollState(self.state_word().load(Ordering::Acquire))
    }

    /// Changes the state if `change` gives a new one; returns the old one and the new one.
    pub(crate) fn change(
        self,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Option<(PollState, PollState)> {
        let mut old = self.state();
        loop {
            let new = change(old)?;
            match self.exchange(old, new) {
                Ok(()) => return Some((old, new)),
                Err(now) => old = now,
            }
        }
    }

    /// Changes the state from one to another, unless it is a third by now, which it gives then.
    fn exchange(self, old: PollState, new: PollState) -> core::result::Result<(), PollState> {
        // Ordering: AcqRel among this device's threads: token and group were stored before, and
        // what the block that changed the state last has left is visible.
        let changed = self.state_word().compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire);
        changed.map(|_| hand_off::at(HandOff::PollStateChanged)).map_err(PollState)
    }

    /// As [`Member::change`], once no other block is about to change the socket, which takes some
    /// instructions.
    ///
    /// # Errors
    /// Canceled; NetworkDown.
    pub(crate) fn change_settled(
        self,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Result<Option<(PollState, PollState)>> {
        let mut guard = WaitGuard::new(self.net, Deadline::NEVER);
        let mut old = self.state();
        loop {
            if old.phase() == Phase::Changing {
                if guard.is_due() {
                    guard.check()?;
                }
                platform::back_off();
                old = self.state();
                continue;
            }
            // Of the state that is to be exchanged: one that settles between two loads must not be
            // taken for one that `change` leaves as it is.
            let Some(new) = change(old) else { return Ok(None) };
            match self.exchange(old, new) {
                Ok(()) => return Ok(Some((old, new))),
                Err(now) => old = now,
            }
        }
    }

    /// The calling launch as a holder.
    pub(crate) fn caller(self) -> Holder {
        holder(self.net, self.net.context().launch)
    }

    /// The caller's number for the socket.
    pub(crate) fn token(self) -> u64 {
        // Ordering: Relaxed; ordered by the state.
        self.token_word().load(Ordering::Relaxed)
    }

    /// Stores the caller's number.
    pub(crate) fn set_token(self, token: u64) {
        // Ordering: Relaxed; made visible by the change of the state that follows.
        self.token_word().store(token, Ordering::Relaxed);
    }

    /// The group that has the socket, or had it last, as a number.
    pub(crate) fn group(self) -> i32 {
        // Ordering: Relaxed; ordered by the state.
        self.group_word().load(Ordering::Relaxed)
    }

    /// The arm.
    pub(crate) fn arm(self) -> u64 {
        // Ordering: Relaxed; ordered by the state, and for who claims an entry by the list's count.
        self.arm_word().load(Ordering::Relaxed)
    }

    /// Stores the arm. By the block that arms the socket, which is *changing*.
    pub(crate) fn set_arm(self, arm: u64) {
        // Ordering: Relaxed; made visible by the publish of the watch word, and by the change of
        // the state that follows.
        self.arm_word().store(arm, Ordering::Relaxed);
    }

    /// Stores the group. By the block that adds the socket.
    pub(crate) fn set_group(self, group: i32) {
        // Ordering: Relaxed, as in `set_token`.
        self.group_word().store(group, Ordering::Relaxed);
    }
}

/// The sockets that some block of a group is to look at: those added, modified or rearmed, and
/// direct streams that are ready.
#[derive(Clone, Copy)]
pub(crate) struct Stack {
    net: Net,
    group: Handle,
}

impl Stack {
    pub(crate) const fn of(net: Net, group: Handle) -> Self {
        Self { net, group }
    }

    fn top_word<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: an aligned word of the device region, which only this device's threads touch,
        // atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.net.group_words(self.group.slot())).stack) }
    }

    /// Begins the stack of a group that was just made. The slot's last group may not have been
    /// closed by this device.
    pub(crate) fn begin(self) {
        poll_stack::replace(&self, StackTop::empty(self.group.generation()));
    }

    /// Closes the stack: nobody pushes or takes any more.
    pub(crate) fn close(self) {
        poll_stack::replace(&self, StackTop::default());
    }

    /// Returns whether nothing is on it.
    pub(crate) fn is_empty(self) -> bool {
        // Ordering: Relaxed; a hint.
        StackTop(self.top_word().load(Ordering::Relaxed)).slot().is_none()
    }

    /// Takes sockets from the stack until one is to be looked at; returns it, held by the caller.
    pub(crate) fn take(self) -> Option<(Member, PollState)> {
        let taken = poll_stack::take(&self, holder(self.net, self.net.context().launch));
        taken.map(|(slot, state)| (Member { net: self.net, slot }, state))
    }

    /// Takes a socket off that has left the group, unless another block is about to.
    pub(crate) fn take_off(self, slot: u32) {
        if poll_stack::take_off(&self, slot) {
            platform::wake_pollers(self.net.pollers(), self.net.epoch().as_ptr(), self.group.slot());
        }
    }
}

impl SlotStack for Stack {
    fn generation(&self) -> u32 {
        self.group.generation()
    }

    fn slots(&self) -> u32 {
        self.net.context().slots
    }

    // Ordering: Acquire, pairs with the Release of `exchange`: the link of the slot on top.
    fn top(&self) -> StackTop {
        StackTop(self.top_word().load(Ordering::Acquire))
    }

    // Ordering: AcqRel: a link was stored, or read, before; Acquire to read the next one's.
    fn exchange(&self, from: StackTop, to: StackTop) -> core::result::Result<(), StackTop> {
        let changed = self.top_word().compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        changed.map(|_| ()).map_err(StackTop)
    }

    // Ordering: Relaxed; made visible by the exchange that put the slot on top.
    fn next(&self, slot: u32) -> u32 {
        Member { net: self.net, slot }.next_word().load(Ordering::Relaxed)
    }

    // Ordering: Relaxed; made visible by the exchange that follows.
    fn set_next(&self, slot: u32, next: u32) {
        Member { net: self.net, slot }.next_word().store(next, Ordering::Relaxed);
    }

    fn change(
        &self,
        slot: u32,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Option<(PollState, PollState)> {
        Member { net: self.net, slot }.change(change)
    }
}

/// Makes some block of its group look at a socket if `queue` says so of its state, and puts what it
/// gives in place; returns whether it did. The result of `queue` is queued.
pub(crate) fn queue(member: Member, queue: impl Fn(PollState) -> Option<PollState>) -> bool {
    let queued = member.change(|state| Some(queue(state)?.with_phase(Phase::Queued).with_stacked(true)));
    let Some((old, _)) = queued else { return false };
    // While it is marked, it stays this group's.
    if !old.is_stacked()
        && let Some(group) = Handle::from_raw(member.group())
    {
        poll_stack::push(&Stack::of(member.net, group), member.slot);
    }
    true
}
