//! Symmetric memory: messages with a signal, puts, barriers and collectives.

use crate::Results;
use gpunet_device::copy::copy;
use gpunet_device::team::Sum;
use gpunet_device::{
    Buffer, Error, Group, Kernel, Rank, Result, Signal, SymmetricPtr, TeamHandle, kernel_entry, now_ns,
};

/// One end of a ping-pong by `put_signal`. Member 0 begins. `results`: nanoseconds per round.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PutSignal {
    /// A team of two, with one signal.
    pub team: TeamHandle,
    /// Where messages arrive.
    pub to: SymmetricPtr<u8>,
    /// This member's message.
    pub from: SymmetricPtr<u8>,
    /// Rounds that have come before, over all launches.
    pub before: u64,
    /// Round trips.
    pub rounds: u64,
    /// Nanoseconds per round; the errno of the one that failed.
    pub results: Results,
}

impl PutSignal {
    fn round<G: Group>(&self, g: &G, number: u64) -> Result<()> {
        let (team, signal) = (self.team, Signal(0));
        let (value, other) = (self.before + number, Rank(1 - team.rank().0));
        if team.rank() == Rank(0) {
            team.put_signal(g, self.to, self.from.buffer(team)?, signal, value, other)?;
        }
        team.wait_until(g, signal, other, value)?;
        if team.rank() == Rank(1) {
            team.put_signal(g, self.to, self.from.buffer(team)?, signal, value, other)?;
        }
        Ok(())
    }
}

impl Kernel for PutSignal {
    const ENTRY: &'static str = "gpunet_put_signal";

    fn run<G: Group>(self, g: &G) {
        timed(g, self.rounds, self.results, |number| self.round(g, number + 1));
    }
}
kernel_entry!(put_signal, "gpunet_put_signal", PutSignal);

/// How [`Puts`] moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PutWay {
    /// `put_nbi`, and `quiet` after the last.
    Put = 0,
    /// gpunet's copy routine alone.
    Copy = 1,
    /// On a CPU the C library's memcpy; on a GPU as [`PutWay::Copy`].
    Memcpy = 2,
}

/// Each block puts `len` bytes into the memory of `member`, `times` times. `results`: per block
/// when it began and when it ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Puts {
    /// The team.
    pub team: TeamHandle,
    /// Destination, `len` bytes per block.
    pub to: SymmetricPtr<u8>,
    /// Source, `len` bytes per block.
    pub from: SymmetricPtr<u8>,
    /// To whom.
    pub member: u64,
    /// Bytes per call.
    pub len: u64,
    /// Calls.
    pub times: u64,
    /// A [`PutWay`].
    pub way: u64,
    /// Two words per block, in nanoseconds; or an errno.
    pub results: Results,
}

impl Puts {
    fn put<G: Group>(&self, g: &G) -> Result<()> {
        let (team, len, member) = (self.team, self.len as usize, Rank(self.member as u32));
        let start = len * g.index() as usize;
        let (to, from) = (self.to.slice(start, len), self.from.slice(start, len).buffer(team)?);
        let far = to.ptr(team, member)?;
        if to.len() < len || from.len() < len {
            return Err(Error::InvalidArgument);
        }
        let mut done = 0;
        while done < self.times {
            match self.way {
                0 => team.put_nbi(g, to, from, member)?,
                // SAFETY: `len` bytes of both parts (checked), which are different memory; this
                // block alone uses them.
                1 => unsafe { copy(g.rank(), g.size(), far, from.as_ptr(), len) },
                // SAFETY: as above.
                _ => unsafe { memcpy(g, far, from, len) },
            }
            done += 1;
        }
        team.quiet(g);
        Ok(())
    }
}

/// # Safety
/// `to` is writable for `len` bytes, `from` has as many, they do not overlap, and nobody else uses
/// them.
#[inline(always)]
unsafe fn memcpy<G: Group>(g: &G, to: *mut u8, from: Buffer, len: usize) {
    if cfg!(target_arch = "nvptx64") || g.size() > 1 {
        // SAFETY: the caller's contract.
        unsafe { copy(g.rank(), g.size(), to, from.as_ptr(), len) };
    } else {
        // SAFETY: the caller's contract.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), len) };
    }
}

impl Kernel for Puts {
    const ENTRY: &'static str = "gpunet_puts";

    fn run<G: Group>(self, g: &G) {
        let at = 2 * g.index() as usize;
        g.sync();
        self.results.set(g, at, now_ns());
        let result = self.put(g);
        self.results.set_result(g, at + 1, result.map(|()| now_ns()));
    }
}
kernel_entry!(puts, "gpunet_puts", Puts);

/// What [`Collective`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Called {
    /// `barrier`.
    Barrier = 0,
    /// `all_gather`.
    AllGather = 1,
    /// `reduce`, which chooses its way by the size.
    Reduce = 2,
    /// `reduce` whose members reduce everything themselves.
    OneShot = 3,
    /// `reduce` whose members reduce a part each.
    TwoShot = 4,
    /// No call: a copy of the source to each member.
    Copies = 5,
}

/// One block calls a collective again and again. `results`: nanoseconds per call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Collective {
    /// The team.
    pub team: TeamHandle,
    /// Destination: as many sources as there are members.
    pub to: SymmetricPtr<f32>,
    /// Source.
    pub from: SymmetricPtr<f32>,
    /// A [`Called`].
    pub called: u64,
    /// Calls.
    pub rounds: u64,
    /// Nanoseconds per call; the errno of the one that failed.
    pub results: Results,
}

impl Collective {
    fn call<G: Group>(&self, g: &G) -> Result<()> {
        let (team, to, from) = (self.team, self.to, self.from);
        match self.called {
            0 => team.barrier(g),
            1 => team.all_gather(g, to, from.buffer(team)?),
            2 => team.reduce(g, Sum, to, from),
            3 => self.reduce_by(g, usize::MAX),
            4 => self.reduce_by(g, 0),
            _ => self.copies(g),
        }
    }

    /// `reduce`, in which every member reduces everything up to `one_shot` bytes.
    fn reduce_by<G: Group>(&self, g: &G, one_shot: usize) -> Result<()> {
        let (team, to, from) = (self.team, self.to, self.from);
        team.check_reduction(to, from)?;
        team.collectively(g, || team.reduce_share(g, Sum, to, from, one_shot))
    }

    fn copies<G: Group>(&self, g: &G) -> Result<()> {
        let (team, len) = (self.team, self.from.len());
        let to = self.to.slice(len * team.rank().0 as usize, len);
        let mut member = 0;
        while member < team.size() {
            team.put_nbi(g, to, self.from.buffer(team)?, Rank(member))?;
            member += 1;
        }
        g.sync();
        Ok(())
    }
}

impl Kernel for Collective {
    const ENTRY: &'static str = "gpunet_collective";

    fn run<G: Group>(self, g: &G) {
        timed(g, self.rounds, self.results, |_| self.call(g));
    }
}
kernel_entry!(collective, "gpunet_collective", Collective);

/// Leaves the nanoseconds of each of `rounds` calls, up to one that fails, for which it leaves the
/// errno.
#[inline(always)]
fn timed<G: Group>(g: &G, rounds: u64, results: Results, mut call: impl FnMut(u64) -> Result<()>) {
    let mut round = 0;
    while round < rounds {
        let start = now_ns();
        let result = call(round);
        results.set_result(g, round as usize, result.map(|()| now_ns() - start));
        if result.is_err() {
            return;
        }
        round += 1;
    }
}
