//! One CPU thread that is a whole group.

use super::{Alone, Group, Lane};

/// A group of one lane: a CPU thread block, warp or thread.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Group, group::Solo};
///
/// let block = Solo::new(2, 4);
/// assert_eq!((block.rank(), block.size()), (0, 1));
/// assert_eq!((block.index(), block.count()), (2, 4));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Solo {
    index: u32,
    count: u32,
}

impl Solo {
    /// The group number `index` of `count`.
    #[must_use]
    pub const fn new(index: u32, count: u32) -> Self {
        Self { index, count }
    }
}

impl Group for Solo {
    type Warp = Self;
    type Thread = Self;
    type Front = Alone;

    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn index(&self) -> u32 {
        self.index
    }
    fn count(&self) -> u32 {
        self.count
    }
    fn sync(&self) {}
    fn broadcast(&self, value: u64) -> u64 {
        value
    }
    fn sum(&self, value: u32) -> u32 {
        value
    }
    fn has_front(&self, _lane: Lane) -> bool {
        true
    }
    fn front(&self, lane: Lane) -> Option<Alone> {
        lane.is_leader().then_some(Alone)
    }
    fn warp(&self) -> Self {
        *self
    }
    fn thread(&self) -> Self {
        *self
    }
}
