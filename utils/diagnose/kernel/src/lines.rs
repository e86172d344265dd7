//! Units of a line: a litmus test of stores of eight bytes.

use crate::Results;
use crate::roles::play;
use crate::wait::{pause, until};
use gpunet_device::abi::Word;
use gpunet_device::abi::line::{has_tag, unit};
use gpunet_device::{Error, Group, Kernel, kernel_entry, now_ns};

/// In each round the writer stores units, four bytes and a tag by one store each, and waits for
/// `ack`; the reader looks at each unit until it has the round's tag, and counts those whose bytes
/// are not of this round.
///
/// Block 0 plays the first of the launch's roles, block 1 the second. Result 0: the writer's
/// rounds; result 1: the units of which the reader found the tag without the bytes. There are none,
/// unless the writer is asked for them ([`Lines::broken`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lines {
    /// What both share: `units` words.
    pub line: *mut u64,
    /// The reader's word.
    pub ack: *mut u64,
    /// Units.
    pub units: u64,
    /// Rounds.
    pub rounds: u64,
    /// Not 0: the writer stores the bytes of the round before with each tag.
    pub broken: u32,
    /// Which roles this launch plays: [`crate::FIRST`], [`crate::SECOND`].
    pub roles: u32,
    /// Nanoseconds that the whole test may take.
    pub limit_ns: u64,
    /// The outcomes.
    pub results: Results,
}

// SAFETY: addresses of memory that the host guarantees.
unsafe impl Send for Lines {}

impl Kernel for Lines {
    const ENTRY: &'static str = "gpunet_diagnose_lines";

    fn run<G: Group>(self, g: &G) {
        play(g, &self.results, self.roles, || self.write(g), || self.read(g));
    }
}
kernel_entry!(lines, "gpunet_diagnose_lines", Lines);

impl Lines {
    /// Unit `at`.
    #[inline(always)]
    fn unit(&self, at: u64) -> Word {
        // SAFETY: an aligned word of the line, which the launcher keeps while this runs.
        unsafe { Word::from_ptr(self.line.wrapping_add(at as usize)) }
    }

    /// The word by which the reader lets the writer go on.
    fn ack(&self) -> Word {
        // SAFETY: the launcher gave an aligned word that stays while this runs.
        unsafe { Word::from_ptr(self.ack) }
    }

    /// Writes all rounds; returns their number.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn write<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let deadline = now_ns() + self.limit_ns;
        let mut round = 1;
        while round <= self.rounds {
            let data = if self.broken == 0 { round } else { round - 1 };
            let mut at = g.rank() as u64;
            while at < self.units {
                self.unit(at).set(unit(value(data, at), round as u32));
                at += g.size() as u64;
            }
            until(g, || self.ack().observe(), round, deadline)?;
            round += 1;
        }
        Ok(self.rounds)
    }

    /// Reads all rounds; returns the number of units that were not whole.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn read<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let deadline = now_ns() + self.limit_ns;
        let (mut round, mut torn) = (1, 0);
        while round <= self.rounds {
            let (mut at, mut wrong, mut late) = (g.rank() as u64, 0, 0);
            while at < self.units {
                let mut found = self.unit(at).peek();
                while !has_tag(found, round as u32) && late == 0 {
                    found = self.unit(at).peek();
                    late = u32::from(now_ns() > deadline);
                    pause();
                }
                wrong += u32::from(found as u32 != value(round, at));
                at += g.size() as u64;
            }
            if g.sum(late) > 0 {
                return Err(Error::TimedOut);
            }
            torn += g.sum(wrong) as u64;
            if g.is_leader() {
                self.ack().publish(round);
            }
            round += 1;
        }
        Ok(torn)
    }
}

/// What unit `at` holds in a round: never what it held in the one before, nor 0.
#[inline(always)]
const fn value(round: u64, at: u64) -> u32 {
    (round as u32) << 8 | (at as u32 + 1)
}
