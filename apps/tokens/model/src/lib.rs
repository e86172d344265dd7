//! The model of `gpunet-tokens`: a byte-level transformer that one thread block runs, on a GPU or
//! on CPU threads.
//!
//! A [`Model`] has weights, which the host has checked ([`Weights::check`]), and a [`Cache`] with
//! the keys and values of some sequences. A *step* computes one or more tokens of any of them
//! ([`Model::step`]): sequences join and leave between steps, and a prompt may be given many tokens
//! at a time. What a sequence gets does not depend, to the last bit, on what else is in the batch
//! or on how many lanes the group has.
//!
//! | part | module |
//! |---|---|
//! | the shape of the model, and its special tokens | `config` |
//! | the weights of this crate, and the check of such a file on the host | `file`, `weights` |
//! | rows of a step, and how tokens are chosen | `step`, `sample` |
//! | memory: keys and values, and what a step needs | `cache` |
//! | the step | `model`; its parts: `product`, with `tensor` on a GPU, and `attention` |
//! | halves, roots, powers | `math` |
//! | numbers in memory, and the shares of lanes | `memory` |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![deny(unsafe_code)]

mod attention;
mod cache;
mod config;
#[cfg(not(target_arch = "nvptx64"))]
mod file;
mod math;
mod memory;
mod model;
mod product;
mod sample;
mod step;
#[cfg(any(target_arch = "nvptx64", test))]
mod tensor;
mod weights;

pub use cache::Cache;
pub use config::{
    ASSISTANT, CONTEXT, END, HEAD_WIDTH, HEADS, HIDDEN, LAYERS, MAX_ROWS, USER, VOCABULARY, WIDTH,
};
#[cfg(not(target_arch = "nvptx64"))]
pub use file::WEIGHTS;
pub use model::Model;
pub use step::{Sampling, SequenceId, Step, StepError};
pub use weights::Weights;
#[cfg(not(target_arch = "nvptx64"))]
pub use weights::WeightsError;

#[cfg(test)]
mod tests;
