//! A leader's result in one 64-bit word, to be broadcast to its group.

use crate::group::Lane;
use gpunet_abi::{Error, Result};

/// Marks an error: bit 63 of a stream word is 0, and handles have 31 bits, so no value has it.
const FAILED: u64 = 1 << 63;

/// Packs a result.
#[inline(always)]
pub(crate) fn pack(result: Result<u64>) -> u64 {
    match result {
        Ok(value) => value & !FAILED,
        Err(error) => FAILED | error.errno() as u32 as u64,
    }
}

/// Unpacks a result.
///
/// # Errors
/// The packed one.
#[inline(always)]
pub(crate) fn unpack(word: u64) -> Result<u64> {
    if word & FAILED == 0 { Ok(word) } else { Err(Error::from_errno(word as u32 as i32)) }
}

/// Runs `body` on the group's leader and gives every lane its result.
///
/// # Errors
/// The leader's.
#[inline(always)]
pub fn by_leader<G: crate::Group>(g: &G, body: impl FnOnce() -> Result<u64>) -> Result<u64> {
    let word = if g.is_leader() { pack(body()) } else { 0 };
    unpack(g.broadcast(word))
}

/// As [`by_leader`], by [`crate::Group::broadcast_once`].
///
/// # Errors
/// The leader's.
#[inline(always)]
pub fn by_leader_once<G: crate::Group, const PLACE: u32>(
    g: &G,
    lane: Lane,
    body: impl FnOnce() -> Result<u64>,
) -> Result<u64> {
    let word = if lane.is_leader() { pack(body()) } else { 0 };
    unpack(g.broadcast_once::<PLACE>(lane, word))
}
