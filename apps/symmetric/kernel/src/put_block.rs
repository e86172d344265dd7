//! Many blocks put at a time.

use crate::leave;
use crate::signals::SHARES;
use gpunet_device::{Group, Kernel, Result, SymmetricPtr, TeamHandle};

/// The blocks of a member put its elements to the right neighbour, each a share, and count up one
/// signal.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PutBlock {
    /// The team.
    pub team: TeamHandle,
    /// What this member has.
    pub from: SymmetricPtr<u32>,
    /// What the left neighbour has, afterwards.
    pub to: SymmetricPtr<u32>,
    /// An errno for each block.
    pub results: SymmetricPtr<i32>,
    /// Blocks that have put before, over all launches.
    pub before: u64,
}

impl PutBlock {
    fn put<G: Group>(&self, g: &G) -> Result<()> {
        let (team, rank) = (self.team, self.team.rank());
        let (right, left) = (rank.right_of(team.size()), rank.left_of(team.size()));
        let share = self.from.len().div_ceil(g.count() as usize);
        let start = share * g.index() as usize;
        team.put(g, self.to.slice(start, share), self.from.slice(start, share).buffer(team)?, right)?;
        team.signal_add(g, SHARES, 1, right)?;
        if g.index() == 0 {
            team.wait_until(g, SHARES, left, self.before + u64::from(g.count()))?;
        }
        Ok(())
    }
}

impl Kernel for PutBlock {
    const ENTRY: &'static str = "gpunet_symmetric_put_block";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.put(g));
    }
}
