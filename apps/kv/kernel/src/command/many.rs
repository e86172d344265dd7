//! MSET and MSETNX.

use super::set::{Put, SetOptions, put};
use super::{Cx, KEYS_OF_A_TURN, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, MAX_HELD};

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
    cx.go_on(&mut arguments);
    let mut looks = 0;
    while !arguments.is_empty() {
        if looks == KEYS_OF_A_TURN && !cx.is_transaction {
            return Ok(cx.leave(&arguments));
        }
        looks += 1;
        let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
        let value = arguments.next().unwrap_or(Bytes::EMPTY);
        if let Put::NoMemory = put(cx, key, value, &SetOptions::default(), 0)? {
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        }
    }
    cx.reply.ok();
    Ok(Outcome::Done)
}

/// MSETNX: all keys at once for all others, or none.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn msetnx<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    name: Bytes<'_>,
    arguments: Arguments<'_>,
) -> Result<Outcome> {
    if !arguments.len().is_multiple_of(2) {
        cx.reply.wrong_count(name, None);
        return Ok(Outcome::Done);
    }
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    if cx.is_transaction {
        return set_all(cx, arguments);
    }
    // It is carried out in one turn, as EXEC is.
    if arguments.len() / 2 > MAX_HELD {
        cx.reply.error(b"too many keys");
        return Ok(Outcome::Done);
    }
    let Some(mut hold) = map.keys_to_hold(g, &context, arguments.len() / 2)? else {
        cx.reply.no_memory();
        return Ok(Outcome::Done);
    };
    let mut keys = arguments;
    while let Some(key) = keys.next() {
        map.add_to_hold(g, &mut hold, &cx.key_of(key));
        keys = keys.after(1);
    }
    map.hold(g, &context, &hold)?;
    cx.holds_keys = true;
    let outcome = set_all(cx, arguments);
    cx.holds_keys = false;
    map.release(g, &context, hold)?;
    outcome
}

/// Sets all keys if none of them is there: by a group that holds their buckets.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn set_all<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: Arguments<'_>) -> Result<Outcome> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let mut rest = arguments;
    while !rest.is_empty() {
        let Some(key) = cx.key(&mut rest) else { return Ok(Outcome::Done) };
        rest = rest.after(1);
        let locked = map.lock(g, &context, key)?;
        let is_there = locked.value().is_some();
        locked.unlock()?;
        if is_there {
            cx.reply.integer(0);
            return Ok(Outcome::Done);
        }
    }
    let mut rest = arguments;
    while let Some(key) = rest.next() {
        let value = rest.next().unwrap_or(Bytes::EMPTY);
        if let Put::NoMemory = put(cx, cx.key_of(key), value, &SetOptions::default(), 0)? {
            remove_all(cx, arguments)?;
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        }
    }
    cx.reply.integer(1);
    Ok(Outcome::Done)
}

/// Removes the keys of a MSETNX for which there was too little memory: none of them was there.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn remove_all<G: Group>(cx: &Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<()> {
    while let Some(key) = arguments.next() {
        let mut locked = cx.store.map.lock(cx.g(), &cx.context, cx.key_of(key))?;
        locked.remove();
        locked.unlock()?;
        arguments = arguments.after(1);
    }
    Ok(())
}
