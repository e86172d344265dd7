//! The memory of all members: a member's own memory is created and exported, and the others' memory
//! is mapped.
//!
//! On GPUs, reserved memory is a run of addresses for each member on each device, to which the
//! pieces of [`SharedMemory::commit`] are mapped. A piece is unmapped only after the last handle of
//! the memory has gone and when no kernel runs. So kernels can use the first pieces while others
//! are added. Mapping a piece waits for no kernel (the table in `gpu_usermap::cuda`); `commit`
//! waits for the other members' programs.

use super::Local;
use super::error::{Collective, TeamError};
use super::frames::Placement;
use crate::attached::device_memory::DeviceMemory;
use crate::attached::mapped::MappedMemory;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{Device, GrowingBuffer};
use gpunet_abi::team::Rank;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// The parts of all members, and the table of their addresses in the device's own memory.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    pub(super) parts: Vec<MappedMemory>,
    pub(super) table: DeviceMemory,
    /// For parts in pieces: how many bytes all members have. The lock is held while more are added.
    committed: Mutex<usize>,
}

impl SharedMemory {
    /// Allocates together with all other members.
    ///
    /// # Errors
    /// [`TeamError`]: no member has the memory then.
    pub(super) fn alloc(local: &Local, len: u64, element: u32, is_reserved: bool) -> Result<Self, TeamError> {
        let (device, placement) = (local.device.as_ref(), local.placement);
        let table = || DeviceMemory::of(device, local.size as usize * 8).map_err(|error| error.to_string());
        if let (Placement::Gpu, Some(device), true) = (placement, device, is_reserved) {
            let made = table().and_then(|table| Self::new(in_pieces(device, local.size, len)?, table));
            let able = made.as_ref().map(drop).map_err(Clone::clone);
            local.member.together_if(able, Collective::Reserve { len, element })?;
            return made.map_err(TeamError::Memory);
        }
        local.member.share(
            Collective::Alloc { len, element, is_reserved },
            || {
                let table = table()?;
                let (own, fd, made) = make(device, placement, len, is_reserved)?;
                Ok(((own, table), fd, made))
            },
            |(own, table)| {
                (Parts::new(device, placement, (len, is_reserved), local.size, (local.rank, own)), table)
            },
            |(parts, _), part| parts.add(part),
            |(parts, table)| Self::new(parts.all()?, table),
        )
    }

    fn new(parts: Vec<MappedMemory>, table: DeviceMemory) -> Result<Self, String> {
        let addresses: Vec<u8> = parts.iter().flat_map(|part| part.address().to_le_bytes()).collect();
        table.write(0, &addresses).map_err(|error| error.to_string())?;
        Ok(Self { parts, table, committed: Mutex::new(0) })
    }

    /// Creates the first `len` bytes, together with all other members.
    ///
    /// # Errors
    /// [`TeamError`]: the memory is unchanged.
    pub(super) fn commit(&self, local: &Local, len: usize) -> Result<(), TeamError> {
        let own = &self.parts[local.rank.0 as usize];
        let Some(pieces) = own.pieces() else {
            let what = Collective::Commit { len: len as u64, added: 0 };
            return local.member.together_if(own.grow(len), what);
        };
        // After a panic the value is still the one that all members have agreed on.
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, to) = (*committed, own.grown_for(len).max(*committed));
        let (added, what) = (to - from, Collective::Commit { len: len as u64, added: (to - from) as u64 });
        if added == 0 {
            return local.member.together_if(Ok(()), what);
        }
        let shared = local.member.share(
            what,
            || pieces.append(added).map(|fd| ((), fd, added as u64)).map_err(|error| error.to_string()),
            |()| (),
            |(), part| self.add_piece(part, from, added),
            |()| self.check_pieces(to),
        );
        match &shared {
            Ok(()) => *committed = to,
            // No kernel uses bytes that were not committed.
            Err(_) => self.parts.iter().filter_map(MappedMemory::pieces).for_each(|pieces| {
                if let Err(error) = pieces.truncate(from) {
                    tracing::debug!(%error, "memory of a team that nobody uses stays");
                }
            }),
        }
        shared
    }

    /// Maps another member's piece after the pieces that are mapped already.
    fn add_piece(&self, part: Part, from: usize, len: usize) -> Result<(), String> {
        let Part { rank, len: given, fd } = part;
        let pieces = self.parts.get(rank.0 as usize).and_then(MappedMemory::pieces);
        let pieces = pieces.filter(|pieces| pieces.mapped_len() == from && given == len as u64);
        let pieces =
            pieces.ok_or_else(|| format!("{given} bytes of a member {rank} that has no such piece"))?;
        pieces.append_imported(fd, len).map_err(|error| format!("the memory of member {rank}: {error}"))
    }

    /// Checks that `len` bytes of all members exist.
    fn check_pieces(&self, len: usize) -> Result<(), String> {
        let lens = self.parts.iter().map(|part| part.pieces().map_or(0, GrowingBuffer::mapped_len));
        match lens.enumerate().find(|&(_, mapped)| mapped != len) {
            Some((member, _)) => Err(format!("nothing came from member {member}")),
            None => Ok(()),
        }
    }
}

