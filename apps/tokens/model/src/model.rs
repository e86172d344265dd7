//! A step of the model.
#![allow(unsafe_code)]

use crate::attention::{merge, mix, score};
use crate::cache::Numbers::{self, Hidden, Mixed, Residual};
use crate::cache::{CHUNK, Cache, Rows, no_such_row};
use crate::config::{CONTEXT, HIDDEN, VOCABULARY, WIDTH};
use crate::memory::{Lane, load};
use crate::product::{Product, Shape, Target, embed};
use crate::sample::{choose, rate, weigh};
use crate::{Step, StepError, Weights};
use gpunet_device::Group;

/// A model with its weights and its cache. Copies are the same model.
///
/// # Examples
///
/// A block that continues a text; all lanes call it.
///
/// ```
/// use gpunet_device::Group;
/// use gpunet_tokens_model::{Model, Sampling, SequenceId, Step, StepError};
///
/// /// Feeds one token of sequence 0 to the model, and returns the next.
/// fn next_token<G: Group>(g: &G, model: &Model, token: u8, position: u32) -> Result<u8, StepError> {
///     if g.is_leader() {
///         let (sequence, sampling) = (SequenceId(0), Sampling::GREEDY);
///         model.put(0, Step { sequence, token, position, sampling });
///     }
///     model.step(g, 1)?;
///     Ok(model.next(0))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Model {
    weights: Weights,
    file: *const u8,
    cache: Cache,
}

