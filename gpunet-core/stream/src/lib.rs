//! Streams as pure state machines: values in, actions out. There is no clock here, no I/O and no
//! unsafe code.
//!
//! | module | what it is |
//! |---|---|
//! | [`flow`] | one direction of a stream: what its words may say, and what they have said |
//! | [`connection`] | a stream from open to closed |
//! | [`rc`] | the protocol of streams between network cards |
//! | [`slab`] | ring memory: which pieces of an area are free |
//! | [`wait_queue`] | who waits for what, in order |
//!
//! `gpunet-core` has the transports that carry what these decide, and shows these modules under
//! their names.
#![forbid(unsafe_code)]

pub mod connection;
pub mod flow;
pub mod rc;
pub mod slab;
pub mod wait_queue;
