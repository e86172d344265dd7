//! Commands on parts of values: GETRANGE, STRLEN, APPEND, SETRANGE, SETBIT, GETBIT, BITCOUNT.

use super::{Cx, Outcome};
use crate::resp::Arguments;
use crate::store::MAX_VALUE;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Key};

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn strlen<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(found) = cx.look_up(&mut arguments)? else { return Ok(Outcome::Done) };
    if found.is_structure {
        cx.reply.wrong_type();
        return Ok(Outcome::Done);
    }
    cx.count_read(found.is_there);
    cx.reply.integer(found.len as i64);
    Ok(Outcome::Done)
}

/// A range of a value of `len` units, as clients give it: of negative positions the last one is
/// -1. Returns its first unit and the one behind its last; `None` if it is empty.
fn range(len: usize, first: i64, last: i64) -> Option<(usize, usize)> {
    let len = len as i64;
    let from_start = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, end) = (from_start(first).max(0), from_start(last).max(0).min(len - 1) + 1);
    let is_empty = start >= end || (first < 0 && last < 0 && first > last);
    if is_empty { None } else { Some((start as usize, end as usize)) }
}

/// `GETRANGE key first last`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn getrange<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let mut position = || arguments.next().unwrap_or(Bytes::EMPTY).number();
    let (Some(first), Some(last)) = (position(), position()) else {
        cx.reply.no_integer();
        return Ok(Outcome::Done);
    };
    let locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    if locked.is_structure() {
        locked.unlock()?;
        cx.reply.wrong_type();
        return Ok(Outcome::Done);
    }
    let (is_hit, value) = (locked.value().is_some(), locked.value().unwrap_or(Bytes::EMPTY));
    let part = match range(value.len(), first, last) {
        Some((start, end)) => value.slice(start, end - start),
        None => Bytes::EMPTY,
    };
    cx.reply.bulk_head(part.len());
    cx.reply.long(part)?;
    locked.unlock()?;
    cx.count_read(is_hit);
    Ok(Outcome::Done)
}

/// Where a bit is: its byte, and the bit in it. Answers if there is no such bit in any value.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn bit<G: Group>(cx: &mut Cx<'_, '_, G>, position: Option<Bytes<'_>>) -> Option<(usize, u8)> {
    match position.unwrap_or(Bytes::EMPTY).number() {
        Some(at) if at >= 0 && at as usize / 8 < MAX_VALUE => Some((at as usize / 8, 0x80 >> (at % 8))),
        _ => {
            cx.reply.error(b"bit offset is not an integer or out of range");
            None
        }
    }
}

/// `GETBIT key position`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn getbit<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let Some((at, mask)) = bit(cx, arguments.next()) else { return Ok(Outcome::Done) };
    let locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let (is_structure, is_hit) = (locked.is_structure(), locked.value().is_some());
    let is_set = locked.value().is_some_and(|value| value.get(at) & mask != 0);
    locked.unlock()?;
    if is_structure {
        cx.reply.wrong_type();
    } else {
        cx.count_read(is_hit);
        cx.reply.integer(i64::from(is_set));
    }
    Ok(Outcome::Done)
}

/// `BITCOUNT key [first last [BYTE|BIT]]`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn bitcount<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let g = cx.g();
    let locked = cx.store.map.lock(g, &cx.context, key)?;
    let is_structure = locked.is_structure();
    let Some(value) = locked.value().filter(|_| !is_structure) else {
        locked.unlock()?;
        if is_structure {
            cx.reply.wrong_type();
        } else {
            // Whatever else is wrong, as in Redis.
            cx.reply.integer(0);
            cx.count_read(false);
        }
        return Ok(Outcome::Done);
    };
    let count = match bits(value.len(), arguments) {
        Ok((start, end)) => Ok(count_bits(g, value, start, end)),
        Err(why) => Err(why),
    };
    locked.unlock()?;
    match count {
        Ok(count) => cx.reply.integer(count as i64),
        Err(Wrong::Number) => cx.reply.no_integer(),
        Err(Wrong::Syntax) => cx.reply.syntax(),
    }
    cx.count_read(true);
    Ok(Outcome::Done)
}

/// What is wrong with a range of bits.
enum Wrong {
    Number,
    Syntax,
}

/// The bits of a value of `len` bytes that BITCOUNT counts: the first one, and the one behind the
/// last.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn bits(len: usize, mut arguments: Arguments<'_>) -> core::result::Result<(usize, usize), Wrong> {
    match arguments.len() {
        0 => return Ok((0, 8 * len)),
        2 | 3 => {}
        _ => return Err(Wrong::Syntax),
    }
    let mut position = || arguments.next().unwrap_or(Bytes::EMPTY).number();
    let (Some(first), Some(last)) = (position(), position()) else { return Err(Wrong::Number) };
    // As Redis: it looks at the unit only if the range can have something in it.
    if first < 0 && last < 0 && first > last {
        return Ok((0, 0));
    }
    let unit = match arguments.next() {
        None => 8,
        Some(unit) if unit.eq_ignore_case(b"byte") => 8,
        Some(unit) if unit.eq_ignore_case(b"bit") => 1,
        Some(_) => return Err(Wrong::Syntax),
    };
    Ok(match range(8 * len / unit, first, last) {
        Some((start, end)) => (start * unit, end * unit),
        None => (0, 0),
    })
}

