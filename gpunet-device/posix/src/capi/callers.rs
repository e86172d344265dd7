//! Who calls a C function: its suffix tells.

#[cfg(target_arch = "nvptx64")]
mod gpu;
#[cfg(target_arch = "nvptx64")]
pub(super) use gpu::{block, block_after_sync, thread, warp};

#[cfg(not(target_arch = "nvptx64"))]
mod cpu;
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use cpu::{block, block_after_sync, thread, warp};
