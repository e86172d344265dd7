//! Pointers into symmetric memory.

use super::{Element, TeamHandle};
use crate::Buffer;
use core::marker::PhantomData;
use gpunet_abi::team::Rank;
use gpunet_abi::{Error, Result};

/// A run of elements in symmetric memory: the same place in the part of every member.
///
/// A `Copy` value, passed by value as (part of) a kernel's parameters.
/// `gpunet_proxy::team::Symmetric::ptr` makes it. It has no reference into the memory and gives
/// none, because other members write there.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result, team::{Rank, SymmetricPtr, TeamHandle}};
/// # fn example<G: Group>(g: &G, team: TeamHandle, x: SymmetricPtr<f32>) -> Result<()> {
/// // The first hundred numbers of this member's part go to the second hundred of member 0.
/// team.put(g, x.slice(100, 100), x.slice(0, 100).buffer(team)?, Rank(0))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SymmetricPtr<T> {
    /// The address of the state of the team that it belongs to.
    team: u64,
    /// The address of a table in the device's own memory: where each member's part lies.
    parts: u64,
    /// Bytes from the beginning of a part.
    offset: u64,
    /// Elements.
    len: u64,
    element: PhantomData<T>,
}

impl<T: Element> SymmetricPtr<T> {
    /// Makes a pointer to `len` elements at the beginning of each part.
    ///
    /// # Safety
    /// At `parts` lie the addresses of all parts of the team that has its state at `team`, in the
    /// order of ranks; there are `len` elements in each, aligned as the type, and all that stays
    /// mapped while the value is used.
    #[must_use]
    #[inline(always)]
    pub const unsafe fn from_raw_parts(team: u64, parts: u64, len: u64) -> Self {
        Self { team, parts, offset: 0, len, element: PhantomData }
    }

    /// A pointer to nothing, of no team.
    #[doc(hidden)]
    pub const NONE: Self = Self { team: 0, parts: 0, offset: 0, len: 0, element: PhantomData };

    /// How many elements there are.
    #[must_use]
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Returns whether there are none.
    #[must_use]
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The length in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        self.len as usize * size_of::<T>()
    }

    /// `len` elements from `start`, cut to what is there.
    #[must_use]
    #[inline(always)]
    pub const fn slice(self, start: usize, len: usize) -> Self {
        let start = if (start as u64) < self.len { start as u64 } else { self.len };
        let left = self.len - start;
        let len = if (len as u64) < left { len as u64 } else { left };
        Self { offset: self.offset + start * size_of::<T>() as u64, len, ..self }
    }

    /// The elements from `start` on.
    #[must_use]
    #[inline(always)]
    pub const fn at(self, start: usize) -> Self {
        self.slice(start, usize::MAX)
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// InvalidArgument: they do not begin at an element of that type, or are not a whole number of
    /// them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Result, team::SymmetricPtr};
    /// # fn example(bytes: SymmetricPtr<u8>) -> Result<SymmetricPtr<f32>> {
    /// let numbers: SymmetricPtr<f32> = bytes.slice(400, 4000).cast()?;
    /// # Ok(numbers)
    /// # }
    /// ```
    #[inline(always)]
    pub const fn cast<U: Element>(self) -> Result<SymmetricPtr<U>> {
        let (size, bytes) = (size_of::<U>() as u64, self.bytes() as u64);
        if !self.offset.is_multiple_of(size) || !bytes.is_multiple_of(size) {
            return Err(Error::InvalidArgument);
        }
        // Parts are page-aligned, and the alignment of an element is its size.
        let Self { team, parts, offset, .. } = self;
        Ok(SymmetricPtr { team, parts, offset, len: bytes / size, element: PhantomData })
    }

    /// Returns the address of the first element in the part of `member`, for plain loads and
    /// stores.
    ///
    /// The address is valid on this device, for [`len`](Self::len) elements. Other members may
    /// write there: no reference may be made of it.
    ///
    /// # Errors
    /// InvalidArgument: the pointer is of another team, or there is no such member.
    #[inline(always)]
    pub fn ptr(self, team: TeamHandle, member: Rank) -> Result<*mut T> {
        self.check(team)?;
        team.check_rank(member)?;
        Ok(self.address(member) as *mut T)
    }

    /// Returns this member's own part, as a source or destination of calls.
    ///
    /// # Errors
    /// InvalidArgument: the pointer is of another team.
    #[inline(always)]
    pub fn buffer(self, team: TeamHandle) -> Result<Buffer> {
        let first = self.ptr(team, team.rank())?;
        // SAFETY: the elements lie in the part (`slice`), which stays mapped (`from_raw_parts`).
        // What members write into it, and when, is settled by the program's signals and barriers.
        Ok(unsafe { Buffer::from_raw_parts(first.cast(), self.bytes()) })
    }

    /// # Errors
    /// InvalidArgument: the pointer is of another team.
    #[inline(always)]
    pub(super) fn check(self, team: TeamHandle) -> Result<()> {
        if self.team == team.state { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// The address in the part of a member that exists.
    #[inline(always)]
    pub(super) fn address(self, member: Rank) -> u64 {
        let parts = self.parts as *const u64;
        // SAFETY: an entry of the table (`from_raw_parts`), which does not change.
        unsafe { parts.wrapping_add(member.0 as usize).read() + self.offset }
    }

    /// The place in every part, to be compared with others of the same memory.
    #[inline(always)]
    pub(super) const fn place(self) -> (u64, u64) {
        (self.parts, self.offset)
    }
}
