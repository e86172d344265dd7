//! Memory of GPUs: pieces of it in pinned memory on their way to and from connections, and copies
//! out of what the other end has offered.

#![allow(unsafe_code, reason = "device addresses, and pinned memory that a copy engine writes")]

use crate::array::Memory;
use crate::error::{ChannelError, Reason};
use crate::header::{GpuOffer, Offered};
use crate::mappings::Mappings;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{
    Allocation, AllocationKind, CudaEvent, CudaStream, Device, ImportedBuffer, IpcBuffer, IpcHandle,
    Registration, StreamError, StreamPriority,
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
    /// Whether something was enqueued on each that was not waited for: a wait takes several calls
    /// of the driver.
    is_busy: [bool; 2],
    size: usize,
}

impl Stage {
    /// Makes one for pieces of up to `size` bytes.
    pub(crate) fn new(device: &Device, size: usize) -> Result<Self, ChannelError> {
        let size = size.next_multiple_of(4096);
        let region = PinnedRegion::create("gpunet-channel", 2 * size).map_err(failed)?;
        let memory = device.register(region).map_err(failed)?;
        let stream = || device.create_stream(StreamPriority::Normal).map_err(failed);
        Ok(Self { memory, streams: [stream()?, stream()?], is_busy: [false; 2], size })
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
    pub(crate) fn wait(&mut self, slot: usize) -> Result<(), ChannelError> {
        if self.is_busy[slot] {
            self.streams[slot].synchronize().map_err(failed)?;
            self.is_busy[slot] = false;
        }
        Ok(())
    }

    /// Lets the copies from here on wait for what is on a stream now.
    pub(crate) fn wait_for(&mut self, stream: &CudaStream) -> Result<(), ChannelError> {
        self.is_busy = [true; 2];
        self.streams.iter().try_for_each(|own| own.wait_for(stream)).map_err(failed)
    }

    /// Starts to copy a piece into a slot, of which no copy is under way.
    pub(crate) fn fetch(&mut self, slot: usize, segments: &[Memory<&[u8]>]) -> Result<(), ChannelError> {
        let mut at = 0;
        for segment in segments {
            match segment {
                Memory::Host(bytes) => {
                    self.bytes(slot, at + bytes.len())[at..].copy_from_slice(bytes);
                }
                Memory::Gpu { address, len, .. } => {
                    let to = self.memory.device_ptr() + (slot * self.size + at) as u64;
                    self.is_busy[slot] = true;
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
        segments: &mut [Memory<&mut [u8]>],
    ) -> Result<(), ChannelError> {
        let mut at = 0;
        for segment in segments {
            let len = segment.len();
            match segment {
                Memory::Host(bytes) => bytes.copy_from_slice(&self.bytes(slot, at + len)[at..]),
                Memory::Gpu { address, .. } => {
                    let from = self.memory.device_ptr() + (slot * self.size + at) as u64;
                    self.is_busy[slot] = true;
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

/// Offers ranges of GPU memory to a process of this machine: those of one transfer.
pub(crate) struct Offers<'a> {
    handles: &'a mut Handles,
    /// The allocation of the range before. An allocator cuts many arrays out of one, and asking the
    /// driver takes ten calls; the arrays are live, so the allocation stays.
    last: Option<(Device, Offered)>,
}

impl<'a> Offers<'a> {
    pub(crate) fn new(handles: &'a mut Handles) -> Self {
        Self { handles, last: None }
    }

    /// Offers a range.
    ///
    /// # Errors
    /// Why it cannot be offered.
    pub(crate) fn of(&mut self, device: &Device, address: u64, len: usize) -> Result<GpuOffer, Reason> {
        if len == 0 {
            return Ok(GpuOffer { address, allocations: Vec::new() });
        }
        let end = address.saturating_add(len as u64);
        if let Some((known, last)) = &self.last
            && known.shares_context(device)
            && last.base <= address
            && end <= last.base.saturating_add(last.len)
        {
            return Ok(GpuOffer { address, allocations: vec![*last] });
        }
        let refused = |error: &dyn std::fmt::Display| {
            tracing::debug!(%error, "memory is not exported");
            Reason::NotExported
        };
        let found = device.allocations(address, len).map_err(|error| refused(&error))?;
        let mut allocations = Vec::with_capacity(found.len());
        for allocation in found {
            let handle = match allocation.kind {
                AllocationKind::Plain => {
                    Some(self.handles.of(device, &allocation).map_err(|error| refused(&error))?)
                }
                AllocationKind::Virtual => None,
                _ => return Err(Reason::NotExported),
            };
            let Allocation { base, len, id, .. } = allocation;
            allocations.push(Offered { base, len: len as u64, id, handle });
        }
        self.last = allocations.last().map(|&last| (device.clone(), last));
        Ok(GpuOffer { address, allocations })
    }
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
pub(crate) struct Mapped {
    memory: MappedMemory,
    /// The number of the GPU where it is, if that has one here.
    location: Option<u32>,
}

#[derive(Clone, Debug)]
enum MappedMemory {
    Opened(IpcBuffer),
    Imported(ImportedBuffer),
}

impl Mapped {
    fn ptr(&self) -> u64 {
        match &self.memory {
            MappedMemory::Opened(buffer) => buffer.ptr(),
            MappedMemory::Imported(buffer) => buffer.ptr(),
        }
    }
}

/// Returns where a range of the other end's memory is mapped here: addresses, and lengths.
///
/// # Errors
/// The allocations do not cover the range.
pub(crate) fn runs(offer: &GpuOffer, mapped: &[Mapped], len: usize) -> Result<Vec<(u64, usize)>, Reason> {
    let (mut at, mut left, mut runs) = (offer.address, len, Vec::with_capacity(mapped.len()));
    for (allocation, mapped) in offer.allocations.iter().zip(mapped) {
        let end = allocation.base + allocation.len;
        if at < allocation.base || at >= end || left == 0 {
            return Err(Reason::CopyFailed);
        }
        let len = left.min(usize::try_from(end - at).unwrap_or(usize::MAX));
        runs.push((mapped.ptr() + (at - allocation.base), len));
        at += len as u64;
        left -= len;
    }
    if left == 0 { Ok(runs) } else { Err(Reason::CopyFailed) }
}

/// How long a copy that might wait for a launch is put off, in milliseconds.
pub(crate) const PATIENCE: u32 = 20;

/// What one device has mapped of the other end's memory, and the stream by which it copies.
pub(crate) struct Copier {
    device: Device,
    stream: CudaStream,
    is_copying: bool,
    mappings: Mappings<Mapped>,
}

impl Copier {
    pub(crate) fn new(device: &Device, limit: u64, idle: Duration) -> Result<Self, ChannelError> {
        let stream = device.create_stream(StreamPriority::Normal).map_err(failed)?;
        let mappings = Mappings::new(limit, idle);
        Ok(Self { device: device.clone(), stream, is_copying: false, mappings })
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
                let location = self.device.location_of(opened.ptr()).ok();
                Mapped { memory: MappedMemory::Opened(opened), location }
            }
            (None, Some(fd)) => {
                let imported = self.device.import(fd, len).map_err(|error| refused(&error))?;
                let location = imported.location();
                Mapped { memory: MappedMemory::Imported(imported), location }
            }
            (None, None) => return Err(Reason::NotOpened),
        };
        self.mappings.insert(*offered, mapped.clone(), Instant::now());
        Ok(mapped)
    }

    /// A copy from a GPU to itself runs in place of a kernel: it waits for those that fill the GPU.
    /// Copies of other channels count as work, and pass: for them `patience` milliseconds are
    /// spent.
    ///
    /// # Errors
    /// A kernel that stays is a reason.
    pub(crate) fn wait_for_launches(&self, patience: u32) -> Result<(), Reason> {
        for left in (0..=patience).rev() {
            match self.stream.is_device_busy_otherwise() {
                Ok(false) => return Ok(()),
                Ok(true) if left > 0 => std::thread::sleep(Duration::from_millis(1)),
                Ok(true) => {}
                Err(_) => return Err(Reason::NotOpened),
            }
        }
        Err(Reason::LaunchRuns)
    }

    /// Returns whether memory is on this GPU itself, as far as the driver knows.
    pub(crate) fn is_near(&self, mapped: &Mapped) -> bool {
        mapped.location.is_none_or(|ordinal| ordinal == self.device.ordinal())
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Enqueues copies to addresses of this GPU, or of pinned memory, from mapped memory
    /// ([`runs`]): each to, from, and of how many bytes.
    ///
    /// # Errors
    /// The driver refuses. What was enqueued before goes on until [`finish`](Self::finish).
    pub(crate) fn copy(
        &mut self,
        copies: &[(u64, u64, usize)],
        after: Option<&CudaStream>,
    ) -> Result<(), Reason> {
        let refused = |error: StreamError| {
            tracing::debug!(%error, "a copy out of a GPU");
            Reason::CopyFailed
        };
        if let Some(after) = after {
            self.stream.wait_for(after).map_err(refused)?;
        }
        self.is_copying = true;
        // SAFETY: the arrays' maker has promised that their memory is live and used by nobody until
        // the transfer has ended, which waits for the stream (`finish`). The sources lie in
        // mappings that are that long (`open_ipc` and the driver have checked it), which the caller
        // of `finish` holds until then. The two processes have different memory.
        unsafe { self.stream.copy_all(copies) }.map_err(refused)
    }

    /// Returns whether the driver knows all of a range of this process's memory, so that a copy
    /// engine can write there at once.
    pub(crate) fn is_pinned(&self, bytes: &[u8]) -> bool {
        let knows = |byte: &u8| self.device.knows(std::ptr::from_ref(byte).addr() as u64).unwrap_or(false);
        bytes.first().is_some_and(knows) && bytes.last().is_some_and(knows)
    }

    /// Records what is enqueued.
    pub(crate) fn record(&self) -> Result<CudaEvent, ChannelError> {
        self.stream.record().map_err(failed)
    }

    /// Waits for the copies, if there are any.
    pub(crate) fn finish(&mut self) -> Result<(), ChannelError> {
        if std::mem::take(&mut self.is_copying) {
            self.stream.synchronize().map_err(failed)?;
        }
        Ok(())
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
