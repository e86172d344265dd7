//! The differences between the GPU and the CPU: time, waiting, waking, vector accesses.
//!
//! `nvptx` and `cpu` define the same functions, so no caller asks which one it is.

pub(crate) mod wake_words;

pub use wake_words::{RelayedWord, WakeWords};

#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(target_arch = "nvptx64")]
pub(crate) use nvptx::*;
#[cfg(target_arch = "nvptx64")]
pub use nvptx::{CallGuard, back_off, load_published, load_units, store_units, yield_core};

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) mod cpu;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use cpu::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use cpu::{CallGuard, back_off, load_published, load_units, store_units, yield_core};
