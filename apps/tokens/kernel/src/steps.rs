//! Steps of the model without a server, for measurements.
#![allow(unsafe_code)]

use gpunet_device::{Buffer, Group, Kernel, now_ns};
use gpunet_tokens_model::{Cache, Model, Sampling, SequenceId, Step, Weights};

/// A kernel that computes steps of the model, and tells how long they took. Each block has a model
/// of its own, so blocks show how much they slow each other down.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Steps {
    /// The file of the weights, at a multiple of 16 bytes.
    pub file: Buffer,
    /// Zeros: [`Steps::bytes`] for each block.
    pub memory: Buffer,
    /// A word for each block: the nanoseconds of all steps; `u64::MAX`, the model has refused one.
    pub times: Buffer,
    /// Where the matrices lie in the file.
    pub weights: Weights,
    /// Sequences of a step.
    pub sequences: u32,
    /// Rows of each. One: the steps follow each other from `position` on. More: each step begins
    /// the sequences anew, as a step with prompts does.
    pub rows: u32,
    /// Tokens that the sequences have before the first step.
    pub position: u32,
    /// Steps that are measured.
    pub steps: u32,
}

impl Steps {
    /// Bytes of a block's memory.
    #[must_use]
    pub const fn bytes(sequences: u32, rows: u32) -> usize {
        Cache::bytes(sequences as usize, (sequences * rows) as usize).next_multiple_of(64)
    }

    /// Computes a step of `rows` rows of each sequence from a position on.
    fn step<G: Group>(&self, g: &G, model: &Model, rows: u32, position: u32) -> bool {
        let mut row = g.rank();
        while row < self.sequences * rows {
            let (sequence, position) = (SequenceId(row / rows), position + row % rows);
            let (token, sampling) = ((row * 7 + position) as u8, Sampling::GREEDY);
            model.put(row as usize, Step { sequence, token, position, sampling });
            row += g.size();
        }
        model.step(g, (self.sequences * rows) as usize).is_ok()
    }
}

impl Kernel for Steps {
    const ENTRY: &'static str = "gpunet_tokens_steps";

    fn run<G: Group>(self, g: &G) {
        let (block, bytes) = (g.index() as usize, Self::bytes(self.sequences, self.rows));
        let memory = self.memory.as_ptr().wrapping_add(block * bytes);
        // SAFETY: so many zeros, which this block alone uses.
        let cache =
            unsafe { Cache::new(memory, self.sequences as usize, (self.sequences * self.rows) as usize) };
        // SAFETY: the host has checked the file, and nobody writes it.
        let model = unsafe { Model::new(self.weights, self.file.as_ptr(), cache) };
        let mut is_right = true;
        for position in 0..self.position {
            is_right &= self.step(g, &model, 1, position);
        }
        let (start, begins_anew) = (now_ns(), self.rows > 1);
        for step in 0..self.steps {
            let position = if begins_anew { 0 } else { self.position + step };
            is_right &= self.step(g, &model, self.rows, position);
        }
        let time = if is_right { now_ns() - start } else { u64::MAX };
        if g.is_leader() {
            // SAFETY: this block's word.
            unsafe { self.times.as_ptr().cast::<u64>().wrapping_add(block).write(time) };
        }
    }
}
