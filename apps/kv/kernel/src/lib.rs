//! The kernel of `gpunet-kv`: a key-value server that speaks RESP2 and RESP3, written once for GPU
//! and CPU thread blocks.
//!
//! | part | module |
//! |---|---|
//! | requests | `resp`: the parser, a pure function of bytes |
//! | answers | `reply`; what is left of one after a turn: `rest` |
//! | what is kept | `store`: the map that all blocks share, with sets of vectors (gpunet-kv-vectors) |
//! | what a client has set | `session` |
//! | who is let in | `password` ([`Password`]) |
//! | patterns of keys | `glob` |
//! | numbers of INCRBYFLOAT | `fixed_point` |
//! | commands | `command`: the table of all, and a file for each family |
//! | the commonest of them | `hot` |
//! | what is counted | [`own`] |
//! | a connection's turn | `service` ([`Kv`]) |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

mod command;
mod fixed_point;
mod glob;
mod hot;
pub mod own;
mod password;
mod reply;
pub mod resp;
mod rest;
mod service;
mod session;
mod store;

pub use password::Password;
pub use service::Kv;
pub use store::{MAX_KEY, MAX_VALUE};

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::Kv;
    use gpunet_device::kernel_entry;
    use gpunet_serve::Server;

    kernel_entry!(kv, "gpunet_kv", Server<Kv>);
}
