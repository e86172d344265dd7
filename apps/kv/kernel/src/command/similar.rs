//! VSIM: the vectors of a set that are nearest to one, each compared.

use super::vectors::{Given, Opened, open, vector, wrong_dim};
use super::{Cx, Outcome};
use crate::resp::Arguments;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Decimal, Digits, Found, MAX_COUNT, Map, Pin, Reading, Text, Vector, VectorError};

/// How many are found unless `COUNT` says otherwise, as in Redis.
const COUNT: usize = 10;
const LINE_END: &[u8; 2] = b"\r\n";
/// Bytes of a score, and of what is around a name.
const SCORE: usize = 32;
const FRAME: usize = 16;

/// What VSIM is asked for.
struct Options {
    count: usize,
    with_scores: bool,
    /// The largest distance: 1 less the score.
    epsilon: f32,
}

/// `VSIM key ELE element|FP32|FP16|VALUES vector [WITHSCORES] [COUNT n] [EPSILON x] [EF n] [TRUTH] [NOTHREAD]`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn vsim<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    if cx.resume.step > 0 {
        return Ok(Outcome::Done);
    }
    let Some(key) = cx.key(&mut arguments) else { return Ok(Outcome::Done) };
    let set = match open(cx, key)? {
        Opened::Nothing => {
            cx.count_read(false);
            cx.reply.array(0);
            return Ok(Outcome::Done);
        }
        Opened::WrongType => {
            cx.reply.wrong_type();
            return Ok(Outcome::Done);
        }
        Opened::Set(set) => set,
    };
    cx.count_read(true);
    let outcome = of_set(cx, &set, arguments)?;
    cx.store.map.unpin(cx.g(), &cx.context, set)?;
    Ok(outcome)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn of_set<G: Group>(cx: &mut Cx<'_, '_, G>, set: &Pin, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let form = arguments.next().unwrap_or(Bytes::EMPTY);
    let given = match form.eq_ignore_case(b"ele") {
        true => match of_element(cx, set, arguments.next().unwrap_or(Bytes::EMPTY))? {
            Some(given) => given,
            None => {
                cx.reply.error(b"element not found in set");
                return Ok(Outcome::Done);
            }
        },
        false => vector(cx, form, &mut arguments)?,
    };
    let query = match given {
        Given::Vector(query) => query,
        Given::Invalid => {
            cx.reply.error(b"invalid vector specification");
            return Ok(Outcome::Done);
        }
        Given::NoMemory => {
            cx.reply.no_memory();
            return Ok(Outcome::Done);
        }
    };
    let dim = cx.store.vectors.dim(set);
    let outcome = if query.dim() != dim {
        wrong_dim(cx, query.dim(), dim);
        Outcome::Done
    } else {
        match options(cx, arguments) {
            Some(options) => search(cx, set, &query, &options)?,
            None => Outcome::Done,
        }
    };
    cx.store.vectors.forget(cx.g(), &cx.context, query)?;
    Ok(outcome)
}

/// The vector of an element, if the set has it.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn of_element<G: Group>(cx: &Cx<'_, '_, G>, set: &Pin, element: Bytes<'_>) -> Result<Option<Given>> {
    let (g, vectors, context) = (cx.g(), cx.store.vectors, &cx.context);
    let reading = vectors.read(g, context, set)?;
    let Some(index) = reading.find(element) else { return Ok(None) };
    match vectors.vector_of(g, context, &reading, index) {
        Ok(vector) => Ok(Some(Given::Vector(vector))),
        Err(VectorError::Invalid) => Ok(Some(Given::Invalid)),
        Err(VectorError::NoMemory) => Ok(Some(Given::NoMemory)),
        Err(VectorError::Over(error)) => Err(error),
    }
}

