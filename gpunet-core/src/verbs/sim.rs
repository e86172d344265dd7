//! A network card in memory: seeded, and it delays, loses and fails on demand.
//!
//! | file | what |
//! |---|---|
//! | [`Settings`] (`settings`) | what a network is like; the seeded dice |
//! | `state` | hosts, queue pairs, listeners, timers: everything, behind one lock |
//! | `card` | that lock, and the thread that lets time pass |
//! | `nic` | carries requests over, in order, and completes them |
//! | `cm` | requests, answers, disconnects |
//! | `domain` | registrations and their cache |
//! | `memory` | raw memory: the only unsafe code |
//! | `handshake`, `endpoint` | the handles that users hold |
//!
//! It behaves as RC queue pairs under rdma_cm do, where that shows: a completion event comes once for
//! each `arm`, and only for what completes after it; a failed request puts its queue pair into error;
//! a refused one both; a message without a receive waits for the receiver's RNR timer; a dead process
//! is announced, a dead host is not. A stopped process needs no fault: its card works on, so a test
//! just stops calling.
//!
//! Without delays everything happens inside the call that causes it, and only faults and time limits
//! need the thread. The card reads and writes with the CPU, so rings are host memory or a dma-buf that
//! mmap(2) can map (a memfd).

mod card;
mod cm;
mod domain;
mod endpoint;
mod event;
mod handshake;
#[allow(unsafe_code)]
mod memory;
mod nic;
mod settings;
mod state;

pub use settings::Settings;

use crate::verbs::{CompletionStatus, Handshake, Listening, Pending, Usage, Verbs};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A network of simulated cards, shared by any number of users.
///
/// Every address leads to whichever host listens there.
#[derive(Clone)]
pub struct Fabric(Arc<card::Users>);

/// A host of a [`Fabric`]: one process and its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostId(usize);

/// What has happened in a network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests posted to send queues.
    pub work_requests: u64,
    /// Messages delivered: writes with immediate data, and sends.
    pub messages: u64,
    /// Inline writes delivered: descriptors put into a table.
    pub table_writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Times that a message found no receive.
    pub rnr: u64,
    /// Times that a request or its acknowledgement was lost.
    pub retries: u64,
    /// Memory regions made, on all hosts.
    pub registrations: u64,
}

impl Fabric {
    /// A RoCE-like network without delays or faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(Settings::new(seed))
    }

    /// A network with these settings.
    #[must_use]
    pub fn with(settings: Settings) -> Self {
        Self(Arc::new(card::Users::new(state::State::new(settings))))
    }

    /// A new host.
    #[must_use]
    pub fn host(&self) -> Sim {
        let id = self.0.with(state::State::add_host);
        Sim { fabric: self.clone(), id }
    }

    /// A new host, behind the trait.
    #[must_use]
    pub fn verbs(&self) -> Box<dyn Verbs> {
        Box::new(self.host())
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.with(|state| state.counters)
    }

    /// Powers a host off. Its peers are not told; their requests go unanswered.
    pub fn power_off(&self, host: HostId) {
        self.0.with(|state| state.hosts[host.0].powered = false);
    }

    /// Starts a host again; the connections it had are gone, which peers learn by trying only.
    pub fn power_on(&self, host: HostId) {
        self.0.with(|state| {
            state.kill(host, false);
            state.hosts[host.0].powered = true;
        });
    }

    /// Kills a host's process: its connections and listeners are gone, and peers are told. What the
    /// test still holds of them is dead; the host can be used again.
    pub fn kill(&self, host: HostId) {
        self.0.with(|state| state.kill(host, true));
    }

    /// Partitions the network: nothing reaches another host. Requests are repeated, and succeed if
    /// [`Fabric::restore`] comes in time.
    pub fn partition(&self) {
        self.0.with(|state| state.partitioned = true);
    }

    /// Partitions the network for a while.
    pub fn partition_for(&self, time: Duration) {
        self.0.with(|state| {
            state.partitioned = true;
            state.schedule(Instant::now() + time, state::Event::Restore);
        });
    }

    /// Ends the partition.
    pub fn restore(&self) {
        self.0.with(|state| state.partitioned = false);
    }

    /// Makes the next request that a host's card carries out end with `status`. Calls add up.
    pub fn fail_next(&self, host: HostId, status: CompletionStatus) {
        self.0.with(|state| state.hosts[host.0].orders.push_back(status));
    }

    /// Makes an address unreachable by RDMA from now on: resolving it fails.
    pub fn hide(&self, ip: IpAddr) {
        self.0.with(|state| state.hidden.insert(ip));
    }

    /// The hosts, in the order in which they were made: also those whose stacks a proxy owns.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostId> {
        self.0.with(|state| (0..state.hosts.len()).map(HostId).collect())
    }

    /// What a host holds at this moment.
    #[must_use]
    pub fn usage(&self, host: HostId) -> Usage {
        self.0.with(|state| {
            let host = &state.hosts[host.0];
            Usage {
                queue_pairs: host.queue_pairs,
                identifiers: host.identifiers,
                memory_regions: host.registry.memory_regions(),
            }
        })
    }

    fn locked<R>(&self, work: impl FnOnce(&mut state::State) -> R) -> R {
        self.0.with(work)
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

/// The RDMA stack of one host of a [`Fabric`].
///
/// When it is dropped, nothing stays registered for a later connection; connections live on.
#[derive(Debug)]
pub struct Sim {
    fabric: Fabric,
    id: HostId,
}

impl Sim {
    /// Names the host, for faults.
    #[must_use]
    pub fn id(&self) -> HostId {
        self.id
    }

    /// Memory regions made since the start; a connection that finds its memory cached makes none.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        self.fabric.locked(|state| state.hosts[self.id.0].registry.made)
    }

    /// An address of this host for a connection to `to`.
    fn address_to(&self, to: SocketAddr, from: Option<SocketAddr>) -> SocketAddr {
        // Loopback is its own other end. Other addresses are made up: nobody can be reached there.
        let made_up = match to.ip() {
            ip if ip.is_loopback() => ip,
            IpAddr::V4(_) => IpAddr::from([10, 0, (self.id.0 >> 8) as u8, self.id.0 as u8]),
            IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, self.id.0 as u16]),
        };
        let ip = from.map(|from| from.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(made_up);
        let port = from.map(|from| from.port()).filter(|port| *port != 0);
        let port = port.unwrap_or_else(|| 49152 + (self.fabric.locked(state::State::new_id) % 16384) as u16);
        SocketAddr::new(ip, port)
    }
}

impl Verbs for Sim {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> io::Result<Box<dyn Listening>> {
        Ok(Box::new(handshake::SimListening::new(&self.fabric, self.id, addr, backlog)?))
    }

    fn resolve(&self, to: SocketAddr, from: Option<SocketAddr>) -> Pending<Box<dyn Handshake>> {
        if self.fabric.locked(|state| state.hidden.contains(&to.ip())) {
            return Box::pin(async { Err(io::ErrorKind::NetworkUnreachable.into()) });
        }
        let local = self.address_to(to, from);
        let handshake = handshake::SimHandshake::active(&self.fabric, self.id, local, to);
        Box::pin(async move { Ok(Box::new(handshake) as Box<dyn Handshake>) })
    }

    fn forget(&self, owner: u64) {
        self.fabric.locked(|state| state.forget(self.id, Some(owner)));
    }

    fn usage(&self) -> Usage {
        self.fabric.usage(self.id)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.fabric.locked(|state| {
            state.hosts[self.id.0].registry.closed = true;
            state.forget(self.id, None);
        });
    }
}
