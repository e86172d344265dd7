//! The memory contract between kernels and the proxy.
//!
//! A socket is two byte rings and four words. This crate says where they lie, who writes each of
//! them, and how a value is published and observed. The device crate, the proxy and the tests all
//! compile it; it depends on nothing and allocates nothing.
//!
//! | layer | modules |
//! |---|---|
//! | words | [`word`] (loads and stores with a named partner), [`position`] (what a stream word says), [`park`] (sleeping and waking) |
//! | rings | [`span`] (pieces of a ring), [`ring`] (the producer's and the consumer's side) |
//! | control | [`control`] (requests and replies), [`addr`], [`options`], [`errno`], [`handle`], [`status`] |
//! | placement | [`place`] (region and offset), [`layout`] (the two regions of an attachment), [`arena`] (memory of two attachments), [`link`] (who is at the other side), [`context`] (what a kernel is handed), [`entry`] (the device's own books) |
//!
//! Nothing here hands out a Rust reference into memory that another agent writes.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

pub mod addr;
pub mod arena;
pub mod context;
pub mod control;
pub mod entry;
pub mod errno;
pub mod handle;
pub mod layout;
pub mod link;
mod near;
pub mod options;
pub mod park;
pub mod place;
pub mod position;
pub mod ring;
pub mod span;
pub mod status;
pub mod word;

pub use addr::SockAddr;
pub use context::Context;
pub use errno::{Error, Result};
pub use handle::Handle;
pub use link::Link;
pub use options::{Options, TransportKind};
pub use place::Place;
pub use position::StreamWord;
pub use span::{Piece, RingSpan};
pub use status::Status;
pub use word::Word;

/// Version of this contract; a device and a proxy of different versions refuse each other.
pub const VERSION: u32 = 2;
/// First word of an attachment's shared region and of every [`Context`]: "gpun".
pub const MAGIC: u32 = 0x6770_756e;
