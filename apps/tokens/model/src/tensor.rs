//! The sums of a product by a GPU's tensor cores.
//!
//! A warp computes, for a part of the inputs, 64 outputs of 8 rows at a time:
//! `mma.m16n8k16` with weights as its 16 by 16 matrix and the rows as its 8 columns. Weights are
//! halves as they lie in the file. A number of a row is the sum of two halves: the second
//! has what the first leaves. That is 22 bits, and the instruction adds in `f32`.
//!
//! A lane is number `4 * g + t` of its warp. It loads inputs `4 * t` to `4 * t + 3` of each 16 for
//! columns `8 * g` to `8 * g + 7`: 16 bytes, and a warp whole lines. The instruction numbers inputs
//! and outputs in another way than they lie in memory; the order of its inputs does not matter, and
//! the table says which output is which:
//!
//! | of lane `g`, `t`, instruction `j` | is |
//! |---|---|
//! | weights 0, 1 | column `8g + 2j`, `8g + 2j + 1` for inputs `4t`, `4t + 1` |
//! | weights 2, 3 | the same columns for inputs `4t + 2`, `4t + 3` |
//! | inputs 0, 1 | inputs `4t`, `4t + 1`, and `4t + 2`, `4t + 3`, of row `g` |
//! | sums 0, 1 | column `8g + 2j` of rows `2t`, `2t + 1` |
//! | sums 2, 3 | column `8g + 2j + 1` of the same rows |
#![allow(unsafe_code)]

use crate::cache::{Numbers, PART, Rows};
#[cfg(target_arch = "nvptx64")]
use crate::memory::Lane;
use crate::memory::{load_four, store, store_four};
use crate::product::Product;
#[cfg(target_arch = "nvptx64")]
use crate::product::{Shape, TILE};
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Rows of an instruction.
const GROUP: usize = 8;
/// Lanes of a warp.
#[cfg(target_arch = "nvptx64")]
const WARP: u32 = 32;

/// Sums of a lane for 8 rows: those of four instructions.
type Sums = [[f32; 4]; 4];
/// What a lane loads for 16 inputs: four inputs of eight columns, two in a word.
type Words = [[u32; 4]; 4];

/// Computes the share of the lane's warp, without a barrier. A warp that is not whole has none.
///
/// # Safety
/// The matrix is readable, and is as the fields of the product say. The rows are rows of the cache
/// with their input, which nobody writes meanwhile; nobody else uses their sums and squares, but
/// other lanes for their shares of this product. The lanes are a block or a warp, and all call it.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) unsafe fn sum(product: &Product, lane: Lane, rows: Rows) {
    let (warps, warp) = (lane.size / WARP, lane.rank / WARP);
    if warp >= warps {
        return;
    }
    let groups = rows.count.div_ceil(GROUP as u32);
    // So many groups of rows share the weights that a warp has loaded.
    let height = if groups > 2 { 4 } else { groups };
    let Shape { parts, blocks, .. } = product.shape;
    let items = blocks.get() * parts.get() * groups.div_ceil(if groups > 2 { 4 } else { 2 });
    let mut item = warp;
    while item < items {
        let (rest, column) = blocks.divide(item);
        let (row, part) = parts.divide(rest);
        let (row, part, column) = ((row * height) as usize * GROUP, part as usize, column as usize * TILE);
        let tile = Tile { rows, row, part, column, lane: (lane.rank % WARP) as usize };
        // SAFETY: an instruction of the whole warp needs its lanes together; all of them have the
        // same items.
        unsafe { asm!("bar.warp.sync 0xffffffff;", options(nostack)) };
        match height {
            // SAFETY: the caller's contract.
            1 => unsafe { tile.compute::<1>(product) },
            // SAFETY: the caller's contract.
            2 => unsafe { tile.compute::<2>(product) },
            // SAFETY: the caller's contract.
            _ => unsafe { tile.compute::<4>(product) },
        }
        item += warps;
    }
}

