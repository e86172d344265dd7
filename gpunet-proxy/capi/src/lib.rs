//! libgpunet: gpunet's host API in C.
//!
//! The header `include/gpunet_host.h` is made from this crate by cbindgen and is its documentation;
//! docs/c-host.md leads through it. Every function of this crate is called `gpunet_host_*`, wraps
//! the call of `gpunet_proxy` that its comment describes, and does three things more: it looks its
//! handles up, it turns errors into a negative errno and a text, and it lets no panic pass.
//!
//! | modules | hold |
//! |---|---|
//! | `handle` | tables of objects with generations: what a C program holds is a number |
//! | `failure` | errors as errno and text, the last one of each thread, panics |
//! | `memory` | the program's pointers: strings, addresses, option values, outputs |
//! | `log` | tracing's events for a callback |
//! | `proxy`, `attachment`, `token`, `cuda`, `buffer` | the calls of `gpunet_proxy` |
//! | `cpu` and below it | kernels on the CPU whose blocks have threads |
//! | `device` and below it | sockets of a device that the program opens, their taken directions, prepared messages |
//! | `queue` and below it | queues |
//! | `records` | rings in which kernels record and print |
//! | `calls` | functions of the program that kernels call |
//! | `team` and below it | teams and symmetric memory |
//! | `channel` and below it | channels of arrays |
//! | `socket` and below it | host sockets: blocking, non-blocking, polled, with a descriptor |
//!
//! # Handles are numbers
//! A handle looks like a pointer to an incomplete type, so that a C compiler tells the kinds apart.
//! Its value is a kind, a slot and a generation, and is never dereferenced: a null, closed or
//! made-up handle finds nothing and gives -EBADF. Opaque pointers that are looked up in a registry
//! would do the same only until an address is allocated again. Then a closed handle would name
//! another object. A slot whose generations are used up is not used again.
#![allow(non_camel_case_types, reason = "the names of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "what a caller owes for its pointers is in the C documentation of each call"
)]

mod failure;
mod handle;
mod memory;

// In the order of the header.
mod proxy;

mod attachment;

mod socket;

mod token;

mod cpu;

mod cuda;

mod device;

mod queue;

mod buffer;

mod team;

mod channel;

mod records;

mod calls;

mod log;

pub use attachment::*;
pub use buffer::*;
pub use calls::*;
pub use channel::*;
pub use cpu::*;
pub use cuda::*;
pub use device::*;
pub use failure::{gpunet_host_free_string, gpunet_host_last_error, gpunet_host_set_last_error};
pub use log::*;
pub use proxy::*;
pub use queue::*;
pub use records::*;
pub use socket::*;
pub use team::*;
pub use token::*;

use std::ffi::c_char;

/// The version of this interface. It rises when a call or a structure of this header changes or
/// goes; calls that are added do not change it.
pub const GPUNET_HOST_ABI_VERSION: u32 = 2;

/// Returns the library's version, as "MAJOR.MINOR.PATCH". The text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the library's GPUNET_HOST_ABI_VERSION. A program that was compiled with another one must
/// not go on.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_abi_version() -> u32 {
    GPUNET_HOST_ABI_VERSION
}
