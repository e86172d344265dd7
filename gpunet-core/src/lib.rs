//! Sockets as pure state machines, and the transports that carry them.
//!
//! | layer | modules | may touch |
//! |---|---|---|
//! | pure: the crate `gpunet-stream` | [`flow`] (one direction), [`connection`] (a stream from open to closed), [`rc`] (the protocol between network cards), [`slab`] (ring memory), [`wait_queue`] | nothing: no clock, no I/O |
//! | names | [`ids`] (attachments, requests, launches) | nothing |
//! | memory | [`memory`] (the proxy's view of an attachment), [`futex`] | raw memory, the futex call |
//! | verbs | [`verbs`] (what the transport rc needs of an RDMA stack) | libibverbs, librdmacm |
//! | transports | [`transport`] and its siblings [`transport::tcp`] and [`transport::peer`] | sockets |
//!
//! The loop that drives them lives in gpunet-proxy.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod futex;
pub mod ids;
#[allow(unsafe_code)]
pub mod memory;
pub mod transport;
pub mod verbs;

pub use gpunet_abi as abi;
pub use gpunet_stream::{connection, flow, rc, slab, wait_queue};
