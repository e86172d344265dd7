//! A team of devices of this process, and kernels that its members run together.

use super::Bench;
use crate::outcome::Outcome;
use gpunet_bench_kernel::Results;
use gpunet_device::Kernel;
use gpunet_device::team::{Element, Rank, SymmetricPtr, TeamHandle};
use gpunet_proxy::Proxy;
use gpunet_proxy::team::{Symmetric, Team, TeamError, TeamListener};
use std::net::Ipv4Addr;

/// How long a kernel waits for another member.
const TIMEOUT: gpunet_device::Timeout = gpunet_device::Timeout::secs(20);

/// A team, each member with its device.
pub struct Members {
    // Dropped before the devices: a team uses its member's attachment.
    teams: Vec<Team>,
    benches: Vec<Bench>,
}

impl Members {
    /// Makes a team whose members have these devices.
    pub fn join(proxy: &Proxy, devices: &[String]) -> Outcome<Self> {
        let attach = |device: &String| Bench::attach(proxy, device);
        let benches = devices.iter().map(attach).collect::<Outcome<Vec<_>>>()?;
        let mut listener = Some(TeamListener::bind((Ipv4Addr::LOCALHOST, 0).into())?);
        let id = listener.as_ref().map(TeamListener::id);
        let size = benches.len() as u32;
        let teams = all((0..).map(Rank).zip(&benches).map(|(rank, bench)| {
            let (attachment, listener) = (bench.attachment(), listener.take());
            move || match (listener, id) {
                (Some(listener), _) => Team::lead(attachment, listener, size),
                (None, Some(id)) => Team::join(attachment, id, rank, size),
                (None, None) => unreachable!("the first one has made the id"),
            }
        }))?;
        Ok(Self { teams, benches })
    }

    /// The device of a member.
    pub fn bench(&self, member: usize) -> &Bench {
        &self.benches[member]
    }

    /// Returns the number of members.
    pub const fn size(&self) -> usize {
        self.benches.len()
    }

    /// Returns whether all members are GPUs.
    pub fn are_gpus(&self) -> bool {
        self.benches.iter().all(Bench::is_gpu)
    }

    /// Returns whether all members are CPU devices.
    pub fn are_cpus(&self) -> bool {
        !self.benches.iter().any(Bench::is_gpu)
    }

    /// Returns whether each member has a GPU of its own.
    pub fn are_different_gpus(&self) -> bool {
        self.are_gpus() && self.titles().len() == self.size()
    }

    /// Returns where they run, for the head of a table.
    pub fn title(&self) -> String {
        self.titles().join(", ")
    }

    fn titles(&self) -> Vec<String> {
        let mut titles: Vec<_> = self.benches.iter().map(Bench::title).collect();
        titles.sort();
        titles.dedup();
        titles
    }

    /// Allocates memory of all members, `len` elements each.
    pub fn alloc<T: Element>(&self, len: usize) -> Outcome<Vec<Symmetric<'_, T>>> {
        all(self.teams.iter().map(|team| move || team.alloc::<T>(len)))
    }

    /// Runs a kernel as each of the first `members` members, with `blocks` blocks of at most
    /// `threads` threads. Returns the result words of each member.
    ///
    /// `make` makes the kernel of a member's number and handle; it takes pointers from memory that
    /// its caller keeps.
    pub fn play<K: Kernel>(
        &self,
        members: usize,
        (blocks, threads): (u32, u32),
        words: usize,
        make: impl Fn(usize, TeamHandle, Results) -> K,
    ) -> Outcome<Vec<Vec<u64>>> {
        let players = || self.benches.iter().zip(&self.teams).take(members);
        // No kernel may be loaded while another kernel waits.
        players().try_for_each(|(bench, _)| bench.prepare::<K>(threads))?;
        let mut running = Vec::new();
        for (member, (bench, team)) in players().enumerate() {
            let job = bench.job(0, words)?;
            let launch = bench.start(blocks, bench.threads(threads), |net| {
                // SAFETY: the team is kept until `finish` below has waited for the kernel's end.
                let handle = unsafe { team.handle(net) };
                make(member, handle.timeout(TIMEOUT), job.results())
            })?;
            running.push((bench, launch, job));
        }
        let finish = |(bench, launch, job): (&Bench, _, _)| bench.finish(launch, &job);
        // All kernels are finished before the first failure is reported.
        let results: Vec<_> = running.into_iter().map(finish).collect();
        let results = results.into_iter().collect::<Outcome<Vec<_>>>()?;
        results.iter().try_for_each(|words| Bench::no_failure(words))?;
        Ok(results)
    }
}

/// Returns the pointer for kernels of [`Members::play`], during which the memory is kept.
pub fn pointer<T: Element>(memory: &Symmetric<'_, T>) -> SymmetricPtr<T> {
    // SAFETY: callers of `play` hold the memory until it has returned; kernels meet before they use
    // elements that another member writes.
    unsafe { memory.ptr() }
}

/// Runs a collective call, each member in a thread of its own.
fn all<T: Send>(
    tasks: impl Iterator<Item = impl FnOnce() -> Result<T, TeamError> + Send>,
) -> Outcome<Vec<T>> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    results.into_iter().map(|result| Ok(result.map_err(|_| "a thread panicked")??)).collect()
}
