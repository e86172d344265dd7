//! Symmetric memory, as the host sees it.

use super::Team;
use super::error::TeamError;
use super::memory::SharedMemory;
use super::slice::{PutSource, SymmetricSlice};
use crate::attached::mapped::MappedMemory;
use gpu_usermap::cuda::CopyError;
use gpunet_device::team::{Element, Rank, SymmetricPtr};
use std::marker::PhantomData;
use std::sync::Arc;

/// The same number of elements in the memory of every member. Every member can load and store all
/// of them.
///
/// It borrows the team, so it cannot outlive it. Its drop removes this member's mappings and does
/// not wait for other members: the memory itself lives until the last member has dropped its value.
/// Operations of queues that use the memory keep the mappings until they are done.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// # let listener = gpunet_proxy::team::TeamListener::bind("127.0.0.1:0".parse()?)?;
/// # let team = gpunet_proxy::team::Team::lead(&attachment, listener, 1)?;
/// let mut x = team.alloc::<f32>(1000)?;
/// x.write(10, &[1.5, 2.5])?;
/// let mut two = [0.0; 2];
/// x.read(10, &mut two)?;
/// assert_eq!(two, [1.5, 2.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0505
/// # fn example(team: gpunet_proxy::team::Team) -> Result<(), Box<dyn std::error::Error>> {
/// let x = team.alloc::<f32>(1000)?;
/// drop(team);
/// x.read(0, &mut [0.0])?; // its team has gone
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Symmetric<'team, T> {
    team: &'team Team,
    /// Operations of queues also keep it.
    memory: Arc<SharedMemory>,
    len: usize,
    element: PhantomData<T>,
}

impl<'team, T: Element> Symmetric<'team, T> {
    pub(super) fn new(team: &'team Team, memory: SharedMemory, len: usize) -> Self {
        Self { team, memory: Arc::new(memory), len, element: PhantomData }
    }

    /// Creates the first `len` elements, all zero, of memory that was [reserved](Team::reserve).
    /// All members call it, with the same length, in the same order relative to their other
    /// collective calls. Once it returns, all members have the elements. For memory that was not
    /// reserved it does nothing, because all elements exist.
    ///
    /// It waits for the other members' programs, but not for kernels: during the call kernels may
    /// use the elements that exist already.
    ///
    /// # Errors
    /// [`TeamError`]; the same [`TeamFailure`](super::TeamFailure) for all members: the memory is
    /// unchanged, and the team remains usable.
    ///
    /// # Panics
    /// Panics if there are fewer than `len` elements.
    pub fn commit(&self, len: usize) -> Result<(), TeamError> {
        assert!(len <= self.len, "{len} elements of {}", self.len);
        let local = &self.team.inner.local;
        let committed = self.memory.commit(local, len * size_of::<T>());
        committed.map_err(|error| local.member.named(error))
    }

    /// Returns the number of elements in each part.
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
    pub const fn team(&self) -> &'team Team {
        self.team
    }

    /// Returns `len` elements from `start` on, for operations of [queues](crate::queue).
    ///
    /// # Panics
    /// Panics if the range is not inside the part.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> SymmetricSlice<'_, T> {
        self.offset(start, len);
        SymmetricSlice::new(self.team, &self.memory, start, len)
    }

    /// Returns the pointer that kernels take.
    ///
    /// # Safety
    /// The kernels that are given it, on this member's device, end before this value is dropped.
    /// Kernels of all members order their stores and loads by signals and barriers, so that no
    /// kernel uses elements while another writes them.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn ptr(&self) -> SymmetricPtr<T> {
        let (state, table) = (self.team.inner.state.address(), self.memory.table.address());
        // SAFETY: the table has the addresses of all parts, each page-aligned and of `len`
        // elements; both live as long as `self`, by the caller's promise longer than the kernels.
        unsafe { SymmetricPtr::from_raw_parts(state, table, self.len as u64) }
    }

    /// Returns the address at which this member's device has the part of a member mapped; `None` if
    /// there is no such member.
    ///
    /// # Safety
    /// As [`Symmetric::ptr`].
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn address(&self, member: Rank) -> Option<u64> {
        self.memory.parts.get(member.0 as usize).map(MappedMemory::address)
    }

    /// Copies `elements` into this member's own part, from element `start` on. No kernel and no
    /// member may be using them.
    ///
    /// # Errors
    /// [`CopyError`], when CUDA fails.
    ///
    /// # Panics
    /// Panics if the range is not inside the part.
    pub fn write(&mut self, start: usize, elements: &[T]) -> Result<(), CopyError> {
        let offset = self.offset(start, elements.len());
        self.own().write(offset, crate::os::plain::bytes_of_slice(elements))
    }

    /// Copies elements of this member's own part, from element `start` on. No kernel and no member
    /// may be writing them.
    ///
    /// # Errors
    /// [`CopyError`], when CUDA fails.
    ///
    /// # Panics
    /// Panics if the range is not inside the part.
    pub fn read(&self, start: usize, elements: &mut [T]) -> Result<(), CopyError> {
        let offset = self.offset(start, elements.len());
        self.own().read(offset, crate::os::plain::bytes_of_slice_mut(elements))
    }

    fn own(&self) -> &MappedMemory {
        &self.memory.parts[self.team.rank().0 as usize]
    }

    fn offset(&self, start: usize, count: usize) -> usize {
        let is_inside = start.checked_add(count).is_some_and(|end| end <= self.len);
        assert!(is_inside, "elements {start} to {start} + {count} of {}", self.len);
        start * size_of::<T>()
    }
}

impl<'a, T: Element> From<&'a Symmetric<'_, T>> for SymmetricSlice<'a, T> {
    fn from(all: &'a Symmetric<'_, T>) -> Self {
        all.slice(0, all.len())
    }
}

impl<T: Element> From<&Symmetric<'_, T>> for PutSource<T> {
    fn from(all: &Symmetric<'_, T>) -> Self {
        SymmetricSlice::from(all).into()
    }
}
