//! An answer: where it comes, and how a group waits for it and takes it in.
#![allow(unsafe_code)]

use crate::function::Failure;
use crate::layout::Calls;
use crate::plain::Plain;
use crate::wire::{self, ANSWER_HEAD, Status};
use gpunet_device::abi::atomic::{Ordering, fence};
use gpunet_device::abi::waiting::{Awaited, Call};
use gpunet_device::group::Front;
use gpunet_device::internal::{Deadline, Lane, WaitGuard, load_published, load_units, yield_core};
use gpunet_device::{Error, Group, Net, Timeout};

/// In place of a status: the wait ended, and the length is its errno.
const WAIT_ENDED: u16 = u16::MAX;
/// Lanes of a warp.
const LANES: usize = 32;
/// Looks at units that are stored already, until something else must be wrong.
const LOOKS: u32 = 1 << 20;

/// Where an answer comes, and to which request.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) calls: Calls,
    pub(crate) net: Net,
    pub(crate) channel: u32,
    pub(crate) slot: u32,
    pub(crate) number: u64,
}

impl Place {
    /// The answer's place, and its tag.
    #[inline(always)]
    const fn place(&self) -> (*mut u64, u32) {
        (self.calls.answer(self.channel, self.slot), wire::answer_tag(self.number))
    }
}

/// Looks whether a wait for the host is to end. By the leader.
#[inline(always)]
pub(crate) fn end_of_wait(
    calls: Calls,
    net: Net,
    guard: &mut WaitGuard,
    timeout: Timeout,
) -> Result<(), Error> {
    if timeout.is_non_blocking() || !net.is_attached() {
        return Err(Error::WouldBlock);
    }
    if guard.is_due() {
        if calls.closed().peek() != 0 {
            return Err(Error::ConnectionAborted);
        }
        guard.check()?;
    }
    yield_core();
    Ok(())
}

/// The failure that the end of a wait is.
#[inline(always)]
pub(crate) fn of_wait(error: Error) -> Failure {
    if error == Error::ConnectionAborted { Failure::HostGone } else { Failure::Wait(error) }
}

/// Waits for an answer, and writes its words to `to`. All lanes call it, each with its own `to`.
#[inline(always)]
pub(crate) fn receive<G: Group, A: Plain>(
    g: &G,
    place: Place,
    timeout: Timeout,
    to: *mut A,
) -> Result<(), Failure> {
    let come = await_answer(g, place, timeout, const { size_of::<A>() })?;
    if come.len != size_of::<A>() {
        return Err(Failure::Malformed);
    }
    // SAFETY: an answer has so many bytes.
    unsafe { receive_payload(g, place, come, to.cast()) }
}

/// An answer whose head is there.
#[derive(Clone, Copy)]
pub(crate) struct Come<F> {
    /// How many bytes it has.
    pub(crate) len: usize,
    /// The lanes that have polled for the payload, too: each has its pair of units.
    front: Option<F>,
    pair: u64,
}

