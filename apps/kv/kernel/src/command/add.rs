//! VADD: a vector is added to a set, or replaced.

use super::vectors::{Given, Opened, close, open, vector, wrong_dim};
use super::{Cx, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::{Change, MAX_ELEMENT, Storage, Vector};
use gpunet_serve::{Bytes, Key};

/// `VADD key FP32|FP16|VALUES vector element [CAS] [NOQUANT|FP16] [EF n] [M n]`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn vadd<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let form = arguments.next().unwrap_or(Bytes::EMPTY);
    if form.eq_ignore_case(b"reduce") {
        cx.reply.error(b"REDUCE is not supported: vectors are kept whole");
        return Ok(Outcome::Done);
    }
    let vector = match vector(cx, form, &mut arguments)? {
        Given::Vector(vector) => vector,
        Given::Invalid => {
            cx.reply.error(b"invalid vector specification");
            return Ok(Outcome::Done);
        }
        Given::NoMemory => {
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        }
    };
    let is_half = form.eq_ignore_case(b"fp16");
    match arguments.next() {
        None => cx.reply.wrong_count(Bytes::from(b"vadd"), None),
        Some(element) if element.len() > MAX_ELEMENT => cx.reply.error(b"element is too long"),
        Some(element) => {
            if let Some(storage) = options(cx, arguments) {
                add(cx, key, &vector, element, storage, is_half)?;
            }
        }
    }
    cx.store.vectors.forget(cx.g(), &cx.context, vector)?;
    Ok(Outcome::Done)
}

/// Reads the options; answers if they are wrong. The storage that was asked for, if one was.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn options<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Option<Option<Storage>> {
    let mut storage = None;
    while let Some(option) = arguments.next() {
        if option.eq_ignore_case(b"noquant") {
            storage = Some(Storage::Single);
        } else if option.eq_ignore_case(b"fp16") {
            storage = Some(Storage::Half);
        } else if option.eq_ignore_case(b"cas") {
            // Every addition is atomic.
        } else if (option.eq_ignore_case(b"ef") || option.eq_ignore_case(b"m")) && !arguments.is_empty() {
            // They shape a graph for approximate searches. There is none.
            let is_ef = option.eq_ignore_case(b"ef");
            let most = if is_ef { 1_000_000 } else { 4096 };
            match arguments.next().and_then(|number| number.number()) {
                Some(number) if number > 0 && number <= most => {}
                _ => {
                    cx.reply.error(if is_ef { b"invalid EF" } else { b"invalid M" });
                    return None;
                }
            }
        } else if option.eq_ignore_case(b"q8") || option.eq_ignore_case(b"bin") {
            cx.reply.error(b"Q8 and BIN are not supported: vectors are kept as NOQUANT or FP16");
            return None;
        } else if option.eq_ignore_case(b"setattr") {
            cx.reply.error(b"SETATTR is not supported: vectors have no attributes");
            return None;
        } else {
            cx.reply.error(b"invalid option after element");
            return None;
        }
    }
    Some(storage)
}

/// Adds a vector to the set of a key, which is made if it is not there.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn add<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    key: Key<'_>,
    vector: &Vector,
    element: Bytes<'_>,
    asked: Option<Storage>,
    is_half: bool,
) -> Result<()> {
    let (g, map, vectors, context) = (cx.g(), &cx.store.map, &cx.store.vectors, cx.context);
    loop {
        let set = match open(cx, key)? {
            Opened::Set(set) => set,
            Opened::WrongType => {
                cx.reply.wrong_type();
                return Ok(());
            }
            Opened::Nothing => {
                let default = if is_half { Storage::Half } else { Storage::Single };
                let storage = asked.unwrap_or(default);
                let Some(fresh) = vectors.fresh_set(g, &context, key, vector.dim(), storage)? else {
                    cx.reply.no_memory();
                    return Ok(());
                };
                let mut locked = map.lock(g, &context, key)?;
                // Another block may have been here meanwhile.
                let is_there = locked.value().is_some();
                if is_there {
                    locked.unlock()?;
                    map.discard(g, &context, fresh)?;
                    continue;
                }
                locked.put(fresh);
                let set = locked.pin();
                locked.unlock()?;
                let Some(set) = set else { continue };
                set
            }
        };
        let (dim, storage) = (vectors.dim(&set), vectors.storage(&set));
        if dim != vector.dim() || asked.is_some_and(|asked| asked != storage) {
            map.unpin(g, &context, set)?;
            match dim == vector.dim() {
                true => cx.reply.error(b"asked quantization mismatch with existing vector set"),
                false => wrong_dim(cx, vector.dim(), dim),
            }
            return Ok(());
        }
        let change = vectors.insert(g, &context, &set, vector, element)?;
        match change {
            Change::Added | Change::Replaced => cx.reply.boolean(change == Change::Added),
            // A set that has just become empty: its key goes, if it has not gone yet, and there
            // will be a new one.
            Change::Closed => {
                close(cx, key, set)?;
                continue;
            }
            _ => {
                // It may be a new set that has never had a vector.
                if vectors.close_if_empty(g, &context, &set)? {
                    cx.reply.no_memory();
                    return close(cx, key, set);
                }
                cx.reply.no_memory();
            }
        }
        return map.unpin(g, &context, set);
    }
}