// SAFETY: an address beside values; `new`'s contract covers all lanes.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Makes a model of checked weights and a cache.
    ///
    /// # Safety
    /// `file` is the address of the bytes that were checked, in reach of the device and 16-aligned.
    /// Nobody writes them while any copy of the value is used.
    #[must_use]
    pub const unsafe fn new(weights: Weights, file: *const u8, cache: Cache) -> Self {
        Self { weights, file, cache }
    }

    /// The cache.
    #[must_use]
    pub const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Sets a row of the next step.
    ///
    /// # Panics
    /// The cache has no such row.
    ///
    /// # Cooperation
    /// One lane calls it for a row; several lanes may set different rows. No barrier is needed
    /// before [`Model::step`], nor after it.
    pub fn put(&self, row: usize, step: Step) {
        self.cache.put(row, step);
    }

    /// Computes the first `rows` rows that were set with [`Model::put`]: each token is added to its
    /// sequence, and the token after it is chosen.
    ///
    /// The rows of a sequence stand together and have positions one after another; the first is 0,
    /// which begins the sequence anew, or follows the last one that was computed. All rows get a
    /// next token; who gives a prompt needs the last one only.
    ///
    /// # Errors
    /// [`StepError`], and nothing was computed; all lanes get the same.
    ///
    /// # Panics
    /// On a GPU, the group has fewer than 32 lanes.
    ///
    /// # Cooperation
    /// All lanes call it with the same number; on a GPU they are a block or a whole warp.
    /// Afterwards all lanes may call [`Model::next`] and [`Model::logit`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn step<G: Group>(&self, g: &G, rows: usize) -> Result<(), StepError> {
        if rows == 0 || rows > self.cache.rows() {
            return Err(StepError::Rows);
        }
        let (lane, cache) = (Lane::of(g), &self.cache);
        assert!(!cfg!(target_arch = "nvptx64") || lane.size >= 32, "the model needs a whole warp");
        let rows = self.admit(g, lane, rows as u32)?;
        let mut number = 0;
        // One loop, in which each phase is called once: then it is a part of this function on a
        // GPU. A call would store and load again the registers of the caller, of each lane.
        loop {
            let (product, target) = self.product(number);
            // SAFETY: the shapes are those that the check of the weights compares, the rows were
            // admitted, and a barrier is before and after each phase.
            unsafe {
                #[cfg(target_arch = "nvptx64")]
                crate::tensor::sum(&product, lane, rows);
                #[cfg(not(target_arch = "nvptx64"))]
                product.sum(lane, rows);
                g.sync();
                let Some(target) = target else {
                    rate(lane, rows, &product);
                    g.sync();
                    break;
                };
                product.finish(lane, cache, rows, target);
                g.sync();
                if let Target::Attention(layer) = target {
                    score(lane, cache, rows, layer);
                    g.sync();
                    mix(lane, cache, rows, layer);
                    g.sync();
                    merge(lane, cache, rows);
                    g.sync();
                }
            }
            number += 1;
        }
        // SAFETY: the rows have logits, and a barrier is between.
        unsafe { weigh(lane, cache, rows) };
        g.sync();
        // SAFETY: as above.
        unsafe { choose(lane, cache, rows) };
        g.sync();
        Ok(())
    }

    /// The products of a step by their numbers, from 0 on: four of each layer, and that of the
    /// logits, which has no target.
    #[inline(always)]
    fn product(&self, number: usize) -> (Product, Option<Target>) {
        let layer = number / 4;
        let of = |shape, at: u32| Product { shape, matrix: self.file.wrapping_add(at as usize).cast() };
        let Some(weights) = self.weights.layers.get(layer) else {
            return (of(const { Shape::new(Residual, true, VOCABULARY) }, self.weights.unembedding), None);
        };
        let (shape, at, target) = match number % 4 {
            0 => (const { Shape::new(Residual, true, 3 * WIDTH) }, weights.qkv, Target::Attention(layer)),
            1 => (const { Shape::new(Mixed, false, WIDTH) }, weights.out, Target::Add(Residual)),
            2 => (const { Shape::new(Residual, true, HIDDEN) }, weights.up, Target::StorePositive(Hidden)),
            _ => (const { Shape::new(Hidden, false, WIDTH) }, weights.down, Target::Add(Residual)),
        };
        (of(shape, at), Some(target))
    }

    /// Checks the rows, counts their tokens as cached, and loads their embeddings. It meets before
    /// and after.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn admit<G: Group>(&self, g: &G, lane: Lane, rows: u32) -> Result<Rows, StepError> {
        // What is wrong, in fields of a sum: each has room for a count of all rows.
        const FIELD: u32 = 10;
        const {
            assert!(crate::MAX_ROWS < 1 << FIELD);
        }
        let cache = &self.cache;
        g.sync();
        let begins = |row: u32| row == 0 || cache.place(row as usize - 1).0 != cache.place(row as usize).0;
        let mut row = lane.rank;
        while row < rows {
            let (sequence, _) = cache.place(row as usize);
            if sequence < cache.sequences() as u32 && begins(row) {
                cache.set_first_row(sequence, row);
            }
            row += lane.size;
        }
        g.sync();
        let (mut wrong, mut row) = (0, lane.rank);
        while row < rows {
            let (sequence, position) = cache.place(row as usize);
            if sequence >= cache.sequences() as u32 {
                wrong += 1;
            } else if position >= CONTEXT as u32 {
                wrong += 1 << FIELD;
            } else {
                let follows = if begins(row) {
                    // Of two groups of rows of one sequence, the word has one.
                    let state = cache.state(sequence);
                    state.first_row == row && (position == 0 || position == state.cached)
                } else {
                    position == cache.place(row as usize - 1).1.wrapping_add(1)
                };
                wrong += u32::from(!follows) << (2 * FIELD);
            }
            row += lane.size;
        }
        let embedding = self.file.wrapping_add(self.weights.embedding as usize).cast();
        // SAFETY: the weights were checked, and the rows are the cache's. A barrier follows.
        unsafe { embed(lane, cache, cache.numbers(rows, 1), embedding) };
        let wrong = g.sum(wrong);
        let has = |field: u32| wrong >> (field * FIELD) & ((1 << FIELD) - 1) != 0;
        if wrong != 0 {
            return Err(match () {
                () if has(0) => StepError::UnknownSequence,
                () if has(1) => StepError::ContextFull,
                () => StepError::OutOfOrder,
            });
        }
        // The last position of all rows: each lane finds it.
        let (mut last, mut row) = (0, 0);
        while row < rows {
            let (_, position) = cache.place(row as usize);
            last = if position > last { position } else { last };
            row += 1;
        }
        row = lane.rank;
        while row < rows {
            let (sequence, position) = cache.place(row as usize);
            if row + 1 == rows || begins(row + 1) {
                cache.set_cached(sequence, position + 1);
            }
            row += lane.size;
        }
        Ok(cache.numbers(rows, last / CHUNK as u32 + 1))
    }

    /// The token that the last step has chosen to follow that of a row.
    ///
    /// # Panics
    /// The cache has no such row.
    ///
    /// # Cooperation
    /// Any lane, after a step.
    #[must_use]
    pub fn next(&self, row: usize) -> u8 {
        self.cache.next(row)
    }

    /// The logit of a token to follow that of a row, as the last step has computed it.
    ///
    /// # Panics
    /// The cache has no such row.
    ///
    /// # Cooperation
    /// Any lane, after a step.
    #[must_use]
    pub fn logit(&self, row: usize, token: u8) -> f32 {
        if row >= self.cache.rows() {
            no_such_row();
        }
        let logits = self.cache.numbers(1, 1).of(row, Numbers::Logits);
        // SAFETY: a number of a row of the cache; nobody writes it between two steps.
        unsafe { load(logits.wrapping_add(token as usize)) }
    }
}
