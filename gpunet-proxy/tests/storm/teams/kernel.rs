//! What a member launches: it puts and signals, waits, gathers, reduces and meets the others, and
//! leaves its errno.

use super::script::{SLOT, TURNS, own, passed};
use gpunet_device::team::{Signal, Sum, SymmetricPtr, TeamHandle};
use gpunet_device::{Group, Kernel, Result};
use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that this kernel alone sets.
const SIGNAL: Signal = Signal(2);

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Turns {
    pub team: TeamHandle,
    /// The numbers that come from the left, a slot for each turn; and a slot of own ones.
    pub slots: SymmetricPtr<u64>,
    /// A slot of each member.
    pub all: SymmetricPtr<u64>,
    pub sums: SymmetricPtr<u64>,
    /// An `AtomicI32` of the host program: 0, or the errno.
    pub outcome: u64,
    pub seed: u64,
}

impl Kernel for Turns {
    const ENTRY: &'static str = "turns";

    fn run<G: Group>(self, g: &G) {
        if let Err(error) = self.work(g)
            && g.is_leader()
        {
            // SAFETY: the host program keeps it until the launch has ended.
            unsafe { &*(self.outcome as *const AtomicI32) }.store(error.errno(), Ordering::Relaxed);
        }
    }
}

impl Turns {
    /// The elements of a turn, in this member's slots.
    fn slot(&self, turn: u64) -> SymmetricPtr<u64> {
        self.slots.slice(turn as usize * SLOT, SLOT)
    }

    fn work<G: Group>(&self, g: &G) -> Result<()> {
        let team = self.team;
        let (right, left) = (team.rank().right_of(team.size()), team.rank().left_of(team.size()));
        let mine = self.slot(TURNS);
        for turn in 0..TURNS {
            if g.is_leader() {
                let first = mine.ptr(team, team.rank())?;
                for at in 0..SLOT {
                    // SAFETY: an element of the own part; nobody else uses it between two turns.
                    unsafe { first.add(at).write(own(self.seed, turn, team.rank(), at)) };
                }
            }
            g.sync();
            team.put_signal(g, self.slot(turn), mine.buffer(team)?, SIGNAL, turn + 1, right)?;
            team.wait_until(g, SIGNAL, left, turn + 1)?;
            if g.is_leader() && !passed(self.seed, turn, left, self.slot(turn).ptr(team, team.rank())?) {
                return Err(gpunet_device::Error::InvalidArgument);
            }
            team.all_gather(g, self.all, mine.buffer(team)?)?;
            team.reduce(g, Sum, self.sums, mine)?;
            team.barrier(g)?;
        }
        Ok(())
    }
}
