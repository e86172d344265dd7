//! Which group uses a half of a stream: checked before each use by handle.

use crate::group::outcome::by_leader;
use crate::socket::unpublished::become_sender;
use crate::table::entry;
use crate::table::slots::{self, Caller, Place};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Group, Net, platform};
use gpunet_abi::entry::{GroupId, Kind, lock};
use gpunet_abi::{Direction, Error, Handle, Result, Timeout};

/// Checks that the handle names a stream, before the group uses some of its halves without a lock;
/// returns whether bytes of the sending half, if it is one of them, are unpublished. Begins with a
/// barrier.
///
/// # Errors
/// BadHandle; NotConnected; Busy, when the host has taken one of the halves; NetworkDown, when
/// there is no attachment.
#[inline(always)]
pub(crate) fn check_stream<G: Group>(g: &G, net: Net, handle: Handle, halves: Halves) -> Result<bool> {
    g.sync();
    // One lane decides for all: another group may be closing it, or sending by handle, just now.
    by_leader(g, || use_stream(net, handle, halves, Caller::of(g))).map(|deferred| deferred != 0)
}

/// Which halves of a stream a group is to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halves {
    One(Direction),
    Both,
}

impl Halves {
    const fn have(self, half: Direction) -> bool {
        match self {
            Self::One(one) => one as u8 == half as u8,
            Self::Both => true,
        }
    }
}

/// The leader's part of [`check_stream`].
#[inline(never)]
fn use_stream(net: Net, handle: Handle, halves: Halves, caller: Caller) -> Result<u64> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    if slots::use_handle(net, handle)? != Kind::Stream {
        return Err(Error::NotConnected);
    }
    for half in [Direction::Send, Direction::Recv] {
        if halves.have(half) && slots::is_taken(net, handle, half) {
            return Err(Error::Busy);
        }
    }
    if halves.have(Direction::Recv) {
        become_receiver(net, handle, caller.id(net))?;
    }
    if halves.have(Direction::Send) { become_sender(net, handle).map(u64::from) } else { Ok(0) }
}

/// What a call by handle has to know of a stream before it locks a half.
#[derive(Clone, Copy, Debug)]
pub struct BeforeLock {
    /// Where the socket's state and entry lie.
    place: Place,
    /// A hint: [`BeforeLock::lock`] looks again.
    pub kind: Kind,
    /// The group that announces what is consumed.
    pub receiver: GroupId,
    /// How long a call of the half may wait, by the socket's options.
    pub timeout: Timeout,
}

/// Looks at a socket for a call by handle: as [`slots::use_handle`], and at what else the call
/// needs, so that on a GPU one trip to the table brings all of it. By one lane. The context is
/// there.
///
/// # Errors
/// BadHandle.
#[inline(always)]
pub fn look_before_lock(net: Net, handle: Handle, half: Direction) -> Result<BeforeLock> {
    let slot = handle.slot();
    if slot >= net.context().slots {
        return Err(Error::BadHandle);
    }
    // Before an acquire, which empties the cache of the context.
    let place = Place::of(net, handle);
    if !slots::is_user(net, slot) {
        slots::use_handle(net, handle)?;
    }
    // One after the other, and none is looked at before the last is under way.
    let state = place.glance();
    let receiver = GroupId(entry::receiver(place.entry()).peek());
    let timeout = entry::options_at(place.entry()).timeout(half);
    let kind = state.open(handle.generation()).ok_or(Error::BadHandle)?;
    Ok(BeforeLock { place, kind, receiver, timeout })
}

impl BeforeLock {
    /// Locks the half for a call by handle ([`lock::CALL`]) if it is free, and the socket is still
    /// open under the lock. By one lane.
    ///
    /// # Errors
    /// BadHandle: it was closed, and perhaps taken anew, meanwhile. Busy: another has the half.
    #[inline(always)]
    pub fn lock(&self, half: Direction) -> Result<()> {
        if !self.place.lock(half, lock::CALL) {
            return Err(Error::Busy);
        }
        if self.place.kind().is_none() {
            self.place.unlock(half, lock::CALL);
            return Err(Error::BadHandle);
        }
        Ok(())
    }
}

/// Makes a group the one that announces what is consumed of a stream, before it uses the receiving
/// half by handle. By one lane.
///
/// # Errors
/// BadHandle, when the slot is the next socket's; Busy, when the host has taken the half; Canceled;
/// NetworkDown.
#[inline(never)]
pub fn become_receiver(net: Net, handle: Handle, group: GroupId) -> Result<()> {
    let entry = net.entry(handle.slot());
    if entry::receiver(entry).peek() == group.0 {
        return Ok(());
    }
    let mut guard = WaitGuard::new(net, Deadline::NEVER);
    while !slots::lock(net, handle, Direction::Recv, lock::ANNOUNCE) {
        match slots::holder(net, handle, Direction::Recv)? {
            // A group that receives by handle at this moment: it announces.
            lock::CALL => return Ok(()),
            held if lock::is_taken(held) => return Err(Error::Busy),
            _ => {}
        }
        if guard.is_due() {
            guard.check()?;
        }
        platform::back_off();
    }
    entry::receiver(entry).set(group.0);
    slots::unlock(net, handle, Direction::Recv, lock::ANNOUNCE);
    Ok(())
}
