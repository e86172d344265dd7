//! What the simulated card does with raw memory: the only unsafe code of the simulation.
//!
//! Every access is made under the fabric's lock, and for a queue pair that is alive; so a handshake
//! or endpoint whose drop has returned leaves its memory alone.

use crate::verbs::{Ring, RingMemory, Table};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A registered ring.
#[derive(Debug)]
pub(super) struct Area {
    base: NonNull<u8>,
    len: u64,
    /// What work requests and the peer call its first byte.
    address: u64,
    _mapping: Option<Mapping>,
}

// SAFETY: an area is a place, not the bytes there; those are reached through the functions below,
// under the fabric's lock.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Area {
    /// Registers a ring.
    pub fn new(ring: &Ring) -> io::Result<Self> {
        let (base, mapping) = match &ring.memory {
            RingMemory::Mapped => (NonNull::new(ring.address as *mut u8), None),
            RingMemory::DmaBuf { fd, offset } => {
                let mapping = Mapping::new(fd.as_raw_fd(), *offset, ring.len)?;
                let into = (*offset % PAGE) as usize;
                // SAFETY: `Mapping::new` maps from the page that `offset` lies in.
                let base = unsafe { mapping.start.add(into) };
                (Some(base), Some(mapping))
            }
        };
        let base = base.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Self { base, len: ring.len, address: ring.address, _mapping: mapping })
    }

    /// Returns the offset of `address`; `None` unless that many bytes from there lie inside.
    pub fn offset_of(&self, address: u64, len: u64) -> Option<u64> {
        place(self.address, self.len, address, len)
    }

    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len as u64).is_some_and(|end| end <= self.len), "outside the ring");
        // SAFETY: inside the registered memory (checked). For `RingMemory::Mapped` the caller of
        // `Handshake::prepare` gives an address of this process and `Memory::keep`, which holds
        // that memory as long as this registration; a dma-buf is mapped by `_mapping`.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }
}

/// Where `address` lies in `[start, start + total)`, if all `len` bytes do.
pub(super) fn place(start: u64, total: u64, address: u64, len: u64) -> Option<u64> {
    let offset = address.checked_sub(start)?;
    offset.checked_add(len).filter(|end| *end <= total).map(|_| offset)
}

const PAGE: u64 = 4096;

impl Mapping {
    fn new(fd: i32, offset: u64, len: u64) -> io::Result<Self> {
        let into = offset % PAGE;
        let len = (into + len) as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let from = (offset - into) as libc::off_t;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(null_mut(), len, access, libc::MAP_SHARED, fd, from) };
        match NonNull::new(start.cast()) {
            Some(place) if start != libc::MAP_FAILED => Ok(Self { start: place, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and unmapped once; the area that points into it goes with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Reads from a ring.
pub(super) fn read(from: &Area, offset: u64, into: &mut [u8]) {
    let from = from.at(offset, into.len());
    // SAFETY: `at` vouches for the ring's side, the slice for the other; `copy` allows overlap. The
    // owner of a ring leaves bytes alone that are being sent, by the contract of `Endpoint::post`.
    unsafe { std::ptr::copy(from, into.as_mut_ptr(), into.len()) };
}

/// Writes into a ring.
pub(super) fn write(to: &Area, offset: u64, bytes: &[u8]) {
    let to = to.at(offset, bytes.len());
    // SAFETY: as in `read`; readers of a receive ring look at bytes after the message about them.
    unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
}

/// Copies from ring to ring.
pub(super) fn copy(from: &Area, at: u64, to: &Area, offset: u64, len: usize) {
    let (from, to) = (from.at(at, len), to.at(offset, len));
    // SAFETY: as in `read` and `write`.
    unsafe { std::ptr::copy(from, to, len) };
}

/// Writes into a table; a whole descriptor becomes visible with its length.
pub(super) fn write_table(table: &Table, offset: u64, bytes: &[u8]) {
    let inside = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= Table::BYTES as u64);
    assert!(inside, "outside the table");
    let at = (table.address() + offset) as *mut u8;
    if let (0, Ok(entry)) = (offset % 16, <&[u8; 16]>::try_from(bytes)) {
        let address = u64::from_ne_bytes(entry[..8].try_into().expect("8 bytes"));
        let rkey = u32::from_ne_bytes(entry[8..12].try_into().expect("4 bytes"));
        let len = u32::from_ne_bytes(entry[12..].try_into().expect("4 bytes"));
        // SAFETY: inside the table (checked), whose base is page-aligned; `Table` reads these words
        // with atomics of the same sizes.
        let words = unsafe {
            (
                AtomicU64::from_ptr(at.cast()),
                AtomicU32::from_ptr(at.add(8).cast()),
                AtomicU32::from_ptr(at.add(12).cast()),
            )
        };
        words.0.store(address, Ordering::Relaxed);
        words.1.store(rkey, Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire of the length in `Table::take`; without it the
        // reader could see a new length with an old address.
        words.2.store(len, Ordering::Release);
        return;
    }
    // No peer of ours writes parts of descriptors, but a card would.
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: inside the table (checked).
        let cell = unsafe { AtomicU8::from_ptr(at.add(i)) };
        cell.store(*byte, Ordering::Release);
    }
}
