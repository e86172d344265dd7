//! The callers of a C function, which its suffix names, and the context of a call.

#[cfg(target_arch = "nvptx64")]
mod gpu;
#[cfg(target_arch = "nvptx64")]
pub(super) use gpu::{block, block_after_sync, thread, warp, with_net, with_team};

#[cfg(not(target_arch = "nvptx64"))]
mod cpu;
#[cfg(not(target_arch = "nvptx64"))]
pub use cpu::{Calling, as_group, block, guard_nets, guard_teams, resume, warp};
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use cpu::{block_after_sync, thread, with_net, with_team};
