//! Handles: a C program names an object by a number, which is valid while the object is open.

use crate::failure::Failure;
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The open objects of one kind.
///
/// A handle has the kind in its highest 16 bits, then 24 bits of generation, then 24 bits of slot.
///
/// A child made by fork has a table of its own. The objects in the parent's table remain the
/// parent's, because the parent has the threads that serve them. Also, a lock of the table may have
/// been held at the time of the fork.
pub(crate) struct Table<T> {
    kind: u16,
    what: &'static str,
    /// Null until an object is entered.
    of_process: AtomicPtr<OfProcess<T>>,
}

/// The table of one process, which is never freed.
struct OfProcess<T> {
    /// [`FORKS`] in that process.
    forks: u64,
    slots: RwLock<Slots<T>>,
}

/// The number of forks between the program's first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Counts the forks from now on.
fn count_forks() {
    static BEGUN: Once = Once::new();
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    BEGUN.call_once(|| {
        // SAFETY: the function exists as long as the program, and does only what a child may do
        // before it returns from fork.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        assert_eq!(refused, 0, "no memory for a handler of forks");
    });
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// First in, first out, so that the generations last longest.
    free: VecDeque<usize>,
}

struct Slot<T> {
    generation: u64,
    object: Option<Arc<T>>,
}

const INDEX_BITS: u32 = 24;
const MOST: u64 = (1 << INDEX_BITS) - 1;
const KIND_SHIFT: u32 = 48;

impl<T: 'static> Table<T> {
    /// Makes an empty table. No two tables have the same `kind`; `what` is for messages.
    pub(crate) const fn new(kind: u8, what: &'static str) -> Self {
        Self { kind: 0x6700 | kind as u16, what, of_process: AtomicPtr::new(null_mut()) }
    }

    /// Returns the table that was last used, in this process or in one before a fork.
    fn last(&self) -> Option<&'static OfProcess<T>> {
        // Ordering: Acquire, pairs with the exchange in `ours`.
        let last = self.of_process.load(Ordering::Acquire);
        // SAFETY: null, or a table that is never freed.
        unsafe { last.as_ref() }
    }

    /// Returns this process's table, if an object was ever entered.
    fn existing(&self) -> Option<&'static OfProcess<T>> {
        self.last().filter(|table| table.forks == FORKS.load(Ordering::Relaxed))
    }

    /// This process's table.
    fn ours(&self) -> &'static OfProcess<T> {
        count_forks();
        loop {
            if let Some(table) = self.existing() {
                return table;
            }
            let before = self.last().map_or(null_mut(), |table| std::ptr::from_ref(table).cast_mut());
            let slots = RwLock::new(Slots { slots: Vec::new(), free: VecDeque::new() });
            let fresh = Box::into_raw(Box::new(OfProcess { forks: FORKS.load(Ordering::Relaxed), slots }));
            // Ordering: Release, pairs with the load in `last`.
            let entered =
                self.of_process.compare_exchange(before, fresh, Ordering::Release, Ordering::Relaxed);
            if entered.is_err() {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    /// Enters an object and returns its handle.
    ///
    /// # Errors
    /// ENFILE, when 16 million objects are open.
    pub(crate) fn insert(&self, object: Arc<T>) -> Result<u64, Failure> {
        let ours = self.ours();
        let mut table = ours.write();
        let index = match table.free.pop_front() {
            Some(index) => index,
            None if table.slots.len() as u64 > MOST => {
                return Err(Failure::new(libc::ENFILE, format!("too many open handles of {}s", self.what)));
            }
            None => {
                // No handle of a process before a fork is valid here.
                table.slots.push(Slot { generation: (ours.forks & 0xff) << 16, object: None });
                table.slots.len() - 1
            }
        };
        let slot = &mut table.slots[index];
        slot.object = Some(object);
        Ok(u64::from(self.kind) << KIND_SHIFT | slot.generation << INDEX_BITS | index as u64)
    }

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// EBADF: it is null, of another kind, or closed.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let found = self.place(handle).and_then(|(index, generation)| {
            let table = self.existing()?.read();
            let slot = table.slots.get(index).filter(|slot| slot.generation == generation)?;
            slot.object.clone()
        });
        found.ok_or_else(|| self.bad(handle))
    }

    /// Takes an object out: its handle is stale from now on.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let found = self.place(handle).and_then(|(index, generation)| {
            let mut table = self.existing()?.write();
            let slot = table.slots.get_mut(index).filter(|slot| slot.generation == generation)?;
            let object = slot.object.take()?;
            // A slot that has no generation left is not used again.
            if slot.generation < MOST {
                slot.generation += 1;
                table.free.push_back(index);
            }
            Some(object)
        });
        found.ok_or_else(|| self.bad(handle))
    }

    fn place(&self, handle: u64) -> Option<(usize, u64)> {
        let ours = handle >> KIND_SHIFT == u64::from(self.kind);
        ours.then_some(((handle & MOST) as usize, handle >> INDEX_BITS & MOST))
    }

    fn bad(&self, handle: u64) -> Failure {
        let what = self.what;
        let why = match handle >> KIND_SHIFT {
            0 if handle == 0 => "it is null",
            kind if kind == u64::from(self.kind) && self.existing().is_none() && self.last().is_some() => {
                "it is of the process that this one was forked from"
            }
            kind if kind == u64::from(self.kind) => "it was closed",
            kind if kind >> 8 == 0x67 => "it is of another kind",
            _ => "no call of this library made it",
        };
        Failure::new(libc::EBADF, format!("not the handle of a {what}: {why}"))
    }
}

