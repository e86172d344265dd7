//! The memory contract between kernels and the proxy.
//!
//! A socket is two byte rings and four words. This crate defines where they lie, who writes each of
//! them, and how a value is published and observed. The device crate, the proxy and the tests all
//! compile it; it depends on nothing and allocates nothing.
//!
//! The floors, from below; a floor names only what lies below it:
//!
//! | floor | modules |
//! |---|---|
//! | sync | [`atomic`] (what words are made of), [`word`] (loads and stores with a named partner), [`device_scope`] (the same among threads of one device), [`park`] (sleeping and waking), [`epoch`] (counting changes), [`hand_off`] (where tests make threads pause) |
//! | types | [`addr`], [`options`], [`errno`], [`handle`], [`status`], [`region`] (region numbers and offsets), [`link`] (who is at the other side), [`waiting`] (what blocks wait for) |
//! | stream | [`position`] (what a stream word means), [`span`] (pieces of a ring), `socket_line` (what the proxy reports to a socket), [`line`](mod@line) and [`units`] (small messages), [`ring`] (the producer's and the consumer's side), [`trigger`] (what a host gives to kernels) |
//! | table | [`entry`] (the device's own socket table), [`recycle`] (free socket slots), [`accept`] (connections accepted ahead) |
//! | request | [`control`] (requests and replies), [`claim`] (who may use a control slot) |
//! | poll | [`poll_group`] (what the device and the proxy tell each other), [`ready_list`] (which sockets have changed), [`poll_stack`] (groups that wait) |
//! | placement | [`panic_record`] (where a GPU records why it panicked), [`layout`] (the two regions of an attachment), [`arena`] (memory of two attachments), [`context`] (the context of a launch), [`opened`] (where an open stream lies) |
//! | team | [`team`] (the words by which members meet) |
//!
//! Nothing here hands out a Rust reference into memory that another agent writes.
//!
//! Items that no other crate names are private, except the contract itself: the fields of shared
//! structures, and the errno of each [`Error`].
#![cfg_attr(not(any(test, loom, all(feature = "pauses", not(target_arch = "nvptx64")))), no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

mod placement;
mod poll;
mod request;
mod stream;
mod sync;
mod table;
pub mod team;
mod types;

pub use placement::{arena, context, layout, opened, panic_record};
pub use poll::{poll_group, poll_stack, ready_list};
pub use request::{claim, control};
pub use stream::{line, position, ring, span, trigger, units};
pub use sync::{atomic, device_scope, epoch, hand_off, park, word};
pub use table::{accept, entry, recycle};
pub use types::{addr, direction, errno, handle, link, options, region, status, timeout, waiting};

pub use addr::SockAddr;
pub use context::Context;
pub use direction::Direction;
pub use errno::{Error, Result};
pub use handle::Handle;
pub use link::Link;
pub use options::{Options, TransportKind};
pub use position::StreamWord;
pub use region::RegionOffset;
pub use span::{Piece, RingSpan};
pub use status::Status;
pub use timeout::Timeout;
pub use trigger::{Gate, Prepared, Trigger};
pub use word::Word;

/// Version of this contract; a device and a proxy of different versions reject each other.
pub const VERSION: u32 = 12;
/// First word of an attachment's shared region and of every [`Context`]: "gpun".
pub const MAGIC: u32 = 0x6770_756e;
