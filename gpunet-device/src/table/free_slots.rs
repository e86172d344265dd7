//! Taking free socket slots, and preparing what lies in them for the next socket. The proxy gives
//! slots back.

use crate::Net;
use crate::memory::plain;
use crate::table::{accepted, membership, slots};
use gpunet_abi::accept::PREPARED;
use gpunet_abi::atomic::{AtomicU32, AtomicU64, Ordering};
use gpunet_abi::entry::{Entry, Kind, OwnWords, SlotState};
use gpunet_abi::handle::next_generation;
use gpunet_abi::recycle::{self, SlotRing};
use gpunet_abi::{Error, Handle, Options, Result, Word};

/// The recycling ring of this device.
struct RecyclingRing {
    net: Net,
    sockets: u64,
}

impl RecyclingRing {
    fn counter<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: the counter lies in this device's memory; only its threads touch it, atomically.
        unsafe { AtomicU64::from_ptr(self.net.taken()) }
    }
}

impl SlotRing for RecyclingRing {
    // Ordering: Relaxed; `advance` decides.
    fn taken(&self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }

    // Ordering: AcqRel among this device's threads: the cell is read before (release), and who
    // takes a slot sees what the thread that used it last left in the table (acquire).
    fn advance(&self, ticket: u64, count: u64) -> core::result::Result<(), u64> {
        self.counter()
            .compare_exchange(ticket, ticket + count, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    // Pairs with the publish in the proxy's `recycle`: the ring cells below it are visible.
    fn reclaimed(&self) -> u64 {
        self.net.reclaimed().observe()
    }

    // Ordering: Relaxed, made visible by `reclaimed`.
    fn cell(&self, ticket: u64) -> u32 {
        let cell = self.net.reclaim_cell(ticket % self.sockets);
        // SAFETY: inside the ring; the proxy wrote it before it published `reclaimed`, and writes
        // it atomically.
        unsafe { AtomicU32::from_ptr(cell.cast_mut()) }.load(Ordering::Relaxed)
    }
}

/// Takes a free slot and prepares its entry and words. By one lane.
///
/// # Errors
/// TooManySockets, when none is free; Protocol, when the ring holds an invalid slot.
#[inline(never)]
pub fn take(net: Net, options: &Options) -> Result<Handle> {
    let mut slot = [0];
    match take_many(net, &mut slot) {
        0 => Err(Error::TooManySockets),
        _ => open(net, slot[0], Kind::Fresh, options),
    }
}

/// Takes free slots for a listener and prepares them, as many as there are and as find room in
/// `handles`; returns how many. By one lane.
#[inline(never)]
pub(crate) fn take_prepared(net: Net, options: &Options, handles: &mut [i32]) -> usize {
    let mut slots = [0; PREPARED];
    let most = if handles.len() < PREPARED { handles.len() } else { PREPARED };
    let taken = match slots.get_mut(..most) {
        Some(slots) => take_many(net, slots),
        None => 0,
    };
    let mut count = 0;
    for (slot, handle) in slots.iter().take(taken).zip(handles) {
        // What another device could not have written ends the list.
        let Ok(prepared) = open(net, *slot, Kind::Prepared, options) else { break };
        net.taker(*slot).set(0);
        *handle = prepared.raw();
        count += 1;
    }
    count
}

#[inline(never)]
fn take_many(net: Net, slots: &mut [u32]) -> usize {
    match net.context().sockets {
        0 => 0,
        sockets => recycle::take_many(&RecyclingRing { net, sockets: u64::from(sockets) }, slots),
    }
}

/// Prepares entry and words of a slot that was just taken.
#[inline(never)]
fn open(net: Net, slot: u32, kind: Kind, options: &Options) -> Result<Handle> {
    if slot >= net.context().sockets {
        return Err(Error::Protocol);
    }
    // Ordering: Relaxed; the slot is this thread's now, and its last user's store came before it
    // was given back.
    let old = SlotState(slots::state(net, slot).load(Ordering::Relaxed));
    let handle = Handle::new(slot, next_generation(old.generation()));
    let fresh = Entry::fresh(handle.generation(), *options);
    // SAFETY: inside the table; the slot is this thread's now.
    unsafe { plain::store(net.entry(slot), &fresh) };
    accepted::reset(net, handle);
    membership::reset(net, slot);
    // The words this device writes start at 0 before any request names the slot.
    net.published(slot).set(0);
    net.consumed(slot).set(0);
    net.closed(slot).set(0);
    net.lines_sent(slot).set(0);
    for word in own_words(net.own_words(slot)) {
        word.set(0);
    }
    let launch = net.context().launch;
    // A group that prepares a slot for a connection does not use it.
    let known = if kind == Kind::Prepared { 0 } else { 1 << launch };
    // Ordering: Relaxed; made visible by the state.
    slots::users(net, slot).store(known, Ordering::Relaxed);
    slots::set_state(net, handle, SlotState::new(kind, handle.generation(), launch));
    Ok(handle)
}

fn own_words(words: *mut OwnWords) -> [Word; 3] {
    // SAFETY: addresses of fields.
    let all =
        unsafe { [&raw mut (*words).published, &raw mut (*words).consumed, &raw mut (*words).unit_limit] };
    // SAFETY: aligned words of the table in device memory.
    all.map(|word| unsafe { Word::from_ptr(word) })
}
