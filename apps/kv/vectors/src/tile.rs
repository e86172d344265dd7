//! Vectors as they lie in memory: 32 of them side by side, so that the lanes of a warp that each
//! read one vector read next to each other.
//!
//! ```text
//! tile:  vector   0    1    2        31
//!              +----+----+----+ .. +----+
//!  16 bytes of | 0  | 0  | 0  |    | 0  |   numbers 0..4 (or 0..8 halves) of each vector
//!  each vector | 1  | 1  | 1  |    | 1  |   numbers 4..8 (or 8..16)
//!              :                        :
//! ```
#![allow(unsafe_code)]

use super::Storage;
use super::array::{Array, Still};
use super::number::halves;
use crate::Map;
use gpunet_device::team::F16;
use gpunet_device::{Group, Net, Result};
use gpunet_serve::{Context, Memory};

/// Vectors of a tile.
pub(super) const TILE: usize = 32;
/// Bytes of a vector that lie together.
const PIECE: usize = 16;
/// Numbers are added up in so many sums: vectors are filled up with zeros to a multiple of it.
pub(super) const SUMS: usize = 8;

/// The dimension with the zeros behind it.
pub(super) const fn padded(dim: usize) -> usize {
    dim.next_multiple_of(SUMS)
}

pub(super) const fn tile_bytes(dim: usize, storage: Storage) -> usize {
    TILE * padded(dim)
        * match storage {
            Storage::Single => 4,
            Storage::Half => 2,
        }
}

/// The vectors of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    array: Array,
    dim: usize,
    storage: Storage,
}

impl Tiles {
    pub(super) const fn new(array: Array, dim: usize, storage: Storage) -> Self {
        Self { array, dim: padded(dim), storage }
    }

    pub(super) fn reserve<G: Group>(self, g: &G, context: &Context, map: &Map, count: usize) -> Result<bool> {
        self.array.reserve(g, context, map, (count + 1).div_ceil(TILE), 1)
    }

    pub(super) fn free<G: Group>(self, g: &G, net: Net) -> Result<()> {
        self.array.free(g, net)
    }

    const fn pieces(self) -> usize {
        self.dim / SUMS
            * match self.storage {
                Storage::Single => 2,
                Storage::Half => 1,
            }
    }

    fn piece(self, index: usize, piece: usize) -> Memory {
        self.array.unit(index / TILE).part((piece * TILE + index % TILE) * PIECE, PIECE)
    }

    /// Writes a vector of `f32`. All lanes, without a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn store<G: Group>(self, g: &G, index: usize, vector: Memory) {
        let mut piece = g.rank() as usize;
        while piece < self.pieces() {
            let to = self.piece(index, piece);
            let mut word = 0;
            while word < PIECE / 4 {
                let bits = match self.storage {
                    Storage::Single => vector.u32(piece * PIECE + word * 4).get(),
                    Storage::Half => {
                        let number = |at| f32::from_bits(vector.u32(piece * 2 * PIECE + word * 8 + at).get());
                        F16::from_f32(number(0)).0 as u32 | (F16::from_f32(number(4)).0 as u32) << 16
                    }
                };
                to.u32(word * 4).set(bits);
                word += 1;
            }
            piece += g.size() as usize;
        }
    }

    /// Copies a vector of the set into the place of another. All lanes, without a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn copy<G: Group>(self, g: &G, from: usize, to: usize) {
        let mut piece = g.rank() as usize;
        while piece < self.pieces() {
            let (from, to) = (self.piece(from, piece), self.piece(to, piece));
            let mut at = 0;
            while at < PIECE {
                to.u32(at).set(from.u32(at).get());
                at += 4;
            }
            piece += g.size() as usize;
        }
    }

    /// One number of a vector.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn number(self, index: usize, number: usize) -> f32 {
        match self.storage {
            Storage::Single => f32::from_bits(self.piece(index, number / 4).u32(number % 4 * 4).get()),
            Storage::Half => halves(self.piece(index, number / 8).u32(number % 8 / 2 * 4).get())[number % 2],
        }
    }

    /// Begins a search for what is near a vector of `f32` with as many numbers.
    ///
    /// # Panics
    /// It has fewer.
    pub(super) fn compare_with(self, query: Memory) -> Comparison {
        assert!(query.len() >= self.dim * 4, "a query of another dimension");
        Comparison { array: self.array.still(), dim: self.dim, storage: self.storage, query }
    }
}

