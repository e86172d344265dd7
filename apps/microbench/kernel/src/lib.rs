//! Kernels that check and measure sockets, written once for GPU and CPU.
//!
//! | kernel | what it does |
//! |---|---|
//! | [`PingPong`] | block 0 echoes, block 1 measures round trips |
//! | [`Pairs`] | pairs of groups exchange verified bytes; lanes may be made to diverge |
//! | [`Flow`] | one block sends or receives as fast as it can |
//! | [`Serve`] | one block echoes for one peer outside |
//! | [`Copy`](struct@Copy) | the copy routine alone, to or from pinned memory |
//! | [`Flags`] | the floor: two words between a GPU and a CPU, with or without data |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

mod copy;
mod flags;
mod flow;
mod pairs;
mod ping_pong;
mod results;

pub use copy::Copy;
pub use flags::Flags;
pub use flow::{Flow, Serve};
pub use pairs::{GroupKind, Pairs};
pub use ping_pong::PingPong;
pub use results::{Results, failed};
