//! The device API against memory laid out by hand: no proxy, no hardware.
//!
//! Each test plays the other side itself: the remote end of a ring, or the proxy's part of a
//! control slot. What the real proxy does with the same memory is tested in gpunet-proxy.

mod accepting;
mod control;
mod failures;
mod groups;
mod lanes;
mod lines;
mod opening;
mod polling;
mod posix;
mod streams;
mod triggers;
mod units;
mod world;
