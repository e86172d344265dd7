//! Tokens travel to the experts that they are routed to, and back: the shuffle of a mixture of
//! experts.

use crate::leave;
use crate::signals::{DISPATCHED, PLANNED, RETURNED};
use gpunet_device::{Group, Kernel, Rank, Result, Signal, SymmetricPtr, TeamHandle};

/// Sends a copy of each token, a *row*, to each of its experts, has those work on it, and combines
/// what comes back.
///
/// | step | who | what |
/// |---|---|---|
/// | plan | the first block | counts the rows of each expert, and gathers the counts of all members: from them every member knows where its rows go |
/// | dispatch | all blocks, each its share of the rows | put rows into the memory of their experts' member, with where they come from |
/// | experts | all blocks, each its share of what has arrived | [`expert`], and the row goes back to its member |
/// | combine | all blocks, each its share of the tokens | add the rows of a token up, by their weights |
///
/// What a member receives lies in the order of its experts, and of the members for each of them, as
/// a matrix product by groups takes it. A block tells each member once that all its rows are there,
/// so a signal counts blocks, not rows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MoeShuffle {
    /// The team.
    pub team: TeamHandle,
    /// This member's tokens, `hidden` elements each.
    pub tokens: SymmetricPtr<f32>,
    /// The expert of each row; the first `top` rows are those of the first token, and so on.
    pub routes: SymmetricPtr<u32>,
    /// The weight of each row.
    pub weights: SymmetricPtr<f32>,
    /// How many rows of the same expert come before, for each row.
    pub places: SymmetricPtr<u32>,
    /// Rows of this member for each expert.
    pub counts: SymmetricPtr<u32>,
    /// The counts of all members.
    pub all_counts: SymmetricPtr<u32>,
    /// For each expert: where this member's rows begin in the memory of the expert's member.
    pub starts: SymmetricPtr<u32>,
    /// The rows that have come to the experts of this member; as many as all members can send.
    pub received: SymmetricPtr<f32>,
    /// Where each of them comes from: the member in the upper half, its row in the lower.
    pub origins: SymmetricPtr<u64>,
    /// This member's rows, as experts have sent them back.
    pub returned: SymmetricPtr<f32>,
    /// The tokens, afterwards.
    pub combined: SymmetricPtr<f32>,
    /// An errno for each block.
    pub results: SymmetricPtr<i32>,
    /// Elements of a token.
    pub hidden: u64,
    /// Experts of a token.
    pub top: u64,
    /// Launches that have come before.
    pub before: u64,
}

/// What an expert does to an element of a row.
#[must_use]
#[inline(always)]
pub fn expert(number: u32, element: f32) -> f32 {
    element * (number + 1) as f32 + 0.5
}

