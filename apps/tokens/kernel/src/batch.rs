//! A block of the model: a batch that requests join and leave at each step.
//!
//! A step gives each sequence of the batch a row at least; what rows are left prompts get. The
//! lanes share the sequences: a lane sets the rows of its sequences, and stores their tokens.
#![allow(unsafe_code)]

use crate::metrics::{Count, Metrics};
use crate::slots::{End, Progress, Settings, Slot, Slots};
use gpunet_device::{Group, now_ns};
use gpunet_serve::raw::Word64;
use gpunet_serve::{Bell, Bells, Bytes, Carve, Memory};
use gpunet_tokens_model::{Cache, END, Model, Sampling, SequenceId, Step, StepError, Weights};

/// Where things are in the record of a sequence: the block of its batch alone uses them.
mod at {
    /// The number of its request; 0: the sequence is free.
    pub(super) const NUMBER: usize = 0;
    pub(super) const BELL: usize = 8;
    /// Tokens that are computed.
    pub(super) const POSITION: usize = 16;
    /// Tokens of the answer.
    pub(super) const COUNT: usize = 24;
    /// The last of them.
    pub(super) const LAST: usize = 32;
    /// Its rows in this step: the first one; above it how many.
    pub(super) const ROWS: usize = 40;
    /// Its bell is to be rung.
    pub(super) const RINGS: usize = 48;
    pub(super) const LEN: usize = 64;
}

/// The batches of all blocks that run the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batches {
    memory: Memory,
    models: usize,
    sequences: usize,
    rows: usize,
}

/// The memory of a model and of its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// How many sequences are in use: for other blocks.
    running: Memory,
    records: Memory,
    cache: Memory,
    sequences: usize,
    rows: usize,
}

/// A line for the word that others read.
const RUNNING: usize = 64;

impl Batches {
    pub(crate) fn new(carve: &mut Carve, models: usize, sequences: usize, rows: usize) -> Self {
        let len = models * Self::stride(sequences, rows);
        // SAFETY: every block carves it alike. The block of a batch alone uses it, as `Cache` and
        // `at` say; but `running` is a word, which that block writes and others read.
        Self { memory: unsafe { carve.memory(len) }, models, sequences, rows }
    }

    /// Bytes of a batch.
    const fn stride(sequences: usize, rows: usize) -> usize {
        RUNNING + sequences * at::LEN + Cache::bytes(sequences, rows).next_multiple_of(64)
    }

    /// How many there are.
    pub(crate) const fn models(&self) -> usize {
        self.models
    }

    /// The batch of a block of the model.
    ///
    /// # Panics
    /// There is no such block.
    pub(crate) fn at(&self, model: usize) -> Batch {
        let Self { sequences, rows, .. } = *self;
        let stride = Self::stride(sequences, rows);
        let memory = self.memory.part(model * stride, stride);
        let cache_at = RUNNING + sequences * at::LEN;
        Batch {
            running: memory.part(0, RUNNING),
            records: memory.part(RUNNING, sequences * at::LEN),
            cache: memory.part(cache_at, stride - cache_at),
            sequences,
            rows,
        }
    }

    /// How many requests are in the batches, as of their last steps. All lanes.
    pub(crate) fn running<G: Group>(&self, g: &G) -> usize {
        let (mut running, mut model) = (0, g.rank() as usize);
        while model < self.models {
            running += self.at(model).running.u64(0).get() as u32;
            model += g.size() as usize;
        }
        g.sum(running) as usize
    }
}

impl Batch {
    /// The model of these weights, whose file is the server's data.
    ///
    /// # Cooperation
    /// One block of the launch runs it.
    pub(crate) fn model(&self, weights: Weights, file: Bytes<'_>) -> Option<Model> {
        let file = file.as_ptr()?;
        // SAFETY: so many bytes, aligned and zeros at the start; one block uses the batch.
        let cache = unsafe { Cache::new(self.cache.as_ptr(), self.sequences, self.rows) };
        // SAFETY: the host has checked these bytes and keeps them in the device's memory, which is
        // aligned; nobody writes them.
        Some(unsafe { Model::new(weights, file, cache) })
    }

