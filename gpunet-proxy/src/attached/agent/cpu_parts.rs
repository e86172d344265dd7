//! Where a CPU device has the parts of its arenas.
//!
//! Peers come and go while a launch runs, and a thread block may still be inside a call that uses
//! the arena of one that is gone. So the addresses of a part that is unmapped stay mapped, as
//! private memory, and are another part's only after a grace period, in which every such call has
//! ended. Both mappings and addresses of the process are bounded by the arenas that are mapped at
//! one time, not by those that ever were. Where the system has no grace periods (see
//! [`GracePeriod::can_end`]), each arena takes addresses of its own, and only the mappings are
//! bounded.
//!
//! A GPU has its arenas by registrations, exports and imports of CUDA. These cannot end in this
//! way: a kernel does not announce its calls, and CUDA may wait for all kernels when memory is
//! unregistered. They are given back when no kernel of the device runs (`gpu_usermap`), together
//! with their addresses, and the pages of a part stay pinned until then.

use gpu_usermap::{AddressPool, PinnedRegion, PooledRegion, Vacated};
use gpunet_device::cpu::GracePeriod;
use std::ops::Range;

/// The addresses of an attachment's arenas.
#[derive(Debug)]
pub(super) struct CpuParts {
    pool: AddressPool,
    /// The address of the device's own memory, which identifies its calls.
    device: u64,
    /// Parts that were unmapped and may still be in use.
    vacated: Vec<(GracePeriod, Vec<Vacated>)>,
}

impl CpuParts {
    pub(super) fn new(device: u64) -> Self {
        Self { pool: AddressPool::default(), device, vacated: Vec::new() }
    }

    /// Maps a part.
    pub(super) fn map(&mut self, region: &PinnedRegion) -> Result<PooledRegion, String> {
        self.reclaim();
        self.pool.map(region).map_err(|error| error.to_string())
    }

    /// Unmaps the parts of an arena, which are no longer in the device's table.
    pub(super) fn unmap(&mut self, parts: Vec<PooledRegion>) {
        let range = |part: &PooledRegion| part.address()..part.address() + part.len() as u64;
        let addresses: Vec<Range<u64>> = parts.iter().map(range).collect();
        let vacate = |part| match self.pool.vacate(part) {
            Ok(vacated) => Some(vacated),
            Err(error) => {
                tracing::warn!(%error, "the memory of a peer that is gone stays mapped");
                None
            }
        };
        let vacated: Vec<_> = parts.into_iter().filter_map(vacate).collect();
        // After both: stores of a call from now on cannot reach the next part at these addresses.
        self.vacated.push((GracePeriod::begin(self.device, &addresses), vacated));
        self.reclaim();
    }

    /// Frees the addresses that no call uses any more.
    fn reclaim(&mut self) {
        for (_, vacated) in self.vacated.extract_if(.., |(grace, _)| grace.is_over()) {
            vacated.into_iter().for_each(|vacated| self.pool.free(vacated));
        }
    }
}
