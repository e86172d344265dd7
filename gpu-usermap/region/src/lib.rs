//! Pinned host memory that processes and GPUs share.
//!
//! A region is a memfd: it can be handed to another process as a file descriptor, registered with
//! CUDA and with an RDMA card, and mapped at a different address by each of them. It is
//! preallocated and sealed, so that no holder of the descriptor can make an access fault by
//! shrinking it.
//!
//! # Map
//! | module | what it is |
//! |---|---|
//! | `pages` | [`Pages`]: one mapping, unmapped on drop |
//! | `cgroup`, `room` | how much memory a process may still take |
//! | `memfd` | the calls on a memfd, and the checks of one that comes from elsewhere |
//! | `pinned` | [`PinnedRegion`] |
//! | `pool` | [`AddressPool`]: many regions at addresses of one mapping |
//! | `udmabuf` | a region as a dma-buf |
//! | [`threads`] | threads that leave the program's signals alone, for the crates above |

#![deny(unsafe_code)]
#![deny(clippy::multiple_unsafe_ops_per_block)]
#![cfg(target_os = "linux")]

mod cgroup;
mod error;
mod memfd;
mod pages;
mod pinned;
mod pool;
mod room;
#[allow(unsafe_code)]
pub mod threads;
mod udmabuf;

pub use cgroup::MemoryGroup;
pub use error::RegionError;
pub use pages::Pages;
pub use pinned::{PinnedRegion, RegionMapping};
pub use pool::{AddressPool, PooledRegion, Vacated};
pub use room::{check_room, total_memory};
