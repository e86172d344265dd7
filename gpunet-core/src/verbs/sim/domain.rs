//! Protection domains: what a connection's keys open, registered once and cached by owner and place.

use super::HostId;
use super::memory::{self, Area};
use super::state::State;
use crate::verbs::{Depth, Keep, Keys, Memory, RingMemory, Table};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory regions of a domain: send ring, receive ring, table.
const REGIONS: usize = 3;

/// A protection domain and its three memory regions.
#[derive(Debug)]
pub(super) struct Domain {
    place: Place,
    bytes: u64,
    pub send: Area,
    pub recv: Area,
    pub keys: Keys,
    pub table: Table,
    /// Its owner's memory goes away: not to be cached any more.
    forgotten: AtomicBool,
    _keep: Kept,
}

/// Where a connection's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    owner: u64,
    send: (u64, u64),
    recv: (u64, u64),
}

struct Kept(#[allow(dead_code, reason = "held, not read")] Keep);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

/// Where a write by the peer goes.
pub(super) enum Target<'a> {
    Ring(&'a Area, u64),
    Table(&'a Table, u64),
}

impl Domain {
    /// What the key opens, if all of the place lies inside.
    pub fn open(&self, rkey: u32, address: u64, len: u64) -> Option<Target<'_>> {
        if rkey == self.keys.recv_rkey {
            return self.recv.offset_of(address, len).map(|at| Target::Ring(&self.recv, at));
        }
        if rkey == self.keys.table_rkey {
            let at = memory::place(self.keys.table_address, Table::BYTES as u64, address, len);
            return at.map(|at| Target::Table(&self.table, at));
        }
        None
    }
}

/// One host's registrations.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Those that no connection uses.
    free: Vec<Arc<Domain>>,
    /// Domains alive, the free ones included.
    live: usize,
    bytes: u64,
    /// Memory regions made since the start.
    pub made: u64,
    /// Its user is gone: nothing is cached any more.
    pub closed: bool,
}

impl Registry {
    pub fn memory_regions(&self) -> usize {
        self.live * REGIONS
    }
}

impl State {
    /// Finds the domain for that memory or makes it.
    pub fn register(&mut self, host: HostId, memory: &Memory, depth: Depth) -> io::Result<Arc<Domain>> {
        let too_deep = depth.sends.max(depth.receives) > self.settings.max_depth;
        if too_deep || depth.sends == 0 || depth.receives == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "queue depth outside the device's limits",
            ));
        }
        let (send, recv) = (&memory.send_ring, &memory.recv_ring);
        let is_dma_buf = |ring: &crate::verbs::Ring| matches!(ring.memory, RingMemory::DmaBuf { .. });
        if !self.settings.dma_buf && (is_dma_buf(send) || is_dma_buf(recv)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the device cannot register a dma-buf"));
        }
        let place =
            Place { owner: memory.owner, send: (send.address, send.len), recv: (recv.address, recv.len) };
        let registry = &mut self.hosts[host.0].registry;
        if let Some(at) = registry.free.iter().position(|domain| domain.place == place) {
            let domain = registry.free.swap_remove(at);
            domain.table.clear();
            return Ok(domain);
        }
        let table = Table::new(0);
        let bytes = send.len + recv.len + table.len() as u64;
        if registry.bytes.saturating_add(bytes) > self.settings.memory_limit {
            // What is kept for speed goes first.
            for domain in registry.free.drain(..) {
                registry.live -= 1;
                registry.bytes -= domain.bytes;
                self.trash.push(domain);
            }
        }
        if registry.bytes.saturating_add(bytes) > self.settings.memory_limit {
            let text = format!(
                "cannot register {bytes} bytes: {} are, and the locked-memory limit (ulimit -l) is {}",
                registry.bytes, self.settings.memory_limit
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        let (send, recv) = (Area::new(send)?, Area::new(recv)?);
        registry.live += 1;
        registry.bytes += bytes;
        registry.made += REGIONS as u64;
        self.counters.registrations += REGIONS as u64;
        let keys =
            Keys { recv_rkey: self.new_key(), table_address: table.address(), table_rkey: self.new_key() };
        let forgotten = AtomicBool::new(false);
        let _keep = Kept(memory.keep.clone());
        Ok(Arc::new(Domain { place, bytes, send, recv, keys, table, forgotten, _keep }))
    }

    /// Takes a domain back from a connection that ended.
    pub fn release(&mut self, host: HostId, domain: Arc<Domain>) {
        let registry = &mut self.hosts[host.0].registry;
        // Ordering: Relaxed; the fabric's lock orders it.
        if registry.closed || domain.forgotten.load(Ordering::Relaxed) {
            registry.live -= 1;
            registry.bytes -= domain.bytes;
            self.trash.push(domain);
        } else {
            registry.free.push(domain);
        }
    }

    /// Forgets the cached domains of `owner`, or of everybody.
    pub fn forget(&mut self, host: HostId, owner: Option<u64>) {
        let is_meant = |domain: &Domain| owner.is_none_or(|owner| domain.place.owner == owner);
        for qp in self.qps.values().filter(|qp| qp.host == host && is_meant(&qp.domain)) {
            // Ordering: Relaxed; the fabric's lock orders it.
            qp.domain.forgotten.store(true, Ordering::Relaxed);
        }
        let registry = &mut self.hosts[host.0].registry;
        for domain in registry.free.extract_if(.., |domain| is_meant(domain)) {
            registry.live -= 1;
            registry.bytes -= domain.bytes;
            self.trash.push(domain);
        }
    }
}
