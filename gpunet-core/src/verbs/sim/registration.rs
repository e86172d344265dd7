//! Registers memory: finds a cached domain or makes one, and takes domains back.

use super::domain::{CacheKey, Domain, Kept, REGIONS};
use super::memory::Area;
use super::state::{HostId, State};
use crate::verbs::{Depth, Keys, Memory, RingMemory, Table};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
        let key =
            CacheKey { owner: memory.owner, send: (send.address, send.len), recv: (recv.address, recv.len) };
        let registry = &mut self.hosts[host.0].registry;
        if let Some(at) = registry.free.iter().position(|domain| domain.key == key) {
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
        Ok(Arc::new(Domain { key, bytes, send, recv, keys, table, forgotten, _keep }))
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
        let is_meant = |domain: &Domain| owner.is_none_or(|owner| domain.key.owner == owner);
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
