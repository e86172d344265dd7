//! What the exported C functions do, end to end: the calls of `gpunet_device::posix` made by CPU
//! threads, with a real proxy behind them and TCP programs on the other side.
//!
//! [`support::Calls`] has them as a C program sees them: raw handles, negative errno. Numbers in
//! the tests are Linux's own, from libc.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod data;
mod failures;
mod in_place;
mod lifecycle;
mod opening;
mod options;
mod sharing;
mod timeouts;
