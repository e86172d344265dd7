//! The threads that make a call together: a thread block, a warp, a thread.
//!
//! | file | holds |
//! |---|---|
//! | `nvptx` | the groups of a GPU: block, warp, thread |
//! | `solo` | one CPU thread that is a whole group |
//! | `lanes` | CPU threads that form a group, with a real barrier |
//! | `front` | the lanes of a group that look at lines of messages together |
//! | `outcome` | a leader's result in one word, to be broadcast to its group |

#[cfg(target_arch = "nvptx64")]
pub mod nvptx;
#[cfg(target_arch = "nvptx64")]
pub use nvptx::{Thread, ThreadBlock, Warp};

mod front;
#[cfg(not(target_arch = "nvptx64"))]
pub mod lanes;
pub(crate) mod outcome;
#[cfg(not(target_arch = "nvptx64"))]
pub mod solo;
#[cfg(not(target_arch = "nvptx64"))]
pub use {lanes::Lanes, solo::Solo};

pub use front::{Alone, Front};

/// A lane's rank and its group's size, asked for once per call: a kernel's group may lie in memory,
/// from where they would be loaded again after each barrier.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Lane {
    rank: u32,
    size: u32,
}

impl Lane {
    /// The calling lane of a group.
    #[inline(always)]
    #[must_use]
    pub fn of<G: Group>(g: &G) -> Self {
        Self { rank: g.rank(), size: g.size() }
    }

    /// Its number, from 0.
    #[inline(always)]
    #[must_use]
    pub const fn rank(self) -> u32 {
        self.rank
    }

    /// Returns how many lanes the group has.
    #[inline(always)]
    #[must_use]
    pub const fn size(self) -> u32 {
        self.size
    }

    /// Returns whether this is lane 0. The optimiser cannot see through the test: it would
    /// otherwise move the test across the barriers that follow, and duplicate them.
    #[inline(always)]
    #[must_use]
    pub fn is_leader(self) -> bool {
        crate::platform::opaque(self.rank == 0)
    }

    /// Returns whether this is the last lane; the optimiser cannot see through this test either.
    /// The last lane does the leader's bookkeeping: the leader's next release would wait for the
    /// stores (0.1 us a call on an H200).
    #[inline(always)]
    #[must_use]
    pub fn is_last(self) -> bool {
        crate::platform::opaque(self.rank + 1 == self.size)
    }
}

/// Threads that make every call together, in the sense of CUDA's cooperative groups.
///
/// # Cooperation
/// Every socket call is group-collective: all lanes call it, in the same order, with the same
/// arguments, and all get the same result. So are [`Group::sync`], [`Group::broadcast`] and
/// [`Group::sum`].
///
/// # Examples
///
/// ```
/// use gpunet_device::Group;
///
/// /// Adds numbers up, each lane its share; all lanes get the total.
/// fn total<G: Group>(g: &G, numbers: &[u32]) -> u32 {
///     let (rank, lanes) = (g.rank() as usize, g.size() as usize);
///     g.sum(numbers.iter().skip(rank).step_by(lanes).sum())
/// }
/// # assert_eq!(total(&gpunet_device::group::Solo::new(0, 1), &[1, 2, 3]), 6);
/// ```
pub trait Group {
    /// The warp this lane belongs to, as a group of its own.
    type Warp: Group;
    /// This lane alone, as a group of its own.
    type Thread: Group;
    /// The lanes that look at lines of messages: [`Alone`], or a GPU's warp.
    #[doc(hidden)]
    type Front: Front;

    /// Returns the number of this lane in the group, from 0.
    fn rank(&self) -> u32;
    /// How many lanes there are.
    fn size(&self) -> u32;
    /// Returns the number of this group among those of its kind in the launch, from 0.
    fn index(&self) -> u32;
    /// Returns how many groups of its kind the launch has.
    fn count(&self) -> u32;
    /// Waits for all lanes. Afterwards all lanes see what each of them wrote before.
    fn sync(&self);
    /// Gives every lane the value of lane 0. Also a [`Group::sync`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Result};
    /// # fn example<G: Group>(g: &G, net: Net, next_ticket: fn() -> u64) -> Result<()> {
    /// // The leader draws a ticket; all lanes learn it.
    /// let ticket = g.broadcast(if g.is_leader() { next_ticket() } else { 0 });
    /// # Ok(())
    /// # }
    /// ```
    fn broadcast(&self, value: u64) -> u64;
    /// Gives every lane the sum of all lanes' values. Also a [`Group::sync`].
    fn sum(&self, value: u32) -> u32;
    /// As [`Group::broadcast`], with one barrier instead of two. In return the group meets at least
    /// once more, in any call, between two of these calls with the same `PLACE` (0 to 2). So a call
    /// on a socket meets once more after its last use of either place.
    #[doc(hidden)]
    fn broadcast_once<const PLACE: u32>(&self, lane: Lane, value: u64) -> u64 {
        let _ = lane;
        self.broadcast(value)
    }
    /// As [`Group::sum`], with one barrier where that needs two: between two of these calls the
    /// group meets at least once more.
    #[doc(hidden)]
    fn sum_once(&self, value: u32) -> u32 {
        self.sum(value)
    }
    /// The calling lane among the first of the group, which look at a line of messages together;
    /// `None`: it is none of them, and meets them at the group's next barrier.
    #[doc(hidden)]
    fn front(&self, lane: Lane) -> Option<Self::Front>;
    /// Returns whether the group has lanes enough to look at lines.
    #[doc(hidden)]
    fn has_front(&self, lane: Lane) -> bool;
    /// Returns whether this is lane 0. The optimiser cannot see through the test: it would
    /// otherwise move the test across the barriers that follow, and duplicate them.
    fn is_leader(&self) -> bool {
        crate::platform::opaque(self.rank() == 0)
    }
    /// This lane's warp.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Result, SockAddr, Stream};
    /// # fn example<G: Group>(g: &G, net: Net, addr: SockAddr) -> Result<()> {
    /// // Each warp of the block has a connection of its own.
    /// let warp = g.warp();
    /// let stream = Stream::connect(&warp, net, addr)?;
    /// stream.close(&warp)?;
    /// # Ok(())
    /// # }
    /// ```
    fn warp(&self) -> Self::Warp;
    /// This lane alone.
    fn thread(&self) -> Self::Thread;
}
