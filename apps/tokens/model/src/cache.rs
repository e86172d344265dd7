//! The memory of a model: keys and values of sequences, and what a step needs for its rows.
#![allow(unsafe_code)]

use crate::config::{CONTEXT, HEADS, HIDDEN, LAYERS, MAX_ROWS, VOCABULARY, WIDTH};

/// Memory for the keys and values of some sequences, and for the rows of a step.
///
/// A sequence takes 1.5 MiB, a row 14 KiB. Copies are the same memory. One group uses it at a time.
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

/// Bytes of the keys, and of the values, of one layer of a sequence.
const LAYER_BYTES: usize = CONTEXT * WIDTH * 4;
/// Bytes of a sequence's keys and values.
const SEQUENCE_BYTES: usize = LAYERS * 2 * LAYER_BYTES;
/// What a sequence has beside: how many tokens are cached, and the row at which it begins in a step.
const SEQUENCE_WORDS: usize = 8;

/// Bytes of a row's parts: its step, its result, and numbers.
pub(crate) const STEP_BYTES: usize = 32;
const ROW_BYTES: usize = STEP_BYTES + 4 * (WIDTH + WIDTH + WIDTH + HIDDEN + VOCABULARY) + 4 * HEADS * CONTEXT;

impl Cache {
    /// How many bytes a cache for so many sequences and so many rows a step takes.
    ///
    /// More rows let longer pieces of prompts pass in one step.
    #[must_use]
    pub const fn bytes(sequences: usize, rows: usize) -> usize {
        (sequences * SEQUENCE_WORDS).next_multiple_of(64)
            + sequences * SEQUENCE_BYTES
            + rows * ROW_BYTES.next_multiple_of(64)
    }

    /// Makes a cache of [`Cache::bytes`] bytes of memory.
    ///
    /// # Panics
    /// There are more than [`MAX_ROWS`] rows, no rows, or no sequences.
    ///
    /// # Safety
    /// The memory is in reach of the device, 64-aligned, filled with zeros before its first use, and
    /// nothing else uses it while any copy of the value is used. One group uses the cache at a time:
    /// another one takes over only after a barrier, a launch or an acquired word between them.
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
}
