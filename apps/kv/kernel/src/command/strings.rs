//! Commands on values: GET and SET with their relatives, MGET, MSET, APPEND, STRLEN, INCR and its
//! relatives.

use super::expiry::Unit;
use super::{Cx, FRAME, Outcome};
use crate::resp::Arguments;
use crate::store::MAX_VALUE;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::VectorSet;
use gpunet_serve::{Bytes, Context, Digits, Fresh, Key, Locked};

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

/// Answers with a key's value. A value that does not fit into the writer is sent from where it
/// lies: unfinished.
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
    let is_hit = locked.value().is_some();
    let outcome = answer(cx, &mut locked)?;
    locked.unlock()?;
    cx.count_read(is_hit);
    Ok(outcome)
}

/// Answers with the value of a locked key, which is no structure, or with nothing. What becomes of
/// the key afterwards does not matter.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn answer<G: Group>(cx: &mut Cx<'_, '_, G>, locked: &mut Locked<'_, G, VectorSet>) -> Result<Outcome> {
    match locked.value() {
        None => cx.reply.nil(),
        Some(value) if value.len() + FRAME <= cx.reply.out.room() => cx.reply.bulk(value),
        Some(value) if cx.is_transaction => {
            cx.reply.bulk_head(value.len());
            cx.reply.long(value)?;
        }
        Some(value) => {
            cx.reply.bulk_head(value.len());
            cx.resume.sending = locked.pin().map(|pin| (pin, 0));
            return Ok(Outcome::Unfinished);
        }
    }
    Ok(Outcome::Done)
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

/// Options of SET and GETEX.
#[derive(Clone, Copy, Default)]
struct SetOptions<'r> {
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
    if locked.overwrite(value) {
        set_expires(&context, &mut locked, expires_now);
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
    if expires > context.now {
        locked.set_expires(expires);
    } else if expires != 0 {
        locked.remove();
    }
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
        if let Put::NoMemory = put(cx, key, value, &SetOptions::default(), 0)? {
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
