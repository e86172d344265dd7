//! Every member tells all others who it is.

use crate::leave;
use gpunet_device::{Group, Kernel, Rank, Result, SymmetricPtr, TeamHandle};

/// Stores this member's rank and the team's size into its element at every member. One block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Hello {
    /// The team.
    pub team: TeamHandle,
    /// An element for each member: the rank in the low half, the size above.
    pub members: SymmetricPtr<u64>,
    /// An errno.
    pub results: SymmetricPtr<i32>,
}

impl Hello {
    fn say<G: Group>(&self, g: &G) -> Result<()> {
        let team = self.team;
        let (rank, size) = (team.rank().0, team.size());
        // Each lane tells some.
        let mut to = g.rank();
        while to < size {
            let value = u64::from(size) << 32 | u64::from(rank);
            team.p(self.members.at(rank as usize), value, Rank(to))?;
            to += g.size();
        }
        team.barrier(g)
    }
}

impl Kernel for Hello {
    const ENTRY: &'static str = "gpunet_symmetric_hello";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.say(g));
    }
}
