//! One scope: the same as between agents.

use crate::Word;

#[inline(always)]
pub(crate) fn publish(word: Word, value: u64) {
    word.publish(value);
}

#[inline(always)]
pub(crate) fn observe(word: Word) -> u64 {
    word.observe()
}
