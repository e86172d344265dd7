//! SET with its relatives and options: SETEX, PSETEX, SETNX, GETSET, GETDEL, GETEX.

use super::expiry::Unit;
use super::strings::answer;
use super::{Cx, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::VectorSet;
use gpunet_serve::{Bytes, Context, Fresh, Key, Locked};

/// Options of SET and GETEX.
#[derive(Clone, Copy, Default)]
pub(super) struct SetOptions<'r> {
    /// Only if the key is not there; only if it is.
    nx: bool,
    xx: bool,
    /// The answer is the old value.
    get: bool,
    /// When it expires stays as it was; it never expires.
    keeps_expiry: bool,
    persists: bool,
    /// When it expires, as it is given.
    expiry: Option<(Bytes<'r>, Unit)>,
}

/// The command that has options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Set,
    Getex,
}

/// Reads the options; answers if they are wrong.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn options<'r, G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'r>,
    of: Of,
) -> Option<SetOptions<'r>> {
    let mut options = SetOptions::default();
    while let Some(word) = arguments.next() {
        let unit = Unit::of(word);
        if of == Of::Set && word.eq_ignore_case(b"nx") && !options.xx {
            options.nx = true;
        } else if of == Of::Set && word.eq_ignore_case(b"xx") && !options.nx {
            options.xx = true;
        } else if of == Of::Set && word.eq_ignore_case(b"get") {
            options.get = true;
        } else if of == Of::Set && word.eq_ignore_case(b"keepttl") && options.expiry.is_none() {
            options.keeps_expiry = true;
        } else if of == Of::Getex && word.eq_ignore_case(b"persist") && options.expiry.is_none() {
            options.persists = true;
        } else if let Some(unit) = unit
            && !arguments.is_empty()
            && !options.keeps_expiry
            && !options.persists
            && options.expiry.is_none_or(|(_, other)| other == unit)
        {
            // The same option again takes the place of the first one, as in Redis.
            options.expiry = arguments.next().map(|time| (time, unit));
        } else {
            cx.reply.syntax();
            return None;
        }
    }
    Some(options)
}

impl SetOptions<'_> {
    /// When the key expires by the device's clock; 0: never. Answers if the time is wrong.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn expires<G: Group>(&self, cx: &mut Cx<'_, '_, G>, name: Bytes<'_>) -> Option<u64> {
        let Some((time, unit)) = self.expiry else { return Some(0) };
        let Some(time) = time.number() else {
            cx.reply.no_integer();
            return None;
        };
        match cx.until(time, unit) {
            Some(ns) if time > 0 => Some(cx.expires_in(ns)),
            _ => {
                cx.reply.invalid_expiry(name);
                None
            }
        }
    }
}

/// GETDEL, and with options GETEX: a key's value, and what becomes of the key.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn get_and<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    name: Bytes<'_>,
    mut arguments: Arguments<'_>,
    deletes: bool,
) -> Result<Outcome> {
    // The value is sent.
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let Some(options) = options(cx, arguments, Of::Getex) else { return Ok(Outcome::Done) };
    let g = cx.g();
    let mut locked = cx.store.map.lock(g, &cx.context, key)?;
    let is_hit = locked.value().is_some();
    if locked.is_structure() {
        locked.unlock()?;
        cx.reply.wrong_type();
        return Ok(Outcome::Done);
    }
    let expires = match is_hit {
        true => options.expires(cx, name),
        false => Some(0),
    };
    let Some(expires) = expires else {
        locked.unlock()?;
        return Ok(Outcome::Done);
    };
    let outcome = answer(cx, &mut locked)?;
    if deletes {
        locked.remove();
    } else if is_hit && (expires != 0 || options.persists) {
        match expires {
            0 => locked.set_expires(0),
            expires => set_expires(&cx.context, &mut locked, expires),
        }
    }
    locked.unlock()?;
    cx.count_read(is_hit);
    Ok(outcome)
}

