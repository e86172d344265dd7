//! VSIM: the vectors of a set that are nearest to one, each compared.

use super::vectors::{Given, Opened, open, vector, wrong_dim};
use super::{Cx, Outcome};
use crate::reply::{LINE_END, text_head};
use crate::resp::Arguments;
use crate::rest::Rest;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::{Decimal, Found, MAX_COUNT, Reading, Vector, VectorError};
use gpunet_serve::{Bytes, Digits, Pin};

/// How many are found unless `COUNT` says otherwise, as in Redis.
const COUNT: usize = 10;
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

/// `VSIM key ELE element|FP32|FP16|VALUES vector [WITHSCORES] [COUNT n] [EPSILON x] [EF n] [TRUTH]
/// [NOTHREAD]`
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(super) fn vsim<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    if let Rest::Search { .. } = cx.resume.rest {
        return go_on(cx, arguments);
    }
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
    match cx.resume.rest {
        // It goes on with the set.
        Rest::Search { .. } => {}
        _ => cx.store.map.unpin(cx.g(), &cx.context, set)?,
    }
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
    if query.dim() == dim {
        if let Some(options) = options(cx, arguments) {
            return search(cx, set, query, &options, &arguments);
        }
    } else {
        wrong_dim(cx, query.dim(), dim);
    }
    cx.store.vectors.forget(cx.g(), &cx.context, query)?;
    Ok(Outcome::Done)
}

/// The vector of an element, if the set has it.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn of_element<G: Group>(cx: &Cx<'_, '_, G>, set: &Pin, element: Bytes<'_>) -> Result<Option<Given>> {
    let (g, vectors, context) = (cx.g(), &cx.store.vectors, &cx.context);
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
fn search<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    set: &Pin,
    mut query: Vector,
    options: &Options,
    arguments: &Arguments<'_>,
) -> Result<Outcome> {
    let (g, vectors, context) = (cx.g(), &cx.store.vectors, cx.context);
    cx.ends_turn = true;
    let reading = vectors.read(g, &context, set)?;
    if vectors.is_long(g, &reading) {
        match vectors.begin(g, &context, &reading, query, options.count)? {
            Ok(search) => {
                cx.resume.rest = Rest::Search { set: *set, search };
                return Ok(cx.leave(arguments));
            }
            // Without memory for its parts it is one.
            Err(same) => query = same,
        }
    }
    let found = vectors.search(g, &context, &reading, &query, options.count)?;
    let outcome = show(cx, reading, &found, options)?;
    vectors.forget(g, &context, query)?;
    Ok(outcome)
}

/// Goes on with a search: its next part.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn go_on<G: Group>(cx: &mut Cx<'_, '_, G>, mut arguments: Arguments<'_>) -> Result<Outcome> {
    let (g, vectors, context) = (cx.g(), &cx.store.vectors, cx.context);
    cx.go_on(&mut arguments);
    let mut rest = cx.resume.rest;
    let (Rest::Search { set, search }, Some(options)) = (&rest, options(cx, arguments)) else {
        return Ok(Outcome::Done);
    };
    let reading = vectors.read(g, &context, set)?;
    let Some(found) = vectors.go_on(g, &context, &reading, search)? else { return Ok(Outcome::Unfinished) };
    cx.resume.rest = Rest::Nothing;
    cx.ends_turn = true;
    let outcome = show(cx, reading, &found, &options)?;
    rest.clear(g, &context, cx.store)?;
    Ok(outcome)
}

/// Answers with what was found.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn show<G: Group>(
    cx: &mut Cx<'_, '_, G>,
    reading: Reading<'_, G>,
    found: &Found,
    options: &Options,
) -> Result<Outcome> {
    let (g, map, context) = (cx.g(), &cx.store.map, cx.context);
    // Those that are near enough, and the room for the answer.
    let (mut count, mut bytes, mut at) = (0, 0, g.rank() as usize);
    while at < found.len() && 1.0 - found.get(at).1 <= options.epsilon {
        bytes += reading.name(found.get(at).0).len() + FRAME + if options.with_scores { SCORE } else { 0 };
        (count, at) = (count + 1, at + g.size() as usize);
    }
    let (near, room) = (g.sum(count) as usize, 2 * FRAME + g.sum(bytes as u32) as usize);
    let is_resp3 = cx.reply.is_resp3;
    let item = |at| Item::new(&reading, found.get(at), options.with_scores, is_resp3);
    if near == 0 || room <= cx.reply.out.room() {
        match options.with_scores {
            true => cx.reply.map(near),
            false => cx.reply.array(near),
        }
        let fits = cx.reply.is_muted || cx.reply.out.put_each(g, near, item, Item::parts);
        debug_assert!(fits, "there is room");
        return Ok(Outcome::Done);
    }
    // The names have to be read before the set changes: into a text of their own, which is sent
    // when there is room.
    let Some(mut text) = map.text(g, &context, room)? else {
        cx.reply.no_memory();
        return Ok(Outcome::Done);
    };
    match options.with_scores {
        true if is_resp3 => text_head(g, map, &mut text, b"%", near),
        true => text_head(g, map, &mut text, b"*", 2 * near),
        false => text_head(g, map, &mut text, b"*", near),
    }
    let item = |at| Item { is_last: at + 1 == near, ..item(at) };
    map.append_each(g, &mut text, near, item, Item::parts);
    drop(reading);
    cx.resume.rest = Rest::of(map.finish(g, text));
    Ok(Outcome::Unfinished)
}

/// One of the nearest, as it is spelt.
struct Item<'r> {
    name: Bytes<'r>,
    len: Digits,
    /// Its score, and how long that is, if it is written as a string.
    score: Option<(Decimal, Option<Digits>)>,
    /// The last line end follows later.
    is_last: bool,
}

impl<'r> Item<'r> {
    fn new<G: Group>(
        reading: &'r Reading<'_, G>,
        (index, score): (usize, f32),
        with_score: bool,
        is_resp3: bool,
    ) -> Self {
        let name = reading.name(index);
        let score = with_score.then(|| {
            let score = Decimal::of(score as f64);
            (score, (!is_resp3).then(|| Digits::of(score.bytes().len() as i64)))
        });
        Self { name, len: Digits::of(name.len() as i64), score, is_last: false }
    }

    /// Bulk strings of the name and of the score, which RESP3 has as a number.
    fn parts(&self) -> [Bytes<'_>; 10] {
        let (sign, line_end) = (Bytes::from(b"$"), Bytes::from(LINE_END));
        let end = if self.is_last { Bytes::EMPTY } else { line_end };
        let (len, name, none) = (self.len.bytes(), self.name, Bytes::EMPTY);
        match &self.score {
            Some((score, None)) => {
                [sign, len, line_end, name, line_end, b",".into(), score.bytes(), end, none, none]
            }
            Some((score, Some(score_len))) => {
                [sign, len, line_end, name, line_end, sign, score_len.bytes(), line_end, score.bytes(), end]
            }
            None => [sign, len, line_end, name, end, none, none, none, none, none],
        }
    }
}
