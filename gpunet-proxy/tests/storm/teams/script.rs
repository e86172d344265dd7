//! What the members of a team do together, phase by phase. All draw it from the seed of the round,
//! so all do the same.

use super::kernel::Turns;
use crate::support::SOLO;
use crate::support::rng::Rng;
use crate::watch::{WRONG, fail};
use gpunet_device::team::{Rank, Signal, Sum, SymmetricPtr, TeamHandle};
use gpunet_device::{Buffer, Error};
use gpunet_proxy::queue::{Queue, QueueError};
use gpunet_proxy::team::{Symmetric, Team, TeamError};
use gpunet_proxy::{Attachment, FinishPolicy, LaunchToken};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Elements that a member passes on at a time.
pub const SLOT: usize = 24;
/// How often each phase does what it does.
pub const TURNS: u64 = 3;
/// How long a pause between two steps is at most.
const PAUSE_US: u64 = 1500;

/// The phases of a round, in which members are killed and stopped. `Join` is the first, `Free` and
/// `Leave` are the last; those between come in an order of the round's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Join,
    Alloc,
    Launch,
    Wait,
    Collective,
    Between,
    Queue,
    Split,
    Free,
    Leave,
}

impl Phase {
    pub const ALL: [Self; 10] = [
        Self::Join,
        Self::Alloc,
        Self::Launch,
        Self::Wait,
        Self::Collective,
        Self::Between,
        Self::Queue,
        Self::Split,
        Self::Free,
        Self::Leave,
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| format!("{phase:?}") == name)
    }
}

/// The phases between joining and freeing, shuffled.
pub fn order(seed: u64) -> Vec<Phase> {
    let (mut rng, mut phases) = (Rng::new(seed), Phase::ALL[1..8].to_vec());
    for at in (1..phases.len()).rev() {
        phases.swap(at, rng.below(at as u64 + 1) as usize);
    }
    phases
}

/// How a round ended before its time.
#[derive(Debug)]
pub enum Ended {
    Host(TeamError),
    Kernel(Error),
    Queue(QueueError),
}

impl From<TeamError> for Ended {
    fn from(error: TeamError) -> Self {
        Self::Host(error)
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Kernel(error)
    }
}

impl From<QueueError> for Ended {
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

/// The number that a member has at a place in a turn: no two are alike.
pub fn own(seed: u64, turn: u64, member: Rank, at: usize) -> u64 {
    Rng::new(seed ^ turn << 40 ^ u64::from(member.0) << 32 ^ at as u64).next() >> 8
}

/// Returns whether a slot has what a member had in a turn.
pub fn passed(seed: u64, turn: u64, member: Rank, slot: *const u64) -> bool {
    // SAFETY: a slot of the own part; its writer is done, and writes no more before it hears of
    // this member.
    (0..SLOT).all(|at| unsafe { slot.add(at).read() } == own(seed, turn, member, at))
}

/// One member's way through a round.
pub struct Script<'a> {
    pub attachment: &'a Attachment,
    pub team: &'a Team,
    pub token: LaunchToken,
    pub seed: u64,
    /// For the waits of kernels and queues; `None` is no limit.
    pub limit: Option<Duration>,
    /// What this member alone draws.
    pub rng: Rng,
    pub enter: &'a dyn Fn(Phase),
}

