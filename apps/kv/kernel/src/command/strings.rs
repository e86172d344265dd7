//! Commands on values: GET, SET, MGET, MSET, APPEND, STRLEN, INCR and its relatives.

use super::{Cx, FRAME, Outcome};
use crate::resp::Arguments;
use crate::store::MAX_VALUE;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits, Key};

/// Room for the digits of any number.
const DIGITS: usize = 20;

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn get<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    value(cx, key, false)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn mget<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: Arguments<'_>) -> Result<Outcome> {
    if cx.resume.step == 0 {
        cx.reply.array(arguments.len());
        cx.resume.step = 1;
    }
    let mut rest = arguments.after(cx.resume.step - 1);
    while let Some(key) = rest.next() {
        let key = cx.key_of(key);
        if !cx.make_room(FRAME)? || value(cx, key, true)? == Outcome::Unfinished {
            return Ok(Outcome::Unfinished);
        }
        cx.resume.step += 1;
    }
    Ok(Outcome::Done)
}

/// Answers with a key's value. A value that does not fit into the writer is sent from where it lies: unfinished.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn value<G: Group>(cx: &mut Cx<'_, '_, G>, key: Key<'_>, is_many: bool) -> Result<Outcome> {
    let g = cx.g();
    let mut locked = cx.store.map.lock(g, &cx.context, key)?;
    if locked.is_structure() {
        locked.unlock()?;
        // MGET takes it for nothing.
        match is_many {
            true => cx.reply.nil(),
            false => cx.reply.wrong_type(),
        }
        return Ok(Outcome::Done);
    }
    let (is_hit, outcome) = match locked.value() {
        None => {
            cx.reply.nil();
            (false, Outcome::Done)
        }
        Some(value) if value.len() + FRAME <= cx.reply.out.room() => {
            cx.reply.bulk(value);
            (true, Outcome::Done)
        }
        Some(value) if cx.is_transaction => {
            cx.reply.bulk_head(value.len());
            cx.reply.long(value)?;
            (true, Outcome::Done)
        }
        Some(value) => {
            cx.reply.bulk_head(value.len());
            cx.resume.sending = locked.pin().map(|pin| (pin, 0));
            (true, Outcome::Unfinished)
        }
    };
    locked.unlock()?;
    cx.count_read(is_hit);
    Ok(outcome)
}

