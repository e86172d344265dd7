//! What both halves of a stream do: find their ring, and tell the other side.

use crate::outcome::by_leader;
use crate::slots::{self, Half};
use crate::{Group, Net, platform};
use core::mem::offset_of;
use gpunet_abi::entry::Direction;
use gpunet_abi::layout::SocketLine;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Handle, Link, Result, Word};

/// The ring's end that a direction in the books describes.
pub(crate) fn ring_end(d: &Direction, link: Link) -> RingEnd {
    // SAFETY: addresses that `slots::open` checked against the regions; they stay mapped while the
    // attachment lives.
    let (mine, theirs) =
        unsafe { (Word::from_ptr(d.mine as *mut u64), Word::from_ptr(d.theirs as *mut u64)) };
    RingEnd { base: d.base as *mut u8, capacity: d.capacity, mine, theirs, link }
}

/// A call that moves nothing still says whether the handle is dead.
#[cold]
pub(crate) fn check_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<usize> {
    by_leader(g, || slots::kind_of(net, handle).map(|_| 0)).map(|_| 0)
}

/// Tells whoever advances the other side of a half that its word has changed. By one lane.
#[inline(always)]
pub(crate) fn notify(net: Net, slot: u32, end: RingEnd, half: Half) {
    if !platform::MAY_SLEEP {
        // A GPU wakes nobody.
        return;
    }
    if let Some(partner) = end.link.partner() {
        platform::wake(match half {
            Half::Send => net.recv_park(partner),
            Half::Recv => net.send_park(partner),
        });
        platform::wake_pollers(net.pollers(), net.epoch().as_ptr());
    } else if end.link.is_far() {
        platform::wake(far_park(end.mine, half.other()));
        platform::ring_bell(slots::far(net, slot));
    } else {
        let (sleeping, doorbell) = net.data_thread(slot);
        platform::ring_doorbell(sleeping, doorbell);
    }
}

/// The flag of who waits for a word of a stream in an arena, for the half of theirs that polls it: in
/// the line that the word lies in.
#[inline(always)]
pub(crate) fn far_park(word: Word, half: Half) -> *mut u32 {
    let (word_at, flag_at) = match half {
        Half::Recv => (offset_of!(SocketLine, landed), offset_of!(SocketLine, recv_park)),
        Half::Send => (offset_of!(SocketLine, released), offset_of!(SocketLine, send_park)),
    };
    word.as_ptr().cast::<u8>().wrapping_sub(word_at).wrapping_add(flag_at).cast()
}

/// Bytes of a direct stream after which its totals are shown to the proxy. The store goes over the bus, and the
/// next release waits for it: by every MiB the bandwidth between two H200s was 3 % less.
const MIRROR_EVERY: u64 = 8 << 20;

/// Shows the proxy how far a half of a direct stream is, now and then: the words that it would scan of a
/// driven one. By one lane.
#[inline(always)]
pub(crate) fn mirror(net: Net, slot: u32, half: Half, link: Link, before: u64, now: u64) {
    if link.is_direct() && before / MIRROR_EVERY != now / MIRROR_EVERY {
        show(net, slot, half, now);
    }
}

/// Shows the proxy the position of a half of a direct stream. Nobody acts on it.
#[inline(always)]
pub(crate) fn show(net: Net, slot: u32, half: Half, position: u64) {
    match half {
        Half::Send => net.published(slot).set(position),
        Half::Recv => net.consumed(slot).set(position),
    }
}
