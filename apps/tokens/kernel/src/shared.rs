//! The server's settings, and what its blocks share.

use crate::batch::Batches;
use crate::metrics::Metrics;
use crate::slots::Slots;
use gpunet_http::Limits;
use gpunet_serve::{Carve, Heap, WorkPool};
use gpunet_tokens_model::{MAX_ROWS, Weights};

/// Bytes for request bodies that come in chunks or are long, of all connections.
const BODIES: usize = 8 << 20;

/// A server of completions, and the blocks of its model.
///
/// The bytes of the weights are the server's data (`start_with_data` of `gpunet-serve-host`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tokens {
    /// What HTTP requests may have.
    pub limits: Limits,
    /// From one step of the model to the next, in nanoseconds, at least: 0, as fast as it can.
    pub interval_ns: u64,
    /// Where the matrices lie in the data.
    pub weights: Weights,
    /// Blocks that run the model, the last ones of the launch: at least 1.
    pub models: u32,
    /// Requests at a time in the batch of each: at least 1.
    pub sequences: u32,
    /// Requests that may wait for a place; who comes then gets 503.
    pub waiting: u32,
    /// Not 0: each event tells when its token was stored.
    pub timing: u32,
}

impl Tokens {
    /// The most requests in a batch: each has a row in each step.
    pub const MAX_SEQUENCES: u32 = MAX_ROWS as u32;
    /// The most requests that may wait.
    pub const MAX_WAITING: u32 = 1 << 16;

    /// Rows of a step: one for each sequence, and some for prompts, so that a prompt takes few
    /// steps and a step not much longer for it.
    fn rows(&self) -> usize {
        (self.sequences as usize + 64).min(MAX_ROWS)
    }
}

/// What the blocks share.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The bells and numbers of requests that wait.
    pub(crate) requests: WorkPool<2>,
    pub(crate) slots: Slots,
    pub(crate) batches: Batches,
    pub(crate) metrics: Metrics,
    pub(crate) bodies: Heap,
    /// A secret of the launch, by which seeds are made.
    pub(crate) secret: [u64; 2],
}

impl Shared {
    pub(crate) fn carve(settings: &Tokens, carve: &mut Carve) -> Self {
        Self {
            requests: WorkPool::new(carve, settings.waiting as usize),
            slots: Slots::new(carve),
            batches: Batches::new(
                carve,
                settings.models as usize,
                settings.sequences as usize,
                settings.rows(),
            ),
            metrics: Metrics::new(carve),
            bodies: Heap::new(carve, BODIES),
            secret: carve.seed(),
        }
    }
}
