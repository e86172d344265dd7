//! The memory of a model: keys and values of sequences, and what a step needs for its rows.
#![allow(unsafe_code)]

use crate::config::{self, CONTEXT, HEADS, HIDDEN, LAYERS, MAX_ROWS, VOCABULARY, WIDTH};
use crate::memory::Divisor;
use crate::{Sampling, SequenceId, Step};
use core::sync::atomic::{AtomicU32, Ordering};

/// Memory for the keys and values of some sequences, and for the rows of a step.
///
/// A sequence takes 1.5 MiB, a row 24 KiB. Copies are the same memory. One group uses it at a time.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cache {
    start: *mut u8,
    sequences: u32,
    rows: u32,
}

// SAFETY: an address and two numbers; `new`'s contract covers all lanes.
unsafe impl Send for Cache {}
// SAFETY: as above.
unsafe impl Sync for Cache {}

/// Inputs of a product whose sums are added up on their own.
pub(crate) const PART: usize = 64;
/// Keys whose scores a part of attention has together: partial sums are over as many.
pub(crate) const CHUNK: usize = 32;
/// Chunks of the longest sequence.
pub(crate) const CHUNKS: usize = CONTEXT / CHUNK;
/// Tokens whose logits the choice of a token has together.
pub(crate) const BLOCK: usize = 8;
/// Blocks of the vocabulary.
pub(crate) const BLOCKS: usize = VOCABULARY / BLOCK;

/// What a sequence has beside its keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceState {
    /// How many tokens are in the cache.
    pub(crate) cached: u32,
    /// The row at which it begins in this step.
    pub(crate) first_row: u32,
}

/// A row's step as it lies in memory; its result lies behind it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Row {
    sequence: u32,
    position: u32,
    token: u32,
    temperature: f32,
    seed: u64,
}

/// From a row's step to the next row's.
const STEP_STRIDE: usize = 32;

/// Numbers of a row, one part after another: where each begins.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Numbers {
    /// What passes from layer to layer: `[WIDTH]`.
    Residual = 0,
    /// `[WIDTH]`.
    Query = at::QUERY,
    /// What attention gives: `[WIDTH]`.
    Mixed = at::MIXED,
    /// `[HIDDEN]`.
    Hidden = at::HIDDEN,
    /// What the parts of a product's inputs add up to: `[inputs / PART][outputs]`.
    Sums = at::SUMS,
    /// The same for the squares of the inputs, in four shares: `[WIDTH / PART][4]`.
    Squares = at::SQUARES,
    /// `[VOCABULARY]`.
    Logits = at::LOGITS,
    /// The highest logit of each block: `[BLOCKS]`.
    Highest = at::HIGHEST,
    /// What the powers of the logits of a block add up to: `[BLOCKS]`.
    Powers = at::POWERS,
    /// What a chunk of values adds up to: `[CHUNKS][WIDTH]`.
    Partial = at::PARTIAL,
    /// What a chunk of scores adds up to: `[CHUNKS][HEADS]`.
    Share = at::SHARE,
    /// The powers of scores: `[HEADS][CONTEXT]`.
    Scores = at::SCORES,
}

/// Where the parts of a row's numbers begin.
mod at {
    use super::{BLOCKS, CHUNKS, config};
    const WIDTH: u32 = config::WIDTH as u32;
    pub(super) const QUERY: u32 = WIDTH;
    pub(super) const MIXED: u32 = QUERY + WIDTH;
    pub(super) const HIDDEN: u32 = MIXED + WIDTH;
    pub(super) const SUMS: u32 = HIDDEN + config::HIDDEN as u32;
    pub(super) const SQUARES: u32 = SUMS + super::SUMS as u32;
    pub(super) const LOGITS: u32 = SQUARES + 16;
    pub(super) const HIGHEST: u32 = LOGITS + config::VOCABULARY as u32;
    pub(super) const POWERS: u32 = HIGHEST + BLOCKS as u32;
    pub(super) const PARTIAL: u32 = POWERS + BLOCKS as u32;
    pub(super) const SHARE: u32 = PARTIAL + CHUNKS as u32 * WIDTH;
    pub(super) const SCORES: u32 = SHARE + (CHUNKS * config::HEADS) as u32;
    pub(super) const END: u32 = SCORES + (config::HEADS * config::CONTEXT) as u32;
}