impl MoeShuffle {
    fn shuffle<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        if g.index() == 0 {
            self.plan(g)?;
            team.signal(g, PLANNED, self.before + 1, own)?;
        }
        team.wait_until(g, PLANNED, own, self.before + 1)?;
        self.dispatch(g)?;
        self.tell_all(g, DISPATCHED)?;
        self.await_all(g, DISPATCHED)?;
        self.work(g)?;
        self.tell_all(g, RETURNED)?;
        self.await_all(g, RETURNED)?;
        self.combine(g)
    }

    /// How many experts each member has.
    fn experts(&self) -> usize {
        self.counts.len() / self.team.size() as usize
    }

    /// The member that has an expert.
    fn member_of(&self, expert: usize) -> Rank {
        Rank((expert / self.experts()) as u32)
    }

    /// The rows that a member has for an expert.
    fn count(&self, member: u32, expert: usize) -> Result<u32> {
        let at = member as usize * self.counts.len() + expert;
        self.team.g(self.all_counts.at(at), self.team.rank())
    }

    /// The rows that all members before `member` have for an expert.
    fn count_before(&self, member: u32, expert: usize) -> Result<u32> {
        let (mut sum, mut before) = (0, 0);
        while before < member {
            sum += self.count(before, expert)?;
            before += 1;
        }
        Ok(sum)
    }

    fn plan<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        let (rank, lanes) = (g.rank() as usize, g.size() as usize);
        let mut expert = rank;
        // Each lane goes through all rows, for its experts.
        while expert < self.counts.len() {
            let (mut count, mut row) = (0, 0);
            while row < self.routes.len() {
                if team.g(self.routes.at(row), own)? as usize == expert {
                    team.p(self.places.at(row), count, own)?;
                    count += 1;
                }
                row += 1;
            }
            team.p(self.counts.at(expert), count, own)?;
            expert += lanes;
        }
        team.all_gather(g, self.all_counts, self.counts.buffer(team)?)?;
        let mut expert = rank;
        while expert < self.counts.len() {
            let mut start = self.count_before(own.0, expert)?;
            // The member's experts before it, with the rows of all.
            let mut before = expert / self.experts() * self.experts();
            while before < expert {
                start += self.count_before(team.size(), before)?;
                before += 1;
            }
            team.p(self.starts.at(expert), start, own)?;
            expert += lanes;
        }
        Ok(())
    }

    fn dispatch<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own, hidden) = (self.team, self.team.rank(), self.hidden as usize);
        let mut row = g.index() as usize;
        while row < self.routes.len() {
            let expert = team.g(self.routes.at(row), own)? as usize;
            let to = (team.g(self.starts.at(expert), own)? + team.g(self.places.at(row), own)?) as usize;
            let member = self.member_of(expert);
            let token = self.tokens.slice(row / self.top as usize * hidden, hidden);
            team.put_nbi(g, self.received.slice(to * hidden, hidden), token.buffer(team)?, member)?;
            if g.is_leader() {
                team.p(self.origins.at(to), u64::from(own.0) << 32 | row as u64, member)?;
            }
            row += g.count() as usize;
        }
        Ok(())
    }

    /// The experts of this member, one after the other.
    fn work<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own, hidden) = (self.team, self.team.rank(), self.hidden as usize);
        let (mut local, mut first) = (0, 0);
        while local < self.experts() {
            let number = own.0 as usize * self.experts() + local;
            let end = first + self.count_before(team.size(), number)? as usize;
            // Rows are dealt to blocks by their place, whichever expert's they are.
            let blocks = g.count() as usize;
            let mut row = (first + blocks - 1 - g.index() as usize) / blocks * blocks + g.index() as usize;
            while row < end {
                let data = self.received.slice(row * hidden, hidden);
                self.apply(g, number as u32, data)?;
                let origin = team.g(self.origins.at(row), own)?;
                let to = self.returned.slice((origin as u32) as usize * hidden, hidden);
                team.put_nbi(g, to, data.buffer(team)?, Rank((origin >> 32) as u32))?;
                row += blocks;
            }
            first = end;
            local += 1;
        }
        Ok(())
    }

    fn apply<G: Group>(&self, g: &G, number: u32, row: SymmetricPtr<f32>) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        let mut at = g.rank() as usize;
        while at < row.len() {
            team.p(row.at(at), expert(number, team.g(row.at(at), own)?), own)?;
            at += g.size() as usize;
        }
        // The put that follows reads what all lanes have stored.
        g.sync();
        Ok(())
    }

    fn combine<G: Group>(&self, g: &G) -> Result<()> {
        let (team, own) = (self.team, self.team.rank());
        let (hidden, top) = (self.hidden as usize, self.top as usize);
        let mut token = g.index() as usize;
        while token < self.tokens.len() / hidden {
            let mut at = g.rank() as usize;
            while at < hidden {
                let (mut sum, mut choice) = (0.0, 0);
                while choice < top {
                    let row = token * top + choice;
                    let weight = team.g(self.weights.at(row), own)?;
                    sum += weight * team.g(self.returned.at(row * hidden + at), own)?;
                    choice += 1;
                }
                team.p(self.combined.at(token * hidden + at), sum, own)?;
                at += g.size() as usize;
            }
            token += g.count() as usize;
        }
        Ok(())
    }

    /// Tells all members that this block has put all its rows.
    fn tell_all<G: Group>(&self, g: &G, signal: Signal) -> Result<()> {
        let mut member = 0;
        while member < self.team.size() {
            self.team.signal_add(g, signal, 1, Rank(member))?;
            member += 1;
        }
        Ok(())
    }

    /// Waits until all blocks of all members have put all their rows.
    fn await_all<G: Group>(&self, g: &G, signal: Signal) -> Result<()> {
        let blocks = (self.before + 1) * u64::from(g.count());
        let mut member = 0;
        while member < self.team.size() {
            self.team.wait_until(g, signal, Rank(member), blocks)?;
            member += 1;
        }
        Ok(())
    }
}

impl Kernel for MoeShuffle {
    const ENTRY: &'static str = "gpunet_symmetric_moe_shuffle";
    fn run<G: Group>(self, g: &G) {
        leave(g, self.team, self.results, self.shuffle(g));
    }
}
