//! The lists of poll groups, as the proxy writes them.
//!
//! A thread that has changed what a poller may wait for calls
//! [`super::SharedMemory::tell_pollers`], which pushes the socket to the list of the group that
//! watches it. Each data thread has a list of its own (while there are few), so its lock is free
//! but when the group is being closed.

use super::SharedMemory;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::poll_group::{
    LISTS, ListHeader, ReadyEntry, WatchWord, cells_for, list_bytes, list_of, lists_for,
};
use gpunet_abi::{Handle, Word};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The poll groups of one attachment.
#[derive(Debug, Default)]
pub(super) struct PollGroups {
    /// A group was made at some time.
    any: AtomicBool,
    /// By slot.
    groups: RwLock<BTreeMap<u32, Arc<Group>>>,
    /// By slot of a socket: the watch word for which an entry was pushed last.
    pushed: OnceLock<Box<[AtomicU64]>>,
}

/// One group.
#[derive(Debug)]
struct Group {
    generation: u32,
    /// Where its lists begin in the shared region.
    at: u64,
    cells: u64,
    /// Entries pushed to each list; `None` once the group is closed, whose memory is another's.
    lists: [Mutex<Option<u64>>; LISTS],
}

/// Where the lists of a group lie.
#[derive(Clone, Copy, Debug)]
pub struct GroupLists {
    /// How many there are.
    pub lists: usize,
    /// Cells of each.
    pub cells: u64,
}

impl GroupLists {
    /// The lists of a group of up to `capacity` sockets.
    #[must_use]
    pub const fn new(threads: u32, capacity: u32) -> Self {
        Self { lists: lists_for(threads), cells: cells_for(capacity) }
    }

    /// Bytes that they take.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        list_bytes(self.lists, self.cells)
    }
}

impl SharedMemory {
    /// Begins the lists of a group in unused memory at offset `at`, before its device learns of the
    /// group.
    pub fn open_group(&self, group: Handle, at: u64, lists: GroupLists) {
        assert!(at >= self.layout.rings && at + lists.bytes() <= self.layout.len, "lists outside the region");
        for index in 0..size_of::<ListHeader>() as u64 / 8 {
            self.word(at + index * 8).set(0);
        }
        let entry = Group {
            generation: group.generation(),
            at,
            cells: lists.cells,
            lists: std::array::from_fn(|list| Mutex::new((list < lists.lists).then_some(0))),
        };
        let groups = &self.groups;
        groups.pushed.get_or_init(|| (0..self.geometry.slots()).map(|_| AtomicU64::new(0)).collect());
        groups.groups.write().unwrap_or_else(PoisonError::into_inner).insert(group.slot(), Arc::new(entry));
        // Ordering: Release, pairs with the Acquire in `push_change`: the table above.
        groups.any.store(true, Ordering::Release);
    }

    /// Ends the lists of a group: no thread writes them afterwards.
    pub fn close_group(&self, group: Handle) {
        let mut groups = self.groups.groups.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = groups.get(&group.slot()) else { return };
        if entry.generation != group.generation() {
            return;
        }
        for list in &entry.lists {
            *list.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        groups.remove(&group.slot());
    }

    /// Pushes a socket that has changed to the list of the group that watches it, unless that was
    /// done for the same arm. `thread` is the data thread that calls, `None` another thread.
    /// Returns the group if it pushed an entry.
    ///
    /// The caller has passed a full fence after it published what has changed.
    pub(super) fn push_change(&self, slot: u32, thread: Option<usize>) -> Option<Handle> {
        let groups = &self.groups;
        // Ordering: Acquire, pairs with the Release in `open_group`. A device arms its first socket
        // after the group was made, and passes a fence before it looks: if it has missed the
        // change, its store of `any` is seen here (module `poll_group` of the ABI).
        if !groups.any.load(Ordering::Acquire) || slot >= self.geometry.slots() {
            return None;
        }
        // Pairs with the device's publish in `arm`: the socket's state, for the block that claims
        // the entry.
        let watch = WatchWord(self.watch(slot).observe());
        let group = watch.group()?;
        hand_off::at(HandOff::WatchRead);
        // One thread pushes for each arm, whichever has changed something first.
        // Ordering: AcqRel, pairs with itself in the other threads.
        let is_new = groups
            .pushed
            .get()
            .is_some_and(|pushed| pushed[slot as usize].swap(watch.0, Ordering::AcqRel) != watch.0);
        if !is_new {
            return None;
        }
        let entry = {
            let table = groups.groups.read().unwrap_or_else(PoisonError::into_inner);
            table.get(&group.slot()).filter(|entry| entry.generation == group.generation()).cloned()
        };
        entry.filter(|entry| self.push(entry, watch.entry(slot), thread)).map(|_| group)
    }

    fn push(&self, group: &Group, entry: ReadyEntry, thread: Option<usize>) -> bool {
        let lists = group.lists.len().min(lists_for(self.geometry.shards));
        let list = thread.map_or(lists - 1, |thread| list_of(thread, lists));
        let mut pushed = group.lists[list].lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = &mut *pushed else { return false };
        let cells = group.at + size_of::<ListHeader>() as u64 + list as u64 * group.cells * 8;
        // Made visible by the publish of the count.
        self.word(cells + *count % group.cells * 8).set(entry.0);
        *count += 1;
        self.word(group.at + (offset_of!(ListHeader, pushed) + list * 8) as u64).publish(*count);
        let changes = self.word(group.at + offset_of!(ListHeader, changes) as u64);
        // SAFETY: aligned and mapped as `word` says. The threads of the proxy alone change it, so a
        // read-modify-write is sound; a device only loads it.
        let changes = unsafe { AtomicU64::from_ptr(changes.as_ptr()) };
        // Ordering: Release, pairs with the Acquire load of a waiting block, which looks at the
        // counts then.
        changes.fetch_add(1, Ordering::Release);
        true
    }

    /// The word in which the device says which group watches a socket.
    #[must_use]
    pub fn watch(&self, slot: u32) -> Word {
        assert!(slot < self.geometry.slots(), "slot out of range");
        self.word(self.layout.watches + u64::from(slot) * 8)
    }

    /// A full fence between what a thread has published and its look at what a device waits for.
    pub(super) fn publish_fence() {
        fence(Ordering::SeqCst);
    }
}
