//! The kernels of `gpunet-echo`, written once for GPU and CPU thread blocks.
//!
//! | kernel | what its blocks do | module |
//! |---|---|---|
//! | `Server<`[`Echo`]`>` | each block accepts connections and sends back what it receives; the loop is gpunet-serve's | `server` |
//! | [`EchoClient`] | each block drives its connections, one after another, and checks every byte with all lanes | `client`, `pattern` |
//!
//! The clients' host hands over plain buffers and reads plain numbers back: the layouts are in
//! [`record`].
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod client;
mod pattern;
pub mod record;
mod server;

pub use client::EchoClient;
pub use pattern::Pattern;
pub use server::Echo;

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{Echo, EchoClient};
    use gpunet_device::kernel_entry;
    use gpunet_serve::Server;

    kernel_entry!(echo_server, "gpunet_echo_server", Server<Echo>);
    kernel_entry!(echo_client, "gpunet_echo_client", EchoClient);
}
