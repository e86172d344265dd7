//! Protection domains: what a connection's keys open; and those of a host, which caches them.

use super::memory::{self, Area};
use crate::verbs::{Keep, Keys, Table};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Memory regions of a domain: send ring, receive ring, table.
pub(super) const REGIONS: usize = 3;

/// A protection domain and its three memory regions.
#[derive(Debug)]
pub(super) struct Domain {
    pub key: CacheKey,
    pub bytes: u64,
    pub send: Area,
    pub recv: Area,
    pub keys: Keys,
    pub table: Table,
    /// Its owner's memory goes away: not to be cached any more.
    pub forgotten: AtomicBool,
    pub _keep: Kept,
}

/// What a domain is cached by: where a connection's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheKey {
    pub owner: u64,
    pub send: (u64, u64),
    pub recv: (u64, u64),
}

pub(super) struct Kept(#[allow(dead_code, reason = "held, not read")] pub Keep);

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
    pub free: Vec<Arc<Domain>>,
    /// Domains alive, the free ones included.
    pub live: usize,
    pub bytes: u64,
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
