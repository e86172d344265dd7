//! A bucket that a group has locked, and the entry of one key in it.

use super::entry::Entry;
use super::hold;
use super::{Fresh, Key, Map, NoStructure, Pin, Structure};
use crate::heap::Chunk;
use crate::lock::Lock;
use crate::{Bytes, Context};
use gpunet_device::{Error, Group, Net, Result};

/// A key's bucket, locked until the value is dropped or [`Locked::unlock`] consumes it.
///
/// # Cooperation
/// All lanes call every method, and drop it together.
#[derive(Debug)]
pub struct Locked<'a, G: Group, S: Structure = NoStructure> {
    map: &'a Map<S>,
    g: &'a G,
    net: Net,
    /// The bucket's lock, unless the group holds the bucket for longer than this.
    lock: Option<Lock>,
    bucket: usize,
    /// The entry before it in the bucket.
    previous: Option<Entry>,
    entry: Option<Entry>,
    /// What is to be freed once the bucket is unlocked.
    garbage: Option<Chunk>,
}

impl<'a, G: Group, S: Structure> Locked<'a, G, S> {
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn find(map: &'a Map<S>, g: &'a G, context: &Context, key: &Key<'_>) -> Result<Self> {
        let (mut found, has_expired) = Self::search(map, g, context, key)?;
        if has_expired {
            found.remove();
        }
        Ok(found)
    }

    /// Locks the key's bucket. Returns also whether its entry has expired.
    #[inline(always)]
    pub(super) fn search(
        map: &'a Map<S>,
        g: &'a G,
        context: &Context,
        key: &Key<'_>,
    ) -> Result<(Self, bool)> {
        let hash = map.hash(key);
        let bucket = hash as usize & map.mask;
        let lock = if !key.is_held {
            let lock = map.bucket_lock(bucket);
            lock.acquire(g, context.net)?;
            Some(lock)
        } else if hold::holds(map, g, bucket as u32) {
            // What the lanes did before is there for all.
            g.sync();
            None
        } else {
            return Err(Error::InvalidArgument);
        };
        let mut found =
            Self { map, g, net: context.net, lock, bucket, previous: None, entry: None, garbage: None };
        let (mut at, mut expires) = (map.first(bucket).get(), 0);
        while let Some(chunk) = Chunk::from_raw(at) {
            let entry = Entry::at(map.heap, chunk);
            let head = entry.head();
            if entry.has_key(&head, hash, key) {
                (found.entry, expires) = (Some(entry), head.expires);
                break;
            }
            at = head.next;
            found.previous = Some(entry);
        }
        let has_expired = expires != 0 && expires <= context.now;
        if let Some(entry) = found.entry
            && !has_expired
            && g.is_leader()
        {
            entry.set_used(true);
        }
        Ok((found, has_expired))
    }

