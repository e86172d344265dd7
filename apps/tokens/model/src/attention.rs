//! Attention: powers of scores, sums of values by chunks of keys, and the sum of the chunks.
//!
//! A score is the cosine of query and key, times a constant, less a slope times their distance. It
//! is small, so its power needs no largest score to be taken away first. Three phases, and a
//! barrier between: a lane of the first two has a few keys or columns, and the order of all sums is
//! fixed.
#![allow(unsafe_code)]

use crate::cache::{CHUNK, Cache, Numbers, Rows};
use crate::config::{CONTEXT, EPSILON, HEAD_WIDTH, HEADS, SCORE_SCALE, SLOPES, WIDTH};
use crate::math::{add_product, exp, inverse_root};
use crate::memory::{Lane, SIDE, load, load_four, load_side, store, store_four, store_side};

/// What a lane of a CPU loads of each of its columns or keys before it adds any. On a GPU the loads
/// of a whole item are under way together: eight times as many.
const FOUR: usize = 4;
const _: () = assert!(HEAD_WIDTH == 8 * FOUR && CHUNK == 8 * FOUR);
/// Chunks that are loaded together.
const EIGHT: usize = 8;

/// A part of attention: a row, a head, a chunk of keys, and some of `sides` columns.
struct Item {
    row: usize,
    head: usize,
    chunk: usize,
    column: usize,
    sequence: u32,
    position: usize,
}

impl Item {
    /// How many items there are for the rows, with so many sides in each chunk of a head.
    const fn count(rows: Rows, sides: u32) -> u32 {
        rows.count * rows.chunks.get() * HEADS as u32 * sides
    }

    /// The item of a number; lanes side by side have columns side by side.
    #[inline(always)]
    fn of(cache: &Cache, rows: Rows, number: u32, sides: u32) -> Self {
        const HEADS_U32: u32 = HEADS as u32;
        let (rest, column) = (number / sides, (number % sides) as usize * SIDE);
        let (rest, head) = (rest / HEADS_U32, (rest % HEADS_U32) as usize);
        let (row, chunk) = rows.chunks.divide(rest);
        let (row, chunk) = (row as usize, chunk as usize);
        let (sequence, position) = cache.place(row);
        Self { row, head, chunk, column, sequence, position: position as usize }
    }

    /// The powers of the scores of the item's chunk.
    fn scores(&self, rows: Rows) -> *mut f32 {
        rows.of(self.row, Numbers::Scores).wrapping_add(self.head * CONTEXT + self.chunk * CHUNK)
    }
}

/// Raises e to the scores of all keys up to each row's own, and has 0 for the others of its last
/// chunk: the lane's share, without a barrier.
///
/// # Safety
/// The rows are rows of the cache whose steps were checked; queries and keys are there. Nobody else
/// uses the scores meanwhile, but other lanes for their shares.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn score(lane: Lane, cache: &Cache, rows: Rows, layer: usize) {
    const SIDES: u32 = (CHUNK / SIDE) as u32;
    let mut number = lane.rank;
    while number < Item::count(rows, SIDES) {
        let item = Item::of(cache, rows, number, SIDES);
        if item.chunk * CHUNK <= item.position {
            let key = item.chunk * CHUNK + item.column;
            let powers = if key <= item.position {
                // SAFETY: the caller's contract; the keys from `key` on are in the context, whose
                // length is a multiple of a chunk.
                unsafe { powers(cache, rows, &item, layer, key) }
            } else {
                [0.0; SIDE]
            };
            // SAFETY: scores of the row, and this lane's alone.
            unsafe { store_side(item.scores(rows).wrapping_add(item.column), powers) };
        }
        number += lane.size;
    }
}

