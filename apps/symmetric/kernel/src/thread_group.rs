//! A gather by a block, by a warp, by a thread.

use crate::leave;
use gpunet_device::{Group, Kernel, Result, SymmetricPtr, TeamHandle};

/// Which threads of a block gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Gatherer {
    /// All of them.
    Block = 0,
    /// The first warp.
    Warp = 1,
    /// The first thread.
    Thread = 2,
}

/// Adds two vectors, each member a piece of them and each thread its share, and gives everybody the
/// whole sum. One block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ThreadGroup {
    /// The team.
    pub team: TeamHandle,
    /// This member's piece of the first vector.
    pub x: SymmetricPtr<i32>,
    /// And of the second.
    pub y: SymmetricPtr<i32>,
    /// Its piece of the sum.
    pub partial: SymmetricPtr<i32>,
    /// The whole sum, afterwards everywhere.
    pub sum: SymmetricPtr<i32>,
    /// An errno.
    pub results: SymmetricPtr<i32>,
    /// A [`Gatherer`].
    pub gatherer: u64,
}

impl ThreadGroup {
    fn add<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        let mut at = g.rank() as usize;
        while at < self.partial.len() {
            let sum = team.g(self.x.at(at), own)?.wrapping_add(team.g(self.y.at(at), own)?);
            team.p(self.partial.at(at), sum, own)?;
            at += g.size() as usize;
        }
        // Those who gather read what all lanes have stored.
        g.sync();
        Ok(())
    }

    /// Called by all lanes of a group, which may be a part of the block.
    fn gather<G: Group>(&self, g: &G) -> Result<()> {
        self.team.all_gather(g, self.sum, self.partial.buffer(self.team)?)
    }

    fn work<G: Group>(&self, g: &G) -> Result<()> {
        self.add(g)?;
        // The leader of the block is in each of these groups, so it learns the outcome.
        if self.gatherer == Gatherer::Block as u64 {
            return self.gather(g);
        }
        let warp = g.warp();
        if self.gatherer == Gatherer::Warp as u64 {
            return if g.rank() < warp.size() { self.gather(&warp) } else { Ok(()) };
        }
        if g.rank() == 0 { self.gather(&g.thread()) } else { Ok(()) }
    }
}

impl Kernel for ThreadGroup {
    const ENTRY: &'static str = "gpunet_symmetric_thread_group";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.work(g));
    }
}