/// Reads the options; answers if they are wrong.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn options<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Option<Options> {
    let mut options = Options { count: COUNT, with_scores: false, epsilon: 2.0 };
    while let Some(option) = arguments.next() {
        let has_value = !arguments.is_empty();
        if option.eq_ignore_case(b"withscores") {
            options.with_scores = true;
        } else if option.eq_ignore_case(b"truth") || option.eq_ignore_case(b"nothread") {
            // Every search is exact.
        } else if option.eq_ignore_case(b"count") && has_value {
            match arguments.next().and_then(|number| number.number()) {
                Some(count) if count > MAX_COUNT as i64 => {
                    cx.reply.error(b"COUNT is limited to 1024");
                    return None;
                }
                Some(count) if count > 0 => options.count = count as usize,
                _ => {
                    cx.reply.error(b"invalid COUNT");
                    return None;
                }
            }
        } else if option.eq_ignore_case(b"epsilon") && has_value {
            match arguments.next().and_then(Decimal::parse) {
                Some(epsilon) if epsilon > 0.0 => options.epsilon = epsilon,
                _ => {
                    cx.reply.error(b"invalid EPSILON");
                    return None;
                }
            }
        } else if option.eq_ignore_case(b"ef") && has_value {
            // How far an approximate search looks.
            match arguments.next().and_then(|number| number.number()) {
                Some(1..=1_000_000) => {}
                _ => {
                    cx.reply.error(b"invalid EF");
                    return None;
                }
            }
        } else if option.eq_ignore_case(b"withattribs")
            || option.eq_ignore_case(b"filter")
            || option.eq_ignore_case(b"filter-ef")
        {
            cx.reply.error(b"WITHATTRIBS and FILTER are not supported: vectors have no attributes");
            return None;
        } else {
            cx.reply.error(b"syntax error in VSIM command");
            return None;
        }
    }
    Some(options)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn search<G: Group>(cx: &mut Cx<'_, '_, G>, set: &Pin, query: &Vector, options: &Options) -> Result<Outcome> {
    let (g, map, vectors, context) = (cx.g(), cx.store.map, cx.store.vectors, cx.context);
    cx.ends_turn = true;
    let reading = vectors.read(g, &context, set)?;
    let found = vectors.search(g, &context, &reading, query, options.count)?;
    // Those that are near enough, and the length of the answer.
    let (mut count, mut bytes, mut at) = (0, 0, g.rank() as usize);
    while at < found.len() && 1.0 - found.get(at).1 <= options.epsilon {
        bytes += reading.name(found.get(at).0).len() + FRAME + if options.with_scores { SCORE } else { 0 };
        (count, at) = (count + 1, at + g.size() as usize);
    }
    let (near, room) = (g.sum(count) as usize, FRAME + g.sum(bytes as u32) as usize);
    if near == 0 {
        cx.reply.array(0);
        return Ok(Outcome::Done);
    }
    // The names have to be read before the set changes: into a text of their own, which is sent when there is room.
    let Some(text) = map.text(g, &context, room)? else {
        cx.reply.no_memory();
        return Ok(Outcome::Done);
    };
    let text = answer(g, map, text, &reading, &found, near, options.with_scores);
    drop(reading);
    let pin = map.finish(g, text);
    if pin.len() + 2 > cx.reply.out.room() {
        cx.resume.sending = Some((pin, 0));
        return Ok(Outcome::Unfinished);
    }
    cx.reply.raw(map.pinned(&pin));
    cx.reply.raw(b"\r\n");
    // All lanes have copied.
    g.sync();
    map.unpin(g, &context, pin)?;
    Ok(Outcome::Done)
}

/// The answer without its last line end.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn answer<G: Group>(
    g: &G,
    map: Map,
    mut text: Text,
    reading: &Reading<'_, G>,
    found: &Found,
    near: usize,
    with_scores: bool,
) -> Text {
    head(g, map, &mut text, b"*", if with_scores { 2 * near } else { near });
    let mut at = 0;
    while at < near {
        let (index, score) = found.get(at);
        at += 1;
        let name = reading.name(index);
        if !with_scores {
            bulk(g, map, &mut text, name, at == near);
            continue;
        }
        let score = Decimal::of(score as f64);
        let (len, score_len) = (Digits::of(name.len() as i64), Digits::of(score.bytes().len() as i64));
        let (line_end, end) =
            (Bytes::from(LINE_END), if at == near { Bytes::EMPTY } else { LINE_END.into() });
        let parts = [b"$".into(), len.bytes(), line_end, name, line_end];
        map.append_all(g, &mut text, parts);
        map.append_all(g, &mut text, [b"$".into(), score_len.bytes(), line_end, score.bytes(), end]);
    }
    text
}

/// The first line of an array or of a bulk string.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn head<G: Group>(g: &G, map: Map, text: &mut Text, sign: &'static [u8; 1], number: usize) {
    map.append_all(g, text, [sign.into(), Digits::of(number as i64).bytes(), LINE_END.into()]);
}

/// A bulk string; the last one without its line end.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn bulk<G: Group>(g: &G, map: Map, text: &mut Text, bytes: Bytes<'_>, is_last: bool) {
    let end = if is_last { Bytes::EMPTY } else { LINE_END.into() };
    map.append_all(
        g,
        text,
        [b"$".into(), Digits::of(bytes.len() as i64).bytes(), LINE_END.into(), bytes, end],
    );
}
