//! The memory of a member: made, exported, and that of the others mapped.

use super::frames::Placement;
use crate::attached::device_memory::DeviceMemory;
use crate::attached::mapped::MappedMemory;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::Device;
use gpunet_abi::team::Rank;
use std::os::fd::OwnedFd;

/// The parts of all members, and the table of their addresses in the device's own memory.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    pub(super) parts: Vec<MappedMemory>,
    pub(super) table: DeviceMemory,
}

/// Another member's memory.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rank: Rank,
    pub(super) len: u64,
    pub(super) fd: OwnedFd,
}

/// Makes a member's own memory, all zero, with a descriptor for the others and its length.
///
/// # Errors
/// What the system or CUDA says.
pub(super) fn make(
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

/// The memory of all members, by rank, of which the others' comes part by part. Each part is
/// mapped, and its descriptor closed, when it comes.
pub(super) struct Parts<'a> {
    device: Option<&'a Device>,
    placement: Placement,
    len: u64,
    is_reserved: bool,
    all: Vec<Option<MappedMemory>>,
}

impl<'a> Parts<'a> {
    /// Begins with this member's own.
    pub(super) fn new(
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

    /// Maps another member's.
    ///
    /// # Errors
    /// What the system or CUDA says; it is too short, or nobody's.
    pub(super) fn add(&mut self, part: Part) -> Result<(), String> {
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

    /// The memory of all.
    ///
    /// # Errors
    /// A part is missing.
    pub(super) fn all(self) -> Result<Vec<MappedMemory>, String> {
        let named = self.all.into_iter().enumerate();
        named.map(|(member, part)| part.ok_or_else(|| format!("nothing came from member {member}"))).collect()
    }
}
