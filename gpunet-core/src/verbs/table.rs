//! The table of buffer descriptors that the peer's network card writes.

use gpunet_stream::rc::Sge;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A page of host memory: [`Table::ENTRIES`] descriptors, then message slots of 4 bytes for iWARP.
///
/// It is written by a network card, so it is only ever read through atomics.
#[derive(Debug)]
pub struct Table {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory, accessed through atomics only.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Descriptors in a table.
    pub const ENTRIES: usize = 2;
    /// Bytes that the peer may write: the descriptors. The message slots behind them are for the
    /// local card.
    pub const BYTES: usize = Self::ENTRIES * size_of::<Sge>();

    /// A table, all zero, with room for that many message slots.
    #[must_use]
    pub fn new(message_slots: usize) -> Self {
        let len = Self::BYTES + message_slots * 4;
        // Page-aligned, so that no other allocation shares the registered page.
        let layout = Layout::from_size_align(len.next_multiple_of(4096), 4096).expect("a small table");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, layout }
    }

    /// Address of the first descriptor.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Zeroes it, for the next connection.
    pub fn clear(&self) {
        for at in (0..self.layout.size()).step_by(4) {
            self.word(at).store(0, Ordering::Relaxed);
        }
    }

    /// Takes the descriptor at `index` out, if the peer has written one.
    ///
    /// The peer writes this entry again only after it has received every byte of the buffer named
    /// here; so clearing it now, before the first of those bytes is sent, cannot lose a later one.
    ///
    /// # Panics
    /// When `index` is out of range.
    #[must_use]
    pub fn take(&self, index: usize) -> Option<Sge> {
        assert!(index < Self::ENTRIES, "no such descriptor");
        let at = index * size_of::<Sge>();
        // Ordering: Acquire, pairs with the card's write of the 16 bytes, of which the length comes
        // last. Besides, the caller looks only after the message that came with it.
        let len = self.word(at + 12).load(Ordering::Acquire);
        if len == 0 {
            return None;
        }
        let rkey = self.word(at + 8).load(Ordering::Relaxed);
        // SAFETY: inside the table (index checked), 8-byte aligned; accessed atomically by the CPU.
        let address = unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) };
        let address = address.load(Ordering::Relaxed);
        self.word(at + 12).store(0, Ordering::Relaxed);
        Some(Sge { address, rkey, len })
    }

    /// The message in iWARP's slot `slot`.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn message(&self, slot: usize) -> u32 {
        // Ordering: Relaxed; the completion that named the slot orders it.
        self.word(Self::BYTES + slot * 4).load(Ordering::Relaxed)
    }

    /// Offset of iWARP's message slot `slot`.
    #[must_use]
    pub const fn message_offset(slot: usize) -> usize {
        Self::BYTES + slot * 4
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.layout.size(), "outside the table");
        // SAFETY: inside the allocation (checked), 4-byte aligned by the callers' arithmetic, and
        // the CPU accesses it by atomics only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_taken_once() {
        let table = Table::new(3);
        assert_eq!(table.take(1), None);
        let sge = Sge { address: 0x1234_5678_9abc, rkey: 7, len: 4096 };
        // SAFETY: 16 bytes inside the table, which no other thread uses.
        unsafe {
            std::ptr::copy_nonoverlapping(sge.to_bytes().as_ptr(), (table.address() + 16) as *mut u8, 16)
        };
        assert_eq!(table.take(1), Some(sge));
        assert_eq!(table.take(1), None);
        assert_eq!(table.take(0), None);
    }
}
