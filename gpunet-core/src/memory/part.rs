//! The proxy's view of one part of an arena, where that lies in pinned memory.

use crate::futex;
use gpu_usermap::{PinnedRegion, RegionError};
use gpunet_abi::arena::{PartHeader, PartLayout};
use gpunet_abi::layout::SocketLine;
use gpunet_abi::park::SharedFlag;
use gpunet_abi::{MAGIC, VERSION, Word, line};
use std::mem::offset_of;
use std::sync::Arc;

/// A part of an arena in pinned memory, as the proxy maps it. The two devices that use it write
/// anything they like there; the proxy reads nothing of it back.
#[derive(Clone, Debug)]
pub struct PartMemory {
    region: Arc<PinnedRegion>,
    layout: PartLayout,
}

impl PartMemory {
    /// Makes a part with `rings` bytes of ring memory.
    ///
    /// # Errors
    /// As [`PinnedRegion::create`].
    pub fn create(rings: u64) -> Result<Self, RegionError> {
        let layout = PartLayout::new(rings);
        let region = PinnedRegion::create("gpunet-arena", layout.len as usize)?;
        let header = region.base().as_ptr().cast::<PartHeader>();
        // SAFETY: the header lies at the start of the region, which is page-aligned and long
        // enough; no other agent has it yet.
        unsafe {
            (&raw mut (*header).magic).write_volatile(MAGIC);
            (&raw mut (*header).version).write_volatile(VERSION);
        }
        Ok(Self { region, layout })
    }

    /// The memory itself.
    #[must_use]
    pub const fn region(&self) -> &Arc<PinnedRegion> {
        &self.region
    }

    fn at(&self, ring: u64, field: usize) -> *mut u8 {
        assert!(ring >= self.layout.rings && ring < self.layout.len, "ring outside the part");
        self.region.base().as_ptr().wrapping_add(self.layout.line(ring) as usize + field)
    }

    /// Sets what goes with the ring of `capacity` bytes at offset `ring` back to 0, before its
    /// place is used again: its words, and its line or its unit ring. Both devices have closed
    /// their ends.
    pub fn clear(&self, ring: u64, capacity: u64) {
        let flags = offset_of!(SocketLine, send_park)..offset_of!(SocketLine, recv_park) + size_of::<u32>();
        for at in (0..line::used(capacity) as usize).step_by(size_of::<u64>()) {
            // CPUs alone touch the flags of the sleepers, who clear them.
            if !flags.contains(&at) {
                // SAFETY: a word of the part (`at` checks), 8-byte aligned, mapped while self
                // lives.
                unsafe { Word::from_ptr(self.at(ring, at).cast()) }.set(0);
            }
        }
        self.wake(ring);
    }

    /// Wakes the CPU blocks that wait for the words that go with the ring at offset `ring`.
    pub fn wake(&self, ring: u64) {
        for field in [offset_of!(SocketLine, send_park), offset_of!(SocketLine, recv_park)] {
            // SAFETY: as above, 4-byte aligned; CPUs alone touch the flags.
            futex::wake_if_parked(unsafe { SharedFlag::from_ptr(self.at(ring, field).cast()) });
        }
    }
}
