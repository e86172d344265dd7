//! A broadcast along the ring, chunk by chunk.

use crate::leave;
use crate::signals::CHUNKS;
use gpunet_device::{Group, Kernel, Rank, Result, SymmetricPtr, TeamHandle};

/// Passes the elements of member 0 from each member to the next. One block. While a chunk travels
/// on, the next one comes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RingBroadcast {
    /// The team.
    pub team: TeamHandle,
    /// What member 0 has, afterwards everywhere.
    pub data: SymmetricPtr<u32>,
    /// An errno.
    pub results: SymmetricPtr<i32>,
    /// Elements of a chunk.
    pub chunk: u64,
    /// Chunks that have come before, over all launches.
    pub before: u64,
}

impl RingBroadcast {
    fn pass<G: Group>(&self, g: &G) -> Result<()> {
        let (team, rank) = (self.team, self.team.rank());
        let (right, left) = (rank.right_of(team.size()), rank.left_of(team.size()));
        let chunk = self.chunk as usize;
        for number in 0..self.data.len().div_ceil(chunk) {
            let arrived = self.before + number as u64 + 1;
            if rank != Rank(0) {
                team.wait_until(g, CHUNKS, left, arrived)?;
            }
            if right != Rank(0) {
                let part = self.data.slice(number * chunk, chunk);
                team.put_signal(g, part, part.buffer(team)?, CHUNKS, arrived, right)?;
            }
        }
        Ok(())
    }
}

impl Kernel for RingBroadcast {
    const ENTRY: &'static str = "gpunet_symmetric_ring_broadcast";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.pass(g));
    }
}
