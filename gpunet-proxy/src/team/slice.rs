//! Runs of elements of symmetric memory, for operations of queues.

use super::Team;
use super::memory::SharedMemory;
use gpu_usermap::cuda::Device;
use gpunet_device::Buffer;
use gpunet_device::team::{Element, Rank, SymmetricPtr};
use std::marker::PhantomData;
use std::sync::Arc;

/// A run of elements in symmetric memory, at the same place in the part of every member.
/// [`Symmetric::slice`](super::Symmetric::slice) makes it.
#[derive(Debug)]
pub struct SymmetricSlice<'a, T> {
    team: &'a Team,
    memory: &'a Arc<SharedMemory>,
    start: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for SymmetricSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SymmetricSlice<'_, T> {}

impl<'a, T: Element> SymmetricSlice<'a, T> {
    pub(super) const fn new(team: &'a Team, memory: &'a Arc<SharedMemory>, start: usize, len: usize) -> Self {
        Self { team, memory, start, len, element: PhantomData }
    }

    /// Returns the number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the team.
    #[must_use]
    pub const fn team(&self) -> &'a Team {
        self.team
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    pub(crate) fn memory(&self) -> Arc<SharedMemory> {
        self.memory.clone()
    }

    /// Returns the bytes as kernels take them. The caller keeps the memory.
    #[allow(unsafe_code)]
    pub(crate) fn ptr(&self) -> SymmetricPtr<u8> {
        let (state, table) = (self.team.inner.state.address(), self.memory.table.address());
        let (start, len) = (self.start * size_of::<T>(), self.bytes());
        // SAFETY: as in `Symmetric::ptr`; this is a part of that memory, and bytes need no
        // alignment.
        unsafe { SymmetricPtr::<u8>::from_raw_parts(state, table, (start + len) as u64) }.slice(start, len)
    }

    /// Returns the device's address of the elements in a member's part.
    pub(crate) fn address(&self, member: Rank) -> u64 {
        self.memory.parts[member.0 as usize].address() + (self.start * size_of::<T>()) as u64
    }
}

/// Elements that an operation of a queue puts: this member's own part of symmetric memory, or other
/// memory of the device.
#[derive(Debug)]
pub struct PutSource<T> {
    pub(crate) bytes: Buffer,
    /// `None` for other memory.
    pub(crate) memory: Option<Arc<SharedMemory>>,
    /// For symmetric memory: the device that has it mapped; `None` is the CPU.
    pub(crate) device: Option<Device>,
    element: PhantomData<T>,
}

impl<T> From<Buffer> for PutSource<T> {
    fn from(bytes: Buffer) -> Self {
        Self { bytes, memory: None, device: None, element: PhantomData }
    }
}

impl<T: Element> From<SymmetricSlice<'_, T>> for PutSource<T> {
    #[allow(unsafe_code)]
    fn from(own: SymmetricSlice<'_, T>) -> Self {
        let address = own.address(own.team.rank());
        // SAFETY: inside the part, which stays mapped while the operation keeps its memory. The
        // program's signals and barriers settle what members write into it, and when; elements are
        // numbers, for which all bits are valid.
        let bytes = unsafe { Buffer::from_raw_parts(address as *mut u8, own.bytes()) };
        Self { bytes, memory: Some(own.memory()), device: own.team.device().cloned(), element: PhantomData }
    }
}
