//! What a poll group knows of one socket: its state, its token, and its place on the group's stack.

use crate::guard::WaitGuard;
use crate::timeout::Deadline;
use crate::{Net, platform};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::poll_group::{Holder, Phase, PollState, StackTop};
use gpunet_abi::{Handle, Result};

/// The present launch of that number as a holder.
pub(super) fn holder(net: Net, launch: u32) -> Holder {
    Holder::new(launch, net.ended(launch))
}

/// The socket in a slot, as its poll group knows it.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) net: Net,
    pub(super) slot: u32,
}

impl Member {
    fn state_word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: an aligned word of the device region, which only this device's threads touch, atomically.
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

    /// The state.
    pub(super) fn state(self) -> PollState {
        // Ordering: Acquire, pairs with the Release of `change` in another block: token and group.
        PollState(self.state_word().load(Ordering::Acquire))
    }

    /// Changes the state if `change` gives a new one; returns the old one and the new one.
    pub(super) fn change(
        self,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Option<(PollState, PollState)> {
        let mut old = self.state();
        loop {
            let new = change(old)?;
            // Ordering: AcqRel among this device's threads: token and group were stored before, and what the block that
            // changed the state last has left is visible.
            let changed =
                self.state_word().compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire);
            match changed {
                Ok(_) => {
                    hand_off::at(HandOff::PollStateChanged);
                    return Some((old, new));
                }
                Err(now) => old = PollState(now),
            }
        }
    }

    /// As [`Member::change`], once no other block is about to change the socket, which takes some instructions.
    ///
    /// # Errors
    /// Canceled; NetworkDown.
    pub(super) fn change_settled(
        self,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Result<Option<(PollState, PollState)>> {
        let mut guard = WaitGuard::new(self.net, Deadline::NEVER);
        loop {
            let settled = |state: PollState| {
                if state.phase() == Phase::Changing { None } else { change(state) }
            };
            let changed = self.change(settled);
            if changed.is_some() || self.state().phase() != Phase::Changing {
                return Ok(changed);
            }
            if guard.is_due() {
                guard.check()?;
            }
            platform::back_off();
        }
    }

    /// The calling launch as a holder.
    pub(super) fn caller(self) -> Holder {
        holder(self.net, self.net.context().launch)
    }

    /// The caller's number for the socket.
    pub(super) fn token(self) -> u64 {
        // Ordering: Relaxed; ordered by the state.
        self.token_word().load(Ordering::Relaxed)
    }

    /// Stores the caller's number.
    pub(super) fn set_token(self, token: u64) {
        // Ordering: Relaxed; made visible by the change of the state that follows.
        self.token_word().store(token, Ordering::Relaxed);
    }

    /// The group that has the socket, or had it last, as a number.
    pub(super) fn group(self) -> i32 {
        // Ordering: Relaxed; ordered by the state.
        self.group_word().load(Ordering::Relaxed)
    }

    /// Stores the group. By the block that adds the socket.
    pub(super) fn set_group(self, group: i32) {
        // Ordering: Relaxed, as in `set_token`.
        self.group_word().store(group, Ordering::Relaxed);
    }
}

/// The sockets that some block of a group is to look at: those added, modified or rearmed, and direct streams that are ready.
#[derive(Clone, Copy)]
pub(super) struct Stack {
    net: Net,
    group: Handle,
}

impl Stack {
    pub(super) const fn of(net: Net, group: Handle) -> Self {
        Self { net, group }
    }

    fn top_word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: an aligned word of the device region, which only this device's threads touch, atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.net.group_words(self.group.slot())).stack) }
    }

    fn top(self) -> StackTop {
        // Ordering: Acquire, pairs with the Release of `exchange`: `next` of the slot on top.
        StackTop(self.top_word().load(Ordering::Acquire))
    }

