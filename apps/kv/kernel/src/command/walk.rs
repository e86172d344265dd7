//! Commands that go through a database: KEYS, RANDOMKEY, SCAN.

use super::{Cx, KEYS_OF_A_TURN, Outcome};
use crate::glob::matches;
use crate::own;
use crate::resp::Arguments;
use crate::rest::Rest;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits, Queue, Scan, SpillError};

/// Keys that are asked for.
#[derive(Clone, Copy)]
struct Wanted<'r> {
    pattern: Option<Bytes<'r>>,
    /// Strings; sets of vectors.
    strings: bool,
    sets: bool,
}

/// Keys that were found: bulk strings, and how many they are.
#[derive(Default)]
struct Keys {
    queue: Queue,
    count: usize,
    /// There is no memory for more.
    is_short: bool,
}

/// Collects keys, in the memory for requests. Returns where to go on; 0: at the end.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn collect<G: Group>(cx: &Cx<'_, '_, G>, wanted: &Wanted<'_>, scan: &Scan, keys: &mut Keys) -> Result<usize> {
    let (g, map, context) = (cx.g(), &cx.store.requests, &cx.context);
    let before = keys.queue.held();
    let most = cx.store.most_for(g, cx.held + cx.session.held(cx.store) + before);
    let next = cx.store.map.scan(g, context, cx.session.database as u32, scan, |key, is_set| {
        let is_wanted = if is_set { wanted.sets } else { wanted.strings };
        if keys.is_short || !is_wanted || wanted.pattern.is_some_and(|pattern| !matches(pattern, key, false))
        {
            return Ok(());
        }
        let len = Digits::of(key.len() as i64);
        let line_end = Bytes::from(b"\r\n");
        let item = [b"$".into(), len.bytes(), line_end, key, line_end];
        // What it has taken meanwhile is its own, and not there for others.
        let most = most.saturating_sub(keys.queue.held() - before);
        match keys.queue.append_all(g, context, map, item, most) {
            Ok(()) => keys.count += 1,
            Err(SpillError::NoMemory) => keys.is_short = true,
            Err(SpillError::Over(error)) => return Err(error),
        }
        Ok(())
    })?;
    Ok(next.unwrap_or(0))
}

/// Answers with a cursor and keys.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show<G: Group>(cx: &mut Cx<'_, '_, G>, mut keys: Keys, cursor: usize) -> Result<()> {
    let (g, map, context) = (cx.g(), &cx.store.requests, cx.context);
    if keys.is_short {
        cx.reply.no_memory();
    } else {
        cx.reply.array(2);
        cx.reply.bulk(Digits::of(cursor as i64).bytes());
        cx.reply.array(keys.count);
        let mut queued = keys.queue.first(map);
        while let Some(some) = queued {
            cx.reply.force(some.bytes)?;
            queued = some.next(map);
        }
    }
    keys.queue.clear(g, &context, map)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn keys<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    cx.ends_turn = true;
    let (g, context, store) = (cx.g(), cx.context, cx.store);
    // One more than the bucket to go on with.
    if cx.resume.step <= store.map.buckets() {
        let wanted = Wanted { pattern: arguments.next(), strings: true, sets: true };
        let mut keys = Keys::default();
        if let Rest::Keys { keys: queue, .. } = cx.resume.rest {
            (keys.queue, keys.count) = (queue, cx.resume.count as usize);
        }
        let from = cx.resume.step.saturating_sub(1);
        let scan = Scan { from, entries: KEYS_OF_A_TURN, buckets: BUCKETS_OF_A_SCAN };
        let next = collect(cx, &wanted, &scan, &mut keys)?;
        cx.resume.rest = Rest::Keys { keys: keys.queue, sent: 0 };
        cx.resume.count = keys.count as u32;
        if keys.is_short {
            cx.resume.rest.clear(g, &context, store)?;
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        } else if next > 0 {
            cx.resume.step = next + 1;
            return Ok(Outcome::Unfinished);
        }
        cx.resume.step = store.map.buckets() + 1;
        cx.reply.array(keys.count);
    }
    if cx.reply.is_muted {
        cx.resume.rest.clear(g, &context, store)?;
    }
    match cx.resume.rest.send(g, &context, store, cx.reply.out)? {
        true => Ok(Outcome::Done),
        false => Ok(Outcome::Unfinished),
    }
}

/// A database with at most so many keys is gone through for one of them.
const FEW_KEYS: u64 = 1024;
/// In a larger one, a key lies so far behind a place at random, or less far: not always the first
/// one, which is the likelier the more empty buckets are before it.
const KEYS_BEHIND: u64 = 16;
/// How often a random key has reached the end of the table, in [`Resume::count`](super::Resume);
/// below it, how many keys are skipped.
const PASS: u32 = 1 << 16;

