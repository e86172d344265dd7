//! Rows of numbers times a matrix of halves: most of a step.
//!
//! A product is computed in two phases with a barrier between. `Product::sum` splits the inputs
//! into parts of [`PART`], and stores a sum for each row, part and output; so a step of one row has
//! work for all lanes. [`Product::finish`] adds the parts in their order, and stores the result.
//! Sums are the same for any number of rows and lanes, because both phases treat a row alike in
//! any case.
#![allow(unsafe_code)]

use crate::cache::{Cache, Numbers, PART, Rows};
use crate::config::{CONTEXT, EPSILON, HIDDEN, WIDTH};
#[cfg(not(target_arch = "nvptx64"))]
use crate::math::add_product;
use crate::math::{COLUMNS, inverse_root, load_halves};
use crate::memory::{Divisor, Lane, load_four, store, store_four};

/// Columns that a warp of a GPU computes at a time.
pub(crate) const TILE: usize = 64;
// `Product::four` has as many.
const _: () = assert!(WIDTH == 2 * PART && HIDDEN == 6 * PART);

/// What becomes of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// It is stored, and 0 instead of negative numbers.
    StorePositive(Numbers),
    /// It is added.
    Add(Numbers),
    /// Queries of the row, and keys and values of its sequence in a layer.
    Attention(usize),
}

/// The product of a part of all rows and a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) shape: Shape,
    /// `[inputs][outputs]`, at a multiple of 16 bytes.
    pub(crate) matrix: *const u16,
}

/// What a product is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) input: Numbers,
    /// [`WIDTH`] or [`HIDDEN`].
    inputs: usize,
    /// The input, of `WIDTH` numbers, is first divided by the root of its mean square.
    pub(crate) normalized: bool,
    /// A multiple of 64.
    pub(crate) outputs: usize,
    /// Parts of the inputs.
    pub(crate) parts: Divisor,
    /// Columns of a sum's item, in the outputs.
    pub(crate) blocks: Divisor,
    /// Fours of outputs.
    fours: Divisor,
}

impl Shape {
    pub(crate) const fn new(input: Numbers, normalized: bool, outputs: usize) -> Self {
        let columns = if cfg!(target_arch = "nvptx64") { TILE } else { COLUMNS };
        let inputs = if matches!(input, Numbers::Hidden) { HIDDEN } else { WIDTH };
        Self {
            input,
            inputs,
            normalized,
            outputs,
            parts: Divisor::new((inputs / PART) as u32),
            blocks: Divisor::new((outputs / columns) as u32),
            fours: Divisor::new((outputs / 4) as u32),
        }
    }
}

