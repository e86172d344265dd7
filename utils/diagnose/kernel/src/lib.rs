//! The self-tests' kernels, written once for GPU and CPU.
//!
//! | kernel | what it shows | module |
//! |---|---|---|
//! | [`Words`] | the device and a CPU thread see each other's words | `words` |
//! | [`Ring`] | bytes cross a ring unchanged, whatever their lengths and alignment | `ring`, `crc`, `lengths` |
//! | [`Order`] | a reader that sees a word sees the data written before it | `order` |
//! | [`Lines`] | a reader that sees the tag of a unit sees its bytes | `lines` |
//! | [`Echo`] | sockets listen, accept, connect, send, receive and close | `echo` |
//!
//! Every wait has a deadline (`wait`): a kernel whose partner is gone leaves ETIMEDOUT in its
//! [`Results`]. Both sides of [`Ring`], [`Order`] and [`Lines`] are methods, so that a CPU thread
//! can run one of them with the same code.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

mod crc;
mod echo;
mod lengths;
mod lines;
mod order;
mod ring;
mod roles;
mod wait;
mod words;

pub use crc::crc32;
pub use echo::Echo;
pub use gpunet_app_kernel::{Results, failed};
pub use lines::Lines;
pub use order::Order;
pub use ring::Ring;
pub use roles::{FIRST, SECOND};
pub use words::Words;
