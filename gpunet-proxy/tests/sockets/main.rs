//! Sockets of a device that the host program opens: used by kernels, kept, left, closed; their
//! directions taken, with messages placed in them for kernels and queues.

#[path = "../support/mod.rs"]
mod support;

mod ahead;
mod opening;
mod queues;
mod signals;
mod taking;
mod units;
