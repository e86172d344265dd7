//! Connections that the proxy has accepted ahead, in slots that groups of this device have prepared.
//!
//! The queue of a listener lies in its entry ([`gpunet_abi::accept`]). Any group takes from it, without a request.
//! A group that has accepted a connection prepares slots when few are left, and waits for no answer.

use crate::guard::WaitGuard;
use crate::request::{self, Claim};
use crate::slots::{self, Caller};
use crate::timeout::Deadline;
use crate::{Net, plain, platform, table};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use gpunet_abi::accept::{AcceptQueue, PREPARED, TakenWord, prepared_of};
use gpunet_abi::control::Op;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::options::TransportKind;
use gpunet_abi::recycle::{self, SlotRing};
use gpunet_abi::{Error, Handle, Options, Result};

/// How long a close waits for a group that prepares slots, which takes some microseconds.
const PREPARE_LIMIT_NS: u64 = 1_000_000_000;

/// The queue of one listener.
#[derive(Clone, Copy)]
struct Queue {
    net: Net,
    listener: Handle,
}

impl Queue {
    fn at(&self) -> *mut AcceptQueue {
        self.net.accept_queue(self.listener.slot())
    }

    fn taken_word<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: an aligned word of the entry, in device memory; only this device's threads touch it, atomically while
        // it is a listener's.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.at()).taken) }
    }

    fn prepared_word<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.at()).prepared) }
    }

    fn lock_word<'a>(&self) -> &'a AtomicU32 {
        // SAFETY: an aligned word of the entry, which nothing else uses; as above.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.net.entry(self.listener.slot())).prepare_lock) }
    }

    fn cell_word<'a>(&self, position: u64) -> &'a AtomicI32 {
        // SAFETY: the address of a field.
        let cells = unsafe { &raw mut (*self.at()).cells }.cast::<i32>();
        // SAFETY: one of the cells; as above.
        unsafe { AtomicI32::from_ptr(cells.wrapping_add(position as usize % PREPARED)) }
    }

    fn load(&self) -> TakenWord {
        // Ordering: Relaxed; an exchange decides.
        TakenWord(self.taken_word().load(Ordering::Relaxed))
    }

    fn exchange(&self, from: TakenWord, to: TakenWord) -> core::result::Result<(), TakenWord> {
        // Ordering: AcqRel among this device's threads: the cell is read before (release), and who prepares writes it
        // again only after it has seen the exchange (acquire).
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

    // Pairs with the publish in the proxy's `hand_over`: the descriptors below it are visible, and the cells, which were
    // written before the request that named their slots.
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
    // Ordering: Relaxed; made visible by the slot's state. Late groups of the slot's last listener only compare.
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

/// Takes the connection that was accepted first and enters it in the table; `None` if there is none. By one lane.
///
/// # Errors
/// Protocol, when the proxy's descriptor is invalid.
#[inline(never)]
pub(crate) fn take(net: Net, listener: Handle, options: &Options, caller: Caller) -> Result<Option<Handle>> {
    let queue = Queue { net, listener };
    while let Some(raw) = recycle::take(&queue) {
        let Some(handle) = Handle::from_raw(raw as i32) else { return Err(Error::Protocol) };
        // The proxy may have closed it with its listener, for a launch that has ended.
        if !slots::take_over(net, handle) {
            continue;
        }
        // Read by the proxy when this launch has ended.
        net.taker(handle.slot()).set(u64::from(net.context().launch) + 1);
        table::set_options(net, handle, options);
        // SAFETY: inside the region; the proxy wrote it before it counted the connection, and leaves it alone until the
        // socket is closed.
        let descriptor = unsafe { plain::load(net.accepted(handle.slot())) };
        match table::open(net, handle, &descriptor, caller.id(net)) {
            Ok(()) => return Ok(Some(handle)),
            Err(Error::BadHandle) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Prepares slots for a listener if few are left, unless another group does. By one lane that has accepted a connection.
#[inline(never)]
pub(crate) fn prepare(net: Net, listener: Handle, options: &Options) {
    let queue = Queue { net, listener };
    let most = u64::from(prepared_of(net.context().sockets));
    // Ordering: Relaxed; a hint.
    let left = queue.prepared_word().load(Ordering::Relaxed).saturating_sub(queue.load().position());
    if left > most / 2 || left == most || options.transport == TransportKind::Peer as u8 {
        return;
    }
    let (lock, holder) = (queue.lock_word(), listener.generation());
    // Ordering: Acquire, pairs with the Release below in another group: what it prepared.
    if lock.compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    hand_off::at(HandOff::Locked);
    // Ordering: SeqCst, pairs with the fence in `close`: this group finds the queue closed, or the close finds the lock
    // taken.
    fence(Ordering::SeqCst);
    prepare_locked(&queue, most, options);
    // Not a store: the slot may be another socket's by now, if the queue was closed before.
    // Ordering: Release, pairs with the Acquire above, and with that of a close.
    let _ = lock.compare_exchange(holder, 0, Ordering::Release, Ordering::Relaxed);
    hand_off::at(HandOff::Locked);
}

fn prepare_locked(queue: &Queue, most: u64, options: &Options) {
    let (net, listener) = (queue.net, queue.listener);
    // If it is open now, the entry stays the listener's until this group gives the lock back: a close waits for that.
    let Some(taken) = queue.load().open(listener.generation()) else { return };
    // Ordering: Relaxed; changed under the lock.
    let first = queue.prepared_word().load(Ordering::Relaxed);
    let room = most.saturating_sub(first.saturating_sub(taken));
    let Ok(claim) = Claim::for_opening(net, listener.slot(), false, Deadline::NEVER) else { return };
    let mut request = request::new(net, Op::Prepare, listener);
    let count = match request.slots.get_mut(..room as usize) {
        Some(room) => slots::take_prepared(net, options, room),
        None => 0,
    };
    if count == 0 {
        return claim.release();
    }
    for (position, handle) in (first..).zip(request.slots).take(count) {
        // Ordering: Relaxed; made visible by the request. The cell's last reader has advanced `taken` since.
        queue.cell_word(position).store(handle, Ordering::Relaxed);
    }
    request.value = first;
    queue.prepared_word().store(first + count as u64, Ordering::Relaxed);
    claim.post_and_leave(&request, listener);
}

/// Closes the queue of a listener whose handle has died; returns how many connections were taken. By one lane.
///
/// # Errors
/// TimedOut or NetworkDown, when a group that prepares slots does not come to an end.
#[inline(never)]
pub(crate) fn close(net: Net, listener: Handle) -> Result<u64> {
    let queue = Queue { net, listener };
    let mut word = queue.load();
    while let Err(now) = queue.exchange(word, word.closed()) {
        word = now;
    }
    hand_off::at(HandOff::StateChanged);
    // Ordering: SeqCst, pairs with the fence in `prepare`.
    fence(Ordering::SeqCst);
    let mut guard = WaitGuard::new(net, Deadline::after(PREPARE_LIMIT_NS)).ignoring_cancel(true);
    // Ordering: Acquire, pairs with the Release of the group that prepared: it writes nothing here afterwards.
    while queue.lock_word().load(Ordering::Acquire) != 0 {
        guard.check()?;
        platform::back_off();
    }
    Ok(word.position())
}