    fn exchange(self, from: StackTop, to: StackTop) -> core::result::Result<(), StackTop> {
        // Ordering: AcqRel: `next` was stored, or read, before; Acquire to read the next one's.
        let changed = self.top_word().compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        changed.map(|_| ()).map_err(StackTop)
    }

    /// Begins the stack of a group that was just made.
    pub(super) fn begin(self) {
        // Ordering: Relaxed; made visible by the state of the group's slot.
        self.top_word().store(StackTop::empty(self.group.generation()).0, Ordering::Relaxed);
    }

    /// Closes the stack: nobody pushes or pops any more.
    pub(super) fn close(self) {
        let mut top = self.top();
        while let Err(now) = self.exchange(top, StackTop::default()) {
            top = now;
        }
    }

    /// Returns whether nothing is on it.
    pub(super) fn is_empty(self) -> bool {
        // Ordering: Relaxed; a hint.
        StackTop(self.top_word().load(Ordering::Relaxed)).slot().is_none()
    }

    /// Puts a slot on top whose state was just marked as stacked.
    fn push(self, slot: u32) {
        let member = Member { net: self.net, slot };
        let mut top = self.top();
        // Of a closed group nobody looks at it.
        while top.is_open(self.group.generation()) {
            // Ordering: Relaxed; made visible by the exchange.
            member.next_word().store(top.next(), Ordering::Relaxed);
            match self.exchange(top, top.with(slot + 1)) {
                Ok(()) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes the slot on top.
    fn pop(self) -> Option<u32> {
        let mut top = self.top();
        loop {
            let slot = top
                .slot()
                .filter(|slot| top.is_open(self.group.generation()) && *slot < self.net.context().slots)?;
            // Ordering: Relaxed; if another block takes the slot meanwhile, the exchange fails, because the count differs.
            let next = Member { net: self.net, slot }.next_word().load(Ordering::Relaxed);
            hand_off::at(HandOff::EntryRead);
            match self.exchange(top, top.with(next)) {
                Ok(()) => return Some(slot),
                Err(now) => top = now,
            }
        }
    }

    /// Takes sockets from the stack until one is this group's and is to be looked at; returns it, held by the caller.
    pub(super) fn take(self) -> Option<(Member, PollState)> {
        loop {
            let member = Member { net: self.net, slot: self.pop()? };
            let is_ours = || member.group() == self.group.raw();
            let popped = member.change(|state| {
                let state = state.with_stacked(false);
                let is_queued = state.phase() == Phase::Queued && is_ours();
                Some(if is_queued { state.held(member.caller()) } else { state })
            });
            match popped {
                Some((old, new)) if old.phase() == Phase::Queued && new.phase() == Phase::Held => {
                    return Some((member, new));
                }
                // Added to another group while it was on this stack.
                Some((_, new)) if new.phase() == Phase::Queued => requeue(member),
                _ => {}
            }
        }
    }
}

/// Pushes a socket that waits to be looked at and is on no stack.
fn requeue(member: Member) {
    let queued = |state: PollState| {
        let waits = state.phase() == Phase::Queued && !state.is_stacked();
        if waits { Some(state.with_stacked(true)) } else { None }
    };
    if member.change(queued).is_some()
        && let Some(group) = Handle::from_raw(member.group())
    {
        Stack::of(member.net, group).push(member.slot);
        platform::wake_pollers(member.net.pollers(), member.net.epoch().as_ptr(), group.slot());
    }
}

/// Makes some block of its group look at a socket if `queue` says so of its state, and puts what it gives in place;
/// returns whether it did. The result of `queue` is queued.
pub(super) fn queue(member: Member, queue: impl Fn(PollState) -> Option<PollState>) -> bool {
    let queued = member.change(|state| Some(queue(state)?.with_phase(Phase::Queued).with_stacked(true)));
    let Some((old, _)) = queued else { return false };
    if !old.is_stacked()
        && let Some(group) = Handle::from_raw(member.group())
    {
        Stack::of(member.net, group).push(member.slot);
    }
    true
}
