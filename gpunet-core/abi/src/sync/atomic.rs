//! The atomics of all words that agents share: core's.
//!
//! Built with `--cfg loom`, they are loom's while `atomic::model` runs: it explores what each load
//! may find. So models run the shipped code, on memory of the shipped layout
//! (`gpunet-device/tests/loom`; the modules `models` of gpunet-serve and gpunet-kv-vectors).

#[cfg(loom)]
mod modelled;

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use modelled::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence, model, yield_now};
