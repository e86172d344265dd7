//! Memory of GPUs: pieces of it in pinned memory on their way to and from connections, and copies
//! from GPU to GPU out of what the other end has offered.

#![allow(unsafe_code, reason = "device addresses, and pinned memory that a copy engine writes")]

use crate::array::{ArrayMut, Target};
use crate::error::{ChannelError, Reason};
use crate::header::{GpuOffer, Offered};
use crate::mappings::Mappings;
use crate::pieces::Segment;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{
    Allocation, AllocationKind, CudaStream, Device, ImportedBuffer, IpcBuffer, IpcHandle, Registration,
    StreamError, StreamPriority,
};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn failed(error: impl std::fmt::Display) -> ChannelError {
    ChannelError::Cuda(error.to_string())
}

/// Pinned memory for two pieces, of which one travels while the other is copied.
pub(crate) struct Stage {
    memory: Registration,
    streams: [CudaStream; 2],
    size: usize,
}

impl Stage {
    /// Makes one for pieces of up to `size` bytes.
    pub(crate) fn new(device: &Device, size: usize) -> Result<Self, ChannelError> {
        let size = size.next_multiple_of(4096);
        let region = PinnedRegion::create("gpunet-channel", 2 * size).map_err(failed)?;
        let memory = device.register(region).map_err(failed)?;
        let stream = || device.create_stream(StreamPriority::Normal).map_err(failed);
        Ok(Self { memory, streams: [stream()?, stream()?], size })
    }

    /// Whether it serves pieces of that device and size.
    pub(crate) fn fits(&self, device: &Device, size: usize) -> bool {
        self.size >= size && self.streams[0].device().shares_context(device)
    }

    fn base(&self, slot: usize) -> *mut u8 {
        // Both slots lie in the region.
        self.memory.region().base().as_ptr().wrapping_add(slot * self.size)
    }

    /// The bytes of a slot, for the CPU.
    ///
    /// No copy of this slot is under way: `wait` has returned.
    pub(crate) fn bytes(&mut self, slot: usize, len: usize) -> &mut [u8] {
        let len = len.min(self.size);
        // SAFETY: within the region; the stage is borrowed, and copies are waited for by every
        // caller before it looks (`fetch` and `store` are the only ones to start some).
        unsafe { std::slice::from_raw_parts_mut(self.base(slot), len) }
    }

    /// Waits until the copies of a slot are done.
    pub(crate) fn wait(&self, slot: usize) -> Result<(), ChannelError> {
        self.streams[slot].synchronize().map_err(failed)
    }

    /// Starts to copy a piece into a slot, of which no copy is under way.
    pub(crate) fn fetch(&mut self, slot: usize, segments: &[Segment<&[u8]>]) -> Result<(), ChannelError> {
        let mut at = 0;
        for segment in segments {
            match segment {
                Segment::Host(bytes) => {
                    self.bytes(slot, at + bytes.len())[at..].copy_from_slice(bytes);
                }
                Segment::Gpu { address, len, .. } => {
                    let to = self.memory.device_ptr() + (slot * self.size + at) as u64;
                    // SAFETY: within the slot, since a piece is not larger; the array's maker has
                    // promised that its memory is live until the transfer has ended, which waits
                    // for this stream.
                    unsafe { self.streams[slot].copy(to, *address, *len) }.map_err(failed)?;
                }
            }
            at += segment.len();
        }
        Ok(())
    }

    /// Starts to copy a slot to where its piece belongs.
    pub(crate) fn store(
        &mut self,
        slot: usize,
        segments: &mut [Segment<&mut [u8]>],
    ) -> Result<(), ChannelError> {
        let mut at = 0;
        for segment in segments {
            let len = segment.len();
            match segment {
                Segment::Host(bytes) => bytes.copy_from_slice(&self.bytes(slot, at + len)[at..]),
                Segment::Gpu { address, .. } => {
                    let from = self.memory.device_ptr() + (slot * self.size + at) as u64;
                    // SAFETY: as in `fetch`.
                    unsafe { self.streams[slot].copy(*address, from, len) }.map_err(failed)?;
                }
            }
            at += len;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A copy that is under way uses memory of the caller.
        for slot in 0..2 {
            if let Err(error) = self.wait(slot) {
                tracing::warn!(%error, "copies of a transfer that failed");
            }
        }
    }
}

/// Handles of allocations by the driver's number, which is never given twice: asking for one takes
/// longer than a copy of some megabytes.
#[derive(Default)]
pub(crate) struct Handles(HashMap<u64, [u8; 64]>);

impl Handles {
    /// So many numbers are remembered; beyond them all are asked for again.
    const MOST: usize = 4096;

