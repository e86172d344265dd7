//! A socket that is not open yet, taken by the one group that binds, listens, connects or closes
//! it.
//!
//! The lock is the sending direction's, which such a socket does not use otherwise. It is released
//! only if the socket stays open. A slot that went back to the proxy may belong to another group at
//! once, and its locks are free when a group takes it.

use gpunet_abi::control::{Reply, Request};
use gpunet_abi::entry::{Kind, lock};
use gpunet_abi::{Direction, Error, Handle, Result};
use gpunet_device::Net;
use gpunet_device::Timeout;
use gpunet_device::internal::{Deadline, request::Claim, slots};

/// Takes a socket that is `kind`. By one lane.
///
/// # Errors
/// Busy when another group has it, or has just changed it; BadHandle.
pub(super) fn take(net: Net, handle: Handle, kind: Kind) -> Result<()> {
    if !slots::lock(net, handle, Direction::Send, lock::CALL) {
        return Err(slots::holder(net, handle, Direction::Send).err().unwrap_or(Error::Busy));
    }
    match slots::use_handle(net, handle) {
        Ok(now) if now == kind => Ok(()),
        changed => {
            give(net, handle);
            Err(changed.err().unwrap_or(Error::Busy))
        }
    }
}

/// Gives a socket back that lives on. By one lane.
pub(super) fn give(net: Net, handle: Handle) {
    slots::unlock(net, handle, Direction::Send, lock::CALL);
}

/// Posts a request that turns a socket of kind `from` into something else, and enters the answer in
/// the table by `done`. By one lane.
///
/// # Errors
/// Busy; those of the request, after which the socket is closed.
pub(super) fn turn(
    net: Net,
    handle: Handle,
    from: Kind,
    request: &Request,
    limit_ns: u64,
    done: impl FnOnce(&Reply) -> Result<()>,
) -> Result<u64> {
    let deadline = Deadline::of(Timeout::of_option(limit_ns));
    let claim = Claim::for_opening(net, handle.slot(), true, deadline)?;
    if let Err(error) = take(net, handle, from) {
        claim.release();
        return Err(error);
    }
    let mut reply = Reply::new(0, 0);
    match claim.post(request, handle, deadline, &mut reply) {
        Ok(()) => {
            done(&reply)?;
            give(net, handle);
            Ok(0)
        }
        Err(error) => {
            slots::retire(net, handle, from);
            Err(error)
        }
    }
}
