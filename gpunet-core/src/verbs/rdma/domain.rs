//! What one connection at a time may touch: a protection domain with the registrations of its rings
//! and a table of descriptors.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::super::{Keys, Memory, Ring, RingMemory, Table};
use super::context::Context;
use super::counts::Counts;
use super::ffi::Sge;
use super::objects::{Access, ProtectionDomain, Region};

/// A protection domain and the registrations in it.
///
/// The order of the fields is that of their end: the registrations, then the memory they pin.
pub(super) struct Domain {
    send: Region,
    recv: Region,
    descriptors: Region,
    /// iWARP's message slots, which the peer cannot write.
    slots: Option<Region>,
    /// Room for that many messages.
    slot_count: usize,
    protection: Arc<ProtectionDomain>,
    table: Table,
    /// The rings' places, and what keeps them mapped.
    memory: Memory,
}

impl Domain {
    /// Registers `memory`, a table, and message slots if there shall be any.
    pub(super) fn new(
        context: &Arc<Context>,
        memory: &Memory,
        slot_count: usize,
        counts: &Arc<Counts>,
    ) -> io::Result<Self> {
        let protection = ProtectionDomain::new(context)?;
        let register = |ring: &Ring, access| {
            Region::new(&protection, ring.address, ring.len, &ring.memory, access, counts)
        };
        let recv = register(&memory.recv_ring, Access::Remote)?;
        let send = register(&memory.send_ring, Access::Local)?;
        let table = Table::new(slot_count);
        let mapped = |address, len, access| {
            Region::new(&protection, address, len, &RingMemory::Mapped, access, counts)
        };
        let descriptors = mapped(table.address(), Table::BYTES as u64, Access::Remote)?;
        let slots = if slot_count > 0 {
            let at = table.address() + Table::message_offset(0) as u64;
            Some(mapped(at, slot_count as u64 * 4, Access::Local)?)
        } else {
            None
        };
        Ok(Self { send, recv, descriptors, slots, slot_count, protection, table, memory: memory.clone() })
    }

    pub(super) fn protection(&self) -> &ProtectionDomain {
        &self.protection
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.protection.context()
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn owner(&self) -> u64 {
        self.memory.owner
    }

    /// What the peer may know.
    pub(super) fn keys(&self) -> Keys {
        Keys {
            recv_rkey: self.recv.rkey,
            table_address: self.table.address(),
            table_rkey: self.descriptors.rkey,
        }
    }

    /// The key of the send ring.
    pub(super) fn send_key(&self) -> u32 {
        self.send.lkey
    }

    /// Where iWARP's message number `slot` goes; `None` where messages need no room.
    pub(super) fn slot(&self, slot: usize) -> Option<Sge> {
        let region = self.slots.as_ref()?;
        let addr = self.table.address() + Table::message_offset(slot) as u64;
        Some(Sge { addr, length: 4, lkey: region.lkey })
    }

    /// Returns whether it is what a connection with that memory needs.
    pub(super) fn fits(&self, memory: &Memory, slot_count: usize) -> bool {
        self.memory.owner == memory.owner
            && same(&self.memory.send_ring, &memory.send_ring)
            && same(&self.memory.recv_ring, &memory.recv_ring)
            && self.slot_count >= slot_count
    }

    /// Returns whether a ring of `memory` lies in part where one of its own lies, so that the
    /// memory is used in another way now.
    pub(super) fn overlaps(&self, memory: &Memory) -> bool {
        let own = [&self.memory.send_ring, &self.memory.recv_ring];
        let new = [&memory.send_ring, &memory.recv_ring];
        let same_owner = self.memory.owner == memory.owner;
        own.iter().any(|a| new.iter().any(|b| overlap(a, b, same_owner)))
    }
}

fn same(a: &Ring, b: &Ring) -> bool {
    let same_memory = match (&a.memory, &b.memory) {
        (RingMemory::Mapped, RingMemory::Mapped) => true,
        // The domain holds its descriptor, so the number cannot name another file.
        (RingMemory::DmaBuf { fd: a, offset: at }, RingMemory::DmaBuf { fd: b, offset }) => {
            a.as_raw_fd() == b.as_raw_fd() && at == offset
        }
        _ => false,
    };
    same_memory && a.address == b.address && a.len == b.len
}

fn overlap(a: &Ring, b: &Ring, same_owner: bool) -> bool {
    // GPU addresses of different owners are different memory even where they are equal.
    let comparable = same_owner || matches!((&a.memory, &b.memory), (RingMemory::Mapped, RingMemory::Mapped));
    comparable && a.address < b.address.saturating_add(b.len) && b.address < a.address.saturating_add(a.len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(address: u64, len: u64) -> Ring {
        Ring { address, len, memory: RingMemory::Mapped }
    }

    fn dmabuf(address: u64, fd: &Arc<std::os::fd::OwnedFd>) -> Ring {
        Ring { address, len: 10, memory: RingMemory::DmaBuf { fd: Arc::clone(fd), offset: 0 } }
    }

    #[test]
    fn rings_are_the_same_only_at_the_same_place() {
        assert!(same(&ring(10, 10), &ring(10, 10)));
        assert!(!same(&ring(10, 10), &ring(10, 11)));
        let one = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let other = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        assert!(same(&dmabuf(10, &one), &dmabuf(10, &one)));
        assert!(!same(&dmabuf(10, &one), &dmabuf(10, &other)));
        assert!(!same(&dmabuf(10, &one), &ring(10, 10)));
    }

    #[test]
    fn addresses_of_different_gpu_owners_do_not_overlap() {
        assert!(overlap(&ring(10, 10), &ring(19, 5), false));
        assert!(!overlap(&ring(10, 10), &ring(20, 5), true));
        let fd = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        assert!(overlap(&dmabuf(10, &fd), &dmabuf(15, &fd), true));
        assert!(!overlap(&dmabuf(10, &fd), &dmabuf(15, &fd), false));
    }
}
