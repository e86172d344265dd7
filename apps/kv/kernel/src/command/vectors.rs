//! Commands on sets of vectors: VREM, VCARD, VDIM, VEMB, and what all of them need. VADD is in
//! `add`, VSIM in `similar`.

use super::{Cx, Outcome};
use crate::reply::{text_double, text_head};
use crate::resp::Arguments;
use crate::rest::Rest;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::{Change, Decimal, Vector, VectorError};
use gpunet_serve::{Bytes, Key, Pin};

/// What a key has for a command on vectors.
pub(super) enum Opened {
    /// A set.
    Set(Pin),
    Nothing,
    WrongType,
}

/// Finds and pins a set.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn open<G: Group>(cx: &Cx<'_, '_, G>, key: Key<'_>) -> Result<Opened> {
    let mut locked = cx.store.map.lock(cx.g(), &cx.context, key)?;
    let opened = match (locked.value().is_some(), locked.is_structure()) {
        (false, _) => Opened::Nothing,
        (true, false) => Opened::WrongType,
        (true, true) => locked.pin().map_or(Opened::Nothing, Opened::Set),
    };
    locked.unlock()?;
    Ok(opened)
}

/// A vector in a request, or why there is none.
pub(super) enum Given {
    Vector(Vector),
    Invalid,
    NoMemory,
}

/// The numbers of a vector in a request: `FP32` or `FP16` and their bytes, or `VALUES`, their
/// count, and their texts.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn vector<G: Group>(
    cx: &Cx<'_, '_, G>,
    form: Bytes<'_>,
    arguments: &mut Arguments<'_>,
) -> Result<Given> {
    let (g, vectors, context) = (cx.g(), &cx.store.vectors, &cx.context);
    let first = arguments.next().unwrap_or(Bytes::EMPTY);
    let is_text = form.eq_ignore_case(b"values");
    let dim = if is_text {
        match first.number() {
            Some(count) if count > 0 && count as u64 <= arguments.len() as u64 => count as usize,
            _ => return Ok(Given::Invalid),
        }
    } else {
        let size = if form.eq_ignore_case(b"fp32") { 4 } else { 2 };
        if (size == 2 && !form.eq_ignore_case(b"fp16")) || !first.len().is_multiple_of(size) {
            return Ok(Given::Invalid);
        }
        first.len() / size
    };
    let built = vectors.build(g, context, dim).and_then(|mut builder| {
        if is_text {
            let mut at = 0;
            while at < dim {
                vectors.set(g, &mut builder, at, arguments.next().unwrap_or(Bytes::EMPTY));
                at += 1;
            }
        } else {
            vectors.set_all(g, &mut builder, first);
        }
        vectors.finish(g, context, builder)
    });
    match built {
        Ok(vector) => Ok(Given::Vector(vector)),
        Err(VectorError::Invalid) => Ok(Given::Invalid),
        Err(VectorError::NoMemory) => Ok(Given::NoMemory),
        Err(VectorError::Over(error)) => Err(error),
    }
}

/// Answers for a set of another dimension.
pub(super) fn wrong_dim<G: Group>(cx: &mut Cx<'_, '_, G>, got: usize, has: usize) {
    cx.reply.raw(b"-ERR Vector dimension mismatch - got ");
    cx.reply.number(got as i64);
    cx.reply.raw(b" but set has ");
    cx.reply.number(has as i64);
    cx.reply.raw(b"\r\n");
}

/// Removes the key of a set that was closed, unless it has another value by now.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn close<G: Group>(cx: &Cx<'_, '_, G>, key: Key<'_>, set: Pin) -> Result<()> {
    let (g, map) = (cx.g(), &cx.store.map);
    let mut locked = map.lock(g, &cx.context, key)?;
    if locked.is(&set) {
        locked.remove();
    }
    locked.unlock()?;
    map.unpin(g, &cx.context, set)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn vrem<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let element = arguments.next().unwrap_or(Bytes::EMPTY);
    let removed = match open(cx, key)? {
        Opened::WrongType => {
            cx.reply.wrong_type();
            return Ok(Outcome::Done);
        }
        Opened::Nothing => false,
        Opened::Set(set) => {
            let change = cx.store.vectors.remove(cx.g(), &cx.context, &set, element)?;
            match change {
                Change::Emptied => close(cx, key, set)?,
                _ => cx.store.map.unpin(cx.g(), &cx.context, set)?,
            }
            matches!(change, Change::Removed | Change::Emptied)
        }
    };
    cx.reply.boolean(removed);
    Ok(Outcome::Done)
}

/// VCARD, and with `wants_dim` VDIM.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn size<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    mut arguments: Arguments<'_>,
    wants_dim: bool,
) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    match open(cx, key)? {
        Opened::WrongType => cx.reply.wrong_type(),
        Opened::Nothing if wants_dim => cx.reply.error(b"key does not exist"),
        Opened::Nothing => cx.reply.integer(0),
        Opened::Set(set) => {
            let vectors = cx.store.vectors;
            let size = if wants_dim { vectors.dim(&set) } else { vectors.len(cx.g(), &set) };
            cx.store.map.unpin(cx.g(), &cx.context, set)?;
            cx.reply.integer(size as i64);
        }
    }
    Ok(Outcome::Done)
}

/// Bytes of a number as a bulk string, at most.
const NUMBER: usize = 32;

/// `VEMB key element`: the numbers of a vector.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn vemb<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let element = arguments.next().unwrap_or(Bytes::EMPTY);
    if !arguments.is_empty() {
        cx.reply.error(b"invalid option");
        return Ok(Outcome::Done);
    }
    let set = match open(cx, key)? {
        Opened::WrongType => {
            cx.reply.wrong_type();
            return Ok(Outcome::Done);
        }
        Opened::Nothing => {
            cx.reply.nil();
            return Ok(Outcome::Done);
        }
        Opened::Set(set) => set,
    };
    let (g, map, vectors, context) = (cx.g(), &cx.store.map, &cx.store.vectors, cx.context);
    let dim = vectors.dim(&set);
    let text = map.text(g, &context, NUMBER * (dim + 1))?;
    let reading = vectors.read(g, &context, &set)?;
    let found = reading.find(element);
    let outcome = match (found, text) {
        (Some(index), Some(mut text)) => {
            text_head(g, map, &mut text, b"*", dim);
            let mut at = 0;
            while at < dim {
                let number = Decimal::of(reading.number(index, at) as f64);
                text_double(g, map, &mut text, number.bytes(), at + 1 == dim, cx.reply.is_resp3);
                at += 1;
            }
            cx.resume.rest = Rest::of(map.finish(g, text));
            Outcome::Unfinished
        }
        (found, text) => {
            if let Some(text) = text {
                let pin = map.finish(g, text);
                map.unpin(g, &context, pin)?;
            }
            match found {
                None => cx.reply.nil(),
                Some(_) => cx.reply.no_memory(),
            }
            Outcome::Done
        }
    };
    drop(reading);
    map.unpin(g, &context, set)?;
    Ok(outcome)
}
