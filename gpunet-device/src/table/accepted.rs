//! The queue of connections that the proxy has accepted ahead for a listener, in slots that groups
//! of this device have prepared.
//!
//! It lies in the listener's entry ([`gpunet_abi::accept`]).

use crate::Net;
use gpunet_abi::Handle;
use gpunet_abi::accept::{AcceptQueue, PREPARED, TakenWord};
use gpunet_abi::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use gpunet_abi::recycle::SlotRing;

/// The queue of one listener.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) net: Net,
    pub(crate) listener: Handle,
}

impl Queue {
    fn at(&self) -> *mut AcceptQueue {
        self.net.accept_queue(self.listener.slot())
    }

    fn taken_word<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: an aligned word of the entry, in device memory; only this device's threads touch
        // it, atomically while it is a listener's.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.at()).taken) }
    }

    /// How many slots were prepared for it.
    pub(crate) fn prepared_word<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.at()).prepared) }
    }

    /// Which listener a group prepares slots for: its generation; 0 for none.
    pub(crate) fn lock_word<'a>(&self) -> &'a AtomicU32 {
        // SAFETY: an aligned word of the entry, which nothing else uses; as above.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.net.entry(self.listener.slot())).prepare_lock) }
    }

    /// The cell that has the handle of a prepared slot.
    pub(crate) fn cell_word<'a>(&self, position: u64) -> &'a AtomicI32 {
        // SAFETY: the address of a field.
        let cells = unsafe { &raw mut (*self.at()).cells }.cast::<i32>();
        // SAFETY: one of the cells; as above.
        unsafe { AtomicI32::from_ptr(cells.wrapping_add(position as usize % PREPARED)) }
    }

    /// How many connections were taken, and for which listener.
    pub(crate) fn load(&self) -> TakenWord {
        // Ordering: Relaxed; an exchange decides.
        TakenWord(self.taken_word().load(Ordering::Relaxed))
    }

    /// Changes that word from one value to another.
    pub(crate) fn exchange(&self, from: TakenWord, to: TakenWord) -> core::result::Result<(), TakenWord> {
        // Ordering: AcqRel among this device's threads: the cell is read before (release), and who
        // prepares writes it again only after it has seen the exchange (acquire).
        let exchanged = self.taken_word().compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        exchanged.map(|_| ()).map_err(TakenWord)
    }

    /// The position as a ticket: beyond every other if the listener is closed.
    fn ticket(&self, word: TakenWord) -> u64 {
        word.open(self.listener.generation()).unwrap_or(u64::MAX)
    }
}

impl SlotRing for Queue {
    fn taken(&self) -> u64 {
        self.ticket(self.load())
    }

    fn advance(&self, ticket: u64, count: u64) -> core::result::Result<(), u64> {
        let word = |position| TakenWord::new(self.listener.generation(), position);
        self.exchange(word(ticket), word(ticket + count)).map_err(|now| self.ticket(now))
    }

    // Pairs with the publish in the proxy's `hand_over`: the descriptors below it are visible, and
    // the cells, which were written before the request that named their slots.
    fn reclaimed(&self) -> u64 {
        self.net.accepted_ahead(self.listener.slot()).observe()
    }

    // Ordering: Relaxed, made visible by `reclaimed`.
    fn cell(&self, position: u64) -> u32 {
        self.cell_word(position).load(Ordering::Relaxed) as u32
    }
}

/// Begins the queue of a slot that was just taken, which may become a listener. By who took it.
pub(crate) fn reset(net: Net, handle: Handle) {
    let queue = Queue { net, listener: handle };
    // Ordering: Relaxed; made visible by the slot's state. Late groups of the slot's last listener
    // only compare.
    queue.taken_word().store(TakenWord::new(handle.generation(), 0).0, Ordering::Relaxed);
}

/// How many connections that were accepted ahead this device has taken from a listener.
pub(crate) fn taken(net: Net, listener: Handle) -> u64 {
    Queue { net, listener }.load().position()
}

/// Returns whether a connection was accepted ahead that no group has taken.
pub(crate) fn has_untaken(net: Net, listener: Handle) -> bool {
    let queue = Queue { net, listener };
    queue.reclaimed() > queue.taken()
}