/// # Safety
/// As [`score`]; `key` is a multiple of [`SIDE`] below the context.
#[inline(always)]
unsafe fn powers(cache: &Cache, rows: Rows, item: &Item, layer: usize, key: usize) -> [f32; SIDE] {
    let query = rows.of(item.row, Numbers::Query).wrapping_add(item.head * HEAD_WIDTH);
    let keys = cache.keys(item.sequence, layer).wrapping_add(item.head * HEAD_WIDTH * CONTEXT + key);
    // SAFETY: keys of the sequence; what is not written yet is zeros or older keys. Nobody writes
    // them meanwhile.
    let keys = |at: usize| unsafe { load_side(keys.wrapping_add(at * CONTEXT)) };
    let keys = |at| [keys(at), keys(at + 1), keys(at + 2), keys(at + 3)];
    // SAFETY: numbers of the row's query, which nobody writes meanwhile.
    let query = |at: usize| unsafe { load_four(query.wrapping_add(at)) };
    let (mut dots, mut squares, mut query_square) = ([0.0; SIDE], [0.0; SIDE], 0.0);
    let add = |at, keys: [[f32; SIDE]; FOUR]| {
        let (query, mut i) = (query(at), 0);
        while i < FOUR {
            query_square = add_product(query_square, query[i], query[i]);
            let mut c = 0;
            while c < SIDE {
                dots[c] = add_product(dots[c], query[i], keys[i][c]);
                squares[c] = add_product(squares[c], keys[i][c], keys[i][c]);
                c += 1;
            }
            i += 1;
        }
    };
    in_fours(HEAD_WIDTH, keys, add);
    let (scale, slope) = (SCORE_SCALE * inverse_root(query_square + EPSILON), SLOPES[item.head]);
    let mut c = 0;
    while c < SIDE {
        let distance = item.position as i32 - (key + c) as i32;
        let cosine = dots[c] * inverse_root(squares[c] + EPSILON);
        let power = |cosine: f32| exp(cosine * scale - distance as f32 * slope);
        // A key after the row's own has no share.
        dots[c] = if cfg!(target_arch = "nvptx64") {
            // In any case, so that the compiler does not load each key where it is surely needed.
            let power = power(cosine);
            if distance >= 0 { power } else { 0.0 }
        } else if distance >= 0 {
            power(cosine)
        } else {
            0.0
        };
        c += 1;
    }
    dots
}

/// Loads and adds what 32 keys or columns have, four at a time; a CPU only those below `count`. A
/// GPU's loads are under way together.
#[inline(always)]
fn in_fours<T>(count: usize, load: impl Fn(usize) -> T, mut add: impl FnMut(usize, T)) {
    if cfg!(target_arch = "nvptx64") {
        let (a, b, c, d) = (load(0), load(4), load(8), load(12));
        let (e, f, g, h) = (load(16), load(20), load(24), load(28));
        add(0, a);
        add(4, b);
        add(8, c);
        add(12, d);
        add(16, e);
        add(20, f);
        add(24, g);
        add(28, h);
    } else {
        let mut at = 0;
        while at < count {
            add(at, load(at));
            at += FOUR;
        }
    }
}

/// Adds up the values of each chunk by their powers, and the powers: the lane's share, without a
/// barrier.
///
/// # Safety
/// As [`score`], after it and a barrier; nobody else uses the partial sums meanwhile, but other
/// lanes for their shares.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn mix(lane: Lane, cache: &Cache, rows: Rows, layer: usize) {
    const SIDES: u32 = (HEAD_WIDTH / SIDE) as u32;
    let mut number = lane.rank;
    while number < Item::count(rows, SIDES) {
        let item = Item::of(cache, rows, number, SIDES);
        let first = item.chunk * CHUNK;
        if first <= item.position {
            let (scores, at) = (item.scores(rows), item.head * HEAD_WIDTH + item.column);
            let values = cache.values(item.sequence, layer).wrapping_add(first * WIDTH + at);
            // SAFETY: the caller's contract; the sequence has values for a whole context. What is
            // not written yet is zeros or older values.
            let (sums, share) = unsafe { sums(scores, values, item.position + 1 - first) };
            let of = |part| rows.of(item.row, part);
            // SAFETY: partial sums of the row, and this lane's alone.
            unsafe { store_side(of(Numbers::Partial).wrapping_add(item.chunk * WIDTH + at), sums) };
            if item.column == 0 {
                // SAFETY: a number of the row, and this lane's alone.
                unsafe { store(of(Numbers::Share).wrapping_add(item.chunk * HEADS + item.head), share) };
            }
        }
        number += lane.size;
    }
}