/// The vectors of a set that is read, and what they are compared with.
#[derive(Debug)]
pub(super) struct Comparison {
    array: Still,
    dim: usize,
    storage: Storage,
    query: Memory,
}

impl Comparison {
    /// The dot product of a vector of the set and the other one, by one lane. Numbers at the same
    /// place modulo eight are added up in their order, and then the eight sums in a fixed order.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn dot(&self, index: usize) -> f32 {
        let start = self.array.start((index / TILE) as u32).wrapping_add(index % TILE * PIECE);
        let query = self.query;
        // SAFETY: vector and query have that many numbers: the set has that vector, and the query
        // was measured. Both are aligned to 16 bytes, and nobody changes them while the set is
        // read.
        unsafe {
            match self.storage {
                Storage::Single => dot_single(start, query.as_ptr(), self.dim / SUMS),
                Storage::Half => dot_half(start, query.as_ptr(), self.dim / SUMS),
            }
        }
    }
}

/// Sixteen bytes, loaded at once.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Piece([u32; 4]);

/// # Safety
/// `from` is readable for 16 bytes, which nobody writes meanwhile, and aligned to 16.
#[inline(always)]
unsafe fn load(from: *const u8) -> [u32; 4] {
    // SAFETY: the caller's contract.
    unsafe { from.cast::<Piece>().read() }.0
}

/// As [`load`]; on a GPU one that keeps its place among loads of this kind. The assembler moves
/// others behind the sums of what was loaded before, so that one of a lane's is under way at a
/// time.
///
/// # Safety
/// As [`load`].
#[inline(always)]
unsafe fn load_in_order(from: *const u8) -> [u32; 4] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (a, b, c, d);
        // SAFETY: the caller's contract.
        unsafe {
            core::arch::asm!("ld.relaxed.gpu.global.v4.u32 {{{a}, {b}, {c}, {d}}}, [{p}];", a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d, p = in(reg64) from, options(nostack, readonly));
        }
        [a, b, c, d]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: as above.
    unsafe {
        load(from)
    }
}

/// Pieces under way at a time: a lane's loads in flight hide the way to memory.
const IN_FLIGHT: usize = 8;

#[inline(always)]
fn eight(at: usize, piece: impl Fn(usize) -> [u32; 4]) -> [[u32; 4]; IN_FLIGHT] {
    [
        piece(at),
        piece(at + 1),
        piece(at + 2),
        piece(at + 3),
        piece(at + 4),
        piece(at + 5),
        piece(at + 6),
        piece(at + 7),
    ]
}

#[inline(always)]
fn add(sums: &mut [f32; SUMS], at: usize, number: f32, query: u32) {
    sums[at] += number * f32::from_bits(query);
}

