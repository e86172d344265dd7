//! Commands on values: GET with its relatives, MGET, INCR and its relatives.

use super::{Cx, FRAME, KEYS_OF_A_TURN, Outcome};
use crate::fixed_point::{FixedPoint, Numeral, Read};
use crate::reply::LINE_END;
use crate::resp::Arguments;
use crate::rest::Rest;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::VectorSet;
use gpunet_serve::{Bytes, Digits, Key, Locked, Queue, SpillError};

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn get<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    value(cx, key, false)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn mget<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    cx.go_on(&mut arguments);
    if cx.resume.step == 0 {
        cx.reply.array(arguments.len());
        if !cx.is_transaction && arguments.len() <= KEYS_OF_A_TURN {
            let kept = mget_at_once(cx, &mut arguments)?;
            if !kept.is_empty() {
                cx.resume.rest = Rest::Keys { keys: kept, sent: 0 };
                return Ok(cx.leave(&arguments));
            }
        }
    } else if !cx.resume.rest.send(cx.reply.g, &cx.context, cx.store, cx.reply.out)? {
        return Ok(Outcome::Unfinished);
    }
    let mut looks = 0;
    while !arguments.is_empty() {
        let has_had_its_share = looks == KEYS_OF_A_TURN && !cx.is_transaction;
        if has_had_its_share || !cx.make_room(FRAME)? {
            return Ok(cx.leave(&arguments));
        }
        looks += 1;
        let key = cx.key_of(arguments.next().unwrap_or(Bytes::EMPTY));
        if value(cx, key, true)? == Outcome::Unfinished {
            // It is being sent; then the next one follows.
            return Ok(cx.leave(&arguments));
        }
    }
    Ok(Outcome::Done)
}

/// Bytes of values that MGET copies to answer with them as they are at one moment.
const MOST_KEPT: usize = 2 << 20;

/// Answers with values as they are at one moment: those that do not fit into the writer are copied
/// to the memory for requests, and sent later. If that has no room, some arguments are left.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn mget_at_once<G: Group>(cx: &mut Cx<'_, '_, G>, arguments: &mut Arguments<'_>) -> Result<Queue> {
    let (g, context, store) = (cx.g(), cx.context, cx.store);
    let (most, mut kept) = (cx.most().min(MOST_KEPT), Queue::default());
    loop {
        let before = *arguments;
        let Some(key) = arguments.next() else { return Ok(kept) };
        let locked = store.map.lock(g, &context, cx.key_of(key))?;
        let value = locked.value().filter(|_| !locked.is_structure());
        let len = value.map_or(0, |value| value.len()) + FRAME;
        let fits = kept.is_empty()
            && (cx.reply.is_muted || (len <= cx.reply.out.capacity() && cx.make_room(len)?));
        let is_hit = value.is_some();
        if fits {
            match value {
                Some(value) => cx.reply.bulk(value),
                None => cx.reply.nil(),
            }
        } else {
            let head = Digits::of(value.map_or(-1, |value| value.len() as i64));
            let parts: [Bytes<'_>; 5] = match value {
                Some(value) => [b"$".into(), head.bytes(), LINE_END.into(), value, LINE_END.into()],
                None if cx.reply.is_resp3 => {
                    [b"_".into(), LINE_END.into(), Bytes::EMPTY, Bytes::EMPTY, Bytes::EMPTY]
                }
                None => [b"$".into(), head.bytes(), LINE_END.into(), Bytes::EMPTY, Bytes::EMPTY],
            };
            let most = most.saturating_sub(kept.held());
            match kept.append_all(g, &context, &store.requests, parts, most) {
                Ok(()) => {}
                Err(SpillError::NoMemory) => {
                    locked.unlock()?;
                    *arguments = before;
                    return Ok(kept);
                }
                Err(SpillError::Over(error)) => return Err(error),
            }
        }
        locked.unlock()?;
        cx.count_read(is_hit);
    }
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
pub(super) fn answer<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    locked: &mut Locked<'_, G, VectorSet>,
) -> Result<Outcome> {
    match locked.value() {
        None => cx.reply.nil(),
        Some(value) if cx.reply.is_muted || value.len() + FRAME <= cx.reply.out.room() => {
            cx.reply.bulk(value);
        }
        Some(value) if cx.is_transaction => {
            cx.reply.bulk_head(value.len());
            cx.reply.long(value)?;
        }
        Some(value) => {
            cx.reply.bulk_head(value.len());
            cx.resume.rest = locked.pin().map_or(Rest::Nothing, Rest::of);
            return Ok(Outcome::Unfinished);
        }
    }
    Ok(Outcome::Done)
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
    add_to(cx, key, Number::Integer(amount))
}

