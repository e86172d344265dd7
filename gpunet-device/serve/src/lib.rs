//! Servers in kernels, for GPU and CPU thread blocks.
//!
//! A server is a [`Service`]: a function that takes requests from the bytes of a connection and
//! puts answers into its writer. [`Server`] is the kernel around it. Each block of it accepts
//! connections from one listener and gives each its turn when it is ready.
//!
//! | part | modules |
//! |---|---|
//! | what a service is and is given | `service` ([`Service`], [`Turn`], [`Next`], [`Worker`]), `bytes` ([`Bytes`]), `short` ([`Short`]), `items` (items of different lengths), `reader` ([`Reader`]), `writer` ([`Writer`]), `backlog` (answers that wait: [`Backlogs`]), `spill` ([`Spill`]: requests longer than a ring), `queue` ([`Queue`]: requests that wait) |
//! | what its blocks share | `memory` ([`Memory`], [`Carve`]), `word` (atomic words), `lock` ([`Lock`]), `shared` ([`Shared`]), `heap` ([`Heap`]), `map` ([`Map`]), `bells` ([`Bell`], [`Bells`]: turns from outside), `topics` ([`Topics`]: turns for many connections), `roll` ([`Roll`]: what all connections are), `work_queue` ([`WorkQueue`]: work for other blocks), `work_pool` ([`WorkPool`]: work for several workers) |
//! | the kernel | `server` ([`Server`], [`ServerSettings`]), `worker` (how a block waits that serves no connections), `readiness` (who is ready), `arena` (the states of connections) |
//! | what the host sees while it runs | `board` ([`Board`], [`Counters`], [`Log`]) |
//!
//! [`raw`] is for data structures that this crate does not have.
//!
//! The host side is the crate `gpunet-serve-host`. Neither a service nor its host program needs
//! unsafe code.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![deny(unsafe_code)]

mod arena;
mod backlog;
mod bells;
mod board;
mod bytes;
mod heap;
mod items;
mod lock;
mod map;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod queue;
mod reader;
mod readiness;
mod roll;
mod server;
mod service;
mod shared;
mod short;
mod spill;
mod topics;
mod word;
mod work_pool;
mod work_queue;
mod worker;
mod writer;

pub use backlog::{Backlogs, Full};
pub use bells::{Bell, Bells, HostBells};
pub use board::{
    Board, COUNTERS, Connections, Counters, LOG_LINES, LOG_TEXT, Line, Listening, Log, OWN_COUNTERS,
};
pub use bytes::Bytes;
pub use heap::{Chunk, Heap, MAX_CHUNK};
pub use lock::Lock;
pub use map::{Fresh, Hold, Key, Locked, MAX_HELD, Map, NoStructure, Pin, SPACES, Scan, Structure, Text};
pub use memory::{Carve, Memory};
pub use queue::{Queue, Queued};
pub use reader::{Reader, TooLong};
pub use roll::{Enrolled, OWN_WORDS, Roll};
pub use server::{Server, ServerSettings};
pub use service::{Context, Next, Service, Turn, Worker};
pub use shared::Shared;
pub use short::Short;
pub use spill::{ChunkSource, Spill, SpillError};
pub use topics::Topics;
pub use work_pool::WorkPool;
pub use work_queue::{WorkQueue, WorkQueues};
pub use writer::{Digits, Writer};

/// What data structures in a server's memory are made of, for those that this crate does not have.
///
/// A [`Map`] keeps them as values ([`Structure`]). Memory comes from unsafe functions,
/// [`Carve::memory`] and [`Map::chunks`], whose callers vouch for all that is done with it.
pub mod raw {
    pub use crate::lock::pause;
    pub use crate::map::Chunks;
    pub use crate::word::{Word32, Word64, fence};
}
