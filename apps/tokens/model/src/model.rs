//! A step of the model.
#![allow(unsafe_code)]

use crate::{Cache, Step, StepError, Weights};
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
    /// before [`Model::step`]. After a step, rows are set again only when all lanes have read what
    /// they want of it: the group meets between.
    pub fn put(&self, row: usize, step: Step) {
        let _ = (row, step, self.weights, self.file);
        todo!()
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
    /// # Cooperation
    /// All lanes call it with the same number. Afterwards all lanes may call [`Model::next`] and
    /// [`Model::logit`].
    pub fn step<G: Group>(&self, g: &G, rows: usize) -> Result<(), StepError> {
        let _ = (g, rows);
        todo!()
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
        let _ = row;
        todo!()
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
        let _ = (row, token);
        todo!()
    }
}
