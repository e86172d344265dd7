//! Sockets as pure state machines, and the transports that carry them.
//!
//! | layer | modules | may touch |
//! |---|---|---|
//! | pure | [`flow`] (one direction), [`connection`] (a stream from open to closed), [`slab`] (ring memory) | nothing: no clock, no I/O |
//! | memory | [`memory`] (the proxy's view of an attachment), [`futex`] | raw memory, the futex call |
//! | transports | [`transport`] and its siblings [`transport::tcp`] and [`transport::peer`] | sockets |
//!
//! The loop that drives them lives in gpunet-proxy.
#![deny(unsafe_code)]

pub mod connection;
pub mod flow;
#[allow(unsafe_code)]
pub mod futex;
pub mod ids;
#[allow(unsafe_code)]
pub mod memory;
pub mod rc;
pub mod slab;
pub mod transport;
pub mod verbs;
pub mod wait_queue;

pub use gpunet_abi as abi;