/// INCRBYFLOAT.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn add_decimal<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let amount = FixedPoint::read(arguments.next().unwrap_or(Bytes::EMPTY));
    add_to(cx, key, Number::Decimal(amount))
}

/// What is added to a value, or what it is then.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Decimal(Read),
}

impl Number {
    /// This and what a key has.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn plus(self, old: Option<Bytes<'_>>) -> core::result::Result<Self, NotAdded> {
        match self {
            Self::Integer(amount) => {
                let old = old.map_or(Some(0), |value| value.number()).ok_or(NotAdded::NoInteger)?;
                old.checked_add(amount).map(Self::Integer).ok_or(NotAdded::Overflow)
            }
            Self::Decimal(amount) => {
                match (old.map_or(Read::Number(FixedPoint::ZERO), FixedPoint::read), amount) {
                    (Read::Number(old), Read::Number(amount)) => {
                        old.plus(amount).map(|sum| Self::Decimal(Read::Number(sum))).ok_or(NotAdded::TooLarge)
                    }
                    (Read::Invalid, _) | (_, Read::Invalid) => Err(NotAdded::NoDecimal),
                    _ => Err(NotAdded::TooLarge),
                }
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn numeral(self) -> Numeral {
        match self {
            Self::Integer(number) => Numeral::of(number),
            Self::Decimal(Read::Number(number)) => number.numeral(),
            Self::Decimal(_) => Numeral::EMPTY,
        }
    }
}

/// Adds a number to the value of a key, and answers with the sum.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn add_to<G: Group>(cx: &mut Cx<'_, '_, G>, key: Key<'_>, amount: Number) -> Result<Outcome> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    let mut fresh = None;
    let answer = loop {
        let mut locked = map.lock(g, &context, key)?;
        if locked.is_structure() {
            break Err(NotAdded::WrongType);
        }
        let new = match amount.plus(locked.value()) {
            Ok(new) => new,
            Err(error) => break Err(error),
        };
        let (text, expires) = (new.numeral(), locked.expires());
        if locked.overwrite(text.bytes(), expires) {
            locked.unlock()?;
            break Ok((new, text));
        }
        if let Some(fresh) = fresh.take() {
            locked.put_longer(fresh);
            // There is room: it was made.
            let _ = locked.overwrite(text.bytes(), expires);
            locked.unlock()?;
            break Ok((new, text));
        }
        locked.unlock()?;
        fresh = map.fresh(g, &context, key, Bytes::EMPTY, Numeral::MOST)?;
        if fresh.is_none() {
            break Err(NotAdded::NoMemory);
        }
    };
    if let Some(fresh) = fresh {
        map.discard(g, &context, fresh)?;
    }
    match answer {
        Ok((Number::Integer(new), _)) => cx.reply.integer(new),
        Ok((Number::Decimal(_), text)) => cx.reply.bulk(text.bytes()),
        Err(NotAdded::WrongType) => cx.reply.wrong_type(),
        Err(NotAdded::NoInteger) => cx.reply.no_integer(),
        Err(NotAdded::Overflow) => cx.reply.error(b"increment or decrement would overflow"),
        Err(NotAdded::NoDecimal) => cx.reply.error(b"value is not a valid float"),
        Err(NotAdded::TooLarge) => cx.reply.error(b"increment would produce NaN or Infinity"),
        Err(NotAdded::NoMemory) => cx.reply.no_memory(),
    }
    Ok(Outcome::Done)
}

enum NotAdded {
    WrongType,
    NoInteger,
    Overflow,
    NoDecimal,
    TooLarge,
    NoMemory,
}