/// The most sums of the parts of a product.
const SUMS: usize = {
    let (hidden, wide) = (HIDDEN / PART * WIDTH, WIDTH / PART * 3 * WIDTH);
    assert!(HIDDEN <= 3 * WIDTH && VOCABULARY <= 3 * WIDTH);
    if hidden > wide { hidden } else { wide }
};

/// The rows of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// How many they are.
    pub(crate) count: u32,
    /// Chunks of the keys that a row may need, at most.
    pub(crate) chunks: Divisor,
    numbers: *mut f32,
}

impl Rows {
    /// A part of the numbers of a row.
    #[inline(always)]
    pub(crate) const fn of(&self, row: usize, part: Numbers) -> *mut f32 {
        self.numbers.wrapping_add(row * ROW + part as usize)
    }
}

/// Numbers of the keys, and of the values, of one layer of a sequence.
const LAYER: usize = CONTEXT * WIDTH;
/// Numbers of a row.
const ROW: usize = at::END as usize;

// All parts are aligned to 64 bytes, so that four numbers load at once.
const _: () = assert!(LAYER.is_multiple_of(16) && ROW.is_multiple_of(16));
const _: () = assert!(CONTEXT.is_multiple_of(CHUNK) && (CHUNKS * HEADS).is_multiple_of(16));
const _: () = assert!(BLOCKS.is_multiple_of(16));

impl Cache {
    /// How many bytes a cache takes for so many sequences, and so many rows of a step.
    ///
    /// With more rows, longer pieces of prompts pass in one step.
    #[must_use]
    pub const fn bytes(sequences: usize, rows: usize) -> usize {
        Self::rows_at(sequences)
            + (rows * STEP_STRIDE).next_multiple_of(64)
            + 4 * (rows * ROW + sequences * LAYERS * 2 * LAYER)
    }

    const fn rows_at(sequences: usize) -> usize {
        (sequences * size_of::<[u32; 2]>()).next_multiple_of(64)
    }

    /// Makes a cache of [`Cache::bytes`] bytes of memory.
    ///
    /// # Panics
    /// There are more than [`MAX_ROWS`] rows, no rows, or no sequences.
    ///
    /// # Safety
    /// The memory is in reach of the device, 64-aligned, filled with zeros before its first use,
    /// and nothing else uses it while any copy of the value is used. One group uses the cache at a
    /// time: another one takes over only after a barrier, a launch or an acquired word between
    /// them. Its lanes call the methods of [`Model`](crate::Model) as these say under
    /// "Cooperation".
    #[must_use]
    pub const unsafe fn new(memory: *mut u8, sequences: usize, rows: usize) -> Self {
        assert!(sequences > 0 && rows > 0 && rows <= MAX_ROWS, "a cache has sequences, and 1 to 512 rows");
        Self { start: memory, sequences: sequences as u32, rows: rows as u32 }
    }

    /// How many sequences it has memory for.
    #[must_use]
    pub const fn sequences(&self) -> usize {
        self.sequences as usize
    }

