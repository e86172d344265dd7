//! Looks at a socket that the calling block holds: delivers it, or arms it.

use crate::poll::readiness::examine;
use crate::poll::{POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, PollFd};
use crate::socket::half::announce_consumed;
use crate::socket::unpublished::publish_deferred;
use crate::table::member::Member;
use crate::table::membership::forget;
use gpunet_abi::Handle;
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::entry::GroupId;
use gpunet_abi::epoch::Changes;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::poll_group::{Phase, PollState, WatchWord};

/// What is asked for, in three bits.
pub(super) const fn packed(events: i16) -> u32 {
    (events & POLLIN != 0) as u32
        | ((events & POLLOUT != 0) as u32) << 1
        | ((events & POLLRDHUP != 0) as u32) << 2
}

/// What [`packed`] packed.
const fn unpacked(bits: u32) -> i16 {
    (if bits & 1 != 0 { POLLIN } else { 0 })
        | (if bits & 2 != 0 { POLLOUT } else { 0 })
        | (if bits & 4 != 0 { POLLRDHUP } else { 0 })
}

/// What a look has found.
enum Found {
    Ready(i16),
    /// Not ready.
    Nothing,
    /// The socket is closed.
    Gone,
}

fn look(member: Member, state: PollState) -> Found {
    let handle = Handle::new(member.slot, state.generation());
    let fd = PollFd { handle: handle.raw(), events: unpacked(state.events()), revents: 0 };
    match examine(member.net, fd, Changes::Any) {
        Some(found) if found.revents & POLLNVAL != 0 => Found::Gone,
        Some(found) if found.revents != 0 => Found::Ready(found.revents),
        _ => Found::Nothing,
    }
}

/// Returns whether a direct stream that is armed is ready.
pub(super) fn is_ready(member: Member, state: PollState) -> bool {
    !matches!(look(member, state), Found::Nothing)
}

/// Looks at a socket that this block holds; returns what is true of it and in which state the block
/// holds it, or `None` if the block does not any more: the socket is armed, closed, or another
/// block's.
pub(super) fn settle(
    member: Member,
    group: Handle,
    held: PollState,
    caller: GroupId,
) -> Option<(i16, PollState)> {
    let handle = Handle::new(member.slot, held.generation());
    let armed = loop {
        match look(member, held) {
            Found::Ready(revents) => return Some((revents, held)),
            Found::Gone => {
                forget(member.net, handle);
                return None;
            }
            Found::Nothing => {}
        }
        // The sender may have no room for what the block waits for, or wait for what calls by
        // handle have left.
        announce_consumed(member.net, handle, caller);
        publish_deferred(member.net, handle);
        let armed = arm(member, group, held)?;
        if armed.phase() == Phase::Armed {
            break armed;
        }
        // Its entry has come and gone: it told of something else than what is waited for, and there
        // will be no other.
    };
    hand_off::at(HandOff::Armed);
    // Ordering: SeqCst, pairs with the fence in the proxy's `tell_pollers`: either the look below
    // finds what it has published, or it finds the watch word, and pushes an entry. And with the
    // one in `touch`, for what this device changes.
    fence(Ordering::SeqCst);
    match look(member, armed) {
        Found::Nothing => None,
        Found::Gone => {
            forget(member.net, handle);
            None
        }
        Found::Ready(revents) => {
            let is_armed = |state: PollState| {
                if is_same(state, held) && state.phase() == Phase::Armed {
                    Some(state.held(member.caller()))
                } else {
                    None
                }
            };
            // Another block may have been faster, by the entry.
            member.change(is_armed).map(|(_, held)| (revents, held))
        }
    }
}

/// Arms a socket that this block holds, and returns its state: armed; or still held, if another
/// block has claimed the entry of the new arm before the socket was armed. `None`: the block does
/// not hold it any more.
fn arm(member: Member, group: Handle, held: PollState) -> Option<PollState> {
    // Nobody else changes the socket while the watch word is stored; but the entry may be claimed.
    let arming = |state: PollState| {
        let is_held = is_same(state, held) && state.phase() == Phase::Held;
        if is_held { Some(state.armed().with_phase(Phase::Changing)) } else { None }
    };
    // Together with the state's load. It does not change while this block holds the socket.
    let arm = member.arm().wrapping_add(1);
    let (before, _) = member.change(arming)?;
    if before.needs_arm() {
        // A late entry of the last arm may be claimed before this store: then the block looks once
        // more, and arms again.
        member.set_arm(arm);
        let watch = WatchWord::new(group, arm);
        // Pairs with the proxy's observe in `push_change`: who claims the entry then finds the
        // state of this arm, or a later one. An older one would make the entry late.
        member.net.watch(member.slot).publish(watch.0);
        hand_off::at(HandOff::Armed);
    }
    let armed = |state: PollState| {
        let waits = state.is_pending() || state.is_direct();
        Some(state.with_phase(if waits { Phase::Armed } else { Phase::Held }))
    };
    member.change(armed).map(|(_, state)| state)
}

/// Returns whether the same block has the same socket in both states, as far as their phases say
/// so.
const fn is_same(state: PollState, held: PollState) -> bool {
    state.turn() == held.turn() && state.generation() == held.generation()
}
