//! One copy out of the other end's memory: of its process, or of its GPUs.

use super::Receiver;
use super::jobs::{Job, PER_THREAD, SmallReads, Stopped, fetches, parts};
use crate::array::{ArrayMut, Memory};
use crate::error::{ChannelError, Reason, errno_of};
use crate::gpu::{Copier, Mapped, PATIENCE, runs};
use crate::header::{Answer, Header, MAX_NEEDED, Offer, Offered, Place, SMALL};
use crate::local::{BATCH, Local};
use crate::pieces::Progress;
use crate::shared::{TransferOptions, part_size};
use crate::wire::lost;
use gpu_usermap::cuda::CudaEvent;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Why bytes were not copied, or why the transfer fails.
pub(super) enum NotCopied {
    Because(Reason),
    Failed(ChannelError),
}

impl From<Reason> for NotCopied {
    fn from(reason: Reason) -> Self {
        Self::Because(reason)
    }
}

impl From<ChannelError> for NotCopied {
    fn from(error: ChannelError) -> Self {
        Self::Failed(error)
    }
}

impl Receiver {
    /// Copies the arrays out of the other end's memory.
    pub(super) fn copy(
        &mut self,
        header: &Header,
        arrays: &mut [ArrayMut<'_>],
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), NotCopied> {
        let shared = self.shared.clone();
        let places = match &header.offer {
            // What the sender says is more than what this end knows.
            Offer::None(reason) => return Err((*reason).into()),
            Offer::Places(places) => places,
        };
        let local = shared.local()?;
        let copiers = self.copiers_for(arrays, places)?;
        let mapped = self.map_all(local, header.number, places, &copiers, deadline)?;
        self.avoid_launches(header, arrays, &copiers, &mapped)?;
        let copied = self.copy_all(local, header, arrays, places, &copiers, &mapped, options);
        // All of them, also those before one that was refused: they use the caller's memory.
        let finished = self.finish_copies();
        copied?;
        finished?;
        // A sender that has given up may have used its memory for something else since. It tells
        // before it does, by a socket of this machine, so that what is still true now was true
        // during the copy.
        if local.is_there() { Ok(()) } else { Err(died(0, header.total).into()) }
    }

    /// Waits for all copies of copy engines, and drops mappings that are too many.
    pub(super) fn finish_copies(&mut self) -> Result<(), ChannelError> {
        let mut finished = Ok(());
        for copier in &mut self.copiers {
            finished = finished.and(copier.finish());
            copier.trim();
        }
        finished
    }

    /// Starts to copy arrays between GPUs, if nothing of it needs an answer to the sender or a
    /// thread of this process; else nothing is under way, and [`copy`](Self::copy) is to be called.
    pub(super) fn start_copy(
        &mut self,
        header: &Header,
        arrays: &mut [ArrayMut<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Option<Copying>, ChannelError> {
        let shared = self.shared.clone();
        let (Offer::Places(places), Ok(local)) = (&header.offer, shared.local()) else { return Ok(None) };
        let is_plain = |(place, array): (&Place, &ArrayMut<'_>)| {
            matches!((place, &array.memory), (Place::Gpu(_), Memory::Gpu { .. }))
        };
        if !places.iter().zip(arrays.iter()).all(is_plain) {
            return Ok(None);
        }
        let begun = self.copiers_for(arrays, places).and_then(|copiers| {
            let all = copiers.iter().flatten().zip(places);
            let mut offered =
                all.flat_map(|(&copier, place)| place.allocations().iter().map(move |one| (copier, one)));
            if offered.any(|(copier, one)| one.handle.is_none() && self.copiers[copier].find(one).is_none()) {
                return Ok(None);
            }
            let mapped = self.map_all(local, header.number, places, &copiers, None)?;
            self.avoid_launches(header, arrays, &copiers, &mapped)?;
            self.copy_all(local, header, arrays, places, &copiers, &mapped, options)?;
            let mut events = Vec::new();
            for (at, copier) in self.copiers.iter().enumerate() {
                if copiers.contains(&Some(at)) {
                    events.push((at, copier.record()?));
                }
            }
            Ok(Some(Copying { events, _mapped: mapped }))
        });
        match begun {
            Ok(copying) => Ok(copying),
            Err(why) => {
                // Also those of earlier transfers, which are still to be waited for.
                self.copiers.iter_mut().try_for_each(Copier::finish)?;
                match why {
                    NotCopied::Because(_) => Ok(None),
                    NotCopied::Failed(error) => Err(error),
                }
            }
        }
    }

    /// Chooses the copier of each array that the sender has on a GPU: that of the memory where the
    /// array goes, or one by which this end reaches GPUs.
    fn copiers_for(
        &mut self,
        arrays: &[ArrayMut<'_>],
        places: &[Place],
    ) -> Result<Vec<Option<usize>>, NotCopied> {
        let mut copiers = Vec::with_capacity(arrays.len());
        for (array, place) in arrays.iter().zip(places) {
            copiers.push(match (place, &array.memory) {
                (Place::Process(_), _) => None,
                (Place::Gpu(_), Memory::Gpu { device, .. }) => Some(self.copier(device)?),
                (Place::Gpu(_), Memory::Host([])) => None,
                (Place::Gpu(_), Memory::Host(_)) => match self.shared.options.device.clone() {
                    Some(device) => Some(self.copier(&device)?),
                    None if self.copiers.is_empty() => return Err(Reason::MixedMemory.into()),
                    None => Some(0),
                },
            });
        }
        Ok(copiers)
    }

    /// Maps the allocations of all arrays, in the order in which they count.
    fn map_all(
        &mut self,
        local: &Local,
        number: u64,
        places: &[Place],
        copiers: &[Option<usize>],
        deadline: Option<Instant>,
    ) -> Result<Vec<Vec<Mapped>>, NotCopied> {
        let wanted: Vec<(usize, Offered)> = copiers
            .iter()
            .zip(places)
            .flat_map(|(copier, place)| place.allocations().iter().map(|&offered| (*copier, offered)))
            .map(|(copier, offered)| Some((copier?, offered)))
            .collect::<Option<_>>()
            .ok_or(Reason::CopyFailed)?;
        let mut mapped: Vec<Option<Mapped>> =
            wanted.iter().map(|(copier, offered)| self.copiers[*copier].find(offered)).collect();
        let needed: Vec<u32> = (0..wanted.len())
            .filter(|&at| mapped[at].is_none() && wanted[at].1.handle.is_none())
            .map(|at| at as u32)
            .collect();
        for asked in needed.chunks(MAX_NEEDED) {
            self.answer(number, &Answer::Need { allocations: asked.to_vec() }, deadline)?;
            let mut refused = None;
            for batch in asked.chunks(BATCH) {
                let fds = local.receive(deadline).map_err(|error| lost("receiving descriptors", error))?;
                if refused.is_none() && fds.len() != batch.len() {
                    refused = Some(Reason::NotExported);
                }
                for (&at, fd) in batch.iter().zip(fds) {
                    if refused.is_none() {
                        refused = self.map(&mut mapped, &wanted, at as usize, Some(fd)).err();
                    }
                }
            }
            if let Some(reason) = refused {
                return Err(reason.into());
            }
        }
        for at in 0..wanted.len() {
            if mapped[at].is_none() {
                self.map(&mut mapped, &wanted, at, None)?;
            }
        }
        let mut mapped = mapped.into_iter().flatten();
        Ok(places.iter().map(|place| mapped.by_ref().take(place.allocations().len()).collect()).collect())
    }

    /// Maps one allocation, unless an earlier one of the transfer was the same.
    fn map(
        &mut self,
        mapped: &mut [Option<Mapped>],
        wanted: &[(usize, Offered)],
        at: usize,
        fd: Option<OwnedFd>,
    ) -> Result<(), Reason> {
        let (copier, offered) = &wanted[at];
        let copier = &mut self.copiers[*copier];
        mapped[at] = Some(match copier.find(offered) {
            Some(found) => found,
            None => copier.map(offered, fd)?,
        });
        Ok(())
    }

    /// Waits for launches where a copy would wait for them: within one GPU.
    fn avoid_launches(
        &self,
        header: &Header,
        arrays: &[ArrayMut<'_>],
        copiers: &[Option<usize>],
        mapped: &[Vec<Mapped>],
    ) -> Result<(), Reason> {
        // A small transfer is sooner through the connections.
        let patience = if header.total <= SMALL { 0 } else { PATIENCE };
        for ((array, copier), mapped) in arrays.iter().zip(copiers).zip(mapped) {
            if let (Some(at), Memory::Gpu { .. }) = (copier, &array.memory)
                && mapped.iter().any(|mapped| self.copiers[*at].is_near(mapped))
            {
                self.copiers[*at].wait_for_launches(patience)?;
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one transfer's")]
    fn copy_all(
        &mut self,
        local: &Local,
        header: &Header,
        arrays: &mut [ArrayMut<'_>],
        places: &[Place],
        copiers: &[Option<usize>],
        mapped: &[Vec<Mapped>],
        options: &TransferOptions<'_>,
    ) -> Result<(), NotCopied> {
        let size = header.piece as usize;
        let staged = part_size(header.total, size);
        let (mut jobs, mut small) = (Vec::new(), SmallReads::default());
        // Of each copier, in one call.
        let mut copies: Vec<Vec<(u64, u64, usize)>> = vec![Vec::new(); self.copiers.len()];
        for (at, (array, place)) in arrays.iter_mut().zip(places).enumerate() {
            let len = array.memory.len();
            match (place, &mut array.memory) {
                (Place::Process(from), memory) => {
                    let size = if memory.device().is_some() { staged } else { size };
                    let parts = parts(memory, size).into_iter();
                    jobs.extend((*from..).step_by(size).zip(parts).filter_map(|(from, to)| match to {
                        Memory::Host(to) if to.len() < size => small.add(from, to, size),
                        to => Some(Job::Read { from, to }),
                    }));
                }
                (Place::Gpu(offer), memory) => {
                    let Some(at_copier) = copiers[at] else { continue };
                    let copier = &self.copiers[at_copier];
                    let runs = runs(offer, &mapped[at], len)?;
                    let to = match memory {
                        Memory::Gpu { address, .. } => *address,
                        Memory::Host(bytes) if copier.is_pinned(bytes) => {
                            bytes.as_mut_ptr().expose_provenance() as u64
                        }
                        Memory::Host(bytes) => {
                            jobs.extend(fetches(copier.device(), &runs, bytes, staged));
                            continue;
                        }
                    };
                    let mut offset = 0;
                    copies[at_copier].extend(runs.iter().map(|&(from, len)| {
                        let here = to + offset;
                        offset += len as u64;
                        (here, from, len)
                    }));
                }
            }
        }
        for (copier, copies) in self.copiers.iter_mut().zip(&copies) {
            if !copies.is_empty() {
                copier.copy(copies, options.after)?;
            }
        }
        jobs.extend(small.take());
        if jobs.is_empty() {
            return Ok(());
        }
        let reads = jobs.iter().any(|job| matches!(job, Job::Read { .. } | Job::ReadSeveral(_)));
        let pid = match local.pid() {
            None if reads => return Err(Reason::HiddenProcess.into()),
            pid => pid,
        };
        let busy = usize::try_from(header.total.div_ceil(PER_THREAD)).unwrap_or(usize::MAX);
        let threads = jobs.len().min(self.shared.wires.data().len()).min(busy);
        let progress = Progress::default();
        match self.run(jobs, threads, pid, size, header.total, &progress, options)? {
            None => Ok(()),
            Some(_) if !local.is_there() => Err(died(progress.done(), header.total).into()),
            Some(Stopped::Failed(error)) => Err(error.into()),
            Some(Stopped::NotRead(error)) => {
                tracing::debug!(%error, "the other process's memory is not read");
                Err(match errno_of(&error) {
                    libc::EPERM | libc::ENOSYS | libc::EACCES => Reason::NotPermitted.into(),
                    _ => Reason::CopyFailed.into(),
                })
            }
        }
    }
}

/// Copies between GPUs that are under way.
pub(super) struct Copying {
    /// What follows the copies on the stream of each copier.
    events: Vec<(usize, CudaEvent)>,
    /// The memory that is read.
    _mapped: Vec<Vec<Mapped>>,
}

impl Copying {
    /// Waits until all copies are done: polls for `spin`, and sleeps then until all that is on the
    /// streams is done.
    pub(super) fn wait(self, spin: Duration, copiers: &mut [Copier]) -> Result<(), ChannelError> {
        let until = Instant::now() + spin;
        for (at, event) in &self.events {
            let passed = || event.has_passed().map_err(|error| ChannelError::Cuda(error.to_string()));
            while !passed()? {
                if Instant::now() >= until {
                    copiers[*at].finish()?;
                    break;
                }
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

pub(super) fn died(moved: u64, total: u64) -> ChannelError {
    lost("copying", io::Error::from_raw_os_error(libc::ECONNRESET)).at(moved, total)
}
