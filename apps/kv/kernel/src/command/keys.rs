//! Commands on keys, whatever their values are.

use super::expiry::Unit;
use super::{Cx, KEYS_OF_A_TURN, Outcome};
use crate::glob::matches;
use crate::own;
use crate::resp::Arguments;
use crate::rest::Rest;
use crate::session::Database;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits, Key, Queue, Scan, SpillError};

/// Counts the keys that are there, and removes them if they are to go.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn count<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    removes: bool,
) -> Result<Outcome> {
    cx.go_on(&mut arguments);
    let mut looks = 0;
    while !arguments.is_empty() {
        if looks == KEYS_OF_A_TURN && !cx.is_transaction {
            return Ok(cx.leave(&arguments));
        }
        looks += 1;
        let key = cx.key_of(arguments.next().unwrap_or(Bytes::EMPTY));
        let mut locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
        let is_there = if removes { locked.remove() } else { locked.value().is_some() };
        locked.unlock()?;
        cx.resume.count += u32::from(is_there);
        if !removes {
            cx.count_read(is_there);
        }
    }
    cx.reply.integer(cx.resume.count as i64);
    Ok(Outcome::Done)
}

/// On what condition EXPIRE changes when a key expires.
#[derive(Clone, Copy, Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    /// Reads them; answers if they are wrong.
    fn of<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Option<Self> {
        let mut conditions = Self::default();
        while let Some(option) = arguments.next() {
            if option.eq_ignore_case(b"nx") {
                conditions.nx = true;
            } else if option.eq_ignore_case(b"xx") {
                conditions.xx = true;
            } else if option.eq_ignore_case(b"gt") {
                conditions.gt = true;
            } else if option.eq_ignore_case(b"lt") {
                conditions.lt = true;
            } else {
                cx.reply.raw(b"-ERR Unsupported option ");
                cx.reply.quoted(option, 1024, false);
                cx.reply.raw(b"\r\n");
                return None;
            }
        }
        let Self { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            cx.reply.error(b"NX and XX, GT or LT options at the same time are not compatible");
            return None;
        }
        if gt && lt {
            cx.reply.error(b"GT and LT options at the same time are not compatible");
            return None;
        }
        Some(conditions)
    }

    /// `old`, `new`: when it expires, in milliseconds since 1970; no old one: never.
    fn allow(&self, old: Option<i64>, new: i64) -> bool {
        let (has, old) = (old.is_some(), old.unwrap_or(0));
        !(self.nx && has
            || self.xx && !has
            || self.gt && (!has || new <= old)
            || self.lt && has && new >= old)
    }
}

/// EXPIRE and its relatives.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn expire<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    name: Bytes<'_>,
    ms: i64,
    is_absolute: bool,
) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let time = arguments.next().unwrap_or(Bytes::EMPTY).number();
    let Some(conditions) = Conditions::of(cx, arguments) else { return Ok(Outcome::Done) };
    let Some(time) = time else {
        cx.reply.no_integer();
        return Ok(Outcome::Done);
    };
    let Some(ns) = cx.until(time, Unit { ms, is_absolute }) else {
        cx.reply.invalid_expiry(name);
        return Ok(Outcome::Done);
    };
    let expires = cx.expires_in(ns);
    let mut locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let old = Some(locked.expires()).filter(|old| *old != 0).map(|old| cx.unix_ms(old));
    let is_done = locked.value().is_some() && conditions.allow(old, cx.unix_ms(expires));
    if is_done && ns <= 0 {
        locked.remove();
    } else if is_done {
        locked.set_expires(expires);
    }
    locked.unlock()?;
    cx.reply.integer(i64::from(is_done));
    Ok(Outcome::Done)
}

/// EXPIRETIME and PEXPIRETIME, which answer in units of `ms` milliseconds.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn expire_time<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    ms: i64,
) -> Result<Outcome> {
    let Some(found) = cx.look_up(&mut arguments)? else { return Ok(Outcome::Done) };
    cx.reply.integer(match (found.is_there, found.expires) {
        (false, _) => -2,
        (true, 0) => -1,
        (true, at) => (cx.unix_ms(at) + ms / 2) / ms,
    });
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn type_of<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(found) = cx.look_up(&mut arguments)? else { return Ok(Outcome::Done) };
    match (found.is_there, found.is_structure) {
        (false, _) => cx.reply.raw(b"+none\r\n"),
        (true, false) => cx.reply.raw(b"+string\r\n"),
        (true, true) => cx.reply.raw(b"+vectorset\r\n"),
    }
    Ok(Outcome::Done)
}

