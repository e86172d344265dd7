//! The C functions, each with the context as its first argument: `gpunet_send(net, ...)`. They are
//! exported from the PTX, and for kernels on the CPU from libgpunet. GPUnet's names (`gsend(...)`)
//! are functions of the header.
//!
//! Only wrappers: each names the group that calls, checks the context, and hands on to the crate's
//! calls. Built with the feature `capi` for `ptx/gpunet_device.ptx` and libgpunet, because exported
//! functions of a dependency would land in every kernel module. The declarations that C sees are in
//! `include/gpunet.h`. A thread on the CPU is one of a block if its kernel runs inside
//! [`as_group`], else a group of its own.
//!
//! | file | holds |
//! |---|---|
//! | `exports` | the macros that export calls |
//! | `callers` | who calls: the suffix of a function's name tells; and with which context |
//! | `calls` | calls of host functions; the protocol is gpunet-calls' |
//! | `control` | opening and closing sockets |
//! | `data` | sending, receiving, poll |
//! | `groups` | poll groups |
//! | `http` | requests and answers of HTTP; the parser is gpunet-http's |
//! | `names` | addresses and options |
//! | `prepared` | triggers, gates and messages |
//! | `team` | teams and symmetric memory |

#[macro_use]
mod exports;
mod callers;
mod calls;
mod control;
mod data;
mod groups;
mod http;
mod names;
mod prepared;
mod team;

pub use {calls::*, control::*, data::*, groups::*, http::*, names::*, prepared::*, team::*};

#[cfg(not(target_arch = "nvptx64"))]
pub use callers::{Calling, as_group, block, guard_nets, guard_teams, resume, warp};

use gpunet_abi::team::TeamState;
use gpunet_abi::{Context, Error, MAGIC, Result, VERSION};
use gpunet_device::Net;
use gpunet_device::team::TeamHandle;

/// The context of the launch, as a device address: a [`Net`], for the calls of `gpunet.h` under
/// GPUnet's names. The host sets it in each module: `attachment.bind(module)`. 0: no attachment,
/// and these calls return -ENETDOWN. On the CPU the header has the variable.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_attachment: u64 = 0;

/// Runs a call with the context at an address, if there is one.
///
/// # Safety
/// `address` is 0, or of a context that lives as long as the attachment, or of eight bytes of other
/// memory.
#[inline(always)]
unsafe fn call(address: u64, body: impl FnOnce(Net) -> Result<i64>) -> i64 {
    // SAFETY: the caller's contract.
    if !unsafe { is_context(address) } {
        return crate::returned(Err(Error::NetworkDown));
    }
    // SAFETY: a context lies there.
    crate::returned(body(unsafe { Net::from_raw(address) }))
}

/// Returns whether a context of this version lies at an address. A load from an address that is not
/// aligned would end the kernel.
///
/// # Safety
/// As [`call`].
#[inline(always)]
unsafe fn is_context(address: u64) -> bool {
    let context = address as *const Context;
    if address == 0 || !context.is_aligned() {
        return false;
    }
    // SAFETY: its first eight bytes, without a reference to the rest: it may be no context.
    let (magic, version) = unsafe { ((*context).magic, (*context).version) };
    magic == MAGIC && version == VERSION
}

/// Runs a call with a team, if it is one.
#[inline(always)]
fn team_call(team: TeamHandle, body: impl FnOnce(TeamHandle) -> Result<i64>) -> i64 {
    crate::returned(if is_team(team) { body(team) } else { Err(Error::NetworkDown) })
}

/// Returns whether a team of this version stands behind the value. A load from an address that is
/// not aligned would end the kernel.
#[inline(always)]
fn is_team(team: TeamHandle) -> bool {
    (team.raw_state() as *const TeamState).is_aligned() && team.is_joined()
}
