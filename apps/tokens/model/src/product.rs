//! Rows of numbers times a matrix of halves: most of a step.
#![allow(unsafe_code)]

use crate::cache::{Cache, Numbers};
use crate::config::{CONTEXT, EPSILON, HIDDEN, WIDTH};
use crate::math::{COLUMNS, add_product, inverse_root, load_halves};
use crate::memory::{Lane, add, load_four, store};
use core::num::NonZero;

/// Rows that a lane computes at a time, so that it loads a weight once for them.
const ROWS: usize = 4;
/// Inputs whose weights a lane loads at a time: a GPU's loads are under way together, since the way
/// to the second-level cache takes as long as a hundred sums.
const INPUTS: usize = if cfg!(target_arch = "nvptx64") { 16 } else { 4 };
const _: () = assert!(WIDTH.is_multiple_of(INPUTS) && HIDDEN.is_multiple_of(INPUTS));

/// What becomes of the sums.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// They are stored.
    Store(Numbers),
    /// They are stored, and 0 instead of negative ones.
    StorePositive(Numbers),
    /// They are added.
    Add(Numbers),
    /// Queries of the row, and keys and values of its sequence in a layer.
    Attention(usize),
}

/// The product of a part of all rows and a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) input: Numbers,
    pub(crate) inputs: usize,
    /// The input, of `WIDTH` numbers, is first divided by the root of its mean square.
    pub(crate) normalized: bool,
    /// `[inputs][outputs]`.
    pub(crate) matrix: *const u16,
    pub(crate) outputs: usize,
    pub(crate) target: Target,
}

impl Product {
    /// Computes the lane's share, without a barrier.
    ///
    /// # Safety
    /// The matrix is readable and lies at a multiple of 16 bytes; inputs are a multiple of 4 and
    /// outputs of 8. The cache has the rows, and their steps were checked; nobody else uses target
    /// and input meanwhile, but other lanes for their shares of this product.
    #[inline(never)]
    pub(crate) unsafe fn compute(&self, lane: Lane, cache: &Cache, rows: u32) {
        let Some(blocks) = NonZero::new((self.outputs / COLUMNS) as u32) else { return };
        // Few rows: each is a lane's, so that more lanes have one.
        let height = if rows < ROWS as u32 { 1 } else { ROWS as u32 };
        let items = blocks.get() * rows.div_ceil(height);
        let mut item = lane.rank;
        while item < items {
            let (mut row, column) = (item / blocks * height, (item % blocks) as usize * COLUMNS);
            if row + ROWS as u32 <= rows {
                // SAFETY: the caller's contract; there are as many rows.
                unsafe { self.tile::<ROWS>(cache, row as usize, column) };
            } else {
                let end = if row + height < rows { row + height } else { rows };
                while row < end {
                    // SAFETY: the caller's contract; the row is one of them.
                    unsafe { self.tile::<1>(cache, row as usize, column) };
                    row += 1;
                }
            }
            item += lane.size;
        }
    }

    /// Some columns of `N` rows, which are 1 or [`ROWS`]. Each sum is over the inputs in their
    /// order, whatever `N` is.
    ///
    /// # Safety
    /// As [`Product::compute`]; rows and columns are there.
    #[inline(always)]
    unsafe fn tile<const N: usize>(&self, cache: &Cache, row: usize, column: usize) {
        let input = cache.numbers(self.input).wrapping_add(row * Cache::ROW_STRIDE);
        let matrix = self.matrix.wrapping_add(column);
        // SAFETY: inputs of a row of the tile, which nobody writes meanwhile; parts are aligned.
        let inputs = |n, at| unsafe { load_four(input.wrapping_add(n * Cache::ROW_STRIDE + at)) };
        // SAFETY: columns of the matrix, for an input below `inputs`; they are aligned, because
        // outputs are a multiple of the columns.
        let weights = |at| unsafe { load_halves(matrix.wrapping_add(at * self.outputs)) };
        let four = |at| [weights(at), weights(at + 1), weights(at + 2), weights(at + 3)];
        let (mut sums, mut squares) = ([[0.0; COLUMNS]; N], [0.0; N]);
        // Rows by name, and no loop: sums that a loop numbers would lie in memory.
        let mut add = |at, weights| {
            add_four(&mut sums[0], &mut squares[0], inputs(0, at), weights);
            if N == ROWS {
                add_four(&mut sums[N - 3], &mut squares[N - 3], inputs(1, at), weights);
                add_four(&mut sums[N - 2], &mut squares[N - 2], inputs(2, at), weights);
                add_four(&mut sums[N - 1], &mut squares[N - 1], inputs(3, at), weights);
            }
        };
        let mut at = 0;
        while at < self.inputs {
            let first = four(at);
            if INPUTS == 16 {
                let (second, third, fourth) = (four(at + 4), four(at + 8), four(at + 12));
                add(at, first);
                add(at + 4, second);
                add(at + 8, third);
                add(at + 12, fourth);
            } else {
                add(at, first);
            }
            at += INPUTS;
        }
        // SAFETY: the caller's contract.
        let finish = |n, sums, square| unsafe { self.finish(cache, row + n, column, sums, square) };
        finish(0, sums[0], squares[0]);
        if N == ROWS {
            finish(1, sums[N - 3], squares[N - 3]);
            finish(2, sums[N - 2], squares[N - 2]);
            finish(3, sums[N - 1], squares[N - 1]);
        }
    }

