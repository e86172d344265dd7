//! A network card in memory: seeded, and it delays, loses and fails on demand.
//!
//! | file | what |
//! |---|---|
//! | [`FabricSettings`] (`settings`) | what a network is like; the seeded dice |
//! | [`Fabric`] (`fabric`) | the network, its faults and counters |
//! | [`Sim`] (`stack`) | the RDMA stack of one host |
//! | `state` | hosts, queue pairs, listeners, timers: everything, behind one lock |
//! | `card` | that lock, and the thread that lets time pass |
//! | `nic` | carries requests over, in order, and completes them |
//! | `cm` | requests, answers, disconnects |
//! | `domain`, `registration` | registrations and their cache |
//! | `memory` | raw memory: the only unsafe code |
//! | `handshake`, `endpoint`, `hold` | the handles that users hold |
//!
//! It behaves as RC queue pairs under rdma_cm do, where that shows: a completion event comes once
//! for each `arm`, and only for what completes after it; a failed request puts its queue pair into
//! error; a refused one both; a message without a receive waits for the receiver's RNR timer; a
//! dead process is announced, a dead host is not. A stopped process needs no fault: its card works
//! on, so a test just stops calling.
//!
//! Without delays everything happens inside the call that causes it, and only faults and time
//! limits need the thread. The card reads and writes with the CPU, so rings are host memory or a
//! dma-buf that mmap(2) can map (a memfd).

mod card;
mod cm;
mod domain;
mod endpoint;
mod event;
mod fabric;
mod handshake;
mod hold;
#[allow(unsafe_code)]
mod memory;
mod nic;
mod registration;
mod settings;
mod stack;
mod state;

pub use fabric::Fabric;
pub use settings::FabricSettings;
pub use stack::Sim;
pub use state::{Counters, HostId};
