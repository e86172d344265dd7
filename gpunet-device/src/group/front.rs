//! The lanes of a group that look at lines of messages together.

/// The first lanes of a group, as one of them sees them: a whole warp, in which each lane has its
/// chunk of a line, or one lane.
#[doc(hidden)]
pub trait Front: Copy {
    /// There are 32 lanes; else one.
    const IS_WARP: bool;

    /// The calling lane's number, from 0.
    fn rank(&self) -> usize;
    /// Returns whether this is the first.
    fn is_first(&self) -> bool;
    /// The value of the first, for all. It orders no memory.
    fn first_of(&self, value: u64) -> u64;
    /// The value of the lane of that number, for all. It orders no memory.
    fn of(&self, rank: usize, value: u64) -> u64;
    /// Returns whether it is so for all. It orders no memory.
    fn all(&self, value: bool) -> bool;
    /// Returns whether it is so for any. It orders no memory.
    #[inline(always)]
    fn any(&self, value: bool) -> bool {
        !self.all(!value)
    }
}

/// The first lane, alone.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Alone;

impl Front for Alone {
    const IS_WARP: bool = false;

    #[inline(always)]
    fn rank(&self) -> usize {
        0
    }
    #[inline(always)]
    fn is_first(&self) -> bool {
        true
    }
    #[inline(always)]
    fn first_of(&self, value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn of(&self, _rank: usize, value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn all(&self, value: bool) -> bool {
        value
    }
}