/// When and whether SET sets.
#[derive(Default)]
struct SetOptions {
    /// Only if the key is not there; only if it is.
    nx: bool,
    xx: bool,
    /// In so many nanoseconds it expires; 0: never.
    expires_in: u64,
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn set<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let value = arguments.next().unwrap_or(Bytes::EMPTY);
    let Some(options) = set_options(cx, arguments) else { return Ok(Outcome::Done) };
    match put(cx, key, value, &options)? {
        Put::Set => cx.reply.ok(),
        Put::NotSet => cx.reply.nil(),
        Put::NoMemory => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

/// Reads the options; answers if they are wrong.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn set_options<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Option<SetOptions> {
    let (mut options, mut expiry) = (SetOptions::default(), None);
    while let Some(word) = arguments.next() {
        let unit = if word.eq_ignore_case(b"ex") {
            1_000_000_000
        } else if word.eq_ignore_case(b"px") {
            1_000_000
        } else {
            0
        };
        if word.eq_ignore_case(b"nx") && !options.xx {
            options.nx = true;
        } else if word.eq_ignore_case(b"xx") && !options.nx {
            options.xx = true;
        } else if unit > 0 && !arguments.is_empty() && expiry.is_none_or(|(_, other)| other == unit) {
            // The same option again takes the place of the first one, as in Redis.
            expiry = arguments.next().map(|time| (time, unit));
        } else {
            cx.reply.syntax();
            return None;
        }
    }
    let Some((time, unit)) = expiry else { return Some(options) };
    let Some(time) = time.number() else {
        cx.reply.no_integer();
        return None;
    };
    match time_ns(time, unit) {
        Some(ns) if ns > 0 => {
            options.expires_in = ns as u64;
            Some(options)
        }
        _ => {
            cx.reply.error(b"invalid expire time in 'set' command");
            None
        }
    }
}

/// A time in nanoseconds, if Redis would take it: it adds milliseconds to those since 1970, in 63 bits. What nanoseconds cannot express
/// is centuries away, and cut.
pub(super) fn time_ns(time: i64, unit: i64) -> Option<i64> {
    const MOST: i64 = 1 << 62;
    /// Milliseconds from 1970 to some day in 2039.
    const SINCE_1970: i64 = 2_200_000_000_000;
    if time.checked_mul(unit / 1_000_000)? > i64::MAX - SINCE_1970 {
        return None;
    }
    Some(time.saturating_mul(unit).clamp(-MOST, MOST))
}

enum Put {
    Set,
    NotSet,
    NoMemory,
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn put<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    key: Key<'_>,
    value: Bytes<'_>,
    options: &SetOptions,
) -> Result<Put> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let expires = if options.expires_in > 0 { context.now + options.expires_in } else { 0 };
    let forbids = |is_there: bool| (options.nx && is_there) || (options.xx && !is_there);
    // Mostly the new value fits where the old one lies.
    let mut locked = map.lock(g, &context, key)?;
    if forbids(locked.value().is_some()) {
        return Ok(Put::NotSet);
    }
    if locked.overwrite(value) {
        if expires != 0 {
            locked.set_expires(expires);
        }
        locked.unlock()?;
        return Ok(Put::Set);
    }
    locked.unlock()?;
    let Some(fresh) = map.fresh(g, &context, key, value, 0)? else { return Ok(Put::NoMemory) };
    let mut locked = map.lock(g, &context, key)?;
    // Another block may have been here meanwhile.
    if forbids(locked.value().is_some()) {
        locked.unlock()?;
        map.discard(g, &context, fresh)?;
        return Ok(Put::NotSet);
    }
    locked.put(fresh);
    if expires != 0 {
        locked.set_expires(expires);
    }
    locked.unlock()?;
    Ok(Put::Set)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn mset<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    name: Bytes<'_>,
    mut arguments: Arguments<'_>,
) -> Result<Outcome> {
    if !arguments.len().is_multiple_of(2) {
        cx.reply.wrong_count(name, None);
        return Ok(Outcome::Done);
    }
    while !arguments.is_empty() {
        let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
        let value = arguments.next().unwrap_or(Bytes::EMPTY);
        if let Put::NoMemory = put(cx, key, value, &SetOptions::default())? {
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        }
    }
    cx.reply.ok();
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn strlen<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let (len, is_set) = (locked.value().map(|value| value.len()), locked.is_structure());
    locked.unlock()?;
    if is_set {
        cx.reply.wrong_type();
        return Ok(Outcome::Done);
    }
    cx.count_read(len.is_some());
    cx.reply.integer(len.unwrap_or(0) as i64);
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn append<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let more = arguments.next().unwrap_or(Bytes::EMPTY);
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    // Room for what the value had at the last look, and the rest: at first it is tried without.
    let mut room = 0;
    loop {
        let fresh = match room {
            0 => None,
            room => match map.fresh(g, &context, key, Bytes::EMPTY, room)? {
                None => {
                    cx.reply.no_memory();
                    return Ok(Outcome::Done);
                }
                fresh => fresh,
            },
        };
        let mut locked = map.lock(g, &context, key)?;
        if locked.is_structure() {
            locked.unlock()?;
            if let Some(fresh) = fresh {
                map.discard(g, &context, fresh)?;
            }
            cx.reply.wrong_type();
            return Ok(Outcome::Done);
        }
        let old = locked.value().map_or(0, |value| value.len());
        let total = old + more.len();
        let is_there = locked.value().is_some();
        if total <= MAX_VALUE && !(is_there && locked.append(more)) {
            let Some(fresh) = fresh.filter(|_| room >= total) else {
                locked.unlock()?;
                // Twice as much, so that what is appended bit by bit is not copied each time.
                room = if is_there { (2 * total).min(MAX_VALUE) } else { total }.max(1);
                continue;
            };
            let expires = locked.expires();
            locked.put_longer(fresh, more);
            locked.set_expires(expires);
            locked.unlock()?;
        } else {
            locked.unlock()?;
            if let Some(fresh) = fresh {
                map.discard(g, &context, fresh)?;
            }
        }
        if total > MAX_VALUE {
            cx.reply.error(b"string exceeds maximum allowed size (proto-max-bulk-len)");
        } else {
            cx.reply.integer(total as i64);
        }
        return Ok(Outcome::Done);
    }
}

/// INCR, DECR, and with `takes_amount` INCRBY and DECRBY.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn add<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    sign: i64,
    takes_amount: bool,
) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let amount = match takes_amount {
        true => match arguments.next().unwrap_or(Bytes::EMPTY).number() {
            None => {
                cx.reply.no_integer();
                return Ok(Outcome::Done);
            }
            Some(i64::MIN) if sign < 0 => {
                cx.reply.error(b"decrement would overflow");
                return Ok(Outcome::Done);
            }
            Some(amount) => sign * amount,
        },
        false => sign,
    };
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let mut fresh = None;
    let answer = loop {
        let mut locked = map.lock(g, &context, key)?;
        if locked.is_structure() {
            break Err(NotAdded::WrongType);
        }
        let old = match locked.value() {
            None => Some(0),
            Some(value) => value.number(),
        };
        let Some(old) = old else { break Err(NotAdded::NoInteger) };
        let Some(new) = old.checked_add(amount) else { break Err(NotAdded::Overflow) };
        let digits = Digits::of(new);
        let (digits, expires) = (digits.bytes(), locked.expires());
        if locked.overwrite(digits) {
            locked.set_expires(expires);
            locked.unlock()?;
            break Ok(new);
        }
        if let Some(fresh) = fresh.take() {
            locked.put_longer(fresh, Bytes::EMPTY);
            // There is room: it was made.
            let _ = locked.overwrite(digits);
            locked.set_expires(expires);
            locked.unlock()?;
            break Ok(new);
        }
        locked.unlock()?;
        fresh = map.fresh(g, &context, key, Bytes::EMPTY, DIGITS)?;
        if fresh.is_none() {
            break Err(NotAdded::NoMemory);
        }
    };
    if let Some(fresh) = fresh {
        map.discard(g, &context, fresh)?;
    }
    match answer {
        Ok(new) => cx.reply.integer(new),
        Err(NotAdded::WrongType) => cx.reply.wrong_type(),
        Err(NotAdded::NoInteger) => cx.reply.no_integer(),
        Err(NotAdded::Overflow) => cx.reply.error(b"increment or decrement would overflow"),
        Err(NotAdded::NoMemory) => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

enum NotAdded {
    WrongType,
    NoInteger,
    Overflow,
    NoMemory,
}
