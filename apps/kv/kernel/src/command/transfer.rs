//! Commands that move or copy values from key to key: RENAME, RENAMENX, MOVE, COPY.

use super::{Cx, Outcome};
use crate::resp::Arguments;
use crate::session::Database;
use gpunet_device::{Group, Result};
use gpunet_serve::Key;

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
    let held = Transfer { from: how.from.held(), to: how.to.held(), ..how };
    if cx.is_transaction {
        return transfer_held(cx, &held);
    }
    let Some(mut hold) = map.keys_to_hold(g, &context, 2)? else { return Ok(Transferred::NoMemory) };
    map.add_to_hold(g, &mut hold, &how.from);
    map.add_to_hold(g, &mut hold, &how.to);
    map.hold(g, &context, &hold)?;
    let transferred = transfer_held(cx, &held);
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