/// RENAME, and with `only_new` RENAMENX.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn rename<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    only_new: bool,
) -> Result<Outcome> {
    let Some(from) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let Some(to) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let is_same = from.bytes() == to.bytes();
    match transfer(cx, Transfer { from, to, is_same, only_new, keeps: false })? {
        Transferred::Done if only_new => cx.reply.integer(1),
        Transferred::Done => cx.reply.ok(),
        Transferred::IsThere => cx.reply.integer(0),
        Transferred::NoKey => cx.reply.error(b"no such key"),
        Transferred::Structure => cx.reply.error(b"a set of vectors cannot be renamed"),
        Transferred::NoMemory => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

/// `MOVE key db`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn move_key<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(from) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let Some(database) = database(cx, &mut arguments) else { return Ok(Outcome::Done) };
    let to = Key::in_space(from.bytes(), database as u32);
    to_database(cx, Transfer { from, to, is_same: false, only_new: true, keeps: false }, database)
}

/// `COPY source destination [DB db] [REPLACE]`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn copy<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(from) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let Some(to) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let (mut in_database, mut only_new) = (cx.session.database, true);
    while let Some(option) = arguments.next() {
        if option.eq_ignore_case(b"replace") {
            only_new = false;
        } else if option.eq_ignore_case(b"db") && !arguments.is_empty() {
            let Some(given) = database(cx, &mut arguments) else { return Ok(Outcome::Done) };
            in_database = given;
        } else {
            cx.reply.syntax();
            return Ok(Outcome::Done);
        }
    }
    let to = Key::in_space(to.bytes(), in_database as u32);
    to_database(cx, Transfer { from, to, is_same: false, only_new, keeps: true }, in_database)
}

/// The number of a database; answers if it is none.
fn database<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: &mut Arguments<'_>) -> Option<u8> {
    let database = Database::of(*arguments);
    let _ = arguments.next();
    match database {
        Database::Is(number) => return Some(number),
        Database::OutOfRange => cx.reply.error(b"DB index is out of range"),
        Database::NoInteger => cx.reply.no_integer(),
        Database::NoInt32 => cx.reply.no_int32(),
    }
    None
}

/// Moves or copies a value to a key of some database, and answers.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn to_database<G: Group>(cx: &mut Cx<'_, '_, G>, how: Transfer<'_>, database: u8) -> Result<Outcome> {
    if cx.session.database == database && how.from.bytes() == how.to.bytes() {
        cx.reply.error(b"source and destination objects are the same");
        return Ok(Outcome::Done);
    }
    match transfer(cx, how)? {
        Transferred::Done => cx.reply.integer(1),
        Transferred::IsThere | Transferred::NoKey => cx.reply.integer(0),
        Transferred::Structure => cx.reply.error(b"a set of vectors can be neither moved nor copied"),
        Transferred::NoMemory => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

/// What becomes of two keys.
#[derive(Clone, Copy)]
struct Transfer<'k> {
    from: Key<'k>,
    to: Key<'k>,
    /// They are one.
    is_same: bool,
    /// Nothing, if the second one is there.
    only_new: bool,
    /// The first one stays.
    keeps: bool,
}

enum Transferred {
    Done,
    IsThere,
    NoKey,
    Structure,
    NoMemory,
}

/// Moves or copies a value from one key to another: at once, for all others.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn transfer<G: Group>(cx: &Cx<'_, '_, G>, how: Transfer<'_>) -> Result<Transferred> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    if cx.is_transaction {
        return transfer_held(cx, &how);
    }
    let Some(mut hold) = map.keys_to_hold(g, &context, 2)? else { return Ok(Transferred::NoMemory) };
    map.add_to_hold(g, &mut hold, &how.from);
    map.add_to_hold(g, &mut hold, &how.to);
    map.hold(g, &context, &hold)?;
    let transferred = transfer_held(cx, &Transfer { from: how.from.held(), to: how.to.held(), ..how });
    map.release(g, &context, hold)?;
    transferred
}

/// The same, by a group that holds the buckets of both.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn transfer_held<G: Group>(cx: &Cx<'_, '_, G>, how: &Transfer<'_>) -> Result<Transferred> {
    let (g, map, context) = (cx.g(), &cx.store.map, &cx.context);
    let &Transfer { from, to, .. } = how;
    let old = map.lock(g, context, from)?;
    let Some(value) = old.value() else { return Ok(Transferred::NoKey) };
    if old.is_structure() {
        return Ok(Transferred::Structure);
    }
    let other = map.lock(g, context, to)?;
    let is_there = other.value().is_some();
    other.unlock()?;
    if is_there && how.only_new {
        return Ok(Transferred::IsThere);
    }
    if how.is_same {
        return Ok(Transferred::Done);
    }
    let Some(fresh) = map.fresh(g, context, to, value, 0)? else { return Ok(Transferred::NoMemory) };
    let expires = old.expires();
    old.unlock()?;
    let mut new = map.lock(g, context, to)?;
    new.put(fresh);
    if expires != 0 {
        new.set_expires(expires);
    }
    new.unlock()?;
    if !how.keeps {
        let mut old = map.lock(g, context, from)?;
        old.remove();
        old.unlock()?;
    }
    Ok(Transferred::Done)
}

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
            cx.reply.out.force(g, some.bytes)?;
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

/// TTL and PTTL, which answer in units of `unit` milliseconds.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn ttl<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    unit: u64,
) -> Result<Outcome> {
    let Some(found) = cx.look_up(&mut arguments)? else { return Ok(Outcome::Done) };
    cx.count_read(found.is_there);
    cx.reply.integer(match (found.is_there, found.expires) {
        (false, _) => -2,
        (true, 0) => -1,
        (true, at) => {
            let ms = (at - cx.context.now) / 1_000_000;
            ((ms + unit / 2) / unit) as i64
        }
    });
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn persist<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let mut locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let had = locked.expires() != 0;
    if had {
        locked.set_expires(0);
    }
    locked.unlock()?;
    cx.reply.integer(i64::from(had));
    Ok(Outcome::Done)
}
