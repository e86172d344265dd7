//! A sum along the ring, chunk by chunk, each block its share.

use crate::leave;
use crate::signals::{growing, whole};
use gpunet_device::{Group, Kernel, Rank, Result, SymmetricPtr, TeamHandle};

/// Adds up the elements of all members: the sum grows from member 0 to the last one, and then goes
/// round the ring.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RingReduce {
    /// The team, with two signals for each block.
    pub team: TeamHandle,
    /// What this member has, and afterwards the sum.
    pub data: SymmetricPtr<u64>,
    /// As much memory for sums on the way.
    pub work: SymmetricPtr<u64>,
    /// An errno for each block.
    pub results: SymmetricPtr<i32>,
    /// Elements of a chunk.
    pub chunk: u64,
    /// Chunks of a block that have come before, over all launches.
    pub before: u64,
}

impl RingReduce {
    fn reduce<G: Group>(&self, g: &G) -> Result<()> {
        let (team, size) = (self.team, self.team.size());
        let (rank, last) = (team.rank(), Rank(size - 1));
        let (right, left) = (rank.right_of(size), rank.left_of(size));
        let (growing, whole) = (growing(g.index()), whole(g.index()));
        let share = self.data.len().div_ceil(g.count() as usize);
        let start = share * g.index() as usize;
        let (data, work) = (self.data.slice(start, share), self.work.slice(start, share));
        let chunk = self.chunk as usize;
        let chunks = share.div_ceil(chunk);
        for number in 0..chunks {
            let arrived = self.before + number as u64 + 1;
            let (data, work) = (data.slice(number * chunk, chunk), work.slice(number * chunk, chunk));
            if rank != Rank(0) {
                team.wait_until(g, growing, left, arrived)?;
                self.add(g, data, work)?;
            }
            if rank != last {
                team.put_signal(g, work, data.buffer(team)?, growing, arrived, right)?;
            }
        }
        for number in 0..chunks {
            let arrived = self.before + number as u64 + 1;
            let data = data.slice(number * chunk, chunk);
            if rank != last {
                team.wait_until(g, whole, left, arrived)?;
            }
            if right != last {
                team.put_signal(g, data, data.buffer(team)?, whole, arrived, right)?;
            }
        }
        Ok(())
    }

    /// Adds `work` to `data`, both this member's.
    fn add<G: Group>(&self, g: &G, data: SymmetricPtr<u64>, work: SymmetricPtr<u64>) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        let mut at = g.rank() as usize;
        while at < data.len() {
            let sum = team.g(data.at(at), own)?.wrapping_add(team.g(work.at(at), own)?);
            team.p(data.at(at), sum, own)?;
            at += g.size() as usize;
        }
        // The put that follows reads what all lanes have stored.
        g.sync();
        Ok(())
    }
}

impl Kernel for RingReduce {
    const ENTRY: &'static str = "gpunet_symmetric_ring_reduce";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.reduce(g));
    }
}
