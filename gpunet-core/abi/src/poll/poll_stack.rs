//! The stack of a poll group: the sockets that some block is to look at, linked by their slots. Any
//! number of blocks push and take.
//!
//! ```text
//!             GroupWords::stack          polls[5]        polls[2]
//!           +-------------------+       +------+        +------+
//!           | gen. | count |  6 | ----> |  3   | -----> |  0   |          slots 5 and 2, as slot + 1
//!           +-------------------+       +------+        +------+
//! ```
//!
//! An agent that wants a socket to be examined *marks* it ([`PollState::is_stacked`]), and pushes
//! its slot only if it was not marked before. The block that takes a slot off a stack clears the
//! mark. In between, the slot is on the stack of its group, or in the hands of one block for some
//! instructions.
//!
//! **A marked socket joins no other group.** A socket that leaves its group stays marked, and on
//! the stack: if it comes back, nothing has to be done. The block that adds it to another group
//! takes it off first ([`take_off`]). The block that closes a group, or makes the next one in its
//! slot, clears all marks ([`replace`]).

use crate::poll::poll_group::{Holder, Phase, PollState, StackTop};
use crate::sync::hand_off::{self, HandOff};

/// The stack of one group, as its device sees it.
pub trait SlotStack {
    /// The group's generation.
    fn generation(&self) -> u32;
    /// How many slots there are.
    fn slots(&self) -> u32;
    /// Loads the top: an acquire, which makes the link of the slot on top visible.
    fn top(&self) -> StackTop;
    /// Changes the top from `from` to `to`. Acquire and release.
    ///
    /// # Errors
    /// The top, when it is not `from`.
    fn exchange(&self, from: StackTop, to: StackTop) -> Result<(), StackTop>;
    /// Loads the link of a slot: the next slot + 1, or 0. It orders nothing.
    fn next(&self, slot: u32) -> u32;
    /// Stores the link of a slot, ordering nothing.
    fn set_next(&self, slot: u32, next: u32);
    /// Changes the state of the socket in a slot if `change` gives a new one; returns the old one
    /// and the new one. Acquire and release.
    fn change(
        &self,
        slot: u32,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Option<(PollState, PollState)>;
}

/// Pushes a slot that the caller has marked. If the group is closed, nobody looks at the slot, and
/// the mark is cleared.
pub fn push<S: SlotStack>(stack: &S, slot: u32) {
    let mut top = stack.top();
    while top.is_open(stack.generation()) {
        stack.set_next(slot, top.next());
        match stack.exchange(top, top.with(slot + 1)) {
            Ok(()) => return,
            Err(now) => top = now,
        }
    }
    unmark(stack, slot);
}

/// Takes sockets from the top until one is to be looked at; returns its slot, and the state in
/// which `holder` holds it.
pub fn take<S: SlotStack>(stack: &S, holder: Holder) -> Option<(u32, PollState)> {
    loop {
        let slot = pop(stack)?;
        let popped = stack.change(slot, |state| {
            let state = state.with_stacked(false);
            Some(if state.phase() == Phase::Queued { state.held(holder) } else { state })
        });
        match popped {
            Some((old, held)) if old.phase() == Phase::Queued => return Some((slot, held)),
            _ => {}
        }
    }
}

/// Takes a socket that has left its group off the group's stack, and with it all others above that
/// have left. The rest is pushed again; returns whether there was any, for whose sake waiting
/// blocks are to be woken.
///
/// It does not find a slot that another block has in its hands; then the socket is still marked,
/// for some instructions.
pub fn take_off<S: SlotStack>(stack: &S, slot: u32) -> bool {
    // The slots that stay, in the order in which they are pushed again: the next slot that is
    // looked for is often the one below.
    let (mut first, mut last) = (0, None);
    while let Some(popped) = pop(stack) {
        let left = |state: PollState| {
            let has_left = state.phase() == Phase::None;
            if has_left { Some(state.with_stacked(false)) } else { None }
        };
        if stack.change(popped, left).is_none() {
            stack.set_next(popped, 0);
            match last {
                None => first = popped + 1,
                Some(last) => stack.set_next(last, popped + 1),
            }
            last = Some(popped);
        }
        if popped == slot {
            break;
        }
    }
    let stay = first != 0;
    for_each(stack, first, |slot| push(stack, slot));
    stay
}

/// Puts another top in place, closed or of another group; takes the marks of all sockets away that
/// are on the stack.
pub fn replace<S: SlotStack>(stack: &S, with: StackTop) {
    let mut top = stack.top();
    while let Err(now) = stack.exchange(top, with) {
        top = now;
    }
    for_each(stack, top.next(), |slot| unmark(stack, slot));
}

/// Takes the slot on top.
fn pop<S: SlotStack>(stack: &S) -> Option<u32> {
    let mut top = stack.top();
    loop {
        let slot = top.slot().filter(|slot| top.is_open(stack.generation()) && *slot < stack.slots())?;
        // If another block takes the slot meanwhile, the exchange fails, because the count differs.
        let next = stack.next(slot);
        hand_off::at(HandOff::EntryRead);
        match stack.exchange(top, top.with(next)) {
            Ok(()) => {
                hand_off::at(HandOff::StackPopped);
                return Some(slot);
            }
            Err(now) => top = now,
        }
    }
}

fn unmark<S: SlotStack>(stack: &S, slot: u32) {
    stack.change(slot, |state| Some(state.with_stacked(false)));
}

/// Calls `with` for each slot of a chain that the caller has in its hands; `with` gives the slot
/// away.
fn for_each<S: SlotStack>(stack: &S, mut next: u32, with: impl Fn(u32)) {
    while let Some(slot) = next.checked_sub(1)
        && slot < stack.slots()
    {
        // Before it is given away: then the link is another's.
        next = stack.next(slot);
        with(slot);
    }
}