impl Product {
    /// Computes the lane's share of the sums of the parts, without a barrier, on a CPU. A GPU has
    /// `tensor::sum` for it.
    ///
    /// # Safety
    /// The matrix is readable, and is as the fields say. The rows are rows of the cache with their
    /// input, which nobody writes meanwhile; nobody else uses their sums and squares, but other
    /// lanes for their shares of this product.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) unsafe fn sum(&self, lane: Lane, rows: Rows) {
        let Shape { parts, blocks, .. } = self.shape;
        // Few rows: each is a lane's, so that more lanes have one.
        let height = if rows.count < ROWS as u32 { 1 } else { ROWS as u32 };
        let items = blocks.get() * parts.get() * rows.count.div_ceil(height);
        let mut item = lane.rank;
        while item < items {
            let (rest, column) = blocks.divide(item);
            let (row, part) = parts.divide(rest);
            let (mut row, part, column) = (row * height, part as usize, column as usize * COLUMNS);
            if row + ROWS as u32 <= rows.count {
                // SAFETY: the caller's contract; there are as many rows.
                unsafe { self.tile::<ROWS>(rows, row as usize, part, column) };
            } else {
                let end = (row + height).min(rows.count);
                while row < end {
                    // SAFETY: the caller's contract; the row is one of them.
                    unsafe { self.tile::<1>(rows, row as usize, part, column) };
                    row += 1;
                }
            }
            item += lane.size;
        }
    }

    /// The sums of some columns of `N` rows over a part of the inputs, in their order.
    ///
    /// # Safety
    /// As [`Product::sum`]; rows, part and columns are there.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    unsafe fn tile<const N: usize>(&self, rows: Rows, row: usize, part: usize, column: usize) {
        let matrix = self.matrix.wrapping_add(part * PART * self.shape.outputs + column);
        let input = |n: usize, at| rows.of(row + n, self.shape.input).wrapping_add(part * PART + at);
        let mut sums = [[0.0; COLUMNS]; N];
        let mut at = 0;
        while at < PART {
            // SAFETY: columns of the matrix, for an input below `inputs`; they are aligned, because
            // outputs are a multiple of the columns.
            let weights = |at| unsafe { load_halves(matrix.wrapping_add(at * self.shape.outputs)) };
            let weights = [weights(at), weights(at + 1), weights(at + 2), weights(at + 3)];
            // SAFETY: inputs of a row, which nobody writes meanwhile; they are aligned.
            let inputs = |n| unsafe { load_four(input(n, at)) };
            // Rows by name, and no loop: sums that a loop numbers would lie in memory.
            add_products(&mut sums[0], inputs(0), weights);
            if N == ROWS {
                add_products(&mut sums[N - 3], inputs(1), weights);
                add_products(&mut sums[N - 2], inputs(2), weights);
                add_products(&mut sums[N - 1], inputs(3), weights);
            }
            at += 4;
        }
        for (n, sums) in sums.iter().enumerate() {
            let to = rows.of(row + n, Numbers::Sums).wrapping_add(part * self.shape.outputs + column);
            let (first, second) =
                ([sums[0], sums[1], sums[2], sums[3]], [sums[4], sums[5], sums[6], sums[7]]);
            // SAFETY: sums of the row, and this lane's alone.
            unsafe { store_four(to, first) };
            // SAFETY: as above.
            unsafe { store_four(to.wrapping_add(4), second) };
            if self.shape.normalized && column == 0 {
                let (mut squares, mut at) = ([0.0; 4], 0);
                while at < PART {
                    // SAFETY: inputs of a row, as above.
                    let inputs = unsafe { load_four(input(n, at)) };
                    for i in 0..4 {
                        squares[i] = add_product(squares[i], inputs[i], inputs[i]);
                    }
                    at += 4;
                }
                // SAFETY: squares of the row and the part, and this lane's alone.
                unsafe { store_four(rows.of(row + n, Numbers::Squares).wrapping_add(part * 4), squares) };
            }
        }
    }

    /// Four outputs of a row, after the sums of the parts and a barrier.
    ///
    /// # Safety
    /// The rows have sums and squares, which nobody writes meanwhile. `column` is a multiple of 4
    /// below the outputs.
    #[inline(always)]
    pub(crate) unsafe fn four(&self, rows: Rows, row: usize, column: usize) -> [f32; 4] {
        let sums = rows.of(row, Numbers::Sums).wrapping_add(column);
        // SAFETY: the caller's contract; parts are aligned.
        let sums = |part: usize| unsafe { load_four(sums.wrapping_add(part * self.shape.outputs)) };
        // In each case, all loads are under way together.
        if self.shape.inputs == HIDDEN {
            let (a, b, c, d, e, f) = (sums(0), sums(1), sums(2), sums(3), sums(4), sums(5));
            return plus(plus(plus(plus(plus(a, b), c), d), e), f);
        }
        let squares = rows.of(row, Numbers::Squares);
        // SAFETY: squares of the row, which nobody writes meanwhile; they are aligned.
        let squares = |part: usize| unsafe { load_four(squares.wrapping_add(part * 4)) };
        // Squares in any case: those of another product have no effect.
        let (a, b, first, second) = (sums(0), sums(1), squares(0), squares(1));
        let [c, d, e, f] = plus(first, second);
        let factor = inverse_root(((c + d) + (e + f)) * (1.0 / WIDTH as f32) + EPSILON);
        let factor = if self.shape.normalized { factor } else { 1.0 };
        let [a, b, c, d] = plus(a, b);
        [a * factor, b * factor, c * factor, d * factor]
    }

    /// Adds up the parts, and stores the lane's share of the outputs, without a barrier.
    ///
    /// # Safety
    /// As [`Product::four`]; the rows' steps were checked. Nobody else uses the target meanwhile,
    /// but other lanes for their shares.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
    pub(crate) unsafe fn finish(&self, lane: Lane, cache: &Cache, rows: Rows, target: Target) {
        let fours = self.shape.fours;
        let mut item = lane.rank;
        while item < rows.count * fours.get() {
            let (row, four) = fours.divide(item);
            let (row, column) = (row as usize, four as usize * 4);
            let of = |part| rows.of(row, part).wrapping_add(column);
            // Loads that are under way together with those of the parts.
            let (sequence, position) = cache.place(row);
            let before = match target {
                // SAFETY: numbers of the target, and this lane's alone.
                Target::Add(part) => unsafe { load_four(of(part)) },
                _ => [0.0; 4],
            };
            // SAFETY: the caller's contract.
            let four = unsafe { self.four(rows, row, column) };
            match target {
                Target::StorePositive(part) => {
                    let four = four.map(|number| if number > 0.0 { number } else { 0.0 });
                    // SAFETY: numbers of the target, and this lane's alone.
                    unsafe { store_four(of(part), four) };
                }
                // SAFETY: as above.
                Target::Add(part) => unsafe { store_four(of(part), plus(before, four)) },
                Target::Attention(layer) => {
                    let position = position as usize;
                    match column / WIDTH {
                        // SAFETY: as above.
                        0 => unsafe { store_four(of(Numbers::Query), four) },
                        1 => {
                            let to = cache.keys(sequence, layer).wrapping_add(position);
                            let to = to.wrapping_add((column - WIDTH) * CONTEXT);
                            // SAFETY: keys of a sequence and a position of the cache (its step was
                            // checked); this lane's alone.
                            let store = |at: usize| unsafe { store(to.wrapping_add(at * CONTEXT), four[at]) };
                            store(0);
                            store(1);
                            store(2);
                            store(3);
                        }
                        _ => {
                            let to = cache.values(sequence, layer).wrapping_add(position * WIDTH);
                            // SAFETY: values, as above.
                            unsafe { store_four(to.wrapping_add(column - 2 * WIDTH), four) };
                        }
                    }
                }
            }
            item += lane.size;
        }
    }
}