    /// How many requests it holds.
    pub(crate) const fn sequences(&self) -> usize {
        self.sequences
    }

    /// Tells the other blocks how many requests are in the batch. All lanes.
    pub(crate) fn set_running<G: Group>(&self, g: &G, running: usize) {
        if g.is_leader() {
            self.running.u64(0).set(running as u64);
        }
    }

    fn word(&self, sequence: usize, at: usize) -> Word64 {
        self.records.u64(sequence * at::LEN + at)
    }
}

/// The batch with all that a step of it touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'r> {
    pub(crate) batch: &'r Batch,
    pub(crate) slots: Slots,
    pub(crate) model: Model,
    pub(crate) metrics: Metrics,
    pub(crate) bells: Bells,
}

impl Run<'_> {
    /// Computes a step for the sequences of the batch, `active` of them, and tells the blocks that
    /// serve their connections. Returns how many sequences have ended.
    ///
    /// # Cooperation
    /// All lanes of the batch's block.
    ///
    /// # Errors
    /// The model has refused the step, and all requests of the batch have ended.
    pub(crate) fn step<G: Group>(&self, g: &G, active: usize) -> Result<usize, StepError> {
        let rows = self.plan(g, active);
        self.put_rows(g);
        let stepped = self.model.step(g, rows);
        let mut ended = active;
        if stepped.is_ok() {
            self.metrics.add(g, Count::Steps, 1);
            self.metrics.add(g, Count::StepSequences, active as u64);
            ended = self.take_tokens(g) as usize;
        } else {
            self.fail(g);
        }
        self.bells.ring_each(g, self.batch.sequences, |sequence| self.bell_to_ring(sequence));
        // All bells are taken.
        g.sync();
        stepped.map(|()| ended)
    }

    fn slot(&self, sequence: usize) -> Slot {
        self.slots.at(Bell::from_raw(self.batch.word(sequence, at::BELL).get()).place())
    }

    /// Gives a request a free sequence; the caller knows that there is one. Returns whether the
    /// request still wants it.
    ///
    /// # Cooperation
    /// All lanes of the batch's block.
    pub(crate) fn join<G: Group>(&self, g: &G, bell: Bell, number: u32) -> bool {
        let slot = self.slots.at(bell.place());
        let mut joins = 0;
        if g.is_leader() {
            if slot.is_stopped(number) {
                slot.publish(Progress { number, count: 0, end: Some(End::Stopped) });
            } else {
                let mut free = 0;
                while self.batch.word(free, at::NUMBER).get() != 0 {
                    free += 1;
                }
                slot.publish(Progress { number, count: 0, end: None });
                self.batch.word(free, at::BELL).set(bell.raw());
                self.batch.word(free, at::POSITION).set(0);
                self.batch.word(free, at::COUNT).set(0);
                self.batch.word(free, at::NUMBER).set(number.into());
                joins = 1;
            }
        }
        g.broadcast(joins) != 0
    }

    /// Divides the rows of a step among the sequences. Returns how many are used.
    fn plan<G: Group>(&self, g: &G, active: usize) -> usize {
        let (mut row, mut spare) = (0, self.batch.rows - active);
        if g.is_leader() {
            for sequence in 0..self.batch.sequences {
                if self.batch.word(sequence, at::NUMBER).get() == 0 {
                    continue;
                }
                let position = self.batch.word(sequence, at::POSITION).get() as usize;
                let prompt = prompt_tokens(self.slot(sequence).settings());
                let count = prompt.saturating_sub(position).min(1 + spare).max(1);
                spare -= count - 1;
                self.batch.word(sequence, at::ROWS).set((count as u64) << 32 | row as u64);
                row += count;
            }
        }
        g.broadcast(row as u64) as usize
    }

    /// Calls `each` with the sequences of the batch, each by one lane.
    fn each<G: Group>(&self, g: &G, mut each: impl FnMut(usize, u32)) {
        let mut sequence = g.rank() as usize;
        while sequence < self.batch.sequences {
            let number = self.batch.word(sequence, at::NUMBER).get() as u32;
            if number != 0 {
                each(sequence, number);
            }
            sequence += g.size() as usize;
        }
    }

    fn rows(&self, sequence: usize) -> (usize, usize) {
        let rows = self.batch.word(sequence, at::ROWS).get();
        (rows as u32 as usize, (rows >> 32) as usize)
    }

    /// Sets the rows of the step. All lanes, without a barrier at the end.
    fn put_rows<G: Group>(&self, g: &G) {
        self.each(g, |sequence, _| {
            let (slot, (row, count)) = (self.slot(sequence), self.rows(sequence));
            let settings = slot.settings();
            let position = self.batch.word(sequence, at::POSITION).get() as usize;
            let sampling = Sampling { temperature: settings.temperature, seed: settings.seed };
            let mut at = 0;
            while at < count {
                let token = match position + at {
                    // It says that a text begins.
                    0 => END,
                    place if place <= settings.prompt => slot.prompt(place - 1),
                    _ => self.batch.word(sequence, at::LAST).get() as u8,
                };
                let (sequence, position) = (SequenceId(sequence as u32), (position + at) as u32);
                self.model.put(row + at, Step { sequence, token, position, sampling });
                at += 1;
            }
        });
    }

    /// Takes the tokens of a step, and gives sequences back whose requests are at their end.
    /// Returns how many.
    fn take_tokens<G: Group>(&self, g: &G) -> u32 {
        let (mut ended, mut tokens, mut prompts) = (0, 0, 0);
        self.each(g, |sequence, number| {
            let (slot, (row, rows)) = (self.slot(sequence), self.rows(sequence));
            let settings = slot.settings();
            let before = self.batch.word(sequence, at::POSITION).get() as usize;
            let (position, prompt) = (before + rows, prompt_tokens(settings));
            let mut count = self.batch.word(sequence, at::COUNT).get() as usize;
            prompts += prompt.min(position).saturating_sub(before) as u32;
            self.batch.word(sequence, at::POSITION).set(position as u64);
            let mut end = None;
            if slot.is_stopped(number) {
                end = Some(End::Stopped);
            } else if position >= prompt {
                let token = self.model.next(row + rows - 1);
                tokens += 1;
                if token == END && !settings.ignores_end {
                    end = Some(End::Text);
                } else {
                    slot.store(&g.thread(), count, token, now_ns());
                    count += 1;
                    end = if count >= settings.most { Some(End::Length) } else { None };
                }
                self.batch.word(sequence, at::COUNT).set(count as u64);
                self.batch.word(sequence, at::LAST).set(token.into());
            }
            let has_news = end.is_some() || position >= prompt;
            self.batch.word(sequence, at::RINGS).set(u64::from(has_news));
            if end.is_some() {
                self.batch.word(sequence, at::NUMBER).set(0);
                ended += 1;
            }
            if has_news {
                // The last access: the next request may use the place from here on.
                slot.publish(Progress { number, count, end });
            }
        });
        self.metrics.add(g, Count::Tokens, g.sum(tokens).into());
        self.metrics.add(g, Count::PromptTokens, g.sum(prompts).into());
        g.sum(ended)
    }

    /// The bell of a sequence that has news, once. By the lane that has taken its token.
    fn bell_to_ring(&self, sequence: usize) -> Option<Bell> {
        let rings = self.batch.word(sequence, at::RINGS);
        if rings.get() == 0 {
            return None;
        }
        rings.set(0);
        Some(Bell::from_raw(self.batch.word(sequence, at::BELL).get()))
    }

    /// Ends all requests of the batch: the model has refused a step.
    fn fail<G: Group>(&self, g: &G) {
        self.each(g, |sequence, number| {
            let count = self.batch.word(sequence, at::COUNT).get() as usize;
            self.batch.word(sequence, at::NUMBER).set(0);
            self.batch.word(sequence, at::RINGS).set(1);
            self.slot(sequence).publish(Progress { number, count, end: Some(End::Failed) });
        });
    }
}

/// Tokens of a request's prompt.
const fn prompt_tokens(settings: Settings) -> usize {
    crate::request::prompt_tokens(settings.prompt)
}
