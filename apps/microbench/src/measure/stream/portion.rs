//! Rounds that are enqueued together, held back by a word, and timed.

use crate::bench::{Bench, Words};
use crate::outcome::Outcome;
use gpunet_device::now_ns;
use std::time::Duration;

/// The word that holds a portion back. The portion starts once the word has its number, from 1 on.
pub const START: usize = 0;
/// Written before the first round.
pub const BEGUN: usize = 1;
/// Written after the last one.
pub const ENDED: usize = 2;
/// The first word that is free for other uses.
pub const FREE: usize = 3;

/// How portions are timed, by the clock of this program. On a GPU the time is that between its
/// observations of two words that the stream writes, because it is equally late for both. On the
/// CPU device the observing thread may not run at that moment, so the time starts with the release
/// of the first word. The portions are longer there, so that a queue's nap does not matter.
#[derive(Clone, Copy)]
pub struct Timed {
    /// Rounds of a portion. A stream of a GPU takes about a thousand operations.
    pub rounds: u64,
    by_words: bool,
}

impl Timed {
    pub fn of(bench: &Bench) -> Self {
        let by_words = bench.is_gpu();
        Self { rounds: if by_words { 20 } else { 100 }, by_words }
    }

    /// Returns the value for rounds of twice as many operations.
    pub const fn half(self) -> Self {
        Self { rounds: self.rounds / 2, ..self }
    }

    /// Starts a portion. Returns the nanoseconds of a round.
    pub fn round(self, words: &Words, portion: u64, limit: Duration) -> Outcome<u64> {
        let released = now_ns();
        words.here(START).publish(portion);
        let begun = words.wait(BEGUN, portion, limit)?;
        let ended = words.wait(ENDED, portion, limit)?;
        let start = if self.by_words { begun } else { released };
        Ok(ended.saturating_sub(start) / self.rounds)
    }
}
