//! Storing a small message in the slots of a unit ring, and taking it from there:
//! [`gpunet_abi::units`] has the format.

use super::line::{load_bytes, store_bytes};
use crate::group::Lane;
use crate::platform;
use gpunet_abi::units::{SLOT_PAYLOAD, UnitHeader, UnitRing, half, payload};

/// Stores a message of `len` bytes for its position, in the slots from `first` on. All lanes.
///
/// # Safety
/// `source` is readable for `len` bytes; this group is the one that writes the unit ring, and has
/// credit for the slots.
#[inline(always)]
pub(crate) unsafe fn store(
    lane: Lane,
    ring: UnitRing,
    first: u32,
    position: u64,
    source: *const u8,
    len: usize,
) {
    let mut index = lane.rank() as usize;
    while index * SLOT_PAYLOAD < len {
        let at = index * SLOT_PAYLOAD;
        // SAFETY: the piece begins inside the message.
        let bytes = unsafe { load_bytes(source.wrapping_add(at), len - at) };
        // SAFETY: the caller's contract.
        unsafe { store_slot(ring, first.wrapping_add(1 + index as u32), bytes) };
        index += lane.size() as usize;
    }
    // Last: who finds it mostly finds the rest at the same look.
    if lane.is_leader() {
        let header = len as u64 | (position as u32 as u64) << 32;
        // SAFETY: as above.
        unsafe { store_slot(ring, first, header) };
    }
}

/// Stores a slot.
///
/// # Safety
/// This group is the one that writes the unit ring, and has credit for the slot.
#[inline(always)]
unsafe fn store_slot(ring: UnitRing, slot: u32, bytes: u64) {
    let tag = ring.tag(slot);
    // SAFETY: one of the ring's slots; the caller's contract.
    unsafe {
        platform::store_units(ring.at(slot), [half(bytes as u32, tag), half((bytes >> 32) as u32, tag)])
    };
}

/// The eight bytes of a slot, if it is there.
#[inline(always)]
pub(crate) fn load_slot(ring: UnitRing, slot: u32) -> Option<u64> {
    // SAFETY: one of the ring's slots, which the maker of the `UnitRing` keeps mapped.
    payload(unsafe { platform::load_units(ring.at(slot)) }, ring.tag(slot))
}

/// The header of the message that begins in a slot, if it is there.
#[inline(always)]
pub(crate) fn header(ring: UnitRing, slot: u32) -> Option<UnitHeader> {
    load_slot(ring, slot).map(UnitHeader::of)
}

/// Copies the bytes of a message from `from` up to `to` out of its slots, the lane's share of them;
/// returns whether they were there. `write` gets the place of each piece in the message, its bytes
/// and their number: eight, but at the ends.
///
/// It looks `polls` times at a slot that is not there.
#[inline(always)]
pub(crate) fn take(
    lane: Lane,
    ring: UnitRing,
    first: u32,
    (from, to): (u32, u32),
    polls: u32,
    write: impl Fn(u32, u64, u32),
) -> bool {
    const PIECE: u32 = SLOT_PAYLOAD as u32;
    let mut index = from / PIECE + lane.rank();
    while index * PIECE < to {
        let mut left = polls;
        let bytes = loop {
            if let Some(bytes) = load_slot(ring, first.wrapping_add(1 + index)) {
                break bytes;
            }
            left -= 1;
            if left == 0 {
                return false;
            }
        };
        let at = index * PIECE;
        let begin = from.saturating_sub(at);
        let end = if to - at < PIECE { to - at } else { PIECE };
        write(at + begin, bytes >> (8 * begin), end - begin);
        index += lane.size();
    }
    true
}

/// Stores `len` bytes, at most eight, of a little-endian number.
///
/// # Safety
/// `to` is writable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn store_piece(to: *mut u8, bytes: u64, len: u32) {
    // SAFETY: the caller's contract.
    unsafe { store_bytes(to, bytes, len as usize) };
}