/// Waits for an answer of at most `most` bytes. All lanes call it.
///
/// A lane's loads from the host's memory take their trips nearly one after the other, those of a
/// warp take theirs at once. So the first warp polls for head and payload together; a lane alone
/// polls for the head.
#[inline(always)]
pub(crate) fn await_answer<G: Group>(
    g: &G,
    to: Place,
    timeout: Timeout,
    most: usize,
) -> Result<Come<G::Front>, Failure> {
    let (place, tag) = to.place();
    let lane = Lane::of(g);
    let is_shared = G::Front::IS_WARP && g.has_front(lane);
    let front = if is_shared { g.front(lane) } else { None };
    let (mut pair, mut head) = (0, 0);
    if front.is_some() || (!is_shared && lane.is_leader()) {
        let polled = if is_shared { pairs_of(most).min(LANES) } else { 1 };
        let rank = front.map_or(0, |front| front.rank());
        let first_of = |value| front.map_or(value, |front| front.first_of(value));
        let mut guard = WaitGuard::new(to.net, Deadline::of(timeout)).waiting_for(Awaited::new(Call::Host));
        let mut ended = 0;
        loop {
            let there;
            (pair, there) = if rank < polled { load_pair(place, rank, tag) } else { (0, 3) };
            head = first_of(pair);
            let is_complete = is_complete(rank, there, head);
            if front.map_or(is_complete, |front| front.all(is_complete)) {
                // A status that no host writes is that of a wait here.
                if status_of(head) == WAIT_ENDED {
                    head = 0;
                }
                break;
            }
            // What came before the end is taken: it is looked for once more.
            if ended != 0 {
                head = u64::from(wire::answer_head(ended as usize, WAIT_ENDED));
                break;
            }
            let mut errno = 0;
            if rank == 0
                && let Err(error) = end_of_wait(to.calls, to.net, &mut guard, timeout)
            {
                errno = error.errno() as u64;
            }
            ended = first_of(errno);
        }
    }
    let head = g.broadcast(head);
    let (len, status) = (head as u16, status_of(head));
    if status == WAIT_ENDED {
        return Err(of_wait(Error::from_errno(len.into())));
    }
    if status != Status::Answered as u16 {
        return Err(Failure::of(status, (head >> 32) as u32));
    }
    Ok(Come { len: len.into(), front, pair })
}

/// Writes the payload of an answer whose head is there. All lanes call it, and each writes all.
///
/// # Safety
/// `to` is writable for the answer's bytes, and a place has as many. If it is the same in several
/// lanes, they write the same.
#[inline(always)]
pub(crate) unsafe fn receive_payload<G: Group>(
    g: &G,
    place: Place,
    come: Come<G::Front>,
    to: *mut u8,
) -> Result<(), Failure> {
    if G::Front::IS_WARP && g.has_front(Lane::of(g)) {
        // SAFETY: the caller's contract.
        return unsafe { share_all(g, place, come, to) };
    }
    // All have loaded before the next call's answer can come to this place.
    // SAFETY: the caller's contract.
    let lost = u32::from(!unsafe { load_all(place, to, come.len) });
    if g.sum(lost) == 0 { Ok(()) } else { Err(Failure::Malformed) }
}

/// How many pairs of units hold an answer of so many bytes.
#[inline(always)]
fn pairs_of(len: usize) -> usize {
    (ANSWER_HEAD + wire::words(len)).div_ceil(2)
}

/// Loads a pair of units: their words, and which of them have the tag: bit 0 and bit 1.
#[inline(always)]
fn load_pair(place: *mut u64, pair: usize, tag: u32) -> (u64, u32) {
    // SAFETY: a pair of the ticket's place.
    let units = unsafe { load_units(place.wrapping_add(pair * 2)) };
    let there = u32::from(has_tag(units[0], tag)) | u32::from(has_tag(units[1], tag)) << 1;
    (units[0] & u64::from(u32::MAX) | units[1] << 32, there)
}

/// Returns whether those units of a pair are there that the head names. An answer without a payload
/// leaves all but the first as they were.
#[inline(always)]
fn is_complete(pair: usize, there: u32, head: u64) -> bool {
    let units = ANSWER_HEAD + wire::words((head as u16).into());
    (there & 1 != 0 || (pair > 0 && pair * 2 >= units)) && (there & 2 != 0 || pair * 2 + 1 >= units)
}

