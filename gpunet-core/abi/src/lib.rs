//! The memory contract between kernels and the proxy.
//!
//! A socket is two byte rings and four words. This crate defines where they lie, who writes each of
//! them, and how a value is published and observed. The device crate, the proxy and the tests all
//! compile it; it depends on nothing and allocates nothing.
//!
//! | layer | modules |
//! |---|---|
//! | words | [`word`] (loads and stores with a named partner), [`position`] (what a stream word means), [`park`] (sleeping and waking) |
//! | rings | [`span`] (pieces of a ring), [`ring`] (the producer's and the consumer's side), [`trigger`] (what a host hands to kernels) |
//! | control | [`control`] (requests and replies), [`claim`] (who may use a control slot), [`recycle`] (free socket slots), [`accept`] (connections accepted ahead), [`addr`], [`options`], [`errno`], [`handle`], [`status`] |
//! | poll groups | [`poll_group`] (what the device and the proxy tell each other), [`ready_list`] (which sockets have changed) |
//! | placement | [`region`] (region numbers and offsets), [`layout`] (the two regions of an attachment), [`arena`] (memory of two attachments), [`link`] (who is at the other side), [`context`] (what a kernel is handed), [`entry`] (the device's own socket table), [`opened`] (where an open stream lies) |
//! | teams | [`team`] (the words by which members meet) |
//! | failures | [`panic_record`] (where a GPU records why it panicked) |
//! | tests | [`hand_off`] (where threads can be made to pause) |
//!
//! Nothing here hands out a Rust reference into memory that another agent writes.
#![cfg_attr(not(any(test, all(feature = "pauses", not(target_arch = "nvptx64")))), no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

pub mod accept;
pub mod addr;
pub mod arena;
pub mod claim;
pub mod context;
pub mod control;
pub mod device_scope;
pub mod entry;
pub mod epoch;
pub mod errno;
pub mod hand_off;
pub mod handle;
pub mod layout;
pub mod line;
pub mod link;
pub mod opened;
pub mod options;
pub mod panic_record;
pub mod park;
pub mod poll_group;
pub mod poll_stack;
pub mod position;
pub mod ready_list;
pub mod recycle;
pub mod region;
pub mod ring;
pub mod span;
pub mod status;
pub mod team;
pub mod trigger;
pub mod word;

pub use addr::SockAddr;
pub use context::Context;
pub use errno::{Error, Result};
pub use handle::Handle;
pub use link::Link;
pub use options::{Options, TransportKind};
pub use position::StreamWord;
pub use region::RegionOffset;
pub use span::{Piece, RingSpan};
pub use status::Status;
pub use trigger::{Direction, Gate, Prepared, Trigger};
pub use word::Word;

/// Version of this contract; a device and a proxy of different versions reject each other.
pub const VERSION: u32 = 8;
/// First word of an attachment's shared region and of every [`Context`]: "gpun".
pub const MAGIC: u32 = 0x6770_756e;
