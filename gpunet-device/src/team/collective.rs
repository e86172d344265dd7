//! Collectives that move elements: each begins and ends with a barrier.

use super::{Element, SymmetricPtr, TeamHandle};
use crate::memory::copy::copy;
use crate::{Group, Source};
use gpunet_abi::team::Rank;
use gpunet_abi::{Error, Result};

impl TeamHandle {
    /// Gives every member the sources of all: that of member `i` lies at element `i * n` of
    /// everybody's `to`, where `n` is the length of a source.
    ///
    /// One group of each device takes part, and all with sources of the same length. A source may
    /// lie at its place in `to` already.
    ///
    /// # Cooperation
    /// All lanes call it together; after it, every lane sees everything.
    ///
    /// # Errors
    /// InvalidArgument: `to` is of another team, or has no room. Those of [`TeamHandle::barrier`];
    /// after one of them `to` holds anything, and so it may after TimedOut: no further collective
    /// of this member succeeds unless the first wait of this one failed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result, team::{SymmetricPtr, TeamHandle}};
    /// # fn example<G: Group>(g: &G, team: TeamHandle, mine: SymmetricPtr<f32>, all: SymmetricPtr<f32>) -> Result<()> {
    /// team.all_gather(g, all, mine.buffer(team)?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather<G: Group, T: Element>(
        self,
        g: &G,
        to: SymmetricPtr<T>,
        source: impl Into<Source>,
    ) -> Result<()> {
        let source = source.into();
        self.check_parts(to, source.len, self.size())?;
        self.collectively(g, || {
            let mut at = 0;
            while at < self.size {
                let member = Rank((self.rank + at) % self.size);
                let first = to.address(member) + u64::from(self.rank) * source.len as u64;
                self.share(g, first, source.ptr, source.len);
                at += 1;
            }
        })
    }

    /// Copies the source of `root` to the beginning of everybody's `to`. The sources of the others
    /// are not used, but have the same length.
    ///
    /// # Cooperation
    /// All lanes call it together; after it, every lane sees the elements.
    ///
    /// # Errors
    /// InvalidArgument: no such member, `to` is of another team, or has no room. Else as
    /// [`TeamHandle::all_gather`].
    pub fn broadcast<G: Group, T: Element>(
        self,
        g: &G,
        to: SymmetricPtr<T>,
        source: impl Into<Source>,
        root: Rank,
    ) -> Result<()> {
        let source = source.into();
        self.check_rank(root)?;
        self.check_parts(to, source.len, 1)?;
        self.collectively(g, || {
            let mut at = 0;
            while root.0 == self.rank && at < self.size {
                let member = Rank((self.rank + at) % self.size);
                self.share(g, to.address(member), source.ptr, source.len);
                at += 1;
            }
        })
    }

    /// Gives every member a part of each source: part `i` of member `j`'s source lies at part `j`
    /// of member `i`'s `to`. A source has as many parts as there are members, all of one length.
    ///
    /// # Cooperation
    /// All lanes call it together; after it, every lane sees the elements.
    ///
    /// # Errors
    /// InvalidArgument: `to` is of another team, or has no room; the source has not a whole number
    /// of elements for each member. Else as [`TeamHandle::all_gather`].
    pub fn all_to_all<G: Group, T: Element>(
        self,
        g: &G,
        to: SymmetricPtr<T>,
        source: impl Into<Source>,
    ) -> Result<()> {
        let source = source.into();
        let part = source.len / self.size as usize;
        if part * self.size as usize != source.len {
            return Err(Error::InvalidArgument);
        }
        self.check_parts(to, part, self.size())?;
        self.collectively(g, || {
            let mut at = 0;
            while at < self.size {
                let member = Rank((self.rank + at) % self.size);
                let first = to.address(member) + u64::from(self.rank) * part as u64;
                self.share(g, first, source.ptr.wrapping_add(member.0 as usize * part), part);
                at += 1;
            }
        })
    }

    /// Checks that `to` has room for `count` parts of `len` bytes each, which are whole elements.
    #[inline(always)]
    fn check_parts<T: Element>(self, to: SymmetricPtr<T>, len: usize, count: u32) -> Result<()> {
        to.check(self)?;
        let has_room = match len.checked_mul(count as usize) {
            Some(bytes) => bytes <= to.bytes(),
            None => false,
        };
        if has_room && len.is_multiple_of(size_of::<T>()) { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// Copies the calling lane's share, unless it is there already.
    #[inline(always)]
    fn share<G: Group>(self, g: &G, to: u64, from: *const u8, len: usize) {
        if to != from as u64 {
            // SAFETY: the callers have checked that the destination is long enough; the source is
            // readable (`Source`). No member uses the destination otherwise between the two
            // barriers.
            unsafe { copy(g.rank(), g.size(), to as *mut u8, from, len) };
        }
    }
}
