//! The kernels of `gpunet-echo`, written once for GPU and CPU thread blocks.
//!
//! | kernel | what its blocks do | module |
//! |---|---|---|
//! | [`EchoListen`] | one block binds the listener, which outlives the launch | `listen` |
//! | [`EchoServer`] | each block polls the listener and the connections it accepted, and sends back what it receives | `server`, `table`, `loads` |
//! | [`EchoClient`] | each block drives its connections, one after another, and checks every byte with all lanes | `client`, `pattern` |
//!
//! The host hands over plain buffers and reads plain numbers back: the layouts are in [`record`].
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod client;
mod listen;
mod loads;
mod pattern;
pub mod record;
mod server;
mod table;

pub use client::EchoClient;
pub use listen::EchoListen;
pub use pattern::Pattern;
pub use server::{ATTENTION_NS, EchoServer};

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{EchoClient, EchoListen, EchoServer};
    use gpunet_device::kernel_entry;

    kernel_entry!(echo_listen, "gpunet_echo_listen", EchoListen);
    kernel_entry!(echo_server, "gpunet_echo_server", EchoServer);
    kernel_entry!(echo_client, "gpunet_echo_client", EchoClient);
}
