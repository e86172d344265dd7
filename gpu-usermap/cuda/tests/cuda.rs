//! What the CUDA side promises, on a real GPU.
//!
//! Each test names its hardware with `on_gpu!`; without it the test says loudly that it did not
//! run. The binary has no dependency but libcuda and can be carried to another machine. Tests take
//! turns, since they share a GPU, and several of them leave no room on it.

#[path = "cuda/support.rs"]
mod support;

#[path = "cuda/child.rs"]
mod child;
#[path = "cuda/code.rs"]
mod code;
#[path = "cuda/memory.rs"]
mod memory;
#[path = "cuda/network_card.rs"]
mod network_card;
#[path = "cuda/persistent.rs"]
mod persistent;
#[path = "cuda/residency.rs"]
mod residency;
#[path = "cuda/shareable.rs"]
mod shareable;
#[path = "cuda/shareable_busy.rs"]
mod shareable_busy;
#[path = "cuda/streams.rs"]
mod streams;
#[path = "cuda/teardown.rs"]
mod teardown;
