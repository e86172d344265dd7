//! The file of the weights: the host checks it, and the kernel gets plain offsets.

use crate::config::LAYERS;

#[cfg(not(target_arch = "nvptx64"))]
mod check;
#[cfg(not(target_arch = "nvptx64"))]
pub use check::WeightsError;

/// Where the matrices of the model lie in a safetensors file, in bytes from its start. All are
/// halves (`F16`), row-major, `[inputs][outputs]`, and lie at multiples of 16.
///
/// Only [`Weights::check`] makes one. It has no pointers, so it may be a part of a kernel's
/// parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Weights {
    pub(crate) embedding: u32,
    pub(crate) unembedding: u32,
    pub(crate) layers: [LayerWeights; LAYERS],
}

/// The matrices of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct LayerWeights {
    /// Queries, keys and values of all heads: `[WIDTH][3 * WIDTH]`.
    pub(crate) qkv: u32,
    /// `[WIDTH][WIDTH]`.
    pub(crate) out: u32,
    /// `[WIDTH][HIDDEN]`.
    pub(crate) up: u32,
    /// `[HIDDEN][WIDTH]`.
    pub(crate) down: u32,
}