    /// How many rows a step may have.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows as usize
    }

    fn state_at(&self, sequence: u32) -> *mut [u32; 2] {
        if sequence >= self.sequences {
            no_such_row();
        }
        self.start.cast::<[u32; 2]>().wrapping_add(sequence as usize)
    }

    /// The state of a sequence, which nobody changes meanwhile.
    pub(crate) fn state(&self, sequence: u32) -> SequenceState {
        // SAFETY: two words of a sequence of the cache (checked).
        let [cached, first_row] = unsafe { self.state_at(sequence).read() };
        SequenceState { cached, first_row }
    }

    /// Sets how many tokens of a sequence are cached. One lane calls it for a sequence.
    pub(crate) fn set_cached(&self, sequence: u32, count: u32) {
        // SAFETY: the first word of a sequence of the cache (checked), and this lane's alone now.
        unsafe { self.state_at(sequence).cast::<u32>().write(count) };
    }

    /// Sets the row at which a sequence begins. Several lanes may do it: one of their rows stays.
    pub(crate) fn set_first_row(&self, sequence: u32, row: u32) {
        let word = self.state_at(sequence).cast::<u32>().wrapping_add(1);
        // SAFETY: the second word of a sequence of the cache (checked), which all use as a word
        // until the barrier after which it is read.
        let word = unsafe { AtomicU32::from_ptr(word) };
        // Ordering: Relaxed; the group's barrier orders it before the reads.
        word.store(row, Ordering::Relaxed);
    }

    fn row(&self, row: usize) -> *mut Row {
        if row >= self.rows() {
            no_such_row();
        }
        self.start.wrapping_add(Self::rows_at(self.sequences()) + row * STEP_STRIDE).cast()
    }

    /// A row's result: apart from its step, which a lane may set while others still read results.
    fn result(&self, row: usize) -> *mut u32 {
        const { assert!(size_of::<Row>() + 4 <= STEP_STRIDE) }
        self.row(row).wrapping_add(1).cast()
    }

    /// Where the numbers of all rows begin.
    const fn numbers_at(&self) -> *mut f32 {
        let rows = (self.rows() * STEP_STRIDE).next_multiple_of(64);
        self.start.wrapping_add(Self::rows_at(self.sequences()) + rows).cast()
    }

    /// The first rows of a step, which need so many chunks of keys at most.
    pub(crate) const fn numbers(&self, count: u32, chunks: u32) -> Rows {
        Rows { count, chunks: Divisor::new(chunks), numbers: self.numbers_at() }
    }

    /// The keys of a layer of a sequence of the cache: `[WIDTH][CONTEXT]`, so that keys at
    /// positions side by side load together.
    pub(crate) const fn keys(&self, sequence: u32, layer: usize) -> *mut f32 {
        let index = (sequence as usize * LAYERS + layer) * 2;
        self.numbers_at().wrapping_add(self.rows() * ROW + index * LAYER)
    }

    /// The values of a layer of a sequence of the cache: `[CONTEXT][WIDTH]`.
    pub(crate) const fn values(&self, sequence: u32, layer: usize) -> *mut f32 {
        self.keys(sequence, layer).wrapping_add(LAYER)
    }

    /// Writes a row's step. One lane calls it for a row, which no other lane reads meanwhile.
    pub(crate) fn put(&self, row: usize, step: Step) {
        let Step { sequence: SequenceId(sequence), token, position, sampling } = step;
        let Sampling { temperature, seed } = sampling;
        let value = Row { sequence, position, token: u32::from(token), temperature, seed };
        // SAFETY: a row of the cache (checked), and this lane's alone now.
        unsafe { self.row(row).write(value) };
    }

    /// A row's step. After the barrier that follows [`Cache::put`].
    pub(crate) fn get(&self, row: usize) -> Step {
        // SAFETY: a row of the cache (checked), which nobody writes meanwhile.
        let Row { sequence, position, token, temperature, seed } = unsafe { self.row(row).read() };
        let sampling = Sampling { temperature, seed };
        Step { sequence: SequenceId(sequence), token: token as u8, position, sampling }
    }

    /// The sequence and the position of a row, as [`Cache::get`] reads them.
    #[inline(always)]
    pub(crate) fn place(&self, row: usize) -> (u32, u32) {
        let row = self.row(row).cast::<[u32; 2]>();
        // SAFETY: the first two words of a row of the cache (checked), which nobody writes
        // meanwhile.
        let [sequence, position] = unsafe { row.read() };
        (sequence, position)
    }

    /// Sets a row's result. One lane calls it for a row.
    pub(crate) fn set_next(&self, row: usize, token: u8) {
        // SAFETY: the result of a row of the cache (checked), and this lane's alone now.
        unsafe { self.result(row).write(u32::from(token)) };
    }

    /// A row's result, after the barrier that follows [`Cache::set_next`].
    pub(crate) fn next(&self, row: usize) -> u8 {
        // SAFETY: the result of a row of the cache (checked), which nobody writes meanwhile.
        unsafe { self.result(row).read() as u8 }
    }
}

/// The one place: a panic's arguments take ten instructions.
#[cold]
#[inline(never)]
pub(crate) fn no_such_row() -> ! {
    panic!("the cache of the model has no such row");
}
