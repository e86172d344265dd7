//! The table of an attachment's socket slots.

use super::tables::{Role, Slot};
use std::ops::{Index, IndexMut};

/// Slots that are made together.
const CHUNK: usize = 64;

/// All slots of an attachment. Only those exist that were used, and their neighbours: an attachment may ask for many and use
/// few, and what it asks for costs nothing.
pub(super) struct Slots {
    chunks: Vec<Option<Box<[Slot; CHUNK]>>>,
    len: usize,
    /// What a slot is that does not exist.
    unused: Slot,
}

impl Slots {
    /// So many slots that were never used.
    pub(super) fn new(len: usize) -> Self {
        let chunks = std::iter::repeat_with(|| None).take(len.div_ceil(CHUNK)).collect();
        Self { chunks, len, unused: Slot::default() }
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// A slot, if there is one of that number.
    pub(super) fn get(&self, slot: usize) -> Option<&Slot> {
        let chunk = if slot < self.len { self.chunks.get(slot / CHUNK)? } else { return None };
        Some(chunk.as_ref().map_or(&self.unused, |chunk| &chunk[slot % CHUNK]))
    }

    /// A slot to be changed, if there is one of that number.
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Slot> {
        let chunk = if slot < self.len { self.chunks.get_mut(slot / CHUNK)? } else { return None };
        let fresh = || Box::new(std::array::from_fn(|_| Slot::default()));
        Some(&mut chunk.get_or_insert_with(fresh)[slot % CHUNK])
    }

    /// Those that exist, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.iter_from(0)
    }

    /// Those that exist from the neighbours of that one on, with their numbers.
    pub(super) fn iter_from(&self, slot: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let chunks = self.chunks.iter().enumerate().skip(slot as usize / CHUNK);
        chunks.filter_map(|(at, chunk)| Some((at, chunk.as_ref()?))).flat_map(|(at, chunk)| {
            let first = (at * CHUNK) as u32;
            (first..).zip(chunk.iter())
        })
    }

    /// Those that exist, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.chunks.iter_mut().flatten().flat_map(|chunk| chunk.iter_mut())
    }

    /// The numbers of those in use.
    pub(super) fn used(&self) -> impl Iterator<Item = u32> {
        self.iter().filter(|(_, entry)| !matches!(entry.role, Role::Free)).map(|(slot, _)| slot)
    }
}

impl Index<usize> for Slots {
    type Output = Slot;

    fn index(&self, slot: usize) -> &Slot {
        self.get(slot).expect("a slot of this attachment")
    }
}

impl IndexMut<usize> for Slots {
    fn index_mut(&mut self, slot: usize) -> &mut Slot {
        self.get_mut(slot).expect("a slot of this attachment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_exist_once_they_are_used() {
        let mut slots = Slots::new(65_000);
        assert_eq!((slots.len(), slots.iter().count()), (65_000, 0));
        assert_eq!((slots[64_999].generation, slots.iter().count()), (0, 0));
        assert!(slots.get(65_000).is_none() && slots.get_mut(65_000).is_none());
        slots[64_999].generation = 7;
        slots[3].role = Role::Opening;
        assert_eq!((slots[64_999].generation, slots[64_998].generation), (7, 0));
        assert_eq!(slots.used().collect::<Vec<_>>(), [3]);
        assert_eq!(slots.iter().find(|(_, entry)| entry.generation == 7).map(|(slot, _)| slot), Some(64_999));
        assert_eq!(slots.iter_mut().count(), slots.iter().count());
        assert!(slots.iter().count() <= 2 * CHUNK);
        assert!(slots.iter_from(64_999).all(|(slot, _)| slot >= 64_000));
        assert_eq!(slots.iter_from(0).count(), slots.iter().count());
    }
}
