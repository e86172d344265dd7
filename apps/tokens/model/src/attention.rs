//! Attention: powers of scores, sums of values by chunks of keys, and the sum of the chunks.
//!
//! A score is the cosine of query and key, times a constant, less a slope times their distance. It
//! is small, so its power needs no largest score to be taken away first. Three phases, and a
//! barrier between: a lane of each works on four keys or numbers at a time, and the order of all
//! sums is fixed.
#![allow(unsafe_code)]

use crate::cache::{CHUNK, CHUNKS, Cache, Numbers};
use crate::config::{CONTEXT, EPSILON, HEAD_WIDTH, HEADS, SCORE_SCALE, SLOPES, WIDTH};
use crate::math::{add_product, exp, inverse_root};
use crate::memory::{Lane, load, load_four, store, store_four};

/// Keys or numbers that a lane takes at a time.
const FOUR: usize = 4;
/// Keys whose values a lane loads at a time: on a GPU the loads are under way together.
const KEYS: usize = 8;

/// A part of attention: a row, a head, a chunk of keys, and four of `fours` columns.
struct Item {
    row: usize,
    head: usize,
    chunk: usize,
    column: usize,
    sequence: u32,
    position: usize,
}

impl Item {
    /// How many items there are for the rows, with so many fours in each chunk of a head.
    const fn count(rows: u32, fours: u32) -> u32 {
        rows * (HEADS * CHUNKS) as u32 * fours
    }

    /// The item of a number; lanes side by side have fours side by side.
    #[inline(always)]
    fn of(cache: &Cache, number: u32, fours: u32) -> Self {
        const HEADS_U32: u32 = HEADS as u32;
        const CHUNKS_U32: u32 = CHUNKS as u32;
        let (rest, column) = (number / fours, (number % fours) as usize * FOUR);
        let (rest, head) = (rest / HEADS_U32, (rest % HEADS_U32) as usize);
        let (row, chunk) = ((rest / CHUNKS_U32) as usize, (rest % CHUNKS_U32) as usize);
        let (sequence, position) = cache.place(row);
        Self { row, head, chunk, column, sequence, position: position as usize }
    }

    fn numbers(&self, cache: &Cache, part: Numbers) -> *mut f32 {
        cache.numbers(part).wrapping_add(self.row * Cache::ROW_STRIDE)
    }

    /// The powers of the scores of the item's chunk.
    fn scores(&self, cache: &Cache) -> *mut f32 {
        self.numbers(cache, Numbers::Scores).wrapping_add(self.head * CONTEXT + self.chunk * CHUNK)
    }
}

/// Raises e to the scores of all keys up to each row's own: the lane's share, without a barrier.
///
/// # Safety
/// The cache has the rows, and their steps were checked; queries and keys are there. Nobody else
/// uses the scores meanwhile, but other lanes for their shares.
#[inline(never)]
pub(crate) unsafe fn score(lane: Lane, cache: &Cache, rows: u32, layer: usize) {
    const FOURS: u32 = (CHUNK / FOUR) as u32;
    let mut number = lane.rank;
    while number < Item::count(rows, FOURS) {
        let item = Item::of(cache, number, FOURS);
        let key = item.chunk * CHUNK + item.column;
        // `mix` takes so many at a time.
        if key / KEYS * KEYS <= item.position {
            // SAFETY: the caller's contract; the four keys from `key` on are in the context, whose
            // length is a multiple of four.
            let powers = unsafe { four_powers(cache, &item, layer, key) };
            // SAFETY: a four of the row's scores, and this lane's alone.
            unsafe { store_four(item.scores(cache).wrapping_add(item.column), powers) };
        }
        number += lane.size;
    }
}

/// # Safety
/// As [`score`]; `key` is a multiple of 4 below the context.
#[inline(always)]
unsafe fn four_powers(cache: &Cache, item: &Item, layer: usize, key: usize) -> [f32; 4] {
    let query = item.numbers(cache, Numbers::Query).wrapping_add(item.head * HEAD_WIDTH);
    let keys = cache.keys(item.sequence, layer).wrapping_add(item.head * HEAD_WIDTH * CONTEXT + key);
    // SAFETY: keys of the sequence; what is not written yet is zeros or older keys. Nobody writes
    // them meanwhile.
    let keys = |at: usize| unsafe { load_four(keys.wrapping_add(at * CONTEXT)) };
    let (mut dots, mut squares, mut query_square) = ([0.0; FOUR], [0.0; FOUR], 0.0);
    let mut at = 0;
    while at < HEAD_WIDTH {
        // SAFETY: numbers of the row's query, which nobody writes meanwhile.
        let query = unsafe { load_four(query.wrapping_add(at)) };
        let keys = [keys(at), keys(at + 1), keys(at + 2), keys(at + 3)];
        let mut i = 0;
        while i < FOUR {
            query_square = add_product(query_square, query[i], query[i]);
            let mut c = 0;
            while c < FOUR {
                dots[c] = add_product(dots[c], query[i], keys[i][c]);
                squares[c] = add_product(squares[c], keys[i][c], keys[i][c]);
                c += 1;
            }
            i += 1;
        }
        at += FOUR;
    }
    let scale = SCORE_SCALE * inverse_root(query_square + EPSILON);
    let mut c = 0;
    while c < FOUR {
        let distance = item.position as i32 - (key + c) as i32;
        let cosine = dots[c] * inverse_root(squares[c] + EPSILON);
        // A key after the row's own has no share.
        dots[c] = if distance >= 0 { exp(cosine * scale - distance as f32 * SLOPES[item.head]) } else { 0.0 };
        c += 1;
    }
    dots
}