    /// The value of the key, if it has one.
    #[must_use]
    pub fn value(&self) -> Option<Bytes<'_>> {
        self.entry.map(Entry::value)
    }

    /// Returns whether the value is a structure; [`Locked::value`] is empty then.
    #[must_use]
    pub fn is_structure(&self) -> bool {
        self.entry.is_some_and(Entry::is_structure)
    }

    /// Returns whether the entry is the one that was pinned.
    #[must_use]
    pub fn is(&self, pin: &Pin) -> bool {
        self.entry.is_some_and(|entry| entry.chunk() == pin.entry)
    }

    /// When the entry expires, in nanoseconds of the device's clock; 0: never, or there is none.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.entry.map_or(0, Entry::expires)
    }

    /// Sets when the entry expires; 0: never.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn set_expires(&mut self, at: u64) {
        // All lanes have read the old one.
        self.g.sync();
        if let Some(entry) = self.entry
            && self.g.is_leader()
        {
            entry.set_expires(at);
        }
        self.g.sync();
    }

    /// Keeps the value from being freed, until [`Map::unpin`].
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn pin(&mut self) -> Option<Pin> {
        let entry = self.entry?;
        if self.g.is_leader() {
            entry.set_pins(entry.pins() + 1);
        }
        self.g.sync();
        Some(Pin { entry: entry.chunk(), len: entry.value().len() })
    }

    /// Replaces the value where it lies, if it fits and nobody has pinned it; the entry expires at
    /// `expires` then, or never if that is 0. Returns whether it did.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn overwrite(&mut self, value: Bytes<'_>, expires: u64) -> bool {
        let Some(entry) = self.entry else { return false };
        entry.pins() == 0 && !entry.is_structure() && entry.write(self.g, self.map.heap, value, expires)
    }

    /// Writes bytes over the value from byte `at` on, where it lies, if there is room, and if
    /// nobody has pinned what they would replace. The value keeps what is behind them, and gets
    /// zeros between its end and `at`. Returns whether they are written.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn write_at(&mut self, at: usize, bytes: Bytes<'_>) -> bool {
        match self.entry {
            Some(entry) if !entry.is_structure() && (entry.pins() == 0 || at >= entry.value().len()) => {
                entry.write_at(self.g, self.map.heap, at, bytes)
            }
            _ => false,
        }
    }

    /// Puts a new entry in the place of the old one, if there is one. It has the key of this
    /// bucket's lock.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn put(&mut self, fresh: Fresh) {
        self.remove();
        let entry = Entry::at(self.map.heap, fresh.entry);
        // All lanes have searched the bucket: one that is late must not find the new entry.
        self.g.sync();
        if self.g.is_leader() {
            entry.set_next(self.map.first(self.bucket).get());
            self.map.first(self.bucket).set(entry.chunk().raw());
            self.map.count(self.g, entry.space(), 1);
        }
        self.g.sync();
        (self.previous, self.entry) = (None, Some(entry));
    }

    /// As [`Locked::put`], of an entry that takes over the value of the old one, if there is one.
    /// The new entry was made with room for it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn put_longer(&mut self, fresh: Fresh) {
        let new = Entry::at(self.map.heap, fresh.entry);
        let old = self.entry.map_or(Bytes::EMPTY, Entry::value);
        // Without the room nothing is written; the callers have seen to it that there is some.
        let _ = new.write_at(self.g, self.map.heap, 0, old);
        self.put(fresh);
    }

    /// Removes the entry. Returns whether there was one.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn remove(&mut self) -> bool {
        let Some(entry) = self.entry.take() else { return false };
        let (next, is_pinned) = (entry.next(), entry.pins() > 0);
        self.g.sync();
        if self.g.is_leader() {
            match self.previous {
                Some(previous) => previous.set_next(next),
                None => self.map.first(self.bucket).set(next),
            }
            entry.set_dead();
            self.map.count(self.g, entry.space(), -1);
        }
        self.g.sync();
        // Whoever has pinned it frees it. One removal is the most that a lock is held for.
        if !is_pinned {
            self.garbage = Some(entry.chunk());
        }
        true
    }

    /// Unlocks the bucket.
    ///
    /// # Errors
    /// As [`Lock::acquire`]: memory could not be given back, because the launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn unlock(self) -> Result<()> {
        self.unlock_inline()
    }

    /// As [`Locked::unlock`], inline: see [`Map::lock_inline`].
    ///
    /// # Errors
    /// As [`Locked::unlock`].
    #[inline(always)]
    pub fn unlock_inline(mut self) -> Result<()> {
        let garbage = self.garbage.take();
        let (map, g, net) = (self.map, self.g, self.net);
        drop(self);
        garbage.map_or(Ok(()), |chunk| map.free_entry(g, net, chunk))
    }
}

impl<G: Group, S: Structure> Drop for Locked<'_, G, S> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn drop(&mut self) {
        match self.lock {
            Some(lock) => lock.release(self.g),
            None => self.g.sync(),
        }
        if let Some(chunk) = self.garbage.take() {
            // It fails only if the launch is over, and then all memory is given back.
            let _ = self.map.free_entry(self.g, self.net, chunk);
        }
    }
}