/// Rows that a CPU's lane computes at a time, so that it loads a weight once for them.
#[cfg(not(target_arch = "nvptx64"))]
const ROWS: usize = 4;

/// Adds four inputs times their weights to the sums of a row.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn add_products(sums: &mut [f32; COLUMNS], inputs: [f32; 4], weights: [[f32; COLUMNS]; 4]) {
    for i in 0..4 {
        for c in 0..COLUMNS {
            sums[c] = add_product(sums[c], inputs[i], weights[i][c]);
        }
    }
}

#[inline(always)]
fn plus(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
}

/// Copies the embedding of each row's token: the lane's share, without a barrier.
///
/// # Safety
/// `matrix` is `[VOCABULARY][WIDTH]`, readable, at a multiple of 16 bytes. The rows are rows of the
/// cache; nobody else uses their residuals, but other lanes for their shares.
#[inline(never)]
pub(crate) unsafe fn embed(lane: Lane, cache: &Cache, rows: Rows, matrix: *const u16) {
    const BLOCKS: u32 = (WIDTH / COLUMNS) as u32;
    let mut item = lane.rank;
    while item < rows.count * BLOCKS {
        let (row, column) = ((item / BLOCKS) as usize, (item % BLOCKS) as usize * COLUMNS);
        let token = cache.get(row).token as usize;
        // SAFETY: columns of a row of the matrix, aligned to their number.
        let numbers = unsafe { load_halves(matrix.wrapping_add(token * WIDTH + column)) };
        let to = rows.of(row, Numbers::Residual).wrapping_add(column);
        let mut c = 0;
        while c < COLUMNS {
            // SAFETY: numbers of the row, and this lane's alone.
            unsafe { store(to.wrapping_add(c), numbers[c]) };
            c += 1;
        }
        item += lane.size;
    }
}