/// How many bits are set from `start` to `end`, where the highest bit of a byte is its first one.
/// Lanes look at words side by side. All lanes; also a barrier.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn count_bits<G: Group>(g: &G, value: Bytes<'_>, start: usize, end: usize) -> u32 {
    let whole = value.slice(start / 8, end.div_ceil(8) - start / 8);
    let (mut at, mut count) = (8 * g.rank() as usize, 0);
    while at < whole.len() {
        count += whole.word(at).count_ones();
        at += 8 * g.size() as usize;
    }
    let before = (value.get(start / 8) as u32 >> (8 - start % 8)).count_ones();
    let behind = match end % 8 {
        0 => 0,
        some => (value.get(end / 8) as u32 & (0xff >> some)).count_ones(),
    };
    g.sum(count) - if start < end { before + behind } else { 0 }
}

/// A change of a part of a value.
#[derive(Clone, Copy)]
enum Change<'r> {
    /// Bytes behind its end.
    Append(Bytes<'r>),
    /// Bytes from a place on; zeros before them, if the value ends there.
    Range(usize, Bytes<'r>),
    /// A bit of a byte.
    Bit { at: usize, mask: u8, is_set: bool },
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn append<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    change(cx, key, Change::Append(arguments.next().unwrap_or(Bytes::EMPTY)))
}

/// `SETRANGE key position bytes`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn setrange<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    match arguments.next().unwrap_or(Bytes::EMPTY).number() {
        None => cx.reply.no_integer(),
        Some(at) if at < 0 => cx.reply.error(b"offset is out of range"),
        Some(at) => {
            let bytes = arguments.next().unwrap_or(Bytes::EMPTY);
            return change(cx, key, Change::Range(at as usize, bytes));
        }
    }
    Ok(Outcome::Done)
}

/// `SETBIT key position 0|1`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn setbit<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let Some((at, mask)) = bit(cx, arguments.next()) else { return Ok(Outcome::Done) };
    match arguments.next().unwrap_or(Bytes::EMPTY).number() {
        Some(number @ (0 | 1)) => change(cx, key, Change::Bit { at, mask, is_set: number == 1 }),
        _ => {
            cx.reply.error(b"bit is not an integer or out of range");
            Ok(Outcome::Done)
        }
    }
}

/// Changes a part of a value, and answers: with the bit as it was, or with how long the value is.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn change<G: Group>(cx: &mut Cx<'_, '_, G>, key: Key<'_>, what: Change<'_>) -> Result<Outcome> {
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
        let (is_there, old) = (locked.value().is_some(), locked.value().map_or(0, |value| value.len()));
        let byte;
        let (at, bytes, answer) = match what {
            Change::Append(bytes) => (old, bytes, None),
            Change::Range(at, bytes) => (at, bytes, None),
            Change::Bit { at, mask, is_set } => {
                let before = locked.value().map_or(0, |value| value.get(at));
                byte = [if is_set { before | mask } else { before & !mask }];
                (at, Bytes::from(&byte), Some(i64::from(before & mask != 0)))
            }
        };
        let is_nothing = bytes.is_empty() && matches!(what, Change::Range(..));
        let total = if is_nothing { old } else { old.max(at.saturating_add(bytes.len())) };
        if !is_nothing && total <= MAX_VALUE && !(is_there && locked.write_at(at, bytes)) {
            let Some(fresh) = fresh.filter(|_| room >= total) else {
                locked.unlock()?;
                // Twice as much, so that what grows bit by bit is not copied each time.
                room = if is_there { (2 * total).min(MAX_VALUE) } else { total }.max(1);
                continue;
            };
            let expires = locked.expires();
            locked.put_longer(fresh);
            // There is room: it was made.
            let _ = locked.write_at(at, bytes);
            locked.set_expires(expires);
            locked.unlock()?;
        } else {
            locked.unlock()?;
            if let Some(fresh) = fresh {
                map.discard(g, &context, fresh)?;
            }
        }
        match answer {
            _ if total > MAX_VALUE => {
                cx.reply.error(b"string exceeds maximum allowed size (proto-max-bulk-len)");
            }
            Some(answer) => cx.reply.integer(answer),
            None => cx.reply.integer(total as i64),
        }
        return Ok(Outcome::Done);
    }
}
