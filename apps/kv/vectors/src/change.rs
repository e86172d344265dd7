//! Adding vectors to a set, and removing them.

use super::head;
use super::{Storage, Vector, Vectors};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Context, Fresh, Key, Pin};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A vector was added.
    Added,
    /// The vector of that name was replaced.
    Replaced,
    /// The vector was removed; the set has others.
    Removed,
    /// The last vector was removed: the set gets no other, and its key is to be removed.
    Emptied,
    /// The set has no vector of that name.
    NotFound,
    /// The set was emptied before, and its key is to be removed.
    Closed,
    /// There is no memory, even without the entries that could be evicted.
    NoMemory,
}

impl Vectors {
    /// Makes an empty set, which [`gpunet_serve::Locked::put`] puts into the map. `None`: there is
    /// no memory.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[allow(unsafe_code)]
    pub fn fresh_set<G: Group>(
        &self,
        g: &G,
        context: &Context,
        key: Key<'_>,
        dim: usize,
        storage: Storage,
    ) -> Result<Option<Fresh>> {
        // SAFETY: an empty set has no chunks.
        unsafe { self.map.fresh_structure(g, context, key, |root| head::init(root, dim, storage)) }
    }

    /// Adds a vector of the set's dimension, or replaces the one of that name.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn insert<G: Group>(
        &self,
        g: &G,
        context: &Context,
        set: &Pin,
        vector: &Vector,
        name: Bytes<'_>,
    ) -> Result<Change> {
        let writing = self.write(g, context, set)?;
        let head = writing.head;
        if head.is_closed() {
            return Ok(Change::Closed);
        }
        let (names, tiles, count) = (head.names(), head.tiles(), head.count());
        let (index, change) = match names.find(name, self.map.seed()) {
            Some(index) => (index, Change::Replaced),
            None => {
                if count >= u32::MAX as usize - 1
                    || !tiles.reserve(g, context, &self.map, count)?
                    || !names.reserve(g, context, &self.map, count)?
                    || !names.add(g, context, &self.map, count, name)?
                {
                    return Ok(Change::NoMemory);
                }
                (count, Change::Added)
            }
        };
        tiles.store(g, index, self.query(vector.chunk, vector.dim()));
        g.sync();
        if g.is_leader() {
            names.set_norm(index, vector.norm);
            match change {
                Change::Added => head.set_count(count + 1),
                _ => head.count_change(),
            }
        }
        drop(writing);
        Ok(change)
    }

    /// Closes a set if it has no vector, so that its key can be removed. Returns whether it is
    /// closed.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn close_if_empty<G: Group>(&self, g: &G, context: &Context, set: &Pin) -> Result<bool> {
        let writing = self.write(g, context, set)?;
        let head = writing.head;
        let is_empty = head.count() == 0;
        if is_empty && g.is_leader() {
            head.close();
        }
        drop(writing);
        Ok(is_empty)
    }

    /// Removes the vector of a name. The last vector of the set takes its position.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn remove<G: Group>(&self, g: &G, context: &Context, set: &Pin, name: Bytes<'_>) -> Result<Change> {
        let writing = self.write(g, context, set)?;
        let head = writing.head;
        let Some(index) = head.names().find(name, self.map.seed()) else { return Ok(Change::NotFound) };
        let last = head.count() - 1;
        if index != last {
            head.tiles().copy(g, last, index);
        }
        head.names().remove(g, context.net, index, last)?;
        // All lanes have read the count.
        g.sync();
        if g.is_leader() {
            head.set_count(last);
            head.count_change();
            if last == 0 {
                head.close();
            }
        }
        drop(writing);
        Ok(if last == 0 { Change::Emptied } else { Change::Removed })
    }
}
