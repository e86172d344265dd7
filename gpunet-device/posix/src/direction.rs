//! One direction of a stream, taken for one call.

use super::{call_timeout, handle, unless};
use gpunet_abi::entry::{Kind, lock};
use gpunet_abi::{Direction, Error, Handle, Result};
use gpunet_device::internal::{
    BeforeLock, CallGuard, Deadline, Lane, WaitGuard, back_off, become_receiver, by_leader, by_leader_once,
    entry, look_before_lock, ring_end,
    slots::{self, Caller},
};
use gpunet_device::{Group, Net, Timeout};

/// A direction that the calling group holds.
pub(crate) struct Taken {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    half: Direction,
    /// How long the call may wait, by the socket's options unless it was told. All lanes have the
    /// options' from the leader: another group may change them meanwhile, and lanes that differ
    /// would part at a barrier.
    pub(super) timeout: Timeout,
    _call: CallGuard,
}

impl Taken {
    /// Takes a direction of the stream that a C program names. All lanes, which meet before the
    /// next call of this function ([`Group::broadcast_once`]).
    ///
    /// # Errors
    /// BadHandle; NotConnected; Busy when another group has the direction, or the host has taken
    /// it.
    #[inline(always)]
    pub(crate) fn take<G: Group>(g: &G, net: Net, socket: i32, half: Direction) -> Result<Self> {
        let handle = handle(socket)?;
        // Each lane, before one of them checks the handle.
        let call = CallGuard::enter_any(net);
        let timeout = by_leader_once::<G, 1>(g, Lane::of(g), || take(net, handle, half, Caller::of(g)))
            .inspect_err(|_| g.sync())?;
        if CallGuard::IS_COUNTED {
            let (direction, link) = entry::half(net, handle, half);
            call.narrow(ring_end(&direction, link).mine);
        }
        Ok(Self { net, handle, half, timeout: Timeout::unpacked(timeout), _call: call })
    }

    /// The same, for a call that was given a timeout: see [`call_timeout`].
    #[inline(always)]
    pub(crate) fn with_timeout(mut self, timeout_ns: i64) -> Self {
        self.timeout = call_timeout(timeout_ns, self.timeout);
        self
    }

    /// Gives the direction back after a call; a timeout that has passed ends with EAGAIN, as that
    /// of Linux's socket options, and ETIMEDOUT is the connection's own. All lanes.
    ///
    /// # Errors
    /// The call's.
    #[inline(always)]
    pub(crate) fn finish<G: Group, T>(self, g: &G, result: Result<T>) -> Result<T> {
        let result = match result {
            Err(Error::TimedOut) if self.timeout != Timeout::NEVER => by_leader(g, || {
                let status = self.net.status(self.handle.slot(), self.handle.generation());
                match status.and_then(gpunet_abi::Status::error) {
                    Some(Error::TimedOut) => Err(Error::TimedOut),
                    _ => Err(Error::WouldBlock),
                }
            })
            .and(Err(Error::WouldBlock)),
            other => other,
        };
        self.give(g);
        result
    }

    /// Gives the direction back. All lanes.
    #[inline(always)]
    pub(crate) fn give<G: Group>(self, g: &G) {
        // All lanes have read the entry, and the leader has stored the new positions.
        g.sync();
        if g.is_leader() {
            slots::unlock(self.net, self.handle, self.half, lock::CALL);
        }
    }
}

/// Takes a direction of a stream for a call; returns how long it may wait, packed. By one lane.
///
/// # Errors
/// As [`Taken::take`].
#[inline(never)]
fn take(net: Net, handle: Handle, half: Direction, caller: Caller) -> Result<u64> {
    unless(net.is_attached(), Error::NetworkDown)?;
    let group = caller.id(net);
    let found = look_before_lock(net, handle, half)?;
    unless(found.kind == Kind::Stream, Error::NotConnected)?;
    if half == Direction::Recv && found.receiver != group {
        become_receiver(net, handle, group)?;
    }
    lock_for_call(net, handle, half, found)?;
    Ok(found.timeout.packed())
}

/// Locks a direction for a call by handle. By one lane.
///
/// # Errors
/// BadHandle when the socket was closed meanwhile; Busy when another call has it, or the host;
/// Canceled; NetworkDown.
#[inline(always)]
fn lock_for_call(net: Net, handle: Handle, half: Direction, found: BeforeLock) -> Result<()> {
    match found.lock(half) {
        Err(Error::Busy) => wait_for_lock(net, handle, half, found),
        locked => locked,
    }
}

/// A poller that announces what it has consumed has the lock for one store, and may have given it
/// back by now.
#[cold]
#[inline(never)]
fn wait_for_lock(net: Net, handle: Handle, half: Direction, found: BeforeLock) -> Result<()> {
    let mut guard = WaitGuard::new(net, Deadline::NEVER);
    loop {
        unless(matches!(slots::holder(net, handle, half)?, lock::FREE | lock::ANNOUNCE), Error::Busy)?;
        if guard.is_due() {
            guard.check()?;
        }
        back_off();
        match found.lock(half) {
            Err(Error::Busy) => {}
            locked => return locked,
        }
    }
}
