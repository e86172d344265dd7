//! Taking connections that the proxy has accepted ahead, and preparing slots for more.
//!
//! Any group takes from the queue of a listener, without a request. A group that has accepted a
//! connection prepares slots when few are left, and waits for no answer. The queue's words are in
//! `accepted`.

use crate::memory::plain;
use crate::socket::request::{self, Claim};
use crate::table::accepted::Queue;
use crate::table::slots::{self, Caller};
use crate::table::{entry, free_slots};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Net, platform};
use gpunet_abi::accept::prepared_of;
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::control::Op;
use gpunet_abi::entry::Kind;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::options::TransportKind;
use gpunet_abi::recycle;
use gpunet_abi::{Error, Handle, Options, Result};

/// How long a close waits for a group that prepares slots, which takes some microseconds.
const PREPARE_LIMIT_NS: u64 = 1_000_000_000;

/// Takes the connection that was accepted first and enters it in the table; `None` if there is
/// none. By one lane.
///
/// # Errors
/// Protocol, when the proxy's descriptor is invalid.
#[inline(never)]
pub(crate) fn take(net: Net, listener: Handle, options: &Options, caller: Caller) -> Result<Option<Handle>> {
    let queue = Queue { net, listener };
    while let Some(raw) = recycle::take(&queue) {
        let Some(handle) = Handle::from_raw(raw as i32) else { return Err(Error::Protocol) };
        if handle.slot() >= net.context().slots {
            return Err(Error::Protocol);
        }
        // SAFETY: inside the region; the proxy wrote it before it counted the connection, and
        // leaves it alone until the socket is closed: then the slot is not taken over.
        let descriptor = unsafe { plain::load_published(net.accepted(handle.slot())) };
        // The proxy has refused the slot, which is free. Or it has closed the connection with its
        // listener, for a launch that has ended.
        if descriptor.is_refused() || !slots::take_over(net, handle) {
            continue;
        }
        // Read by the proxy when this launch has ended.
        net.taker(handle.slot()).set(u64::from(net.context().launch) + 1);
        entry::set_options(net, handle, options);
        match entry::open(net, handle, &descriptor, caller.id(net)) {
            Ok(()) => return Ok(Some(handle)),
            Err(Error::BadHandle) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Prepares slots for a listener if few are left, unless another group does. By one lane that has
/// accepted a connection.
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
    // Ordering: SeqCst, pairs with the fence in `close`: if the lock is the next socket's by now,
    // this group finds the queue closed.
    fence(Ordering::SeqCst);
    prepare_locked(&queue, most, options);
    // Not a store: the slot may be another socket's by now, if the queue was closed before.
    // Ordering: Release, pairs with the Acquire above, and with that of a close.
    let _ = lock.compare_exchange(holder, 0, Ordering::Release, Ordering::Relaxed);
    hand_off::at(HandOff::Locked);
}

fn prepare_locked(queue: &Queue, most: u64, options: &Options) {
    let (net, listener) = (queue.net, queue.listener);
    // If it is open now, the entry stays the listener's until this group gives the lock back: a
    // close waits for that.
    let Some(taken) = queue.load().open(listener.generation()) else { return };
    // Ordering: Relaxed; changed under the lock.
    let first = queue.prepared_word().load(Ordering::Relaxed);
    let room = most.saturating_sub(first.saturating_sub(taken));
    let Ok(claim) = Claim::for_opening(net, listener.slot(), false, Deadline::NEVER) else { return };
    let mut request = request::new(net, Op::Prepare, listener);
    let count = match request.slots.get_mut(..room as usize) {
        Some(room) => free_slots::take_prepared(net, options, room),
        None => 0,
    };
    if count == 0 {
        return claim.release();
    }
    for (position, handle) in (first..).zip(request.slots).take(count) {
        // Ordering: Relaxed; made visible by the request. The cell's last reader has advanced
        // `taken` since.
        queue.cell_word(position).store(handle, Ordering::Relaxed);
    }
    request.value = first;
    queue.prepared_word().store(first + count as u64, Ordering::Relaxed);
    claim.post_and_leave(&request, listener);
}

/// Ends the state of a listener, once no group prepares slots for it: its closer has the lock from
/// then on. By one lane. If it fails, the listener is as it was.
///
/// # Errors
/// BadHandle when another group has closed it; TimedOut or NetworkDown, when a group that prepares
/// slots does not come to an end.
#[inline(never)]
pub(crate) fn retire(net: Net, listener: Handle) -> Result<()> {
    let (lock, holder) = (Queue { net, listener }.lock_word(), listener.generation());
    let mut guard = WaitGuard::new(net, Deadline::after(PREPARE_LIMIT_NS)).ignoring_cancel(true);
    // Ordering: Acquire, pairs with the Release of the group that prepared: it writes nothing here
    // afterwards.
    while lock.compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed).is_err() {
        slots::kind_of(net, listener)?;
        guard.check()?;
        platform::back_off();
    }
    hand_off::at(HandOff::Locked);
    if slots::retire(net, listener, Kind::Listener) {
        return Ok(());
    }
    // Ordering: Release, as in `prepare`; not a store, as there.
    let _ = lock.compare_exchange(holder, 0, Ordering::Release, Ordering::Relaxed);
    Err(Error::BadHandle)
}

/// Closes the queue of a listener that was [retired](retire); returns how many connections were
/// taken. By one lane.
#[inline(never)]
pub(crate) fn close(net: Net, listener: Handle) -> u64 {
    let queue = Queue { net, listener };
    let mut word = queue.load();
    while let Err(now) = queue.exchange(word, word.closed()) {
        word = now;
    }
    hand_off::at(HandOff::StateChanged);
    // Ordering: SeqCst, pairs with the fence in `prepare`: a group that takes the lock once it is
    // the next socket's finds the queue closed.
    fence(Ordering::SeqCst);
    word.position()
}
