//! The words of a direction: its own position, and the other end's.

use super::hold::{Hold, half_at};
use super::message::DirectionOutcome;
use crate::socket::DirectionError;
use gpunet_abi::entry::{Entry, HalfEntry};
use gpunet_abi::position::StreamWord;
use gpunet_abi::{Direction, Word};
use std::mem::offset_of;

impl Hold {
    /// Bytes that were published, or consumed, so far, as the device's table says.
    pub(super) fn position_in_table(&self) -> Result<u64, DirectionError> {
        let at = half_at(self.direction) + offset_of!(HalfEntry, position);
        let word =
            self.inner.shared.table.entry_word(self.inner.handle, at).map_err(DirectionError::Memory)?;
        Ok(StreamWord(word).position())
    }

    /// Bytes that were published, or consumed, so far.
    pub(super) fn position(&self) -> Result<u64, DirectionError> {
        match self.pinned_own() {
            // The same without a call of the driver: triggers publish what they store in the table.
            Some(word) => Ok(StreamWord::read(word.observe()).position()),
            None => self.position_in_table(),
        }
    }

    /// The addresses, for the device, of the words in its table that say how far the direction is
    /// published. A publisher stores them before it publishes.
    pub(crate) fn table_words(&self) -> [Option<u64>; 2] {
        let entry = self.inner.shared.table.entry_address(self.inner.handle);
        let position = entry + (half_at(self.direction) + offset_of!(HalfEntry, position)) as u64;
        let announced = entry + offset_of!(Entry, announced) as u64;
        [Some(position), (self.direction == Direction::Recv).then_some(announced)]
    }

    /// The other end's word of this direction, if the CPU can reach it: the proxy writes it.
    pub(crate) fn pinned_other(&self) -> Option<Word> {
        let (memory, slot) = (&self.inner.shared.memory, self.inner.handle.slot());
        self.inner.data_thread.map(|_| match self.direction {
            Direction::Send => memory.released(slot),
            Direction::Recv => memory.landed(slot),
        })
    }

    /// The word that publishes this direction, if the CPU can reach it: the proxy reads it.
    pub(crate) fn pinned_own(&self) -> Option<Word> {
        let (memory, slot) = (&self.inner.shared.memory, self.inner.handle.slot() as usize);
        self.inner.data_thread.map(|_| match self.direction {
            Direction::Send => memory.published_words().get(slot),
            Direction::Recv => memory.consumed_words().get(slot),
        })
    }

    /// The other end's word of this direction.
    pub(crate) fn other(&self) -> Result<StreamWord, DirectionError> {
        if let Some(word) = self.pinned_other() {
            return Ok(StreamWord::read(word.observe()));
        }
        let (shared, handle) = (&self.inner.shared, self.inner.handle);
        if let Some(word) = shared.table.word_of(self.half.theirs).map_err(DirectionError::Memory)? {
            return Ok(StreamWord::read(word));
        }
        // In an arena: as a kernel believed it last.
        let at = half_at(self.direction) + offset_of!(HalfEntry, seen);
        Ok(StreamWord(shared.table.entry_word(handle, at).map_err(DirectionError::Memory)?))
    }

    pub(super) fn outcome(&self) -> Result<DirectionOutcome, DirectionError> {
        // Before the word: what landed, or was released, before the status was set counts.
        let end = self.end();
        let word = self.other()?;
        let error = end.or_else(|| word.end().then(|| self.ended()));
        Ok(DirectionOutcome { position: word.position(), error })
    }
}
