//! Rows of numbers times a matrix of halves: most of a step.
#![allow(unsafe_code)]

use crate::cache::{Cache, Numbers};
use crate::config::{CONTEXT, EPSILON, WIDTH};
use crate::math::{COLUMNS, add_product, inverse_root, load_halves};
use crate::memory::{Lane, add, load_four, store};

/// Rows that a lane computes at a time, so that it loads a weight once for them.
const ROWS: usize = 4;
/// Inputs that a lane loads at a time.
const INPUTS: usize = 4;

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
        let blocks = (self.outputs / COLUMNS) as u32;
        // Few rows: each is a lane's, so that more lanes have one.
        let height = if rows < ROWS as u32 { 1 } else { ROWS as u32 };
        let items = blocks * rows.div_ceil(height);
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

    /// Some columns of `N` rows. Each sum is over the inputs in their order, whatever `N` is.
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
        let (mut sums, mut squares) = ([[0.0; COLUMNS]; N], [0.0; N]);
        let mut at = 0;
        while at < self.inputs {
            let weights = [weights(at), weights(at + 1), weights(at + 2), weights(at + 3)];
            let mut n = 0;
            while n < N {
                let inputs: [f32; INPUTS] = inputs(n, at);
                let mut i = 0;
                while i < INPUTS {
                    squares[n] = add_product(squares[n], inputs[i], inputs[i]);
                    let mut c = 0;
                    while c < COLUMNS {
                        sums[n][c] = add_product(sums[n][c], inputs[i], weights[i][c]);
                        c += 1;
                    }
                    i += 1;
                }
                n += 1;
            }
            at += INPUTS;
        }
        let mut n = 0;
        while n < N {
            let mean = squares[n] * (1.0 / WIDTH as f32);
            let factor = if self.normalized { inverse_root(mean + EPSILON) } else { 1.0 };
            let mut c = 0;
            while c < COLUMNS {
                // SAFETY: the caller's contract.
                unsafe { self.finish(cache, row + n, column + c, sums[n][c] * factor) };
                c += 1;
            }
            n += 1;
        }
    }

    /// # Safety
    /// As [`Product::tile`], for one row and one column.
    #[inline(always)]
    unsafe fn finish(&self, cache: &Cache, row: usize, column: usize, sum: f32) {
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