/// # Safety
/// There are the scores of a chunk and as many rows of values, which nobody writes meanwhile. The
/// scores from `count` on are 0.
#[inline(always)]
unsafe fn sums(scores: *const f32, values: *const f32, count: usize) -> ([f32; SIDE], f32) {
    // SAFETY: the caller's contract.
    let value = |at: usize| unsafe { load_side(values.wrapping_add(at * WIDTH)) };
    let values = |at| [value(at), value(at + 1), value(at + 2), value(at + 3)];
    // SAFETY: as above.
    let score = |at: usize| unsafe { load_four(scores.wrapping_add(at)) };
    let (mut sums, mut share) = ([0.0; SIDE], 0.0);
    let add = |at, values: [[f32; SIDE]; FOUR]| {
        let (scores, mut i) = (score(at), 0);
        while i < FOUR {
            share += scores[i];
            let mut c = 0;
            while c < SIDE {
                sums[c] = add_product(sums[c], scores[i], values[i][c]);
                c += 1;
            }
            i += 1;
        }
    };
    // What is left out has no share, and does not change the sums.
    in_fours(if count < CHUNK { count } else { CHUNK }, values, add);
    (sums, share)
}

/// In a list and no loop, which would have them in memory.
#[inline(always)]
fn eight<T>(of: impl Fn(usize) -> T) -> [T; EIGHT] {
    [of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)]
}

/// Adds up the chunks of each row, and divides by what the powers add up to: the lane's share,
/// without a barrier.
///
/// # Safety
/// As [`mix`], after it and a barrier.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn merge(lane: Lane, cache: &Cache, rows: Rows) {
    const FOURS: u32 = (WIDTH / 4) as u32;
    let mut number = lane.rank;
    while number < rows.count * FOURS {
        let (row, column) = ((number / FOURS) as usize, (number % FOURS) as usize * 4);
        let (partial, shares) = (rows.of(row, Numbers::Partial), rows.of(row, Numbers::Share));
        let chunks = cache.place(row).1 as usize / CHUNK + 1;
        let last = |chunk| if chunk < chunks { chunk } else { chunks - 1 };
        // SAFETY: four numbers of the row, which nobody writes meanwhile; they are aligned.
        let four = |chunk| unsafe { load_four(partial.wrapping_add(last(chunk) * WIDTH + column)) };
        // SAFETY: a number of the row, as above.
        let share = |chunk| unsafe { load(shares.wrapping_add(last(chunk) * HEADS + column / HEAD_WIDTH)) };
        let (mut sums, mut total, mut chunk) = ([0.0; 4], 0.0, 0);
        while chunk < chunks {
            // Loads that are under way together.
            let fours = eight(|i| four(chunk + i));
            let shares = eight(|i| share(chunk + i));
            let mut i = 0;
            while i < EIGHT {
                if chunk + i < chunks {
                    total += shares[i];
                    let mut c = 0;
                    while c < 4 {
                        sums[c] += fours[i][c];
                        c += 1;
                    }
                }
                i += 1;
            }
            chunk += EIGHT;
        }
        // At least the power of the row's own score, which is above e^-9.
        let root = inverse_root(total);
        let mixed = sums.map(|sum| sum * root * root);
        // SAFETY: numbers of the row, and this lane's alone.
        unsafe { store_four(rows.of(row, Numbers::Mixed).wrapping_add(column), mixed) };
        number += lane.size;
    }
}