/// SET.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn set<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    name: Bytes<'_>,
    mut arguments: Arguments<'_>,
) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let value = arguments.next().unwrap_or(Bytes::EMPTY);
    let Some(options) = options(cx, arguments, Of::Set) else { return Ok(Outcome::Done) };
    let Some(expires) = options.expires(cx, name) else { return Ok(Outcome::Done) };
    if options.get {
        return put_and_get(cx, key, value, &options, expires);
    }
    match put(cx, key, value, &options, expires)? {
        Put::Set => cx.reply.ok(),
        Put::NotSet => cx.reply.nil(),
        Put::NoMemory => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

/// SETEX and PSETEX, whose time is in units of `ms` milliseconds.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn set_expiring<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    name: Bytes<'_>,
    mut arguments: Arguments<'_>,
    ms: i64,
) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let time = arguments.next().unwrap_or(Bytes::EMPTY);
    let value = arguments.next().unwrap_or(Bytes::EMPTY);
    let options = SetOptions { expiry: Some((time, Unit { ms, is_absolute: false })), ..Default::default() };
    let Some(expires) = options.expires(cx, name) else { return Ok(Outcome::Done) };
    match put(cx, key, value, &options, expires)? {
        Put::NoMemory => cx.reply.no_memory(),
        _ => cx.reply.ok(),
    }
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn setnx<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let value = arguments.next().unwrap_or(Bytes::EMPTY);
    match put(cx, key, value, &SetOptions { nx: true, ..Default::default() }, 0)? {
        Put::Set => cx.reply.integer(1),
        Put::NotSet => cx.reply.integer(0),
        Put::NoMemory => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn getset<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let value = arguments.next().unwrap_or(Bytes::EMPTY);
    put_and_get(cx, key, value, &SetOptions::default(), 0)
}

/// What became of a SET.
pub(super) enum Put {
    Set,
    NotSet,
    NoMemory,
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn put<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    key: Key<'_>,
    value: Bytes<'_>,
    options: &SetOptions<'_>,
    expires: u64,
) -> Result<Put> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    // Mostly the new value fits where the old one lies.
    let mut locked = map.lock(g, &context, key)?;
    if options.forbids(locked.value().is_some()) {
        return Ok(Put::NotSet);
    }
    let expires_now = if options.keeps_expiry { locked.expires() } else { expires };
    if locked.overwrite(value, expires_now) {
        if is_over(&context, expires_now) {
            locked.remove();
        }
        locked.unlock()?;
        return Ok(Put::Set);
    }
    locked.unlock()?;
    let Some(fresh) = map.fresh(g, &context, key, value, 0)? else { return Ok(Put::NoMemory) };
    let mut locked = map.lock(g, &context, key)?;
    // Another block may have been here meanwhile.
    if options.forbids(locked.value().is_some()) {
        locked.unlock()?;
        map.discard(g, &context, fresh)?;
        return Ok(Put::NotSet);
    }
    options.replace(&context, &mut locked, fresh, expires);
    locked.unlock()?;
    Ok(Put::Set)
}

impl SetOptions<'_> {
    const fn forbids(&self, is_there: bool) -> bool {
        (self.nx && is_there) || (self.xx && !is_there)
    }

    /// Puts a new entry in the place of the old one.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn replace<G: Group>(
        &self,
        context: &Context,
        locked: &mut Locked<'_, G, VectorSet>,
        fresh: Fresh,
        expires: u64,
    ) {
        let expires = if self.keeps_expiry { locked.expires() } else { expires };
        locked.put(fresh);
        set_expires(context, locked, expires);
    }
}

/// Sets when a key expires; 0: as it is. At a time that is over it goes at once.
fn set_expires<G: Group>(context: &Context, locked: &mut Locked<'_, G, VectorSet>, expires: u64) {
    if is_over(context, expires) {
        locked.remove();
    } else if expires != 0 {
        locked.set_expires(expires);
    }
}

const fn is_over(context: &Context, expires: u64) -> bool {
    expires != 0 && expires <= context.now
}

/// As `put`; answers with the old value.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn put_and_get<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    key: Key<'_>,
    value: Bytes<'_>,
    options: &SetOptions<'_>,
    expires: u64,
) -> Result<Outcome> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let Some(fresh) = map.fresh(g, &context, key, value, 0)? else {
        cx.reply.no_memory();
        return Ok(Outcome::Done);
    };
    let mut locked = map.lock(g, &context, key)?;
    let is_hit = locked.value().is_some();
    if locked.is_structure() {
        locked.unlock()?;
        map.discard(g, &context, fresh)?;
        cx.reply.wrong_type();
        return Ok(Outcome::Done);
    }
    let outcome = answer(cx, &mut locked)?;
    if options.forbids(is_hit) {
        locked.unlock()?;
        map.discard(g, &context, fresh)?;
    } else {
        options.replace(&context, &mut locked, fresh, expires);
        locked.unlock()?;
    }
    cx.count_read(is_hit);
    Ok(outcome)
}
