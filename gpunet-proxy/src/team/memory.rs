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
        (Placement::Pinned, device) => {
            let region = PinnedRegion::create("gpunet-team", len).map_err(|error| error.to_string())?;
            let fd = region.fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            let len = region.len() as u64;
            Ok((MappedMemory::of_region(device, region)?, fd, len))
        }
    }
}

/// Maps the memory of all others; returns that of all, by rank.
///
/// # Errors
/// What the system or CUDA says, and a part that is missing or too short.
pub(super) fn map(
    device: Option<&Device>,
    placement: Placement,
    len: u64,
    own: (u32, MappedMemory),
    mut parts: Vec<Part>,
) -> Result<Vec<MappedMemory>, String> {
    let mut all = Vec::with_capacity(parts.len() + 1);
    let (rank, own) = own;
    let mut own = Some(own);
    parts.sort_by_key(|part| part.rank);
    let size = parts.len() as u32 + 1;
    let mut parts = parts.into_iter();
    for member in 0..size {
        if member == rank {
            all.extend(own.take());
            continue;
        }
        let part = parts.next().filter(|part| part.rank.0 == member);
        let Part { rank, len: given, fd } =
            part.ok_or_else(|| format!("nothing came from member {member}"))?;
        let mapped = match placement {
            Placement::Pinned => MappedMemory::pinned(device, fd),
            Placement::Gpu => MappedMemory::imported(device, fd, given),
        };
        let mapped = mapped.map_err(|reason| format!("the memory of member {rank}: {reason}"))?;
        if (mapped.len() as u64) < len {
            return Err(format!("the memory of member {rank} has {} bytes instead of {len}", mapped.len()));
        }
        all.push(mapped);
    }
    Ok(all)
}
