//! Commands on keys: DEL, EXISTS, EXPIRE, TTL, PERSIST.

use super::strings::time_ns;
use super::{Cx, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::Bytes;

/// Counts the keys that are there, and removes them if they are to go.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn count<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    removes: bool,
) -> Result<Outcome> {
    let mut count = 0;
    while let Some(key) = arguments.next() {
        let key = cx.key_of(key);
        let mut locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
        let is_there = if removes { locked.remove() } else { locked.value().is_some() };
        locked.unlock()?;
        count += i64::from(is_there);
        if !removes {
            cx.count_read(is_there);
        }
    }
    cx.reply.integer(count);
    Ok(Outcome::Done)
}

/// EXPIRE and PEXPIRE, whose time is in units of `unit` milliseconds.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn expire<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    name: Bytes<'_>,
    unit: i64,
) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let time = arguments.next().unwrap_or(Bytes::EMPTY).number();
    if let Some(option) = arguments.next() {
        cx.reply.raw(b"-ERR Unsupported option ");
        cx.reply.quoted(option, 1024, false);
        cx.reply.raw(b"\r\n");
        return Ok(Outcome::Done);
    }
    let Some(time) = time else {
        cx.reply.no_integer();
        return Ok(Outcome::Done);
    };
    let Some(ns) = time_ns(time, unit * 1_000_000) else {
        cx.reply.raw(b"-ERR invalid expire time in '");
        cx.reply.quoted(name, 64, true);
        cx.reply.raw(b"' command\r\n");
        return Ok(Outcome::Done);
    };
    let mut locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let is_there = locked.value().is_some();
    if is_there && ns <= 0 {
        locked.remove();
    } else if is_there {
        locked.set_expires(cx.context.now + ns as u64);
    }
    locked.unlock()?;
    cx.reply.integer(i64::from(is_there));
    Ok(Outcome::Done)
}

/// TTL and PTTL, which answer in units of `unit` milliseconds.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn ttl<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    unit: u64,
) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let (is_there, expires) = (locked.value().is_some(), locked.expires());
    locked.unlock()?;
    cx.count_read(is_there);
    cx.reply.integer(match (is_there, expires) {
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
