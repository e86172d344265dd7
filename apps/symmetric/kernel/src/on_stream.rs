//! A kernel that takes turns with a queue of its member.

use crate::leave;
use crate::signals::{SUMMED, TOLD};
use gpunet_device::{Group, Kernel, Result, SymmetricPtr, TeamHandle};

/// Sums up this member's numbers, lets the member's queue gather the sums of all, and takes 1 from
/// each of its numbers while their sum is above a threshold. One block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OnStream {
    /// The team.
    pub team: TeamHandle,
    /// This member's numbers.
    pub input: SymmetricPtr<u32>,
    /// One element: their sum.
    pub partial: SymmetricPtr<u64>,
    /// An element for each member, which the queue fills: the sums of all.
    pub gathered: SymmetricPtr<u64>,
    /// An errno.
    pub results: SymmetricPtr<i32>,
    /// Turns.
    pub rounds: u64,
    /// What the sum of all numbers is not to be above.
    pub threshold: u64,
}

impl OnStream {
    fn correct<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        let mut round = 1;
        while round <= self.rounds {
            let (mut sum, mut at) = (0, g.rank() as usize);
            while at < self.input.len() {
                sum += team.g(self.input.at(at), own)?;
                at += g.size() as usize;
            }
            let sum = g.sum(sum);
            if g.is_leader() {
                team.p(self.partial, u64::from(sum), own)?;
            }
            team.signal(g, SUMMED, round, own)?;
            team.wait_until(g, TOLD, own, round)?;
            let (mut all, mut member) = (0, 0);
            while member < team.size() as usize {
                all += team.g(self.gathered.at(member), own)?;
                member += 1;
            }
            let mut at = g.rank() as usize;
            while all > self.threshold && at < self.input.len() {
                let number = team.g(self.input.at(at), own)?;
                team.p(self.input.at(at), number.saturating_sub(1), own)?;
                at += g.size() as usize;
            }
            // Each lane goes on with its own numbers.
            round += 1;
        }
        Ok(())
    }
}

impl Kernel for OnStream {
    const ENTRY: &'static str = "gpunet_symmetric_on_stream";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.correct(g));
    }
}
