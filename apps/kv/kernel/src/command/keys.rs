//! Commands on keys, whatever their values are.

use super::expiry::Unit;
use super::{Cx, KEYS_OF_A_TURN, Outcome};
use crate::glob::matches;
use crate::resp::Arguments;
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
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let renamed = if cx.is_transaction {
        move_key(cx, from, to, only_new)?
    } else {
        let Some(mut hold) = map.keys_to_hold(g, &context, 2)? else {
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        };
        map.add_to_hold(g, &mut hold, &from);
        map.add_to_hold(g, &mut hold, &to);
        map.hold(g, &context, &hold)?;
        let renamed = move_key(cx, from.held(), to.held(), only_new);
        map.release(g, &context, hold)?;
        renamed?
    };
    match renamed {
        Renamed::Done if only_new => cx.reply.integer(1),
        Renamed::Done => cx.reply.ok(),
        Renamed::IsThere => cx.reply.integer(0),
        Renamed::NoKey => cx.reply.error(b"no such key"),
        Renamed::Structure => cx.reply.error(b"a set of vectors cannot be renamed"),
        Renamed::NoMemory => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

enum Renamed {
    Done,
    IsThere,
    NoKey,
    Structure,
    NoMemory,
}

/// Moves a value from one key to another. The group holds the buckets of both.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn move_key<G: Group>(cx: &Cx<'_, '_, G>, from: Key<'_>, to: Key<'_>, only_new: bool) -> Result<Renamed> {
    let (g, map, context) = (cx.g(), &cx.store.map, &cx.context);
    let old = map.lock(g, context, from)?;
    let Some(value) = old.value() else { return Ok(Renamed::NoKey) };
    if old.is_structure() {
        return Ok(Renamed::Structure);
    }
    let other = map.lock(g, context, to)?;
    let is_there = other.value().is_some();
    other.unlock()?;
    if is_there && only_new {
        return Ok(Renamed::IsThere);
    }
    if from.bytes() == to.bytes() {
        return Ok(Renamed::Done);
    }
    let Some(fresh) = map.fresh(g, context, to, value, 0)? else { return Ok(Renamed::NoMemory) };
    let expires = old.expires();
    old.unlock()?;
    let mut new = map.lock(g, context, to)?;
    new.put(fresh);
    if expires != 0 {
        new.set_expires(expires);
    }
    new.unlock()?;
    let mut old = map.lock(g, context, from)?;
    old.remove();
    old.unlock()?;
    Ok(Renamed::Done)
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

/// Collects keys. Returns where to go on; 0: at the end.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn collect<G: Group>(cx: &Cx<'_, '_, G>, wanted: &Wanted<'_>, scan: &Scan, keys: &mut Keys) -> Result<usize> {
    let (g, map, context) = (cx.g(), &cx.store.map, &cx.context);
    let next = map.scan(g, context, cx.session.database as u32, scan, |key, is_set| {
        let is_wanted = if is_set { wanted.sets } else { wanted.strings };
        if keys.is_short || !is_wanted || wanted.pattern.is_some_and(|pattern| !matches(pattern, key, false))
        {
            return Ok(());
        }
        let len = Digits::of(key.len() as i64);
        let line_end = Bytes::from(b"\r\n");
        match keys.queue.append_all(g, context, map, [b"$".into(), len.bytes(), line_end, key, line_end]) {
            Ok(()) => keys.count += 1,
            Err(SpillError::NoMemory) => keys.is_short = true,
            Err(SpillError::Over(error)) => return Err(error),
        }
        Ok(())
    })?;
    Ok(next.unwrap_or(0))
}

/// Answers with the keys, behind a cursor if there is one.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show<G: Group>(cx: &mut Cx<'_, '_, G>, mut keys: Keys, cursor: Option<usize>) -> Result<()> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    if keys.is_short {
        cx.reply.no_memory();
    } else {
        if let Some(cursor) = cursor {
            cx.reply.array(2);
            cx.reply.bulk(Digits::of(cursor as i64).bytes());
        }
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
    let wanted = Wanted { pattern: arguments.next(), strings: true, sets: true };
    let mut keys = Keys::default();
    collect(cx, &wanted, &Scan { from: 0, entries: usize::MAX, buckets: usize::MAX }, &mut keys)?;
    show(cx, keys, None)?;
    Ok(Outcome::Done)
}

/// Buckets that SCAN looks at in one call, at most.
const BUCKETS_OF_A_SCAN: usize = 1 << 14;

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn scan<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
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
                Some(count) if count >= 1 => entries = count as usize,
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
    let scan = Scan { from, entries, buckets: BUCKETS_OF_A_SCAN.max(entries) };
    let next = collect(cx, &wanted, &scan, &mut keys)?;
    show(cx, keys, Some(next))?;
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