/// Adds up the values of each chunk by their powers, and the powers: the lane's share, without a
/// barrier.
///
/// # Safety
/// As [`score`], after it and a barrier; nobody else uses the partial sums meanwhile, but other
/// lanes for their shares.
#[inline(never)]
pub(crate) unsafe fn mix(lane: Lane, cache: &Cache, rows: u32, layer: usize) {
    const FOURS: u32 = (HEAD_WIDTH / FOUR) as u32;
    let mut number = lane.rank;
    while number < Item::count(rows, FOURS) {
        let item = Item::of(cache, number, FOURS);
        let first = item.chunk * CHUNK;
        if first <= item.position {
            let (scores, at) = (item.scores(cache), item.head * HEAD_WIDTH + item.column);
            let values = cache.values(item.sequence, layer).wrapping_add(first * WIDTH + at);
            let left = item.position + 1 - first;
            let count = if left < CHUNK { left.next_multiple_of(KEYS) } else { CHUNK };
            // SAFETY: the caller's contract; the sequence has values for a whole context.
            let (sums, share) = unsafe { four_sums(scores, values, count) };
            let partial = item.numbers(cache, Numbers::Partial).wrapping_add(item.chunk * WIDTH + at);
            // SAFETY: a four of the row's partial sums, and this lane's alone.
            unsafe { store_four(partial, sums) };
            if item.column == 0 {
                let to = item.numbers(cache, Numbers::Share).wrapping_add(item.chunk * HEADS + item.head);
                // SAFETY: a number of the row, and this lane's alone.
                unsafe { store(to, share) };
            }
        }
        number += lane.size;
    }
}

/// # Safety
/// There are `count` scores, and as many rows of values; `count` is a multiple of 8. Nobody writes
/// them meanwhile.
#[inline(always)]
unsafe fn four_sums(scores: *const f32, values: *const f32, count: usize) -> ([f32; 4], f32) {
    // SAFETY: the caller's contract.
    let value = |at: usize| unsafe { load_four(values.wrapping_add(at * WIDTH)) };
    // SAFETY: as above.
    let score = |at: usize| unsafe { load_four(scores.wrapping_add(at)) };
    let four = |at| (score(at), [value(at), value(at + 1), value(at + 2), value(at + 3)]);
    let (mut sums, mut share, mut at) = ([0.0; FOUR], 0.0, 0);
    while at < count {
        let (first, second) = (four(at), four(at + FOUR));
        add_four(&mut sums, &mut share, first.0, first.1);
        add_four(&mut sums, &mut share, second.0, second.1);
        at += KEYS;
    }
    (sums, share)
}

/// Adds four values times their powers to the sums, and the powers.
#[inline(always)]
fn add_four(sums: &mut [f32; 4], share: &mut f32, scores: [f32; 4], values: [[f32; 4]; 4]) {
    let mut i = 0;
    while i < FOUR {
        *share += scores[i];
        let mut c = 0;
        while c < FOUR {
            sums[c] = add_product(sums[c], scores[i], values[i][c]);
            c += 1;
        }
        i += 1;
    }
}

/// Adds up the chunks of each row, and divides by what the powers add up to: the lane's share,
/// without a barrier.
///
/// # Safety
/// As [`mix`], after it and a barrier.
#[inline(never)]
pub(crate) unsafe fn merge(lane: Lane, cache: &Cache, rows: u32) {
    let mut number = lane.rank;
    while number < rows * WIDTH as u32 {
        let (row, column) = ((number / WIDTH as u32) as usize, (number % WIDTH as u32) as usize);
        let of = |part| cache.numbers(part).wrapping_add(row * Cache::ROW_STRIDE);
        let (partial, shares) = (of(Numbers::Partial), of(Numbers::Share));
        let chunks = cache.place(row).1 as usize / CHUNK + 1;
        let (mut sum, mut share, mut chunk) = (0.0, 0.0, 0);
        while chunk < chunks {
            // SAFETY: a number of the row, which nobody writes meanwhile.
            sum += unsafe { load(partial.wrapping_add(chunk * WIDTH + column)) };
            // SAFETY: as above.
            share += unsafe { load(shares.wrapping_add(chunk * HEADS + column / HEAD_WIDTH)) };
            chunk += 1;
        }
        // At least the power of the row's own score, which is above e^-9.
        let root = inverse_root(share);
        // SAFETY: a number of the row, and this lane's alone.
        unsafe { store(of(Numbers::Mixed).wrapping_add(column), sum * root * root) };
        number += lane.size;
    }
}
