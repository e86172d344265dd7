//! The shape of the model. `train.py` has the same numbers; the check of the weights compares them.

/// Tokens are bytes.
pub const VOCABULARY: usize = 256;
/// The most tokens of a sequence, its prompt and its answer together. A step beyond is an error
/// ([`StepError::ContextFull`](crate::StepError::ContextFull)).
pub const CONTEXT: usize = 512;
/// Layers, each of attention and of a feed-forward part.
pub const LAYERS: usize = 3;
/// Attention heads of a layer.
pub const HEADS: usize = 4;
/// Numbers of a query, a key or a value of one head.
pub const HEAD_WIDTH: usize = 32;
/// Numbers that pass from layer to layer for each token.
pub const WIDTH: usize = HEADS * HEAD_WIDTH;
/// Numbers between the two matrices of a feed-forward part.
pub const HIDDEN: usize = 3 * WIDTH;
/// The most rows of a step: [`Cache::bytes`](crate::Cache::bytes).
pub const MAX_ROWS: usize = 512;

/// The token that ends a text. In front of a prompt it says that a text begins.
pub const END: u8 = 0;
/// What stands in front of what a user says. The model has learnt texts of the form
/// `User: ...\nAssistant: ...\n`, and single sentences.
pub const USER: &[u8] = b"User: ";
/// What stands in front of the answer; the answer ends with [`END`] or a line break.
pub const ASSISTANT: &[u8] = b"Assistant: ";

/// The factor of the cosine of query and key in an attention score.
pub(crate) const SCORE_SCALE: f32 = 8.0;
/// What is added to the mean square of a row before its root is divided by.
pub(crate) const EPSILON: f32 = 1.0 / 65_536.0;
/// What a score loses for each position between query and key: `SLOPES[head]`.
pub(crate) const SLOPES: [f32; HEADS] = [0.25, 1.0 / 16.0, 1.0 / 64.0, 1.0 / 256.0];
