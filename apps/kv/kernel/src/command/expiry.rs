//! Times at which keys expire, and the commands about them: EXPIRE, TTL, PERSIST and their
//! relatives. Clients count from 1970 or from now, keys expire by the device's clock.

use super::{Cx, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::Bytes;

/// How a client gives a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Milliseconds.
    pub(super) ms: i64,
    /// It counts from 1970.
    pub(super) is_absolute: bool,
}

impl Unit {
    /// What an option of SET and GETEX gives its time in.
    pub(super) fn of(option: Bytes<'_>) -> Option<Self> {
        let (ms, is_absolute) = if option.eq_ignore_case(b"ex") {
            (1000, false)
        } else if option.eq_ignore_case(b"px") {
            (1, false)
        } else if option.eq_ignore_case(b"exat") {
            (1000, true)
        } else if option.eq_ignore_case(b"pxat") {
            (1, true)
        } else {
            return None;
        };
        Some(Self { ms, is_absolute })
    }
}

/// What nanoseconds cannot express is centuries away, and cut.
const MOST: i64 = 1 << 62;
const NS_PER_MS: i64 = 1_000_000;

impl<G: Group> Cx<'_, '_, G> {
    /// In how many nanoseconds a time is, if Redis would take it: it counts milliseconds since 1970
    /// in 63 bits. Not above 0: it is over.
    pub(super) fn until(&self, time: i64, unit: Unit) -> Option<i64> {
        let ms = time.checked_mul(unit.ms)?;
        let ns = if unit.is_absolute {
            ms.saturating_mul(NS_PER_MS).saturating_sub(self.unix_ns as i64)
        } else {
            ms.checked_add(self.unix_ns as i64 / NS_PER_MS)?;
            ms.saturating_mul(NS_PER_MS)
        };
        Some(ns.clamp(-MOST, MOST))
    }

    /// The device's time in so many nanoseconds. What is over is so at once.
    pub(super) fn expires_in(&self, ns: i64) -> u64 {
        self.context.now + ns.max(0) as u64
    }

    /// Milliseconds from 1970 to a time of the device's clock.
    pub(super) fn unix_ms(&self, at: u64) -> i64 {
        (self.unix_ns as i64).saturating_add((at - self.context.now) as i64) / NS_PER_MS
    }
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