impl<T> OfProcess<T> {
    // Nothing that is called under the lock panics.
    fn read(&self) -> RwLockReadGuard<'_, Slots<T>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots<T>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Declares the type by which C names handles of a table.
macro_rules! handles {
    ($(#[$doc:meta])* $name:ident, $table:ident: $object:ty, $kind:literal, $what:literal) => {
        pub(crate) static $table: crate::handle::Table<$object> = crate::handle::Table::new($kind, $what);

        impl $name {
            /// Enters an object.
            pub(crate) fn new(object: std::sync::Arc<$object>) -> Result<*mut Self, crate::failure::Failure> {
                $table.insert(object).map(|handle| std::ptr::without_provenance_mut(handle as usize))
            }

            /// Finds the object.
            pub(crate) fn of(
                handle: *const Self,
            ) -> Result<std::sync::Arc<$object>, crate::failure::Failure> {
                $table.get(handle.addr() as u64)
            }

            /// Takes the object out.
            pub(crate) fn take(
                handle: *const Self,
            ) -> Result<std::sync::Arc<$object>, crate::failure::Failure> {
                $table.remove(handle.addr() as u64)
            }
        }
    };
}
pub(crate) use handles;

const _: () = assert!(usize::BITS == 64, "a handle has 64 bits");

#[cfg(test)]
mod tests {
    use super::*;

    fn errno<T>(result: Result<T, Failure>) -> Option<i32> {
        result.err().map(|failure| failure.errno())
    }

    #[test]
    fn a_closed_handle_finds_nothing_ever_again() {
        let table = Table::new(1, "thing");
        let mut stale = Vec::new();
        for round in 0..1000 {
            let handle = table.insert(Arc::new(round)).unwrap();
            assert_eq!(*table.get(handle).unwrap(), round);
            assert_eq!(*table.remove(handle).unwrap(), round);
            assert_eq!(errno(table.remove(handle)), Some(libc::EBADF));
            stale.push(handle);
        }
        let open = table.insert(Arc::new(7)).unwrap();
        assert!(!stale.contains(&open));
        assert!(stale.iter().all(|&handle| errno(table.get(handle)) == Some(libc::EBADF)));
        assert_eq!(table.ours().read().slots.len(), 1);
    }

    #[test]
    fn what_is_no_handle_is_said() {
        let (table, other) = (Table::new(1, "thing"), Table::new(2, "other"));
        let (mine, theirs) = (table.insert(Arc::new(1)).unwrap(), other.insert(Arc::new(2)).unwrap());
        table.remove(mine).unwrap();
        for (handle, why) in [
            (0, "null"),
            (mine, "closed"),
            (theirs, "another kind"),
            (!0, "made it"),
            (0x7fff_1234, "made it"),
            (mine + 1, "closed"),
        ] {
            let failure = table.get(handle).unwrap_err();
            assert!(failure.to_string().contains(why), "{handle:#x}: {failure}");
        }
    }

    #[test]
    fn a_slot_without_generations_is_given_up() {
        let table = Table::new(1, "thing");
        let handle = table.insert(Arc::new(1)).unwrap();
        table.ours().write().slots[0].generation = MOST;
        let last = handle | MOST << INDEX_BITS;
        assert_eq!(*table.remove(last).unwrap(), 1);
        assert_eq!(errno(table.get(last)), Some(libc::EBADF));
        assert_eq!(table.insert(Arc::new(2)).unwrap() & MOST, 1, "another slot");
    }
}
