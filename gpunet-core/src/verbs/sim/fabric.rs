//! A network of simulated cards, and the faults that a test asks of it.

use super::card::Users;
use super::settings::FabricSettings;
use super::state::{Counters, Event, HostId, State};
use crate::verbs::{CompletionStatus, Usage};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A network of simulated cards, shared by any number of users.
///
/// Every address leads to whichever host listens there.
#[derive(Clone)]
pub struct Fabric(pub(super) Arc<Users>);

impl Fabric {
    /// A RoCE-like network without delays or faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(FabricSettings::new(seed))
    }

    /// A network with these settings.
    #[must_use]
    pub fn with(settings: FabricSettings) -> Self {
        Self(Arc::new(Users::new(State::new(settings))))
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

    /// Kills a host's process: its connections and listeners are gone, and peers get disconnect
    /// events. Objects of them that the test still holds are dead; the host can be used again.
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
            state.schedule(Instant::now() + time, Event::Restore);
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

    pub(super) fn locked<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.0.with(work)
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
