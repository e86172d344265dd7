//! Bytes that sends have left in the ring unpublished (MSG_MORE), and who publishes them.

use crate::platform::CallGuard;
use crate::socket::half::{notify, ring_end};
use crate::table::entry::{self, Deferred};
use crate::table::slots;
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Net, platform};
use gpunet_abi::entry::lock;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::Producer;
use gpunet_abi::{Direction, Error, Handle, Result};

/// Publishes what calls by handle have left unpublished (MSG_MORE), before a group waits for the
/// stream: the peer may not answer before it has them. By one lane.
#[inline(never)]
pub(crate) fn publish_deferred(net: Net, handle: Handle) {
    let _call = CallGuard::enter_any(net);
    let (slot, entry) = (handle.slot(), net.entry(handle.slot()));
    let is_left = || entry::deferred(entry) == Deferred::ByHandle;
    if !is_left() || !slots::lock(net, handle, Direction::Send, lock::ANNOUNCE) {
        // A call that sends at this moment publishes, or the one after it.
        return;
    }
    // Once more, under the lock: they may be published by now, and more behind them by a group that
    // needs no lock.
    if is_left() && slots::kind_of(net, handle).is_ok() {
        let (d, link) = entry::half(net, handle, Direction::Send);
        // SAFETY: as `ring_end`; the half is locked.
        let producer =
            unsafe { Producer::new(ring_end(&d, link), StreamWord(d.position), StreamWord(d.seen)) };
        producer.announce();
        notify(net, slot, producer.end(), Direction::Send);
        entry::end_deferred(entry);
    }
    slots::unlock(net, handle, Direction::Send, lock::ANNOUNCE);
}

/// Makes sure, before a group uses the sending half without its lock, that no other publishes in
/// it: what calls by handle have left is published, so nobody else has a reason to. Returns whether
/// the half has other unpublished bytes. By one lane, for all.
///
/// # Errors
/// BadHandle, when the slot is the next socket's; Busy, when the host has taken the half; Canceled;
/// NetworkDown.
#[inline(always)]
pub(crate) fn become_sender(net: Net, handle: Handle) -> Result<bool> {
    match entry::observe_deferred(net.entry(handle.slot())) {
        Deferred::ByHandle => end_deferred(net, handle),
        deferred => Ok(deferred == Deferred::ByOwner),
    }
}

/// The part of [`become_sender`] for bytes that calls by handle have left.
#[cold]
#[inline(never)]
fn end_deferred(net: Net, handle: Handle) -> Result<bool> {
    let entry = net.entry(handle.slot());
    let mut guard = WaitGuard::new(net, Deadline::NEVER);
    loop {
        publish_deferred(net, handle);
        match (entry::observe_deferred(entry), slots::holder(net, handle, Direction::Send)?) {
            // A call by handle continues with them: this group uses the other half.
            (_, lock::CALL) => return Ok(false),
            (Deferred::ByHandle, held) if lock::is_taken(held) => return Err(Error::Busy),
            (Deferred::ByHandle, _) => {}
            (deferred, _) => return Ok(deferred == Deferred::ByOwner),
        }
        // A poller publishes them at this moment. A handle that was closed has nothing to publish.
        slots::kind_of(net, handle)?;
        if guard.is_due() {
            guard.check()?;
        }
        platform::back_off();
    }
}