/// What a lane adds up for `H` groups of rows.
struct Totals<const H: usize> {
    sums: [Sums; H],
    /// Of those inputs of row `g` of each group that the lane loads.
    squares: [f32; H],
}

/// A part of the inputs, 64 columns, and rows from `row` on, as a lane sees it.
#[derive(Clone, Copy)]
struct Tile {
    rows: Rows,
    row: usize,
    part: usize,
    column: usize,
    lane: usize,
}

impl Tile {
    /// Computes `H` groups of rows, 1, 2 or 4; what is beyond the last row is not stored.
    ///
    /// # Safety
    /// As [`sum`]; the whole warp calls it together.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn compute<const H: usize>(self, product: &Product) {
        let mut totals = Totals { sums: [[[0.0; 4]; 4]; H], squares: [0.0; H] };
        // SAFETY: the caller's contract; inputs of the part.
        unsafe {
            let mut words = self.load_words(product, 0);
            if H == 1 {
                // All loads are under way together: the way to the second-level cache takes as long
                // as hundreds of sums.
                let b = self.load_words(product, 16);
                let c = self.load_words(product, 32);
                let d = self.load_words(product, 48);
                self.step(product, &mut totals, 0, words);
                self.step(product, &mut totals, 16, b);
                self.step(product, &mut totals, 32, c);
                self.step(product, &mut totals, 48, d);
            } else {
                // More sums take registers: the next weights only are under way.
                let mut at = 0;
                while at < PART - 16 {
                    let next = self.load_words(product, at + 16);
                    self.step(product, &mut totals, at, words);
                    (words, at) = (next, at + 16);
                }
                self.step(product, &mut totals, at, words);
            }
            // By number and no loop: sums that a loop numbers would lie in memory.
            self.store(product, &totals, 0);
            if H >= 2 {
                self.store(product, &totals, 1 % H);
            }
            if H == 4 {
                self.store(product, &totals, 2 % H);
                self.store(product, &totals, 3 % H);
            }
        }
    }

    /// The lane's weights for 16 inputs, from input `at` of the part on.
    ///
    /// # Safety
    /// As [`sum`]; `at` is a multiple of 16 below [`PART`].
    #[inline(always)]
    unsafe fn load_words(&self, product: &Product, at: usize) -> Words {
        let (g, t) = (self.lane / 4, self.lane % 4);
        let first = self.part * PART + at + 4 * t;
        let weights = product.matrix.wrapping_add(first * product.shape.outputs + self.column + 8 * g);
        // SAFETY: eight columns of an input, aligned because columns and outputs are multiples
        // of 8.
        let word = |at: usize| unsafe { load_words(weights.wrapping_add(at * product.shape.outputs)) };
        [word(0), word(1), word(2), word(3)]
    }

    /// Adds the products of 16 inputs, from input `at` of the part on.
    ///
    /// # Safety
    /// As [`Tile::compute`].
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn step<const H: usize>(
        &self,
        product: &Product,
        totals: &mut Totals<H>,
        at: usize,
        words: Words,
    ) {
        let weights = [matrix(words, 0), matrix(words, 1), matrix(words, 2), matrix(words, 3)];
        // SAFETY: the caller's contract.
        unsafe {
            self.add(product, totals, 0, at, weights);
            if H >= 2 {
                self.add(product, totals, 1 % H, at, weights);
            }
            if H == 4 {
                self.add(product, totals, 2 % H, at, weights);
                self.add(product, totals, 3 % H, at, weights);
            }
        }
    }

    /// The same for a group of rows.
    ///
    /// # Safety
    /// As [`Tile::compute`].
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn add<const H: usize>(
        &self,
        product: &Product,
        totals: &mut Totals<H>,
        h: usize,
        at: usize,
        weights: [[u32; 4]; 4],
    ) {
        // SAFETY: the caller's contract.
        let inputs = unsafe { self.load_inputs(product, h, at) };
        // SAFETY: the caller's contract.
        unsafe { add(&mut totals.sums[h], &mut totals.squares[h], weights, inputs) };
    }

    /// The lane's four of 16 inputs, from input `at` of the part on, of a row of a group.
    ///
    /// # Safety
    /// As [`sum`]; `at` is a multiple of 16 below [`PART`].
    #[inline(always)]
    unsafe fn load_inputs(&self, product: &Product, h: usize, at: usize) -> [f32; 4] {
        let (row, last) = (self.row + h * GROUP + self.lane / 4, self.rows.count as usize - 1);
        // One beyond the last row is that row, and is not stored.
        let row = if row < last { row } else { last };
        let inputs =
            self.rows.of(row, product.shape.input).wrapping_add(self.part * PART + at + self.lane % 4 * 4);
        // SAFETY: inputs of a row, which nobody writes meanwhile; they are aligned.
        unsafe { load_four(inputs) }
    }

    /// Stores the sums of a group of rows.
    ///
    /// # Safety
    /// As [`sum`].
    #[inline(always)]
    unsafe fn store<const H: usize>(&self, product: &Product, totals: &Totals<H>, h: usize) {
        let (g, t, count) = (self.lane / 4, self.lane % 4, self.rows.count as usize);
        let row = self.row + h * GROUP;
        let at = self.part * product.shape.outputs + self.column + 8 * g;
        let to = |row: usize| self.rows.of(row, Numbers::Sums).wrapping_add(at);
        // SAFETY: sums of two rows, and a square of one, if there are these rows; they are this
        // lane's alone.
        unsafe {
            if row + 2 * t < count {
                store_eight(to(row + 2 * t), totals.sums[h], 0);
            }
            if row + 2 * t + 1 < count {
                store_eight(to(row + 2 * t + 1), totals.sums[h], 1);
            }
            if product.shape.normalized && self.column == 0 && row + g < count {
                let to = self.rows.of(row + g, Numbers::Squares);
                store(to.wrapping_add(self.part * 4 + t), totals.squares[h]);
            }
        }
    }
}

