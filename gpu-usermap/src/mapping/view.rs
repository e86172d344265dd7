//! The CPU's view of a range of GPU memory.

#![allow(unsafe_code, reason = "accesses to mapped memory")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use gpunet_cuda::GpuBuffer;
use gpunet_region::Pages;

use super::error::AccessError;
use super::kind::BackendKind;
use super::pin::Pin;
use super::{barrier, copy};

/// How the CPU treats accesses to the mapped memory.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::mapping::MemoryType;
///
/// # fn show(mapping: &gpu_usermap::mapping::Mapping) {
/// if mapping.memory_type() == MemoryType::Cached {
///     println!("CPU and GPU share a coherent link");
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryType {
    /// Write-combining: stores gather in a buffer, loads go over the bus each time. The usual kind.
    WriteCombining,
    /// Cached and kept coherent by the hardware (Grace Hopper).
    Cached,
    /// Device memory (some aarch64 machines): uncombined, and aligned accesses only.
    Device,
    /// A kind that this crate does not know; it is treated like all of the above at once.
    Unknown(u32),
}

/// A CPU mapping of a range of GPU memory, or a part of one.
///
/// It copies and stores; it never hands out a slice, a reference or an address. One part has one
/// owner, and writing takes `&mut`: so the threads of this process never race. The GPU reads and
/// writes the same memory at any time.
///
/// # Order
/// What a kernel observes is in order if each link of the chain is:
/// 1. *In the CPU*, write-combined stores leave in any order. [`write`](Self::write) ends with a
///    store fence, so its bytes are on the bus before any later store of the thread.
///    [`MappedWord::publish`](super::MappedWord::publish) begins with one as well, for data that
///    was written otherwise (plain stores to pinned memory), and ends with one, so that the word
///    does not wait in a buffer.
/// 2. *On the bus*, posted writes of one source to one device do not pass each other (PCIe, without
///    relaxed ordering, which CPUs do not set on stores).
/// 3. *In the GPU*, a word is visible after the data that arrived before it, if the device reports
///    [`WritesOrdering::Owner`](gpunet_cuda::WritesOrdering::Owner) or more
///    ([`Mapping::is_ordered`]). Otherwise
///    [`Device::flush_gpudirect_rdma_writes`](gpunet_cuda::Device::flush_gpudirect_rdma_writes)
///    stands between data and word.
/// 4. *In the kernel*, the word is read by an acquire load at system scope (`ld.acquire.sys`).
///
/// An aligned word of 8 bytes arrives whole. Anything longer arrives in pieces, and is read only
/// after a word said so.
///
/// # Limits
/// A program that resets the device or destroys its context by other means (`cudaDeviceReset`)
/// takes the memory away under the mapping; with gdrdrv an access then ends the process by a
/// signal.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::mapping::{Mapping, AccessError};
///
/// /// A message, and behind it the word that kernels poll.
/// fn send(mapping: Mapping, message: &[u8]) -> Result<(), AccessError> {
///     let (mut data, word) = mapping.split_at(4096)?;
///     let mut word = word.into_word()?;
///     data.write(0, message)?;
///     word.publish(message.len() as u64);
///     Ok(())
/// }
/// ```
pub struct Mapping {
    owner: Arc<Owner>,
    base: NonNull<u8>,
    /// Where the part begins in the buffer, in bytes.
    start: usize,
    len: usize,
}

/// What keeps the addresses mapped. The fields drop in this order: the CPU's pages go first, then
/// the pin, then the memory.
pub(super) struct Owner {
    pub(super) pages: Pages,
    pub(super) pin: Option<Pin>,
    /// `None` only in tests on ordinary memory.
    pub(super) buffer: Option<GpuBuffer>,
    pub(super) kind: BackendKind,
    pub(super) memory_type: MemoryType,
}