    /// Stores the sums of some columns of a row.
    ///
    /// # Safety
    /// As [`Product::tile`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    unsafe fn finish(&self, cache: &Cache, row: usize, column: usize, sums: [f32; COLUMNS], square: f32) {
        let mean = square * (1.0 / WIDTH as f32);
        let factor = if self.normalized { inverse_root(mean + EPSILON) } else { 1.0 };
        let mut c = 0;
        while c < COLUMNS {
            // SAFETY: the caller's contract.
            unsafe { self.finish_one(cache, row, column + c, sums[c] * factor) };
            c += 1;
        }
    }

    /// # Safety
    /// As [`Product::tile`], for one row and one column.
    #[inline(always)]
    unsafe fn finish_one(&self, cache: &Cache, row: usize, column: usize, sum: f32) {
        let of = |part| cache.numbers(part).wrapping_add(row * Cache::ROW_STRIDE + column);
        match self.target {
            // SAFETY: a number of the target, and this lane's alone.
            Target::Store(part) => unsafe { store(of(part), sum) },
            // SAFETY: as above.
            Target::StorePositive(part) => unsafe { store(of(part), if sum > 0.0 { sum } else { 0.0 }) },
            // SAFETY: as above.
            Target::Add(part) => unsafe { add(of(part), sum) },
            Target::Attention(layer) => {
                let (sequence, position) = cache.place(row);
                let to = match column / WIDTH {
                    0 => of(Numbers::Query),
                    1 => cache
                        .keys(sequence, layer)
                        .wrapping_add((column - WIDTH) * CONTEXT + position as usize),
                    _ => cache
                        .values(sequence, layer)
                        .wrapping_add(position as usize * WIDTH + column - 2 * WIDTH),
                };
                // SAFETY: a number of the row, or of a sequence and a position of the cache (its
                // step was checked); this lane's alone.
                unsafe { store(to, sum) };
            }
        }
    }
}

/// Adds four inputs times their weights to the sums of a row, and their squares.
#[inline(always)]
fn add_four(sums: &mut [f32; COLUMNS], square: &mut f32, inputs: [f32; 4], weights: [[f32; COLUMNS]; 4]) {
    let mut i = 0;
    while i < 4 {
        *square = add_product(*square, inputs[i], inputs[i]);
        let mut c = 0;
        while c < COLUMNS {
            sums[c] = add_product(sums[c], inputs[i], weights[i][c]);
            c += 1;
        }
        i += 1;
    }
}

/// Copies the embedding of each row's token: the lane's share, without a barrier.
///
/// # Safety
/// `matrix` is `[VOCABULARY][WIDTH]`, readable, at a multiple of 16 bytes. The cache has the rows;
/// nobody else writes their residuals, but other lanes for their shares.
#[inline(never)]
pub(crate) unsafe fn embed(lane: Lane, cache: &Cache, rows: u32, matrix: *const u16) {
    const BLOCKS: u32 = (WIDTH / COLUMNS) as u32;
    let mut item = lane.rank;
    while item < rows * BLOCKS {
        let (row, column) = ((item / BLOCKS) as usize, (item % BLOCKS) as usize * COLUMNS);
        let token = cache.get(row).token as usize;
        // SAFETY: columns of a row of the matrix, aligned to their number.
        let numbers = unsafe { load_halves(matrix.wrapping_add(token * WIDTH + column)) };
        let to = cache.numbers(Numbers::Residual).wrapping_add(row * Cache::ROW_STRIDE + column);
        let mut c = 0;
        while c < COLUMNS {
            // SAFETY: numbers of the row, and this lane's alone.
            unsafe { store(to.wrapping_add(c), numbers[c]) };
            c += 1;
        }
        item += lane.size;
    }
}
