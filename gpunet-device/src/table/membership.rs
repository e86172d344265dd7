//! Which sockets are in which poll group: what a close leaves, and what tells a group of a change.

use crate::table::lists::List;
use crate::table::member::{Member, Stack, queue};
use crate::table::slots;
use crate::{Net, platform};
use gpunet_abi::Handle;
use gpunet_abi::atomic::{AtomicU32, Ordering, fence};
use gpunet_abi::entry::Kind;
use gpunet_abi::poll_group::{LISTS, Phase, PollState, WatchWord};

/// Changes a count of a group if `change` gives a new one; returns whether it did.
pub(crate) fn raise(count: *mut u32, change: impl Fn(u32) -> Option<u32>) -> bool {
    // SAFETY: an aligned word of the device region, which only this device's threads touch,
    // atomically.
    let count = unsafe { AtomicU32::from_ptr(count) };
    // Ordering: Relaxed; a count, which brings no data. What follows orders it.
    let mut old = count.load(Ordering::Relaxed);
    while let Some(new) = change(old) {
        match count.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => old = now,
        }
    }
    false
}

/// Takes a socket out of its group, if it is in one: it is closed, or removed. By one lane.
#[inline(never)]
pub(crate) fn forget(net: Net, socket: Handle) {
    let member = Member { net, slot: socket.slot() };
    take_out(member, |state| state.generation() == socket.generation());
}

/// Takes a socket out of its group if `which` says so.
pub(crate) fn take_out(member: Member, which: impl Fn(PollState) -> bool) {
    let leaving = |state: PollState| {
        let is_it = state.phase() != Phase::None && which(state);
        is_it.then(|| state.with_phase(Phase::Changing))
    };
    // The launch was cancelled while another block stores the watch word. That block continues, and
    // finds the socket closed.
    let Ok(Some(_)) = member.change_settled(leaving) else { return };
    member.net.watch(member.slot).set(WatchWord::NONE.0);
    let group = Handle::from_raw(member.group());
    member.change(|state| Some(state.removed()));
    let Some(group) = group.filter(|group| slots::kind_of(member.net, *group) == Ok(Kind::Group)) else {
        return;
    };
    let words = member.net.group_words(group.slot());
    // SAFETY: a field address in the device region.
    let members = unsafe { &raw mut (*words).members };
    raise(members, |count| count.checked_sub(1));
}

/// Makes a block look again at a socket, because this device has changed what a poll of it finds.
/// By one lane.
#[inline(never)]
pub(crate) fn touch(net: Net, slot: u32) {
    let member = Member { net, slot };
    // Ordering: SeqCst, pairs with the fence in `settle`: either the look that follows it finds
    // what this device has changed, or the socket is seen to be armed here.
    fence(Ordering::SeqCst);
    if member.state().phase() == Phase::Armed
        && queue(member, |state| (state.phase() == Phase::Armed).then_some(state))
        && let Some(group) = Handle::from_raw(member.group())
    {
        platform::wake_pollers(net.pollers(), net.epoch().as_ptr(), group.slot());
    }
}

/// Takes all sockets out of a group that was closed.
fn let_all_go(net: Net, group: Handle) {
    for slot in 0..net.context().slots {
        let member = Member { net, slot };
        if member.group() == group.raw() {
            take_out(member, |_| member.group() == group.raw());
        }
    }
}

/// Takes whatever stood in a slot that was just taken anew out of its group: the proxy has closed
/// it. By who took it.
pub(crate) fn reset(net: Net, slot: u32) {
    let member = Member { net, slot };
    if member.state().phase() != Phase::None {
        take_out(member, |_| true);
    }
    net.watch(slot).set(WatchWord::NONE.0);
}

/// Closes the lists of a group whose handle has died, and lets its sockets go. By one lane.
pub(crate) fn close_lists(net: Net, handle: Handle) {
    for index in 0..LISTS {
        List::of(net, handle, index).close();
    }
    Stack::of(net, handle).close();
    let_all_go(net, handle);
}
