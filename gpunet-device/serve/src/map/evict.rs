//! Making room: a clock's hand that goes round the buckets.

use super::entry::Entry;
use super::{Map, Structure};
use crate::Context;
use crate::heap::Chunk;
use gpunet_device::{Group, Result};

/// Buckets that the hand passes at a time.
const STEP: usize = 16;

/// Which entries a sweep removes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that have expired, and those that were not used since the last sweep and are no structures.
    Unused,
    All,
}

/// Allocates, and evicts entries until that succeeds. Each entry is passed at most twice before it gives up.
#[inline(never)]
pub(super) fn alloc<G: Group, S: Structure>(
    map: &Map<S>,
    g: &G,
    context: &Context,
    bytes: usize,
) -> Result<Option<Chunk>> {
    let mut passed = 0;
    loop {
        if let Some(chunk) = map.heap.alloc(g, context.net, bytes)? {
            return Ok(Some(chunk));
        }
        if !map.evicts || bytes > crate::heap::MAX_CHUNK || passed > 2 * map.mask + 2 * STEP {
            return Ok(None);
        }
        let start = take_turn(map, g);
        let mut evicted = 0;
        let mut filled = filled(map, g, start);
        while filled != 0 {
            let at = filled.trailing_zeros() as usize;
            evicted += sweep(map, g, context, (start + at) & map.mask, Which::Unused)?;
            filled &= filled - 1;
        }
        passed += STEP;
        if evicted > 0 && g.is_leader() {
            let word = map.clock.u64(8);
            // Blocks that evict at the same time may lose a count; it is a figure for people.
            word.set(word.get() + evicted);
        }
    }
}

/// Which of the next buckets have entries, a bit each: a sweep of an empty one would cost several barriers.
fn filled<G: Group, S: Structure>(map: &Map<S>, g: &G, start: usize) -> u64 {
    let (mut filled, mut at) = (0, 0);
    while g.is_leader() && at < STEP && at <= map.mask {
        // Without the lock: an entry that comes in at this moment is as good as one that comes after the sweep.
        filled |= u64::from(map.first((start + at) & map.mask).get() != 0) << at;
        at += 1;
    }
    g.broadcast(filled)
}

/// Moves the hand; returns where it was.
fn take_turn<G: Group, S: Structure>(map: &Map<S>, g: &G) -> usize {
    let mut at = 0;
    if g.is_leader() {
        let hand = map.clock.u32(0);
        loop {
            at = hand.get();
            if hand.replace(at, at.wrapping_add(STEP as u32)) {
                break;
            }
        }
    }
    g.broadcast(at as u64) as usize & map.mask
}

/// Removes entries of one bucket; returns how many.
#[inline(never)]
pub(super) fn sweep<G: Group, S: Structure>(
    map: &Map<S>,
    g: &G,
    context: &Context,
    bucket: usize,
    which: Which,
) -> Result<u64> {
    let lock = map.bucket_lock(bucket);
    lock.acquire(g, context.net)?;
    let mut removed = 0;
    let mut garbage = 0;
    // One lane walks the list; what it removes is chained by the same links.
    if g.is_leader() {
        let mut previous: Option<Entry> = None;
        let mut at = map.first(bucket).get();
        while let Some(chunk) = Chunk::from_raw(at) {
            let entry = Entry::at(map.heap, chunk);
            at = entry.next();
            let expired = entry.expires() != 0 && entry.expires() <= context.now;
            if which == Which::Unused && !expired && (entry.is_used() || entry.is_structure()) {
                entry.set_used(false);
                previous = Some(entry);
                continue;
            }
            match previous {
                Some(previous) => previous.set_next(at),
                None => map.first(bucket).set(at),
            }
            entry.set_dead();
            removed += 1;
            if entry.pins() == 0 {
                entry.set_next(garbage);
                garbage = chunk.raw();
            }
        }
        map.count(g, -(removed as i64));
    }
    lock.release(g);
    let mut garbage = g.broadcast(garbage as u64) as u32;
    while let Some(chunk) = Chunk::from_raw(garbage) {
        garbage = g.broadcast(Entry::at(map.heap, chunk).next() as u64) as u32;
        map.free_entry(g, context.net, chunk)?;
    }
    Ok(g.broadcast(removed))
}