/// The weights of instruction `j`: two inputs of a column in a word.
#[inline(always)]
fn matrix(words: Words, j: usize) -> [u32; 4] {
    let low = |a: u32, b: u32| a & 0xffff | b << 16;
    let high = |a: u32, b: u32| a >> 16 | b & 0xffff_0000;
    let [a, b, c, d] = [words[0][j], words[1][j], words[2][j], words[3][j]];
    [low(a, b), high(a, b), low(c, d), high(c, d)]
}

/// Adds 16 inputs of eight rows, four of which this lane has for one row, times their weights.
///
/// # Safety
/// All lanes of the warp call it together.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn add(sums: &mut Sums, square: &mut f32, weights: [[u32; 4]; 4], inputs: [f32; 4]) {
    let [a, b, c, d] = inputs;
    *square = fma(fma(fma(fma(*square, a), b), c), d);
    let ((first, first_rest), (second, second_rest)) = (split(a, b), split(c, d));
    // SAFETY: the caller's contract.
    unsafe {
        multiply(&mut sums[0], weights[0], [first, second]);
        multiply(&mut sums[1], weights[1], [first, second]);
        multiply(&mut sums[2], weights[2], [first, second]);
        multiply(&mut sums[3], weights[3], [first, second]);
        multiply(&mut sums[0], weights[0], [first_rest, second_rest]);
        multiply(&mut sums[1], weights[1], [first_rest, second_rest]);
        multiply(&mut sums[2], weights[2], [first_rest, second_rest]);
        multiply(&mut sums[3], weights[3], [first_rest, second_rest]);
    }
}

#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn fma(sum: f32, number: f32) -> f32 {
    crate::math::add_product(sum, number, number)
}