/// A key, if there is any.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn random<G: Group>(cx: &mut Cx<'_, '_, G>) -> Result<Outcome> {
    cx.ends_turn = true;
    let (g, context, store) = (cx.g(), cx.context, cx.store);
    let (database, buckets) = (cx.session.database as u32, store.map.buckets());
    if cx.resume.step == 0 {
        let len = store.map.len_of(g, database);
        if len == 0 {
            cx.reply.nil();
            return Ok(Outcome::Done);
        }
        let random = mixed(context.now.wrapping_add(cx.counters.own[own::COMMANDS] << 32));
        let is_small = len <= FEW_KEYS;
        // One more than the bucket to go on with.
        cx.resume.step = if is_small { 1 } else { 1 + random as usize % buckets };
        cx.resume.count = ((random >> 32) % if is_small { len } else { KEYS_BEHIND }) as u32;
    }
    let scan = Scan { from: cx.resume.step - 1, entries: KEYS_OF_A_TURN, buckets: BUCKETS_OF_A_SCAN };
    let most = cx.most();
    let (mut found, mut count, mut is_taken) = (Queue::default(), cx.resume.count, Ok(false));
    let next = store.map.scan(g, &context, database, &scan, |key, _| {
        if is_taken != Ok(false) {
            return Ok(());
        } else if count % PASS > 0 {
            count -= 1;
            return Ok(());
        }
        is_taken = match found.append(g, &context, &store.requests, key, most) {
            Err(SpillError::Over(error)) => return Err(error),
            other => other.map(|()| true),
        };
        Ok(())
    })?;
    if next.is_none() {
        count += PASS;
    }
    (cx.resume.step, cx.resume.count) = (1 + next.unwrap_or(0), count);
    match is_taken {
        Ok(true) => {
            let key = found.first(&store.requests).map_or(Bytes::EMPTY, |first| first.bytes);
            cx.reply.bulk_head(key.len());
            cx.reply.long(key)?;
            found.clear(g, &context, &store.requests)?;
        }
        Err(_) => cx.reply.no_memory(),
        // Fewer are left than there were: some have expired.
        Ok(false) if count / PASS > 2 => cx.reply.nil(),
        Ok(false) => {
            if count / PASS == 2 {
                cx.resume.count = 2 * PASS;
            }
            return Ok(Outcome::Unfinished);
        }
    }
    Ok(Outcome::Done)
}

/// A number in which every bit depends on every bit of another one: SplitMix64.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Buckets that SCAN looks at in one call, or as many as it is to show keys; and how many buckets
/// and keys these are at most.
const BUCKETS_OF_A_SCAN: usize = 1 << 14;
const MOST_BUCKETS: usize = 1 << 16;
const MOST_KEYS: usize = 1 << 12;

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn scan<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    cx.ends_turn = true;
    let Some(from) = arguments.next().unwrap_or(Bytes::EMPTY).number() else {
        cx.reply.error(b"invalid cursor");
        return Ok(Outcome::Done);
    };
    let mut wanted = Wanted { pattern: None, strings: true, sets: true };
    let mut entries = 10;
    while let Some(option) = arguments.next() {
        let value = arguments.next();
        match value {
            Some(pattern) if option.eq_ignore_case(b"match") => wanted.pattern = Some(pattern),
            Some(kind) if option.eq_ignore_case(b"type") => {
                wanted.strings = kind.eq_ignore_case(b"string");
                wanted.sets = kind.eq_ignore_case(b"vectorset");
            }
            Some(count) if option.eq_ignore_case(b"count") => match count.number() {
                None => {
                    cx.reply.no_integer();
                    return Ok(Outcome::Done);
                }
                Some(count) if count >= 1 => entries = count.min(MOST_BUCKETS as i64) as usize,
                Some(_) => {
                    cx.reply.syntax();
                    return Ok(Outcome::Done);
                }
            },
            _ => {
                cx.reply.syntax();
                return Ok(Outcome::Done);
            }
        }
    }
    let mut keys = Keys::default();
    // Behind the last bucket there is nothing.
    let from = usize::try_from(from).unwrap_or(usize::MAX / 2);
    let scan = Scan { from, entries: entries.min(MOST_KEYS), buckets: BUCKETS_OF_A_SCAN.max(entries) };
    let next = collect(cx, &wanted, &scan, &mut keys)?;
    show(cx, keys, next)?;
    Ok(Outcome::Done)
}
