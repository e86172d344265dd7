//! The common part of both halves: they find their ring, announce, and wake the other side.

use crate::group::outcome::by_leader;
use crate::platform::CallGuard;
pub use crate::table::entry::ring_end;
use crate::table::{entry, membership, slots};
use crate::{Group, Net, platform};
use core::mem::offset_of;
use gpunet_abi::entry::{Entry, GroupId, lock};
use gpunet_abi::layout::SocketLine;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Direction, Error, Handle, Link, Result, Word};

/// Checks the handle for a call that moves nothing.
#[cold]
pub(crate) fn check_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<usize> {
    by_leader(g, || slots::kind_of(net, handle).map(|_| 0)).map(|_| 0)
}

/// Wakes the agent that advances the other side of a half, after its word has changed. By one lane.
#[inline(always)]
pub(crate) fn notify(net: Net, slot: u32, end: RingEnd, half: Direction) {
    if !platform::may_sleep() {
        // A GPU wakes nobody.
        return;
    }
    if let Some(partner) = end.link.partner() {
        platform::wake(match half {
            Direction::Send => net.recv_park(partner),
            Direction::Recv => net.send_park(partner),
        });
        platform::wake_pollers(net.pollers(), net.epoch().as_ptr(), partner);
    } else if end.link.is_remote() {
        platform::wake(remote_park(end.mine, opposite(half)));
        platform::ring_bell(entry::remote_part(net, slot));
    } else if let Some(thread) = end.link.data_thread() {
        let (sleeping, doorbell) = net.data_thread(thread);
        platform::ring_doorbell(sleeping, doorbell);
    }
}

/// What the other end calls the direction.
#[inline(always)]
const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Send => Direction::Recv,
        Direction::Recv => Direction::Send,
    }
}

/// Wakes the groups that poll the socket in `slot`, after another group has changed what they find.
/// By one lane.
#[inline(always)]
pub(crate) fn wake_own_pollers(net: Net, slot: u32) {
    membership::touch(net, slot);
    platform::wake_pollers(net.pollers(), net.epoch().as_ptr(), slot);
}

/// Wakes the groups that wait for the other end's words of a stream, after another group has closed
/// it. By one lane that has the slot for itself.
pub(crate) fn wake_waiting(net: Net, handle: Handle) {
    if !platform::may_sleep() {
        // A GPU's groups poll.
        return;
    }
    for direction in [Direction::Send, Direction::Recv] {
        let (half, link) = entry::half(net, handle, direction);
        platform::wake(match direction {
            _ if link.is_remote() => remote_park(ring_end(&half, link).theirs, direction),
            Direction::Send => net.send_park(handle.slot()),
            Direction::Recv => net.recv_park(handle.slot()),
        });
    }
}

/// The park flag of the waiter for a word of a stream in an arena, by the half that polls it: in
/// the line that the word lies in.
#[inline(always)]
pub(crate) fn remote_park(word: Word, half: Direction) -> *mut u32 {
    let (word_at, flag_at) = match half {
        Direction::Recv => (offset_of!(SocketLine, landed), offset_of!(SocketLine, recv_park)),
        Direction::Send => (offset_of!(SocketLine, released), offset_of!(SocketLine, send_park)),
    };
    word.as_ptr().cast::<u8>().wrapping_sub(word_at).wrapping_add(flag_at).cast()
}

/// Bytes of a direct stream after which its totals are shown to the proxy. The store goes over the
/// bus, and the next release waits for it: by every MiB the bandwidth between two H200s was 3 %
/// less.
const MIRROR_EVERY: u64 = 8 << 20;

/// Shows the proxy how far a half of a direct stream is, now and then: the words that it would scan
/// of a driven one. By one lane.
#[inline(always)]
pub(crate) fn mirror(net: Net, slot: u32, half: Direction, link: Link, before: u64, now: u64) {
    if link.is_direct() && before / MIRROR_EVERY != now / MIRROR_EVERY {
        show(net, slot, half, now);
    }
}

/// Shows the proxy the position of a half of a direct stream, and how many lines it has sent.
/// Nobody acts on it.
#[cold]
#[inline(never)]
pub(crate) fn show(net: Net, slot: u32, half: Direction, position: u64) {
    match half {
        Direction::Send => net.published(slot).set(position),
        Direction::Recv => net.consumed(slot).set(position),
    }
    net.lines_sent(slot).set(entry::lines_sent(net.entry(slot)));
}

/// Records and publishes that this end gives a half up, because the other end wrote an invalid
/// word. By one lane.
///
/// It finds the ring's end in the table: were it given the caller's by its address, each lane would
/// keep the half in local memory and not in registers, for what never happens.
#[cold]
#[inline(never)]
pub(crate) fn give_up(net: Net, handle: Handle, half: Direction, word: StreamWord, seen: StreamWord) {
    entry::set_error(net, handle, Error::Protocol);
    entry::store_positions(net.entry(handle.slot()), half, word, seen);
    let (direction, link) = entry::half(net, handle, half);
    let end = ring_end(&direction, link);
    // At system scope on every link: the host may have taken the other end's direction.
    end.mine.publish(word.0);
    notify(net, handle.slot(), end, half);
}

/// Announces what the calling group has consumed of a stream and not announced yet, before it waits
/// in whatever call. By one lane, after a barrier of the group.
///
/// If groups share a stream, only the one that received last announces, under the lock, so the
/// position never goes back. For a half that the host has taken, triggers announce.
#[inline(never)]
pub(crate) fn announce_consumed(net: Net, handle: Handle, group: GroupId) {
    let _call = CallGuard::enter_any(net);
    let entry = net.entry(handle.slot());
    let is_ours = || entry::receiver(entry).peek() == group.0;
    let (before, (recv, link)) = (entry::announced(entry).peek(), entry::half(net, handle, Direction::Recv));
    let now = StreamWord(recv.position);
    if now.position() == before || !is_ours() || !slots::lock(net, handle, Direction::Recv, lock::ANNOUNCE) {
        return;
    }
    if is_ours() && slots::kind_of(net, handle).is_ok() {
        announce(net, handle.slot(), entry, ring_end(&recv, link), now, before);
    }
    slots::unlock(net, handle, Direction::Recv, lock::ANNOUNCE);
}

/// Publishes the word of a receiving half and wakes its waiter. `before` bytes were announced
/// earlier. By one lane.
#[inline(always)]
pub(crate) fn announce(net: Net, slot: u32, entry: *mut Entry, end: RingEnd, word: StreamWord, before: u64) {
    end.publish(word);
    mirror(net, slot, Direction::Recv, end.link, before, word.position());
    entry::announced(entry).set(word.position());
    notify(net, slot, end, Direction::Recv);
}

/// As [`announce`], where it is seldom needed.
#[cold]
#[inline(never)]
pub(crate) fn announce_late(
    net: Net,
    slot: u32,
    entry: *mut Entry,
    end: RingEnd,
    word: StreamWord,
    before: u64,
) {
    announce(net, slot, entry, end, word, before);
}
