//! Copies that threads of this process make: out of the other process's memory, and through pinned
//! memory.

use super::Receiver;
use crate::array::Memory;
use crate::error::ChannelError;
use crate::pieces::Progress;
use crate::process_memory;
use crate::shared::{Lane, Stages, TransferOptions};
use gpu_usermap::cuda::Device;
use gpu_usermap::threads;
use rustix::process::Pid;
use std::io;
use std::sync::{Mutex, PoisonError};

/// A thread that has fewer bytes to copy ends before the next one has started.
pub(super) const PER_THREAD: u64 = 1 << 20;

/// What a thread copies: at most a piece.
pub(super) enum Job<'a> {
    /// From the other process's memory.
    Read { from: u64, to: Memory<&'a mut [u8]> },
    /// From several places of the other process's memory, each into memory of this one.
    ReadSeveral(Vec<(u64, &'a mut [u8])>),
    /// From memory of a GPU that is mapped here, into memory that no copy engine reaches.
    Fetch { from: Memory<&'a [u8]>, to: &'a mut [u8] },
}

impl Receiver {
    /// Has several threads do the jobs, and returns what stopped them.
    #[allow(clippy::too_many_arguments, reason = "one transfer's")]
    pub(super) fn run(
        &self,
        jobs: Vec<Job<'_>>,
        threads: usize,
        pid: Option<Pid>,
        size: usize,
        total: u64,
        progress: &Progress,
        options: &TransferOptions<'_>,
    ) -> Result<Option<Stopped>, ChannelError> {
        let jobs = Mutex::new(jobs.into_iter());
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let stopped: Mutex<Option<Stopped>> = Mutex::new(None);
        let is_stopped = || stopped.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let copy = || {
            let mut mover = Mover::new(&self.stages, size, pid, options);
            let moved = |len| options.show(progress.add(len), total);
            let mut done = Ok(());
            while let Some(job) = next().filter(|_| done.is_ok() && !is_stopped()) {
                done = mover.take(job, &moved);
            }
            if let Err(why) = done.and_then(|()| mover.finish(&moved)) {
                stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
        };
        let started = threads::scope(|scope| {
            for _ in 1..threads {
                threads::spawn_scoped(scope, "gpunet-channel", copy)?;
            }
            copy();
            Ok::<_, io::Error>(())
        });
        started.map_err(|error| ChannelError::failed("starting a thread", error))?;
        Ok(stopped.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why a thread has stopped.
pub(super) enum Stopped {
    NotRead(io::Error),
    Failed(ChannelError),
}

/// One thread's copies through pinned memory: one is under way while the CPU copies the other.
struct Mover<'a, 'm> {
    lane: Lane<'a>,
    pid: Option<Pid>,
    slot: usize,
    /// What is on its way from a GPU into the other slot.
    fetching: Option<&'m mut [u8]>,
}

impl<'a, 'm> Mover<'a, 'm> {
    fn new(stages: &'a Stages, size: usize, pid: Option<Pid>, options: &TransferOptions<'a>) -> Self {
        Self { lane: Lane::new(stages, size, options.after), pid, slot: 0, fetching: None }
    }

    fn take(&mut self, job: Job<'m>, moved: &dyn Fn(usize)) -> Result<(), Stopped> {
        match job {
            Job::Read { from, to } => self.read(from, to, moved),
            Job::ReadSeveral(mut parts) => {
                process_memory::read_several(self.pid()?, &mut parts).map_err(Stopped::NotRead)?;
                moved(parts.iter().map(|(_, to)| to.len()).sum());
                Ok(())
            }
            Job::Fetch { from, to } => {
                let slot = self.slot;
                let segments = [from];
                if let Some(stage) = self.lane.stage(&segments).map_err(Stopped::Failed)? {
                    stage.fetch(slot, &segments).map_err(Stopped::Failed)?;
                }
                self.slot ^= 1;
                let before = self.fetching.replace(to);
                self.put(before, moved)
            }
        }
    }

    fn read(&mut self, from: u64, to: Memory<&'m mut [u8]>, moved: &dyn Fn(usize)) -> Result<(), Stopped> {
        let pid = self.pid()?;
        let len = to.len();
        let mut segments = [to];
        if let [Memory::Host(bytes)] = &mut segments {
            process_memory::read(pid, from, bytes).map_err(Stopped::NotRead)?;
        } else {
            self.finish_fetching(moved)?;
            let slot = self.slot;
            if let Some(stage) = self.lane.stage(&segments).map_err(Stopped::Failed)? {
                stage.wait(slot).map_err(Stopped::Failed)?;
                process_memory::read(pid, from, stage.bytes(slot, len)).map_err(Stopped::NotRead)?;
                stage.store(slot, &mut segments).map_err(Stopped::Failed)?;
            }
            self.slot ^= 1;
        }
        moved(len);
        Ok(())
    }

    fn pid(&self) -> Result<Pid, Stopped> {
        self.pid.ok_or_else(|| Stopped::NotRead(io::Error::from_raw_os_error(libc::ESRCH)))
    }

    /// Copies what came into the slot that is used next.
    fn put(&mut self, to: Option<&'m mut [u8]>, moved: &dyn Fn(usize)) -> Result<(), Stopped> {
        let Some(to) = to else { return Ok(()) };
        let slot = self.slot;
        if let Some(stage) = self.lane.current() {
            stage.wait(slot).map_err(Stopped::Failed)?;
            to.copy_from_slice(stage.bytes(slot, to.len()));
        }
        moved(to.len());
        Ok(())
    }

    fn finish_fetching(&mut self, moved: &dyn Fn(usize)) -> Result<(), Stopped> {
        let last = self.fetching.take();
        if last.is_some() {
            self.slot ^= 1;
            self.put(last, moved)?;
        }
        Ok(())
    }

    fn finish(mut self, moved: &dyn Fn(usize)) -> Result<(), Stopped> {
        self.finish_fetching(moved)?;
        if let Some(stage) = self.lane.current() {
            stage.wait(0).and_then(|()| stage.wait(1)).map_err(Stopped::Failed)?;
        }
        Ok(())
    }
}

/// Ranges of the other process's memory that are less than a piece: they are read together.
#[derive(Default)]
pub(super) struct SmallReads<'a> {
    parts: Vec<(u64, &'a mut [u8])>,
    bytes: usize,
}

impl<'a> SmallReads<'a> {
    /// The kernel takes 1024 in one call; a thread that has so few is not alone with many.
    const MOST: usize = 64;

    /// Adds one, and returns a job when those before are enough for one.
    pub(super) fn add(&mut self, from: u64, to: &'a mut [u8], size: usize) -> Option<Job<'a>> {
        let is_full = self.parts.len() == Self::MOST || self.bytes + to.len() > size;
        let job = if is_full { self.take() } else { None };
        self.bytes += to.len();
        self.parts.push((from, to));
        job
    }

    /// Returns a job of those that are left.
    pub(super) fn take(&mut self) -> Option<Job<'a>> {
        self.bytes = 0;
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() { None } else { Some(Job::ReadSeveral(parts)) }
    }
}

/// Cuts memory into parts of `size` bytes.
pub(super) fn parts<'a>(memory: &'a mut Memory<&mut [u8]>, size: usize) -> Vec<Memory<&'a mut [u8]>> {
    match memory {
        Memory::Host(bytes) => bytes.chunks_mut(size).map(Memory::Host).collect(),
        Memory::Gpu { device, address, len } => (0..*len)
            .step_by(size)
            .map(|at| Memory::Gpu {
                device: device.clone(),
                address: *address + at as u64,
                len: size.min(*len - at),
            })
            .collect(),
    }
}

/// Cuts the copy of mapped memory into parts of `size` bytes at most.
pub(super) fn fetches<'a>(
    device: &Device,
    runs: &[(u64, usize)],
    mut to: &'a mut [u8],
    size: usize,
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for &(from, len) in runs {
        let (now, later) = std::mem::take(&mut to).split_at_mut(len);
        to = later;
        for (address, to) in (from..).step_by(size).zip(now.chunks_mut(size)) {
            let from = Memory::Gpu { device: device.clone(), address, len: to.len() };
            jobs.push(Job::Fetch { from, to });
        }
    }
    jobs
}
