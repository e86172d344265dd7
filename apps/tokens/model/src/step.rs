//! What a step is asked to do, and what can be wrong with it.

/// The number of a sequence in a [`Cache`](crate::Cache), from 0 and below the cache's number of
/// sequences. The caller gives them out; a sequence that begins again at position 0 is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SequenceId(pub u32);

/// How the next token is chosen.
///
/// The choice depends on the logits, the seed and the position alone: not on what else is in the
/// batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// What logits are divided by before a token is drawn. Below [`Sampling::MIN_TEMPERATURE`], or
    /// if it is no number: always the most likely token, of equally likely ones the lowest.
    pub temperature: f32,
    /// Where the random numbers of the sequence come from.
    pub seed: u64,
}

impl Sampling {
    /// The lowest temperature at which a token is drawn.
    pub const MIN_TEMPERATURE: f32 = 1.0 / 1024.0;

    /// Always the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, seed: 0 };
}

/// One row of a step: one token of one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Whose token it is.
    pub sequence: SequenceId,
    /// The token.
    pub token: u8,
    /// Its place in the sequence: 0 begins a new sequence, and each token comes one after the last.
    pub position: u32,
    /// How the token after it is chosen.
    pub sampling: Sampling,
}

/// A step that was refused. Nothing has happened; the cache is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepError {
    /// It has no row, or more than the cache has room for.
    Rows,
    /// A row is of a sequence for which the cache has no memory.
    UnknownSequence,
    /// A row has a position of [`CONTEXT`](crate::CONTEXT) or more: the sequence is as long as it
    /// can be.
    ContextFull,
    /// A row is not its sequence's next one: a position is left out, is repeated, or the rows of
    /// one sequence do not stand together.
    OutOfOrder,
}

impl core::fmt::Display for StepError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Rows => "a step has at least one row, and at most as many as its cache was made for",
            Self::UnknownSequence => "the sequence number is not below the cache's number of sequences",
            Self::ContextFull => "the sequence is at its longest: begin a new one at position 0",
            Self::OutOfOrder => "the position is not the next of its sequence",
        })
    }
}

impl core::error::Error for StepError {}
