//! The collectives of the library, one after the other.

use crate::leave;
use gpunet_device::team::Sum;
use gpunet_device::{Group, Kernel, Rank, Result, SymmetricPtr, TeamHandle};

/// Gathers, exchanges, reduces and broadcasts this member's elements. One block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Collectives {
    /// The team.
    pub team: TeamHandle,
    /// What this member has: a part for each member.
    pub from: SymmetricPtr<f32>,
    /// The first parts of all.
    pub gathered: SymmetricPtr<f32>,
    /// This member's parts of all.
    pub exchanged: SymmetricPtr<f32>,
    /// The sum of all.
    pub reduced: SymmetricPtr<f32>,
    /// What the last member has.
    pub told: SymmetricPtr<f32>,
    /// An errno.
    pub results: SymmetricPtr<i32>,
}

impl Collectives {
    fn call<G: Group>(&self, g: &G) -> Result<()> {
        let team = self.team;
        let own = self.from.buffer(team)?;
        team.all_gather(g, self.gathered, own.first(own.len() / team.size() as usize))?;
        team.all_to_all(g, self.exchanged, own)?;
        team.reduce(g, Sum, self.reduced, self.from)?;
        team.broadcast(g, self.told, own, Rank(team.size() - 1))
    }
}

impl Kernel for Collectives {
    const ENTRY: &'static str = "gpunet_symmetric_collectives";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.call(g));
    }
}
