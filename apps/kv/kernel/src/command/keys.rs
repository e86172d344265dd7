//! Commands on keys, whatever their values are: DEL, EXISTS and their relatives, TYPE, OBJECT.

use super::server::unknown_subcommand;
use super::{Cx, KEYS_OF_A_TURN, Outcome};
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

/// What OBJECT tells of a key. Redis's answers, had the key been SET to its value.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn object<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let sub = arguments.next().unwrap_or(Bytes::EMPTY);
    let (is_encoding, is_count) = (sub.eq_ignore_case(b"encoding"), sub.eq_ignore_case(b"refcount"));
    let is_frequency = sub.eq_ignore_case(b"freq");
    if !is_encoding && !is_count && !is_frequency && !sub.eq_ignore_case(b"idletime") {
        unknown_subcommand(cx, sub, b"OBJECT");
        return Ok(Outcome::Done);
    } else if arguments.len() != 1 {
        cx.reply.wrong_count(Bytes::from(b"object"), Some(sub));
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let encoding = locked.value().map(|value| match value.number() {
        _ if locked.is_structure() => &b"vectorset"[..],
        Some(_) => b"int",
        None if value.len() <= EMBEDDED => b"embstr",
        None => b"raw",
    });
    locked.unlock()?;
    match encoding {
        None => cx.reply.nil(),
        Some(encoding) if is_encoding => cx.reply.bulk(encoding.into()),
        Some(_) if is_count => cx.reply.integer(1),
        Some(_) if is_frequency => cx.reply.error(
            b"An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
        Some(_) => cx.reply.error(b"idle times are not kept: a key has only been used since the hand of CLOCK passed it, or not"),
    }
    Ok(Outcome::Done)
}

/// The longest string that Redis keeps in one piece with its object.
const EMBEDDED: usize = 44;
