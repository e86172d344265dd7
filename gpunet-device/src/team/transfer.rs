//! Moving elements between members: by stores and loads.

use super::{Element, SymmetricPtr, TeamHandle};
use crate::memory::copy::copy;
use crate::{Buffer, Group, Source};
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::team::Rank;
use gpunet_abi::{Error, Result};

/// Waits until the calling lane's stores are where everybody sees them, and orders them before its
/// later ones.
// Ordering: SeqCst, the strongest fence at system scope; pairs with the acquire load by which
// another member learns of stores that come after it.
#[inline(always)]
fn system_fence() {
    fence(Ordering::SeqCst);
}

impl TeamHandle {
    /// Copies `source` to the beginning of `to` in the part of `member`.
    ///
    /// This call and [`TeamHandle::put_nbi`] are OpenSHMEM's, with its names and meanings: they
    /// differ in when the source may be reused. This one takes a barrier of the group more.
    ///
    /// When it returns, the group may reuse the source. The member sees the elements after a signal
    /// or a barrier of this group.
    ///
    /// # Cooperation
    /// All lanes call it together.
    ///
    /// # Errors
    /// InvalidArgument: no such member, a pointer of another team, or a source that is longer than
    /// the destination.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Buffer, Group, Result, team::{Rank, SymmetricPtr, TeamHandle}};
    /// # fn example<G: Group>(g: &G, team: TeamHandle, x: SymmetricPtr<u8>, message: Buffer) -> Result<()> {
    /// team.put(g, x, message, team.rank().right_of(team.size()))?;
    /// team.barrier(g)?; // now everybody sees it
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn put<G: Group, T: Element>(
        self,
        g: &G,
        to: SymmetricPtr<T>,
        source: impl Into<Source>,
        member: Rank,
    ) -> Result<()> {
        self.put_nbi(g, to, source, member)?;
        g.sync();
        Ok(())
    }

    /// Copies as [`TeamHandle::put`] does, without a barrier of the group: the source may be reused
    /// after [`TeamHandle::quiet`], or any later barrier of the group.
    ///
    /// # Cooperation
    /// All lanes call it together; each stores its share.
    ///
    /// # Errors
    /// As [`TeamHandle::put`].
    #[inline(always)]
    pub fn put_nbi<G: Group, T: Element>(
        self,
        g: &G,
        to: SymmetricPtr<T>,
        source: impl Into<Source>,
        member: Rank,
    ) -> Result<()> {
        let source = source.into();
        let first = to.ptr(self, member)?;
        if source.len > to.bytes() {
            return Err(Error::InvalidArgument);
        }
        // A source that is the destination is there already.
        if !core::ptr::eq(first.cast::<u8>(), source.ptr) {
            // SAFETY: the destination has this many bytes (`SymmetricPtr`), the source is readable
            // (`Source`), and the program keeps others away from both meanwhile.
            unsafe { copy(g.rank(), g.size(), first.cast(), source.ptr, source.len) };
        }
        Ok(())
    }

    /// Copies elements from the beginning of `from` in the part of `member` into `buffer`, as many
    /// as fit or are there; returns how many bytes.
    ///
    /// # Cooperation
    /// All lanes call it together; after it, every lane sees the copy.
    ///
    /// # Errors
    /// InvalidArgument: no such member, or a pointer of another team.
    #[inline(always)]
    pub fn get<G: Group, T: Element>(
        self,
        g: &G,
        buffer: Buffer,
        from: SymmetricPtr<T>,
        member: Rank,
    ) -> Result<usize> {
        let first = from.ptr(self, member)?;
        let len = if buffer.len() < from.bytes() { buffer.len() } else { from.bytes() };
        if !core::ptr::eq(first.cast::<u8>(), buffer.as_ptr()) {
            // SAFETY: as in `put_nbi`, the other way round.
            unsafe { copy(g.rank(), g.size(), buffer.as_ptr(), first.cast(), len) };
        }
        g.sync();
        Ok(len)
    }

    /// Stores one element at the beginning of `to` in the part of `member`.
    ///
    /// # Cooperation
    /// The calling lane alone.
    ///
    /// # Errors
    /// InvalidArgument: no such member, a pointer of another team, or no element there.
    #[inline(always)]
    pub fn p<T: Element>(self, to: SymmetricPtr<T>, value: T, member: Rank) -> Result<()> {
        let first = to.ptr(self, member)?;
        if to.is_empty() {
            return Err(Error::InvalidArgument);
        }
        // SAFETY: an aligned element of that part.
        unsafe { first.write_volatile(value) };
        Ok(())
    }

    /// Loads the element at the beginning of `from` in the part of `member`.
    ///
    /// # Cooperation
    /// The calling lane alone.
    ///
    /// # Errors
    /// InvalidArgument: no such member, a pointer of another team, or no element there.
    #[inline(always)]
    pub fn g<T: Element>(self, from: SymmetricPtr<T>, member: Rank) -> Result<T> {
        let first = from.ptr(self, member)?;
        if from.is_empty() {
            return Err(Error::InvalidArgument);
        }
        // SAFETY: an aligned element of that part; every bit pattern is a value.
        Ok(unsafe { first.read_volatile() })
    }

    /// Orders what the group has stored into other members' parts before what it stores there
    /// afterwards.
    ///
    /// # Cooperation
    /// All lanes call it together.
    #[inline(always)]
    pub fn fence<G: Group>(self, g: &G) {
        system_fence();
        g.sync();
    }

    /// Waits until everything that the group has stored into other members' parts is there, and
    /// every source may be reused.
    ///
    /// # Cooperation
    /// All lanes call it together.
    #[inline(always)]
    pub fn quiet<G: Group>(self, g: &G) {
        // On one host a fence waits for all of that. Stores to another host will be waited for by
        // their completions.
        system_fence();
        g.sync();
    }
}
