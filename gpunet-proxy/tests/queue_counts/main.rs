//! What host queues cost over rc: the bytes of each message are compared, and the work requests
//! that carried them counted.
//!
//! The network is a simulated one; with `GPUNET_RC_ADDR=IP`, the address of an RDMA device of this
//! host, that device, and its own counters count. They count whatever anybody does with the device,
//! so the tests run one after another.

#[path = "../support/mod.rs"]
mod support;

mod counts;
mod hosts;
mod meter;
