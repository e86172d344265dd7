//! Making room: a clock's hand that goes round the buckets.

use super::entry::Entry;
use super::{Map, Structure};
use crate::Context;
use crate::heap::{Chunk, Step};
use gpunet_device::{Group, Result};

/// Buckets that the hand passes at a time.
const STEP: usize = 16;

/// Which entries a sweep removes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that have expired, and those that were not used since the last sweep and are no
    /// structures. A bucket that is locked is left out: whoever needs room may hold buckets, and
    /// waits for none.
    Unused,
    /// Those of a space; of all spaces.
    Space(u32),
    All,
}

/// Allocates, and evicts entries until that succeeds. Each entry is passed at most twice before it
/// gives up.
///
/// What the hand evicts lies anywhere, and a large chunk needs neighbours. After half as many bytes
/// as are wanted, those in a region are evicted: at most twice as many as are wanted.
#[inline(never)]
pub(super) fn alloc<G: Group, S: Structure>(
    map: &Map<S>,
    g: &G,
    context: &Context,
    bytes: usize,
    is_entry: bool,
) -> Result<Option<Chunk>> {
    let (mut passed, mut freed, mut enough) = (0, 0, bytes / 2);
    loop {
        let found = match is_entry {
            true => map.heap.alloc_item(g, context.net, bytes)?,
            false => map.heap.alloc(g, context.net, bytes)?,
        };
        if found.is_some() {
            return Ok(found);
        }
        if !map.evicts || bytes > crate::heap::MAX_CHUNK || passed > 2 * map.mask + 2 * STEP {
            return Ok(None);
        }
        if freed > enough {
            if let Some(chunk) = make_region(map, g, context, bytes, is_entry)? {
                return Ok(Some(chunk));
            }
            enough = freed + bytes;
        }
        let start = take_turn(map, g);
        let mut evicted = 0;
        let mut filled = filled(map, g, start);
        while filled != 0 {
            let at = filled.trailing_zeros() as usize;
            let (count, bytes) = sweep(map, g, context, (start + at) & map.mask, Which::Unused)?;
            (evicted, freed) = (evicted + count, freed + bytes as usize);
            filled &= filled - 1;
        }
        passed += STEP;
        count_evicted(map, g, evicted);
    }
}

/// Counts entries that were evicted. Blocks that evict at the same time may lose a count; it is a
/// figure for people.
fn count_evicted<G: Group, S: Structure>(map: &Map<S>, g: &G, evicted: u64) {
    if evicted > 0 && g.is_leader() {
        let word = map.clock.u64(8);
        word.set(word.get() + evicted);
    }
}

/// Regions that are tried before the hand goes on.
const REGIONS: u32 = 4;

/// Evicts the entries of a region and makes it a chunk. `None`: none was found, or another group
/// used one of its entries.
#[inline(never)]
fn make_region<G: Group, S: Structure>(
    map: &Map<S>,
    g: &G,
    context: &Context,
    bytes: usize,
    is_entry: bool,
) -> Result<Option<Chunk>> {
    // Without its bucket's lock: whether it can be evicted is seen again under that.
    let cost = |chunk| {
        let entry = Entry::at(map.heap, chunk);
        let is_free_to_go = entry.pins() == 0 && !entry.is_structure() && !entry.is_dead();
        is_free_to_go.then(|| if entry.is_used() { map.heap.capacity(chunk) as u64 } else { 0 })
    };
    let mut tries = 0;
    while tries < REGIONS {
        tries += 1;
        let Some(mut region) = map.heap.choose_region(g, context.net, bytes, cost)? else { return Ok(None) };
        let mut evicted = 0;
        let mut is_evicted = false;
        loop {
            match map.heap.claim(g, context.net, &mut region, is_evicted, is_entry)? {
                Step::Item(chunk) => {
                    is_evicted = evict(map, g, chunk);
                    evicted += u64::from(is_evicted);
                    if !is_evicted {
                        break;
                    }
                }
                Step::Done(chunk) => {
                    count_evicted(map, g, evicted);
                    return Ok(Some(chunk));
                }
                Step::Blocked => break,
            }
        }
        count_evicted(map, g, evicted);
        map.heap.leave_region(g, context.net, region)?;
    }
    Ok(None)
}

