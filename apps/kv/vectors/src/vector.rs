//! A vector from outside: to be added to a set, or to be searched for.

use super::access::Reading;
use super::decimal::parse;
use super::number::root;
use super::tile::{SUMS, padded};
use super::{MAX_DIM, Vectors};
use gpunet_device::team::F16;
use gpunet_device::{Error, Group, Result};
use gpunet_serve::{Bytes, Chunk, Context, Memory};

/// Why there is no vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorError {
    /// It has no numbers or too many, or one of them is none.
    Invalid,
    /// There is no memory for it, even without the entries that could be evicted.
    NoMemory,
    /// The launch is over.
    Over(Error),
}

impl From<Error> for VectorError {
    fn from(error: Error) -> Self {
        Self::Over(error)
    }
}

/// A vector of length 1, and the length that it had. [`Vectors::forget`] gives its memory back.
#[derive(Debug)]
pub struct Vector {
    pub(super) chunk: Chunk,
    dim: usize,
    pub(super) norm: f64,
}

impl Vector {
    /// How many numbers it has.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }
}

/// A vector whose numbers come one by one.
#[derive(Debug)]
pub struct VectorBuilder {
    chunk: Chunk,
    dim: usize,
    /// A text that this lane has read was no number.
    is_bad: bool,
}

impl Vectors {
    /// Begins a vector of `dim` numbers.
    ///
    /// # Cooperation
    /// All lanes call it with the same number.
    ///
    /// # Errors
    /// [`VectorError`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn build<G: Group>(
        &self,
        g: &G,
        context: &Context,
        dim: usize,
    ) -> core::result::Result<VectorBuilder, VectorError> {
        if dim == 0 || dim > MAX_DIM {
            return Err(VectorError::Invalid);
        }
        let chunk = self.map.room(g, context, padded(dim) * 4 + SQUARES)?.ok_or(VectorError::NoMemory)?;
        let memory = self.numbers(chunk, dim);
        let mut at = dim + g.rank() as usize;
        while at < padded(dim) {
            memory.u32(at * 4).set(0);
            at += g.size() as usize;
        }
        Ok(VectorBuilder { chunk, dim, is_bad: false })
    }

    fn numbers(&self, chunk: Chunk, dim: usize) -> Memory {
        self.chunks().memory(chunk).part(0, padded(dim) * 4)
    }

    pub(super) fn query(&self, chunk: Chunk, dim: usize) -> Memory {
        self.numbers(chunk, dim)
    }

    /// Sets a number from its decimal text. One lane reads each.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn set<G: Group>(&self, g: &G, builder: &mut VectorBuilder, at: usize, text: Bytes<'_>) {
        if at < builder.dim && at % g.size() as usize == g.rank() as usize {
            let number = parse(text);
            builder.is_bad |= number.is_none();
            self.numbers(builder.chunk, builder.dim).u32(at * 4).set(number.unwrap_or(0.0).to_bits());
        }
    }

    /// Sets all numbers from their bytes, least significant first: `f32`, or halves if there are
    /// half as many bytes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn set_all<G: Group>(&self, g: &G, builder: &mut VectorBuilder, bytes: Bytes<'_>) {
        let memory = self.numbers(builder.chunk, builder.dim);
        if bytes.len() == builder.dim * 4 {
            memory.fill(g, bytes);
            return;
        }
        let mut at = g.rank() as usize;
        while at < builder.dim {
            let half = F16(bytes.get(2 * at) as u16 | (bytes.get(2 * at + 1) as u16) << 8);
            memory.u32(at * 4).set(half.to_f32().to_bits());
            at += g.size() as usize;
        }
    }

    /// Ends a vector: brings it to length 1. One of zeros stays as it is.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// [`VectorError`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn finish<G: Group>(
        &self,
        g: &G,
        context: &Context,
        builder: VectorBuilder,
    ) -> core::result::Result<Vector, VectorError> {
        // Also a barrier: all numbers are there.
        let bad = g.sum(u32::from(builder.is_bad));
        let (memory, numbers) = (self.numbers(builder.chunk, builder.dim), padded(builder.dim));
        let squares = self.chunks().memory(builder.chunk).part(numbers * 4, SQUARES);
        let square = if bad == 0 { square(g, memory, squares) } else { f64::NAN };
        if !square.is_finite() {
            g.sync();
            self.chunks().free(g, context.net, builder.chunk)?;
            return Err(VectorError::Invalid);
        }
        let norm = root(square);
        g.sync();
        let mut at = g.rank() as usize;
        while norm > 0.0 && at < numbers {
            let word = memory.u32(at * 4);
            word.set(((f32::from_bits(word.get()) as f64 / norm) as f32).to_bits());
            at += g.size() as usize;
        }
        g.sync();
        Ok(Vector { chunk: builder.chunk, dim: builder.dim, norm })
    }

    /// A vector of a set, to search for what is near it.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// [`VectorError`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn vector_of<G: Group>(
        &self,
        g: &G,
        context: &Context,
        set: &Reading<'_, G>,
        index: usize,
    ) -> core::result::Result<Vector, VectorError> {
        let dim = set.head.dim();
        let builder = self.build(g, context, dim)?;
        let (memory, tiles) = (self.numbers(builder.chunk, dim), set.head.tiles());
        let mut at = g.rank() as usize;
        while at < dim {
            memory.u32(at * 4).set(tiles.number(index, at).to_bits());
            at += g.size() as usize;
        }
        g.sync();
        Ok(Vector { chunk: builder.chunk, dim, norm: set.head.names().norm(index) })
    }

    /// Gives a vector's memory back.
    ///
    /// # Errors
    /// The launch is over.
    pub fn forget<G: Group>(&self, g: &G, context: &Context, vector: Vector) -> Result<()> {
        self.chunks().free(g, context.net, vector.chunk)
    }
}

/// Bytes of eight sums of squares.
const SQUARES: usize = SUMS * 8;

/// Returns the sum of the squares, which is not finite if a number is not. Nobody writes the
/// numbers meanwhile. There are eight sums, as in a dot product, and a lane adds up one of them.
/// All lanes; also a barrier.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn square<G: Group>(g: &G, numbers: Memory, squares: Memory) -> f64 {
    let mut which = g.rank() as usize;
    while which < SUMS {
        let (mut sum, mut at) = (0.0f64, 4 * which);
        while at < numbers.len() {
            let number = f32::from_bits(numbers.stable_u32(at)) as f64;
            sum += number * number;
            at += 4 * SUMS;
        }
        squares.u64(8 * which).set(sum.to_bits());
        which += g.size() as usize;
    }
    g.sync();
    let sum = |which: usize| f64::from_bits(squares.u64(8 * which).get());
    ((sum(0) + sum(4)) + (sum(2) + sum(6))) + ((sum(1) + sum(5)) + (sum(3) + sum(7)))
}
