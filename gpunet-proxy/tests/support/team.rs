//! One lane or many: the same test body for every kind of group.

use gpunet_device::Group;
use gpunet_device::group::{Alone, Lane as LaneOf, Lanes, Solo};
use std::fmt::Debug;

/// A lane of a group of any size.
pub enum Team {
    Solo(Solo),
    Lane(Lanes),
}

/// Runs `body` as a group of `lanes` lanes, each on a thread of its own; all must come to the same
/// result.
pub fn team<R: Send + PartialEq + Debug>(lanes: u32, body: impl Fn(&Team) -> R + Sync) -> R {
    if lanes == 1 {
        return body(&Team::Solo(Solo::new(0, 1)));
    }
    std::thread::scope(|scope| {
        let body = &body;
        let lane = |lane| scope.spawn(move || body(&Team::Lane(lane)));
        let threads: Vec<_> = Lanes::group(0, 1, lanes).into_iter().map(lane).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let mut agreed = None;
        for result in results {
            // The lane that panicked first says why.
            let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match &agreed {
                None => agreed = Some(result),
                Some(first) => assert_eq!(*first, result, "the lanes of a group disagree"),
            }
        }
        agreed.expect("at least one lane")
    })
}

impl Group for Team {
    type Warp = Self;
    type Thread = Solo;
    type Front = Alone;

    fn rank(&self) -> u32 {
        match self {
            Self::Solo(solo) => solo.rank(),
            Self::Lane(lane) => lane.rank(),
        }
    }
    fn size(&self) -> u32 {
        match self {
            Self::Solo(solo) => solo.size(),
            Self::Lane(lane) => lane.size(),
        }
    }
    fn index(&self) -> u32 {
        0
    }
    fn count(&self) -> u32 {
        1
    }
    fn sync(&self) {
        if let Self::Lane(lane) = self {
            lane.sync();
        }
    }
    fn broadcast(&self, value: u64) -> u64 {
        match self {
            Self::Solo(solo) => solo.broadcast(value),
            Self::Lane(lane) => lane.broadcast(value),
        }
    }
    fn broadcast_once<const PLACE: u32>(&self, at: LaneOf, value: u64) -> u64 {
        match self {
            Self::Solo(solo) => solo.broadcast_once::<PLACE>(at, value),
            Self::Lane(lane) => lane.broadcast_once::<PLACE>(at, value),
        }
    }
    fn sum_once(&self, value: u32) -> u32 {
        match self {
            Self::Solo(solo) => solo.sum_once(value),
            Self::Lane(lane) => lane.sum_once(value),
        }
    }
    fn sum(&self, value: u32) -> u32 {
        match self {
            Self::Solo(solo) => solo.sum(value),
            Self::Lane(lane) => lane.sum(value),
        }
    }
    fn has_front(&self, _: LaneOf) -> bool {
        true
    }
    fn front(&self, lane: LaneOf) -> Option<Alone> {
        lane.is_leader().then_some(Alone)
    }
    fn warp(&self) -> Self {
        match self {
            Self::Solo(solo) => Self::Solo(*solo),
            Self::Lane(lane) => Self::Lane(lane.warp()),
        }
    }
    fn thread(&self) -> Solo {
        Solo::new(self.rank(), self.size())
    }
}
