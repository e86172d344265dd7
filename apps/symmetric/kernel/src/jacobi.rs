//! Laplace's equation in two dimensions, by Jacobi's iteration with an exchange of boundary rows.

use crate::leave;
use crate::signals::{CHECKED, COUNTED, from_above, from_below};
use gpunet_device::team::Sum;
use gpunet_device::{Group, Kernel, Rank, Result, SymmetricPtr, TeamHandle};

/// Makes each cell the mean of its four neighbours, again and again, until none changes by more
/// than `tolerance`.
///
/// Each block of each member has a band of the grid, with a row above and a row below that belong
/// to its neighbours. The bands lie below each other in the order of members, and of blocks in a
/// member. After each iteration a block puts its first row into the band above and its last row
/// into the band below, each with a signal, whether the neighbour is a block of this member or of
/// another one.
///
/// An iteration reads one of two copies of the band and writes the other. A neighbour's row of the
/// next iteration may come early; it goes into the copy that this block has done with, because the
/// neighbour has waited for the row that this block sent after it had read that copy.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Jacobi {
    /// The team, with two signals for each block.
    pub team: TeamHandle,
    /// A copy of this member's bands: where the grid begins, with the fixed cells at its edges.
    pub first: SymmetricPtr<f32>,
    /// The other copy, with the same edges.
    pub second: SymmetricPtr<f32>,
    /// An element for each block: cells of its band that change.
    pub changing: SymmetricPtr<u64>,
    /// Two elements: cells of this member that change, and of all members.
    pub total: SymmetricPtr<u64>,
    /// One element: iterations done, afterwards.
    pub done: SymmetricPtr<u64>,
    /// An errno for each block.
    pub results: SymmetricPtr<i32>,
    /// Cells of a row, with the fixed ones at both ends.
    pub width: u64,
    /// Iterations at most.
    pub iterations: u64,
    /// Iterations from one check to the next.
    pub every: u32,
    /// A cell changes if its value does by more than this.
    pub tolerance: f32,
}

impl Jacobi {
    fn solve<G: Group>(&self, g: &G) -> Result<()> {
        let mut iteration = 1;
        while iteration <= self.iterations {
            let is_odd = iteration % 2 == 1;
            let (from, to) = if is_odd { (self.first, self.second) } else { (self.second, self.first) };
            let changing = self.relax(g, self.band(g, from), self.band(g, to))?;
            self.exchange(g, to, iteration)?;
            let is_last = iteration == self.iterations;
            let every = u64::from(self.every);
            let is_due = iteration.is_multiple_of(every);
            let settled = is_due && self.changing(g, changing, iteration / every)? == 0;
            if settled || is_last {
                return self.leave_count(g, iteration);
            }
            iteration += 1;
        }
        Ok(())
    }

    /// This block's band of a copy, with the rows above and below.
    fn band<G: Group>(&self, g: &G, copy: SymmetricPtr<f32>) -> SymmetricPtr<f32> {
        self.band_of(g, copy, g.index())
    }

    fn band_of<G: Group>(&self, g: &G, copy: SymmetricPtr<f32>, block: u32) -> SymmetricPtr<f32> {
        let cells = copy.len() / g.count() as usize;
        copy.slice(cells * block as usize, cells)
    }

    /// One iteration; returns how many cells have changed, to all lanes.
    fn relax<G: Group>(&self, g: &G, from: SymmetricPtr<f32>, to: SymmetricPtr<f32>) -> Result<u32> {
        let (team, own, width) = (self.team, self.team.rank(), self.width as usize);
        let inner = width - 2;
        let cells = inner * (from.len() / width - 2);
        let (mut changing, mut cell) = (0, g.rank() as usize);
        while cell < cells {
            let at = (cell / inner + 1) * width + cell % inner + 1;
            let (above, below) = (team.g(from.at(at - width), own)?, team.g(from.at(at + width), own)?);
            let (left, right) = (team.g(from.at(at - 1), own)?, team.g(from.at(at + 1), own)?);
            let mean = (above + below + (left + right)) * 0.25;
            changing += u32::from((mean - team.g(from.at(at), own)?).abs() > self.tolerance);
            team.p(to.at(at), mean, own)?;
            cell += g.size() as usize;
        }
        Ok(g.sum(changing))
    }

    /// Puts the outermost rows of this band into the neighbouring ones, and waits for theirs.
    fn exchange<G: Group>(&self, g: &G, copy: SymmetricPtr<f32>, iteration: u64) -> Result<()> {
        let (team, width) = (self.team, self.width as usize);
        let band = self.band(g, copy);
        let last = band.len() - width;
        let (above, below) = (self.neighbour(g, true), self.neighbour(g, false));
        if let Some((member, block)) = above {
            let to = self.band_of(g, copy, block).slice(last, width);
            let row = band.slice(width, width).buffer(team)?;
            team.put_signal(g, to, row, from_below(block), iteration, member)?;
        }
        if let Some((member, block)) = below {
            let to = self.band_of(g, copy, block).slice(0, width);
            let row = band.slice(last - width, width).buffer(team)?;
            team.put_signal(g, to, row, from_above(block), iteration, member)?;
        }
        if let Some((member, _)) = above {
            team.wait_until(g, from_above(g.index()), member, iteration)?;
        }
        if let Some((member, _)) = below {
            team.wait_until(g, from_below(g.index()), member, iteration)?;
        }
        Ok(())
    }

    /// The block whose band lies above or below this one's, and its member; `None` at the edge of
    /// the grid.
    fn neighbour<G: Group>(&self, g: &G, is_above: bool) -> Option<(Rank, u32)> {
        let (rank, blocks) = (self.team.rank().0, g.count());
        let (band, bands) = (rank * blocks + g.index(), self.team.size() * blocks);
        let edge = if is_above { 0 } else { bands - 1 };
        if band == edge {
            return None;
        }
        let band = if is_above { band - 1 } else { band + 1 };
        Some((Rank(band / blocks), band % blocks))
    }

    /// Adds up the cells that change: over the blocks of this member, whose first one meets the
    /// other members.
    fn changing<G: Group>(&self, g: &G, changing: u32, check: u64) -> Result<u64> {
        let (team, own) = (self.team, self.team.rank());
        if g.is_leader() {
            team.p(self.changing.at(g.index() as usize), u64::from(changing), own)?;
        }
        team.signal_add(g, COUNTED, 1, own)?;
        if g.index() == 0 {
            team.wait_until(g, COUNTED, own, check * u64::from(g.count()))?;
            if g.is_leader() {
                let mut sum = 0;
                for block in 0..g.count() as usize {
                    sum += team.g(self.changing.at(block), own)?;
                }
                team.p(self.total, sum, own)?;
            }
            team.reduce(g, Sum, self.total.slice(1, 1), self.total.slice(0, 1))?;
            team.signal(g, CHECKED, check, own)?;
        }
        team.wait_until(g, CHECKED, own, check)?;
        // It changes at the next check, which needs every block's count.
        team.g(self.total.at(1), own)
    }

    fn leave_count<G: Group>(&self, g: &G, iterations: u64) -> Result<()> {
        if g.index() == 0 && g.is_leader() {
            self.team.p(self.done, iterations, self.team.rank())?;
        }
        Ok(())
    }
}

impl Kernel for Jacobi {
    const ENTRY: &'static str = "gpunet_symmetric_jacobi";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.solve(g));
    }
}