/// The part of [`receive_payload`] for groups with a first warp: it gives all lanes the pairs that
/// its lanes have, one after another, and loads more.
///
/// # Safety
/// As [`receive_payload`].
#[inline(always)]
unsafe fn share_all<G: Group>(g: &G, to: Place, come: Come<G::Front>, bytes: *mut u8) -> Result<(), Failure> {
    let (place, tag) = to.place();
    let Come { len, front, mut pair } = come;
    let (mut base, pairs, is_aligned) = (0, pairs_of(len), bytes.addr().is_multiple_of(4));
    loop {
        let mut at = 0;
        while at < LANES && base + at < pairs {
            let both = g.broadcast(front.map_or(0, |front| front.of(at, pair)));
            // SAFETY: the caller's contract.
            unsafe { write_pair(bytes, base + at, both, len, is_aligned) };
            at += 1;
        }
        base += LANES;
        if base >= pairs {
            return Ok(());
        }
        let mut is_lost = false;
        if let Some(front) = front
            && base + front.rank() < pairs
        {
            let (next, units) = (base + front.rank(), ANSWER_HEAD + wire::words(len));
            is_lost = true;
            for _ in 0..LOOKS {
                let there;
                (pair, there) = load_pair(place, next, tag);
                if there & 1 != 0 && (there & 2 != 0 || next * 2 + 1 >= units) {
                    is_lost = false;
                    break;
                }
            }
        }
        if g.sum(is_lost.into()) != 0 {
            return Err(Failure::Malformed);
        }
    }
}

/// Loads the bytes of an answer whose head is there. Returns whether all have its tag, as they have
/// if the host has stored them.
///
/// # Safety
/// As [`receive_payload`].
#[inline(always)]
unsafe fn load_all(to: Place, bytes: *mut u8, len: usize) -> bool {
    // Ordering: Acquire fence, after the load of the head, pairs with the Release store of it in
    // `Answers::store`: the words before it are visible, and plain loads find them.
    fence(Ordering::Acquire);
    let ((place, tag), units) = (to.place(), ANSWER_HEAD + wire::words(len));
    let (mut pair, mut all_there, is_aligned) = (0, true, bytes.addr().is_multiple_of(4));
    while pair < pairs_of(len) {
        // SAFETY: a pair of the ticket's place, which the host leaves alone until the next call.
        let [first, second] = unsafe { load_published(place.wrapping_add(pair * 2)) };
        all_there &= pair == 0 || has_tag(first, tag);
        all_there &= pair * 2 + 1 >= units || has_tag(second, tag);
        let both = first & u64::from(u32::MAX) | second << 32;
        // SAFETY: the caller's contract.
        unsafe { write_pair(bytes, pair, both, len, is_aligned) };
        pair += 1;
    }
    all_there
}

/// Writes those words of a pair that belong to a payload of `len` bytes.
///
/// # Safety
/// `to` is writable for `len` bytes, and aligned to four if `is_aligned` says so.
#[inline(always)]
unsafe fn write_pair(to: *mut u8, pair: usize, both: u64, len: usize, is_aligned: bool) {
    for (unit, word) in [(pair * 2, both as u32), (pair * 2 + 1, (both >> 32) as u32)] {
        let Some(byte) = unit.checked_sub(ANSWER_HEAD).map(|word| word * 4) else { continue };
        if byte < len {
            // SAFETY: bytes of the payload, by the caller's contract.
            unsafe { write_word(to.wrapping_add(byte), word, len - byte, is_aligned) };
        }
    }
}

/// Writes a word, or its first `len` bytes if it has more.
///
/// # Safety
/// `to` is writable for these bytes, and aligned to four if `is_aligned` says so.
#[inline(always)]
unsafe fn write_word(to: *mut u8, word: u32, len: usize, is_aligned: bool) {
    if is_aligned && len >= 4 {
        // SAFETY: the caller's contract.
        unsafe { to.cast::<u32>().write(word) };
        return;
    }
    let mut at = 0;
    while at < 4 && at < len {
        // SAFETY: the caller's contract.
        unsafe { to.wrapping_add(at).write((word >> (8 * at)) as u8) };
        at += 1;
    }
}

#[inline(always)]
const fn has_tag(unit: u64, tag: u32) -> bool {
    (unit >> 32) as u32 == tag
}

#[inline(always)]
const fn status_of(head: u64) -> u16 {
    (head >> 16) as u16
}