/// Two numbers as halves, the first in the lower bits of a word, and what they leave.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn split(a: f32, b: f32) -> (u32, u32) {
    let (halves, rest);
    // SAFETY: it reads and writes registers alone.
    unsafe {
        asm!(
            "{{ .reg .b16 l, h; .reg .f32 x, y;",
            "cvt.rn.f16x2.f32 {halves}, {b}, {a};",
            "mov.b32 {{l, h}}, {halves};",
            "cvt.f32.f16 x, l; cvt.f32.f16 y, h;",
            "sub.rn.f32 x, {a}, x; sub.rn.f32 y, {b}, y;",
            "cvt.rn.f16x2.f32 {rest}, y, x; }}",
            a = in(reg32) a, b = in(reg32) b, halves = out(reg32) halves, rest = out(reg32) rest,
            options(pure, nomem, nostack),
        );
    }
    (halves, rest)
}

/// An instruction of the warp. It is not `pure`: the compiler might move it into a branch that some
/// lanes take.
///
/// # Safety
/// All lanes of the warp call it together.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn multiply(sums: &mut [f32; 4], weights: [u32; 4], inputs: [u32; 2]) {
    let [a, b, c, d] = sums;
    // SAFETY: it reads and writes registers alone; all lanes are here.
    unsafe {
        asm!(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{a}, {b}, {c}, {d}}}, {{{w0}, {w1}, {w2}, {w3}}}, {{{x0}, {x1}}}, {{{a}, {b}, {c}, {d}}};",
            a = inout(reg32) *a, b = inout(reg32) *b, c = inout(reg32) *c, d = inout(reg32) *d,
            w0 = in(reg32) weights[0], w1 = in(reg32) weights[1], w2 = in(reg32) weights[2], w3 = in(reg32) weights[3],
            x0 = in(reg32) inputs[0], x1 = in(reg32) inputs[1],
            options(nomem, nostack),
        );
    }
}

/// Stores eight columns: those sums of each instruction that are of the first row, or of the
/// second.
///
/// # Safety
/// `to` is writable for eight numbers, which nobody else uses meanwhile, and aligned to 16 bytes.
#[inline(always)]
unsafe fn store_eight(to: *mut f32, sums: Sums, second: usize) {
    let [a, b, c, d] = sums;
    // SAFETY: the caller's contract.
    unsafe {
        store_four(to, [a[second], a[2 + second], b[second], b[2 + second]]);
        store_four(to.wrapping_add(4), [c[second], c[2 + second], d[second], d[2 + second]]);
    }
}