/// Removes the entry in a chunk, if there is one that nobody uses; the chunk is the caller's then.
/// Returns whether it did.
#[inline(never)]
fn evict<G: Group, S: Structure>(map: &Map<S>, g: &G, chunk: Chunk) -> bool {
    // The chunk may have become another's meanwhile; then it is not in that bucket.
    let hash = g.broadcast(if g.is_leader() { Entry::at(map.heap, chunk).hash() as u64 } else { 0 });
    let bucket = hash as usize & map.mask;
    let lock = map.bucket_lock(bucket);
    if !lock.try_acquire(g) {
        return false;
    }
    let mut found = false;
    if g.is_leader() {
        let mut previous: Option<Entry> = None;
        let mut at = map.first(bucket).get();
        while let Some(other) = Chunk::from_raw(at) {
            let entry = Entry::at(map.heap, other);
            if other == chunk {
                if entry.pins() == 0 && !entry.is_structure() {
                    unlink(map, bucket, previous, entry);
                    entry.set_dead();
                    map.count(g, entry.space(), -1);
                    found = true;
                }
                break;
            }
            (previous, at) = (Some(entry), entry.next());
        }
    }
    lock.release(g);
    g.broadcast(u64::from(found)) != 0
}

/// Takes an entry out of its bucket. By one lane, under the bucket's lock.
fn unlink<S: Structure>(map: &Map<S>, bucket: usize, previous: Option<Entry>, entry: Entry) {
    match previous {
        Some(previous) => previous.set_next(entry.next()),
        None => map.first(bucket).set(entry.next()),
    }
}

/// Which of the next buckets have entries, a bit each: a sweep of an empty one would cost several
/// barriers.
fn filled<G: Group, S: Structure>(map: &Map<S>, g: &G, start: usize) -> u64 {
    let (mut filled, mut at) = (0, 0);
    while g.is_leader() && at < STEP && at <= map.mask {
        // Without the lock: an entry that comes in at this moment is as good as one that comes
        // after the sweep.
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

/// Removes entries of one bucket; returns how many, and how many bytes were freed.
#[inline(never)]
pub(super) fn sweep<G: Group, S: Structure>(
    map: &Map<S>,
    g: &G,
    context: &Context,
    bucket: usize,
    which: Which,
) -> Result<(u64, u64)> {
    let lock = map.bucket_lock(bucket);
    if which != Which::Unused {
        lock.acquire(g, context.net)?;
    } else if !lock.try_acquire(g) {
        return Ok((0, 0));
    }
    let mut removed = 0;
    let mut garbage = 0;
    // One lane walks the list; what it removes is chained by the same links.
    if g.is_leader() {
        let mut previous: Option<Entry> = None;
        let mut at = map.first(bucket).get();
        while let Some(chunk) = Chunk::from_raw(at) {
            let entry = Entry::at(map.heap, chunk);
            at = entry.next();
            let is_spared = match which {
                Which::Unused => entry.is_used() || entry.is_structure(),
                Which::Space(space) => entry.space() != space,
                Which::All => false,
            };
            let expired = entry.expires() != 0 && entry.expires() <= context.now;
            if !expired && is_spared {
                if which == Which::Unused {
                    entry.set_used(false);
                }
                previous = Some(entry);
                continue;
            }
            unlink(map, bucket, previous, entry);
            entry.set_dead();
            map.count(g, entry.space(), -1);
            removed += 1;
            if entry.pins() == 0 {
                entry.set_next(garbage);
                garbage = chunk.raw();
            }
        }
    }
    lock.release(g);
    let (mut garbage, mut freed) = (g.broadcast(garbage as u64) as u32, 0);
    while let Some(chunk) = Chunk::from_raw(garbage) {
        garbage = g.broadcast(Entry::at(map.heap, chunk).next() as u64) as u32;
        freed += map.heap.capacity(chunk) as u64;
        map.free_entry(g, context.net, chunk)?;
    }
    Ok((g.broadcast(removed), freed))
}
