//! A number for the right neighbour.

use crate::leave;
use gpunet_device::{Group, Kernel, Result, SymmetricPtr, TeamHandle};

/// Stores this member's rank at its right neighbour. One block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ring {
    /// The team.
    pub team: TeamHandle,
    /// One element: the left neighbour's rank, afterwards.
    pub number: SymmetricPtr<u64>,
    /// An errno.
    pub results: SymmetricPtr<i32>,
}

impl Ring {
    fn give<G: Group>(&self, g: &G) -> Result<()> {
        let (team, rank) = (self.team, self.team.rank());
        if g.is_leader() {
            team.p(self.number, u64::from(rank.0), rank.right_of(team.size()))?;
        }
        team.barrier(g)
    }
}

impl Kernel for Ring {
    const ENTRY: &'static str = "gpunet_symmetric_ring";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.give(g));
    }
}
