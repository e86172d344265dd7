//! One scope: the same as between agents.

use crate::sync::word::Word;

/// Publishes `value` to the other threads of this device.
#[inline(always)]
pub fn publish(word: Word, value: u64) {
    word.publish(value);
}

/// Reads the word, and makes what its writer wrote before visible.
#[inline(always)]
#[must_use]
pub fn observe(word: Word) -> u64 {
    word.observe()
}