// SAFETY: the address belongs to the process and not to a thread; `owner` keeps it mapped.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` only loads, volatile or in assembly; stores take `&mut`, and parts do not
// overlap (`split_at` and `into_parts` alone make them).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes the view of `len` bytes at `offset` in the owner's pages, which are the bytes from
    /// `start` on of its buffer.
    ///
    /// Called once per owner, with a range that a backend checked.
    pub(super) fn new(owner: Owner, offset: usize, start: usize, len: usize) -> Self {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= owner.pages.len()),
            "beyond the mapped pages"
        );
        // SAFETY: within the mapped pages (just checked).
        let base = unsafe { owner.pages.base().add(offset) };
        Self { owner: Arc::new(owner), base, start, len }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the part has no bytes, which only splitting makes possible.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how the memory is mapped.
    pub fn kind(&self) -> BackendKind {
        self.owner.kind
    }

    /// Returns how the CPU treats the memory.
    pub fn memory_type(&self) -> MemoryType {
        self.owner.memory_type
    }

    /// Returns the GPU's address of the first byte.
    pub fn device_ptr(&self) -> u64 {
        self.owner.buffer.as_ref().map_or(0, GpuBuffer::ptr) + self.start as u64
    }

    /// Returns whether the GPU sees writes through this mapping in the order in which they arrive,
    /// without a flush.
    pub fn is_ordered(&self) -> bool {
        self.owner.buffer.as_ref().is_some_and(|buffer| {
            let ordering = buffer.device().rdma_attributes().writes_ordering;
            ordering.is_some_and(gpunet_cuda::WritesOrdering::ordered_for_owner)
        })
    }

    /// Returns whether the driver has taken the memory away (see the limits above), as far as that
    /// can be known: gdrdrv reports it for mappings that are not persistent. The answer may be out
    /// of date when it returns.
    pub fn is_revoked(&self) -> bool {
        self.owner.pin.as_ref().is_some_and(Pin::is_revoked)
    }

    /// Copies `bytes` to `offset`. They are on their way, in front of every later store of this
    /// thread, when it returns.
    ///
    /// # Errors
    /// [`AccessError::OutOfBounds`]; nothing is written then.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: mapped writable bytes (checked by `at`), and `&mut self` keeps the other threads
        // of this process away.
        unsafe { copy::to_mapped(to.as_ptr(), bytes) };
        // Ordering: the bytes leave the CPU before any later store; without it a word that
        // announces them could overtake them.
        barrier::store_fence();
        Ok(())
    }

    /// Copies from `offset` into `bytes`: slow, about a microsecond per 64 bytes. For tests and
    /// reports.
    ///
    /// What the GPU writes meanwhile is seen in any mixture.
    ///
    /// # Errors
    /// [`AccessError::OutOfBounds`]; nothing is read then.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: mapped readable bytes (checked by `at`); who writes them in this process has
        // `&mut self`.
        unsafe { copy::from_mapped(from.as_ptr(), bytes) };
        Ok(())
    }

    /// Stores an aligned word of 8 bytes, and makes it leave the write-combining buffer.
    ///
    /// It orders nothing before it but this mapping's [`write`](Self::write)s;
    /// [`MappedWord::publish`](super::MappedWord::publish) orders everything.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, or not aligned.
    pub fn store_u64(&mut self, offset: usize, value: u64) -> Result<(), AccessError> {
        let word = self.word_at(offset)?;
        // SAFETY: 8 aligned writable bytes (checked), which nobody else in this process accesses.
        unsafe { word.as_ptr().write_volatile(value) };
        // Ordering: empties the buffer, in which the word could wait for an unbounded time.
        barrier::store_fence();
        Ok(())
    }

    /// Loads an aligned word of 8 bytes over the bus: about a microsecond.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, or not aligned.
    pub fn load_u64(&self, offset: usize) -> Result<u64, AccessError> {
        let word = self.word_at(offset)?;
        // SAFETY: 8 aligned readable bytes (checked); who writes them in this process has `&mut
        // self`.
        let value = unsafe { word.as_ptr().read_volatile() };
        // Ordering: later loads of the mapping see what the GPU wrote before this word.
        barrier::full_fence();
        Ok(value)
    }

    /// Splits the view in two, each with an owner of its own. The memory stays mapped until both
    /// are dropped.
    ///
    /// # Errors
    /// [`AccessError::OutOfBounds`] if `offset` is beyond the end; the mapping is dropped then.
    pub fn split_at(self, offset: usize) -> Result<(Self, Self), AccessError> {
        let base = self.at(offset, 0)?;
        let (start, len) = (self.start + offset, self.len - offset);
        let tail = Self { owner: Arc::clone(&self.owner), base, start, len };
        Ok((Self { len: offset, ..self }, tail))
    }

    /// Splits the view into parts of `size` bytes, e.g. one per socket; the last one may be
    /// shorter.
    ///
    /// # Panics
    /// `size` is 0.
    pub fn into_parts(self, size: usize) -> Vec<Self> {
        let part = |offset: usize| Self {
            owner: Arc::clone(&self.owner),
            // SAFETY: `offset` is less than `len`, so within the pages that `owner` keeps mapped.
            base: unsafe { self.base.add(offset) },
            start: self.start + offset,
            len: size.min(self.len - offset),
        };
        (0..self.len).step_by(size).map(part).collect()
    }

    fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, AccessError> {
        match offset.checked_add(len) {
            // SAFETY: within the part or one past its end (just checked), so within the pages that
            // `owner` keeps mapped.
            Some(end) if end <= self.len => Ok(unsafe { self.base.add(offset) }),
            _ => Err(AccessError::OutOfBounds { offset, len, size: self.len }),
        }
    }

    pub(super) fn word_at(&self, offset: usize) -> Result<NonNull<u64>, AccessError> {
        let word = self.at(offset, 8)?.cast::<u64>();
        // Pages are mapped whole, so both addresses are aligned or neither is.
        if !word.is_aligned() {
            return Err(AccessError::Misaligned { address: self.device_ptr() + offset as u64 });
        }
        Ok(word)
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("kind", &self.kind())
            .field("memory_type", &self.memory_type())
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr()))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