impl Script<'_> {
    pub fn handle(&self) -> TeamHandle {
        // SAFETY: the groups are this thread, which ends its calls before the team is dropped.
        let handle = unsafe { self.team.handle(self.token.net()) };
        handle.timeout(self.limit.into())
    }

    /// All phases but joining and leaving.
    ///
    /// # Errors
    /// The first thing that failed.
    pub fn play(&mut self) -> Result<(), Ended> {
        for phase in order(self.seed) {
            match phase {
                Phase::Alloc => self.alloc(),
                Phase::Launch => self.launch(),
                Phase::Wait => self.wait(),
                Phase::Collective => self.collective(),
                Phase::Between => self.between(),
                Phase::Queue => self.queue(),
                _ => self.split(),
            }?;
        }
        self.free()
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_micros(self.rng.below(PAUSE_US)));
    }

    fn neighbours(&self) -> (Rank, Rank) {
        (self.team.rank().right_of(self.team.size()), self.team.rank().left_of(self.team.size()))
    }

    /// This member's numbers of a turn.
    fn numbers(&self, turn: u64) -> Vec<u64> {
        (0..SLOT).map(|at| own(self.seed, turn, self.team.rank(), at)).collect()
    }

    fn expect(&self, what: &str, found: &[u64], wanted: impl Fn(usize) -> u64) {
        if let Some(at) = found.iter().enumerate().position(|(at, &found)| found != wanted(at)) {
            fail(WRONG, &format!("{what}: element {at} of {} is {:#x}", found.len(), found[at]));
        }
    }

    /// What the members have in a turn, one after another.
    fn expect_all(&self, what: &str, turn: u64, found: &[u64]) {
        self.expect(what, found, |at| own(self.seed, turn, Rank((at / SLOT) as u32), at % SLOT));
    }

    fn alloc(&mut self) -> Result<(), Ended> {
        (self.enter)(Phase::Alloc);
        for turn in 0..TURNS {
            self.pause();
            let len = own(self.seed, turn, Rank(99), 0) as usize % 5000;
            let x = self.team.alloc::<u64>(len)?;
            self.expect("new memory", &read(&x, 0, len), |_| 0);
            self.team.barrier()?;
        }
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Ended> {
        let (team, seed, size) = (self.team, self.seed, self.team.size() as usize);
        let slots = team.alloc::<u64>((TURNS as usize + 1) * SLOT)?;
        let (all, sums) = (team.alloc::<u64>(size * SLOT)?, team.alloc::<u64>(SLOT)?);
        (self.enter)(Phase::Launch);
        self.pause();
        let program = self.attachment.load("", 1).expect("the CPU loads everything");
        let outcome = AtomicI32::new(0);
        let lanes = 1 + self.rng.below(3) as u32;
        // SAFETY: `finish` waits for the kernel's end; the kernel orders what members store by
        // signals and collectives.
        let launch = unsafe {
            let (slots, all, sums) = (slots.ptr(), all.ptr(), sums.ptr());
            let (limit, outcome) = (self.limit, (&raw const outcome) as u64);
            self.attachment.launch(&program, 1, lanes, |net| {
                let team = team.handle(net).timeout(limit.into());
                Turns { team, slots, all, sums, outcome, seed }
            })
        };
        let launch = launch.unwrap_or_else(|error| fail(crate::watch::STRANGE, &format!("launch: {error}")));
        if let Err(error) = launch.finish(FinishPolicy::Close) {
            fail(crate::watch::STRANGE, &format!("the kernel: {error}"));
        }
        match outcome.load(Ordering::Relaxed) {
            0 => {}
            libc::EINVAL => fail(WRONG, "a kernel got other numbers than were put"),
            errno => return Err(Ended::Kernel(Error::from_errno(errno))),
        }
        self.expect_all("gathered by kernels", TURNS - 1, &read(&all, 0, size * SLOT));
        self.expect_sums(TURNS - 1, &read(&sums, 0, SLOT));
        Ok(())
    }

    fn expect_sums(&self, turn: u64, found: &[u64]) {
        let members = (0..self.team.size()).map(Rank);
        self.expect("sums", found, |at| members.clone().map(|rank| own(self.seed, turn, rank, at)).sum());
    }

    /// Puts, signals and waits, without a collective.
    fn wait(&mut self) -> Result<(), Ended> {
        let mut slots = self.team.alloc::<u64>((TURNS as usize + 1) * SLOT)?;
        let (handle, (right, left)) = (self.handle(), self.neighbours());
        (self.enter)(Phase::Wait);
        for turn in 0..TURNS {
            self.pause();
            let own_place = TURNS as usize * SLOT;
            write(&mut slots, own_place, &self.numbers(turn));
            // SAFETY: this thread's calls end before the memory.
            let all = unsafe { slots.ptr() };
            let slot = all.slice(turn as usize * SLOT, SLOT);
            let mine = all.slice(own_place, SLOT).buffer(handle)?;
            handle.put_signal(&SOLO, slot, mine, Signal(0), turn + 1, right)?;
            handle.wait_until(&SOLO, Signal(0), left, turn + 1)?;
            if !passed(self.seed, turn, left, slot.ptr(handle, handle.rank())?) {
                fail(WRONG, &format!("turn {turn}: not what member {left} has put"));
            }
            handle.signal_add(&SOLO, Signal(1), 1, left)?;
            handle.wait_until(&SOLO, Signal(1), right, turn + 1)?;
        }
        Ok(())
    }

    fn collective(&mut self) -> Result<(), Ended> {
        let size = self.team.size() as usize;
        let mut mine = self.team.alloc::<u64>(SLOT)?;
        let (all, sums) = (self.team.alloc::<u64>(size * SLOT)?, self.team.alloc::<u64>(SLOT)?);
        let handle = self.handle();
        // SAFETY: this thread's calls end before the memory.
        let (to, totals) = unsafe { (all.ptr(), sums.ptr()) };
        (self.enter)(Phase::Collective);
        for turn in 0..TURNS {
            self.pause();
            write(&mut mine, 0, &self.numbers(turn));
            // SAFETY: as above.
            let from: SymmetricPtr<u64> = unsafe { mine.ptr() };
            let source = from.buffer(handle)?;
            handle.all_gather(&SOLO, to, source)?;
            self.expect_all("gathered", turn, &read(&all, 0, size * SLOT));
            handle.reduce(&SOLO, Sum, totals, from)?;
            self.expect_sums(turn, &read(&sums, 0, SLOT));
            let root = Rank(turn as u32 % self.team.size());
            handle.broadcast(&SOLO, to, source, root)?;
            self.expect("from the root", &read(&all, 0, SLOT), |at| own(self.seed, turn, root, at));
            let part = SLOT / size;
            handle.all_to_all(&SOLO, to, from.slice(0, part * size).buffer(handle)?)?;
            let own_part = self.team.rank().0 as usize * part;
            self.expect("from all", &read(&all, 0, part * size), |at| {
                own(self.seed, turn, Rank((at / part) as u32), own_part + at % part)
            });
            handle.barrier(&SOLO)?;
        }
        Ok(())
    }

    /// Between collectives members are busy otherwise.
    fn between(&mut self) -> Result<(), Ended> {
        for _ in 0..TURNS {
            (self.enter)(Phase::Between);
            self.pause();
            self.pause();
            self.team.barrier()?;
        }
        Ok(())
    }

    fn queue(&mut self) -> Result<(), Ended> {
        let (team, size, (right, left)) = (self.team, self.team.size() as usize, self.neighbours());
        let mut mine = team.alloc::<u64>(SLOT)?;
        let (slots, all) =
            (team.alloc::<u64>(TURNS as usize * SLOT)?, team.alloc::<u64>((2 * size + 1) * SLOT)?);
        let mut queue = Queue::cpu(self.attachment)?;
        queue.set_team_timeout(self.limit);
        (self.enter)(Phase::Queue);
        for turn in 0..TURNS {
            self.pause();
            write(&mut mine, 0, &self.numbers(turn));
            let (slot, root) = (turn as usize * SLOT, Rank(turn as u32 % team.size()));
            let part = SLOT / size;
            queue.put_signal(slots.slice(slot, SLOT), &mine, Signal(3), turn + 1, right)?;
            queue.wait_until(team, Signal(3), left, turn + 1)?;
            queue.all_gather(all.slice(0, size * SLOT), &mine)?;
            queue.broadcast(all.slice(size * SLOT, SLOT), &mine, root)?;
            queue.all_to_all(all.slice((size + 1) * SLOT, size * part), mine.slice(0, size * part))?;
            queue.synchronize()?;
            self.expect("put by a queue", &read(&slots, slot, SLOT), |at| own(self.seed, turn, left, at));
            self.expect_all("gathered by a queue", turn, &read(&all, 0, size * SLOT));
            let from_root = read(&all, size * SLOT, SLOT);
            self.expect("from the root, by a queue", &from_root, |at| own(self.seed, turn, root, at));
            let own_part = team.rank().0 as usize * part;
            self.expect("from all, by a queue", &read(&all, (size + 1) * SLOT, size * part), |at| {
                own(self.seed, turn, Rank((at / part) as u32), own_part + at % part)
            });
            // Nobody's next turn overwrites what was just looked at.
            queue.barrier(team)?;
            queue.synchronize()?;
        }
        Ok(())
    }

    /// The even and the odd ones, each for themselves.
    fn split(&mut self) -> Result<(), Ended> {
        (self.enter)(Phase::Split);
        self.pause();
        let rank = self.team.rank();
        let part = self.team.split(rank.0 % 2, -i64::from(rank.0))?;
        let size = part.size();
        if part.origin(part.rank()) != Some(rank) {
            fail(WRONG, &format!("a split makes {rank} of {:?}", part.origin(part.rank())));
        }
        self.pause();
        let mut own_part = part.alloc::<u64>(1)?;
        let all = part.alloc::<u64>(size as usize)?;
        write(&mut own_part, 0, &[u64::from(rank.0)]);
        // SAFETY: this thread's calls end before team and memory.
        let (handle, to, from) = unsafe { (part.handle(self.token.net()), all.ptr(), own_part.ptr()) };
        let handle = handle.timeout(self.limit.into());
        let source: Buffer = from.buffer(handle)?;
        handle.all_gather(&SOLO, to, source)?;
        self.expect("gathered by a part", &read(&all, 0, size as usize), |at| {
            part.origin(Rank(at as u32)).map_or(u64::MAX, |rank| rank.0.into())
        });
        drop((own_part, all));
        part.leave()?;
        Ok(())
    }

    fn free(&mut self) -> Result<(), Ended> {
        let mut pieces = Vec::new();
        for len in [1, SLOT, 100_000] {
            pieces.push(self.team.alloc::<u64>(len)?);
        }
        (self.enter)(Phase::Free);
        while !pieces.is_empty() {
            let one = self.rng.below(pieces.len() as u64) as usize;
            drop(pieces.swap_remove(one));
            self.pause();
        }
        Ok(self.team.barrier()?)
    }
}

fn read(memory: &Symmetric<'_, u64>, start: usize, len: usize) -> Vec<u64> {
    let mut found = vec![0; len];
    memory.read(start, &mut found).expect("the CPU's memory");
    found
}

fn write(memory: &mut Symmetric<'_, u64>, start: usize, numbers: &[u64]) {
    memory.write(start, numbers).expect("the CPU's memory");
}