    fn of(&mut self, device: &Device, allocation: &Allocation) -> Result<[u8; 64], StreamError> {
        if let Some(handle) = self.0.get(&allocation.id) {
            return Ok(*handle);
        }
        let IpcHandle(handle) = device.ipc_handle(allocation)?;
        if self.0.len() == Self::MOST {
            self.0.clear();
        }
        self.0.insert(allocation.id, handle);
        Ok(handle)
    }
}

/// Offers a range of GPU memory to a process of this machine.
///
/// # Errors
/// Why it cannot be offered.
pub(crate) fn offer(
    handles: &mut Handles,
    device: &Device,
    address: u64,
    len: usize,
) -> Result<GpuOffer, Reason> {
    let refused = |error: &dyn std::fmt::Display| {
        tracing::debug!(%error, "memory is not exported");
        Reason::NotExported
    };
    let found = device.allocations(address, len).map_err(|error| refused(&error))?;
    let mut allocations = Vec::with_capacity(found.len());
    for allocation in found {
        let handle = match allocation.kind {
            AllocationKind::Plain => Some(handles.of(device, &allocation).map_err(|error| refused(&error))?),
            AllocationKind::Virtual => None,
            _ => return Err(Reason::NotExported),
        };
        let Allocation { base, len, id, .. } = allocation;
        allocations.push(Offered { base, len: len as u64, id, handle });
    }
    Ok(GpuOffer { address, allocations })
}

/// Makes a descriptor of an allocation that was offered without a handle.
///
/// # Errors
/// It is not the same allocation any more, or the driver refuses.
pub(crate) fn export(device: &Device, offered: &Offered) -> Result<OwnedFd, ChannelError> {
    let now = device.allocations(offered.base, 1).map_err(failed)?;
    match now.first() {
        Some(now) if (now.base, now.len as u64, now.id) == (offered.base, offered.len, offered.id) => {
            device.export_allocation(now).map_err(failed)
        }
        _ => Err(ChannelError::Cuda("the memory was remapped during the transfer".into())),
    }
}

/// A mapping of an allocation of the other end's.
#[derive(Clone, Debug)]
pub(crate) enum Mapped {
    Opened(IpcBuffer),
    Imported(ImportedBuffer),
}

impl Mapped {
    fn ptr(&self) -> u64 {
        match self {
            Self::Opened(buffer) => buffer.ptr(),
            Self::Imported(buffer) => buffer.ptr(),
        }
    }
}

/// How long a copy that might wait for a launch is put off, in steps of a millisecond.
const PATIENCE: u32 = 20;

/// What one device has mapped of the other end's memory, and the stream by which it copies.
pub(crate) struct Copier {
    device: Device,
    stream: CudaStream,
    mappings: Mappings<Mapped>,
}

impl Copier {
    pub(crate) fn new(device: &Device, limit: u64, idle: Duration) -> Result<Self, ChannelError> {
        let stream = device.create_stream(StreamPriority::Normal).map_err(failed)?;
        Ok(Self { device: device.clone(), stream, mappings: Mappings::new(limit, idle) })
    }

    pub(crate) fn is_of(&self, device: &Device) -> bool {
        self.device.shares_context(device)
    }

    /// Returns the mapping of an allocation, if there is one.
    pub(crate) fn find(&mut self, offered: &Offered) -> Option<Mapped> {
        self.mappings.find(offered, Instant::now())
    }

    /// Maps an allocation by its handle, or by a descriptor.
    ///
    /// # Errors
    /// Why it cannot be mapped.
    pub(crate) fn map(&mut self, offered: &Offered, fd: Option<OwnedFd>) -> Result<Mapped, Reason> {
        let refused = |error: &dyn std::fmt::Display| {
            tracing::debug!(%error, "memory is not opened");
            Reason::NotOpened
        };
        let len = usize::try_from(offered.len).map_err(|_| Reason::NotOpened)?;
        let mapped = match (offered.handle, fd) {
            (Some(handle), _) => {
                let opened = self.device.open_ipc(IpcHandle(handle), len).map_err(|error| refused(&error))?;
                Mapped::Opened(opened)
            }
            (None, Some(fd)) => {
                Mapped::Imported(self.device.import(fd, len).map_err(|error| refused(&error))?)
            }
            (None, None) => return Err(Reason::NotOpened),
        };
        self.mappings.insert(*offered, mapped.clone(), Instant::now());
        Ok(mapped)
    }

    /// A copy from a GPU to itself runs in place of a kernel: it waits for those that fill the GPU.
    /// Copies of other channels count as work, and pass.
    ///
    /// # Errors
    /// A kernel that stays is a reason.
    pub(crate) fn wait_for_launches(&self) -> Result<(), Reason> {
        for _ in 0..PATIENCE {
            match self.device.is_busy() {
                Ok(false) => return Ok(()),
                Ok(true) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return Err(Reason::NotOpened),
            }
        }
        Err(Reason::LaunchRuns)
    }

    /// Enqueues the copy of an array, out of the mappings of its allocations.
    ///
    /// # Errors
    /// The allocations do not cover the array, or the driver refuses.
    pub(crate) fn copy(
        &self,
        array: &ArrayMut<'_>,
        offer: &GpuOffer,
        mapped: &[Mapped],
    ) -> Result<(), Reason> {
        let Target::Gpu { address: mut to, len: mut left, .. } = array.target else {
            return Err(Reason::MixedMemory);
        };
        let mut at = offer.address;
        for (allocation, mapped) in offer.allocations.iter().zip(mapped) {
            let end = allocation.base + allocation.len;
            if at < allocation.base || at >= end || left == 0 {
                return Err(Reason::CopyFailed);
            }
            let len = left.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let from = mapped.ptr() + (at - allocation.base);
            // SAFETY: the array's maker has promised that its memory is live and used by nobody
            // until the transfer has ended, which waits for the stream. `from` lies in a mapping
            // that is that long (`open_ipc` and the driver have checked it), which `mapped` holds
            // until then. The two processes have different memory.
            unsafe { self.stream.copy(to, from, len) }.map_err(|error| {
                tracing::debug!(%error, "a copy between GPUs");
                Reason::CopyFailed
            })?;
            to += len as u64;
            at += len as u64;
            left -= len;
        }
        if left == 0 { Ok(()) } else { Err(Reason::CopyFailed) }
    }

    /// Waits for the copies.
    pub(crate) fn finish(&self) -> Result<(), ChannelError> {
        self.stream.synchronize().map_err(failed)
    }

    /// See [`Mappings::trim`].
    pub(crate) fn trim(&mut self) {
        self.mappings.trim(Instant::now());
    }

    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.mappings.next_expiry()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mappings.bytes()
    }
}