#[inline(always)]
const fn total(s: &[f32; SUMS]) -> f32 {
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

#[inline(always)]
fn add_halves(sums: &mut [f32; SUMS], piece: [u32; 4], query: [[u32; 4]; 2]) {
    let mut word = 0;
    while word < 4 {
        let [low, high] = halves(piece[word]);
        add(sums, 2 * word, low, query[word / 2][word % 2 * 2]);
        add(sums, 2 * word + 1, high, query[word / 2][word % 2 * 2 + 1]);
        word += 1;
    }
}

/// Adds eight pieces from `at` on; `other` is what they are multiplied with, `first` of it what the
/// first piece is.
#[inline(always)]
fn add_eight_of_halves(
    sums: &mut [f32; SUMS],
    p: [[u32; 4]; IN_FLIGHT],
    first: [[u32; 4]; 2],
    at: usize,
    other: impl Fn(usize) -> [[u32; 4]; 2],
) {
    add_halves(sums, p[0], first);
    add_halves(sums, p[1], other(at + 1));
    add_halves(sums, p[2], other(at + 2));
    add_halves(sums, p[3], other(at + 3));
    add_halves(sums, p[4], other(at + 4));
    add_halves(sums, p[5], other(at + 5));
    add_halves(sums, p[6], other(at + 6));
    add_halves(sums, p[7], other(at + 7));
}

/// # Safety
/// `vector` is one of a tile of halves, and `query` has `eights * 8` numbers of 32 bits; nobody
/// writes either meanwhile.
#[inline(never)]
unsafe fn dot_half(vector: *const u8, query: *const u8, eights: usize) -> f32 {
    let mut sums = [0.0; SUMS];
    // SAFETY: the caller's contract, for each number of eights below `eights`.
    let piece = |at: usize| unsafe { load_in_order(vector.wrapping_add(at * TILE * PIECE)) };
    // SAFETY: as above.
    let other =
        |at: usize| unsafe { [load(query.wrapping_add(at * 32)), load(query.wrapping_add(at * 32 + 16))] };
    let first = |at: usize| {
        let first = query.wrapping_add(at * 32);
        // The first sum waits for this load, and with it for the order of those before it.
        // SAFETY: as above.
        unsafe { [load_in_order(first), load_in_order(first.wrapping_add(16))] }
    };
    let mut at = 0;
    while at + 2 * IN_FLIGHT <= eights {
        let (p, q) = (eight(at, piece), eight(at + IN_FLIGHT, piece));
        add_eight_of_halves(&mut sums, p, first(at), at, other);
        add_eight_of_halves(&mut sums, q, other(at + IN_FLIGHT), at + IN_FLIGHT, other);
        at += 2 * IN_FLIGHT;
    }
    while at + IN_FLIGHT <= eights {
        let p = eight(at, piece);
        add_eight_of_halves(&mut sums, p, first(at), at, other);
        at += IN_FLIGHT;
    }
    while at < eights {
        add_halves(&mut sums, piece(at), other(at));
        at += 1;
    }
    total(&sums)
}

#[inline(always)]
fn add_singles(sums: &mut [f32; SUMS], first: usize, piece: [u32; 4], query: [u32; 4]) {
    let mut word = 0;
    while word < 4 {
        add(sums, first + word, f32::from_bits(piece[word]), query[word]);
        word += 1;
    }
}

/// # Safety
/// `vector` is one of a tile of singles, and `query` has `eights * 8` numbers of 32 bits; nobody
/// writes either meanwhile.
#[inline(never)]
unsafe fn dot_single(vector: *const u8, query: *const u8, eights: usize) -> f32 {
    let mut sums = [0.0; SUMS];
    // SAFETY: the caller's contract, for each number of fours below `2 * eights`.
    let piece = |at: usize| unsafe { load_in_order(vector.wrapping_add(at * TILE * PIECE)) };
    // SAFETY: as above.
    let other = |at: usize| unsafe { load(query.wrapping_add(at * PIECE)) };
    let (fours, mut at) = (2 * eights, 0);
    while at + IN_FLIGHT <= fours {
        let p = eight(at, piece);
        let first = query.wrapping_add(at * PIECE);
        // SAFETY: as above; there is a second one.
        let first = unsafe { [load_in_order(first), load_in_order(first.wrapping_add(PIECE))] };
        add_singles(&mut sums, 0, p[0], first[0]);
        add_singles(&mut sums, 4, p[1], first[1]);
        add_singles(&mut sums, 0, p[2], other(at + 2));
        add_singles(&mut sums, 4, p[3], other(at + 3));
        add_singles(&mut sums, 0, p[4], other(at + 4));
        add_singles(&mut sums, 4, p[5], other(at + 5));
        add_singles(&mut sums, 0, p[6], other(at + 6));
        add_singles(&mut sums, 4, p[7], other(at + 7));
        at += IN_FLIGHT;
    }
    while at < fours {
        add_singles(&mut sums, at % 2 * 4, piece(at), other(at));
        at += 1;
    }
    total(&sums)
}
