//! The calling threads of a GPU.

use gpunet_device::Group;
use gpunet_device::group::{Thread, ThreadBlock, Warp};

/// The block that calls.
#[inline(always)]
pub(in crate::capi) fn block() -> ThreadBlock {
    ThreadBlock::current()
}

/// The block that calls, after a barrier: the leader sees what all lanes have written, as an
/// address.
#[inline(always)]
pub(in crate::capi) fn block_after_sync() -> ThreadBlock {
    let block = block();
    block.sync();
    block
}

/// The warp that calls.
#[inline(always)]
pub(in crate::capi) fn warp() -> Warp {
    Warp::current()
}

/// The one thread that calls.
#[inline(always)]
pub(in crate::capi) const fn thread() -> Thread {
    Thread
}

pub(in crate::capi) use crate::capi::{call as with_net, team_call as with_team};