/// Reserves addresses for the parts of all members, to which pieces are mapped later.
fn in_pieces(device: &Device, size: u32, len: u64) -> Result<Vec<MappedMemory>, String> {
    let len = usize::try_from(len.max(1)).map_err(|error| error.to_string())?;
    (0..size).map(|_| MappedMemory::in_pieces(device, len)).collect()
}

/// Another member's memory.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rank: Rank,
    pub(super) len: u64,
    pub(super) fd: OwnedFd,
}

/// Creates a member's own memory, all zero. Returns it with a descriptor for the others and its
/// length.
///
/// # Errors
/// The error of the system or of CUDA.
fn make(
    device: Option<&Device>,
    placement: Placement,
    len: u64,
    is_reserved: bool,
) -> Result<(MappedMemory, OwnedFd, u64), String> {
    let len = usize::try_from(len.max(1)).map_err(|error| error.to_string())?;
    match (placement, device) {
        (Placement::Gpu, Some(device)) => {
            let buffer = device.alloc_shareable(len).map_err(|error| error.to_string())?;
            let fd = buffer.export().map_err(|error| error.to_string())?;
            let len = buffer.len() as u64;
            Ok((MappedMemory::Provided(buffer), fd, len))
        }
        (Placement::Gpu, None) => Err("the CPU device has no GPU memory".to_owned()),
        (Placement::Pinned, None) if is_reserved => {
            let (memory, fd) = MappedMemory::growing("gpunet-team", len)?;
            let len = memory.len() as u64;
            Ok((memory, fd, len))
        }
        (Placement::Pinned, device) => {
            let region = PinnedRegion::create("gpunet-team", len).map_err(|error| error.to_string())?;
            let len = region.len() as u64;
            let (memory, fd) = MappedMemory::of_region(device, region)?;
            Ok((memory, fd, len))
        }
    }
}

/// The memory of all members, by rank. The others' memory arrives part by part. Each part is
/// mapped, and its descriptor closed, when it arrives.
struct Parts<'a> {
    device: Option<&'a Device>,
    placement: Placement,
    len: u64,
    is_reserved: bool,
    all: Vec<Option<MappedMemory>>,
}

impl<'a> Parts<'a> {
    /// Starts with this member's own memory.
    fn new(
        device: Option<&'a Device>,
        placement: Placement,
        (len, is_reserved): (u64, bool),
        size: u32,
        (rank, own): (Rank, MappedMemory),
    ) -> Self {
        let mut own = Some(own);
        let all = (0..size).map(|member| own.take_if(|_| member == rank.0)).collect();
        Self { device, placement, len, is_reserved, all }
    }

    /// Maps another member's memory.
    ///
    /// # Errors
    /// The error of the system or of CUDA; the memory is too short, or its rank does not exist.
    fn add(&mut self, part: Part) -> Result<(), String> {
        let Part { rank, len: given, fd } = part;
        let place = self.all.get_mut(rank.0 as usize).filter(|place| place.is_none());
        let place = place.ok_or_else(|| format!("memory of a member {rank} that has none"))?;
        let mapped = match self.placement {
            Placement::Pinned if self.is_reserved => MappedMemory::of_growing(self.device, fd),
            Placement::Pinned => MappedMemory::pinned(self.device, fd),
            Placement::Gpu => MappedMemory::imported(self.device, fd, given),
        };
        let mapped = mapped.map_err(|reason| format!("the memory of member {rank}: {reason}"))?;
        if (mapped.len() as u64) < self.len {
            let found = mapped.len();
            return Err(format!("the memory of member {rank} has {found} bytes instead of {}", self.len));
        }
        *place = Some(mapped);
        Ok(())
    }

    /// Returns the memory of all members.
    ///
    /// # Errors
    /// A part is missing.
    fn all(self) -> Result<Vec<MappedMemory>, String> {
        let named = self.all.into_iter().enumerate();
        named.map(|(member, part)| part.ok_or_else(|| format!("nothing came from member {member}"))).collect()
    }
}