/// # Safety
/// `from` is readable for eight halves, which nobody writes meanwhile, and aligned to 16 bytes.
#[inline(always)]
unsafe fn load_words(from: *const u16) -> [u32; 4] {
    // SAFETY: the caller's contract.
    unsafe { load_four(from.cast()) }.map(f32::to_bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cache;
    use crate::product::{Shape, TILE};
    use gpunet_device::team::F16;

    /// Memory aligned as a cache is.
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    #[expect(dead_code, reason = "the cache reads it by its address")]
    struct Line([f32; 16]);

    fn half(word: u32, second: usize) -> f32 {
        F16((word >> (16 * second)) as u16).to_f32()
    }

    /// The instruction, as the manual of PTX numbers what its lanes have ("Matrix Fragments for
    /// mma.m16n8k16").
    fn multiply(sums: &mut [Sums; 32], j: usize, weights: &[[u32; 4]; 32], inputs: &[[u32; 2]; 32]) {
        for (m, n, k) in (0..16 * 8 * 16).map(|i| (i / 128, i / 16 % 8, i % 16)) {
            let weights = weights[m % 8 * 4 + k % 8 / 2][m / 8 + k / 8 * 2];
            let inputs = inputs[n * 4 + k % 8 / 2][k / 8];
            sums[m % 8 * 4 + n / 2][j][m / 8 * 2 + n % 2] += half(weights, k % 2) * half(inputs, k % 2);
        }
    }

    /// Small integers: all sums are exact, in any order.
    fn number(at: usize) -> f32 {
        (at * at * 7 + at * 3) as u8 as f32 % 16.0 - 8.0
    }

    #[test]
    fn lanes_have_what_the_instruction_expects() {
        const ROWS: usize = 11;
        let (inputs, outputs, part, column) = (2 * PART, 3 * TILE, 1, TILE);
        let mut memory = vec![Line([0.0; 16]); Cache::bytes(1, ROWS).div_ceil(64)];
        // SAFETY: zeros, as many as needed, which live as long as the cache.
        let cache = unsafe { Cache::new(memory.as_mut_ptr().cast(), 1, ROWS) };
        let rows = cache.numbers(ROWS as u32, 1);
        let of = |row, part, at| rows.of(row, part).wrapping_add(at);
        for (row, at) in (0..ROWS * inputs).map(|i| (i / inputs, i % inputs)) {
            // SAFETY: inputs of a row.
            unsafe { store(of(row, Numbers::Residual, at), number(row * 1000 + at)) };
        }
        let weights: Vec<u16> = (0..inputs * outputs).map(|at| F16::from_f32(number(at * 5 + 1)).0).collect();
        let aligned: Vec<u128> = weights
            .as_chunks::<8>()
            .0
            .iter()
            .map(|&eight| eight.iter().rev().fold(0, |word, &half| word << 16 | u128::from(half)))
            .collect();
        let matrix = aligned.as_ptr().cast();
        let product = Product { shape: Shape::new(Numbers::Residual, true, outputs), matrix };
        for (row, column) in [(0, 0), (8, column)] {
            let tile = |lane| Tile { rows, row, part, column, lane };
            let mut sums = [[[0.0; 4]; 4]; 32];
            let mut squares = [0.0; 32];
            for at in [0, 16, 32, 48] {
                let lanes = core::array::from_fn::<_, 32, _>(tile);
                // SAFETY: the rows and the matrix are there.
                let words = lanes.map(|lane| unsafe { lane.load_words(&product, at) });
                // SAFETY: as above.
                let inputs = lanes.map(|lane| unsafe { lane.load_inputs(&product, 0, at) });
                for (square, inputs) in squares.iter_mut().zip(inputs) {
                    *square += inputs.iter().map(|input| input * input).sum::<f32>();
                }
                let inputs = inputs.map(|inputs| {
                    let [a, b, c, d] = inputs.map(|input| u32::from(F16::from_f32(input).0));
                    [a | b << 16, c | d << 16]
                });
                for j in 0..4 {
                    multiply(&mut sums, j, &words.map(|words| super::matrix(words, j)), &inputs);
                }
            }
            for lane in 0..32 {
                let totals = Totals { sums: [sums[lane]], squares: [squares[lane]] };
                // SAFETY: as above.
                unsafe { tile(lane).store(&product, &totals, 0) };
            }
            for n in row..ROWS.min(row + GROUP) {
                let input = |at: usize| number(n * 1000 + part * PART + at);
                for c in column..column + TILE {
                    let weight = |at: usize| number(((part * PART + at) * outputs + c) * 5 + 1);
                    let expected: f32 = (0..PART).map(|at| input(at) * weight(at)).sum();
                    // SAFETY: a sum of the row.
                    let found = unsafe { of(n, Numbers::Sums, part * outputs + c).read() };
                    assert_eq!(found, expected, "row {n}, column {c}");
                }
                // SAFETY: squares of the row.
                let squares = (0..4).map(|t| unsafe { of(n, Numbers::Squares, part * 4 + t).read() });
                let expected =
                    if column == 0 { (0..PART).map(|at| input(at) * input(at)).sum() } else { 0.0 };
                assert_eq!(squares.sum::<f32>(), expected);
            }
        }
    }
}
