//! CPU threads that form a group, with a real barrier: for tests of what lanes do together.

use super::{Alone, Group, Lane, Solo};
use crate::platform::cpu::panics;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Lanes of a warp, as on every NVIDIA GPU.
const WARP: u32 = 32;

/// One lane of a group of CPU threads.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Group, group::Lanes};
///
/// std::thread::scope(|scope| {
///     for lane in Lanes::group(0, 1, 4) {
///         scope.spawn(move || assert_eq!(lane.sum(1), 4));
///     }
/// });
/// ```
#[derive(Debug)]
pub struct Lanes {
    rank: u32,
    size: u32,
    index: u32,
    count: u32,
    shared: Arc<Collective>,
    warp: Arc<Collective>,
}

/// Where the lanes of a group meet: every collective is one meeting, at which lane 0 leaves a value
/// and each lane adds one.
#[derive(Debug)]
struct Collective {
    size: u32,
    state: Mutex<CollectiveState>,
    wake: Condvar,
    poisoned: Arc<AtomicBool>,
}

/// What the lanes of a group meet for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Sync,
    Broadcast,
    BroadcastOnce(u32),
    Sum,
    SumOnce,
}

impl Purpose {
    /// Returns whether another meeting has to come before the next of the same purpose.
    const fn is_once(self) -> bool {
        matches!(self, Self::BroadcastOnce(_) | Self::SumOnce)
    }
}

#[derive(Debug, Default)]
struct CollectiveState {
    arrived: u32,
    /// What the lanes that have arrived want.
    wanted: Purpose,
    /// Of the last complete meeting.
    purpose: Purpose,
    turn: u64,
    value: u64,
    sum: u64,
    /// Of the last complete meeting. It stays until all lanes have come to the next, and so until
    /// the last of them has read it.
    result: (u64, u64),
}

impl Collective {
    fn new(size: u32, poisoned: &Arc<AtomicBool>) -> Arc<Self> {
        let (state, wake) = (Mutex::default(), Condvar::new());
        Arc::new(Self { size, state, wake, poisoned: poisoned.clone() })
    }

    /// # Panics
    /// When lanes meet for different purposes: they have gone different ways. And on two meetings
    /// in a row for the same purpose that need another between them.
    fn meet(&self, purpose: Purpose, value: Option<u64>, add: u64) -> (u64, u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!purpose.is_once() || purpose != state.purpose, "{purpose:?} twice in a row");
        if state.arrived == 0 {
            state.wanted = purpose;
        }
        assert!(purpose == state.wanted, "a lane calls {purpose:?} where another calls {:?}", state.wanted);
        let turn = state.turn;
        state.arrived += 1;
        state.value = value.unwrap_or(state.value);
        state.sum += add;
        if state.arrived == self.size {
            state.result = (state.value, state.sum);
            (state.arrived, state.sum, state.turn, state.purpose) = (0, 0, turn + 1, purpose);
            let result = state.result;
            // Before the others are woken: who finds the lock taken sleeps a second time, and is
            // woken a second time.
            drop(state);
            self.wake.notify_all();
            return result;
        }
        // Ordering: Relaxed; set under the same lock.
        while state.turn == turn && !self.poisoned.load(Ordering::Relaxed) {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (result, met) = (state.result, state.turn != turn);
        drop(state);
        if !met {
            panics::follow();
        }
        result
    }

    fn poison(&self) {
        // Under the lock, so that no waiter misses it between its check and its wait.
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Ordering: Relaxed; the lock orders it.
        self.poisoned.store(true, Ordering::Relaxed);
        drop(guard);
        self.wake.notify_all();
    }
}

impl Lanes {
    /// Makes the `size` lanes of group `index` of `count`; each goes to a thread of its own.
    #[must_use]
    pub fn group(index: u32, count: u32, size: u32) -> Vec<Self> {
        let poisoned = Arc::new(AtomicBool::new(false));
        let shared = Collective::new(size, &poisoned);
        let warps: Vec<_> = (0..size.div_ceil(WARP))
            .map(|warp| Collective::new((size - warp * WARP).min(WARP), &poisoned))
            .collect();
        let lane = |rank: u32| Self {
            rank,
            size,
            index,
            count,
            shared: shared.clone(),
            warp: warps[(rank / WARP) as usize].clone(),
        };
        (0..size).map(lane).collect()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.poison();
            self.warp.poison();
        }
    }
}

impl Group for Lanes {
    type Warp = Self;
    type Thread = Solo;
    type Front = Alone;

    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn index(&self) -> u32 {
        self.index
    }
    fn count(&self) -> u32 {
        self.count
    }
    fn sync(&self) {
        self.shared.meet(Purpose::Sync, None, 0);
    }
    fn broadcast(&self, value: u64) -> u64 {
        self.shared.meet(Purpose::Broadcast, (self.rank == 0).then_some(value), 0).0
    }
    fn broadcast_once<const PLACE: u32>(&self, _lane: Lane, value: u64) -> u64 {
        self.shared.meet(Purpose::BroadcastOnce(PLACE), (self.rank == 0).then_some(value), 0).0
    }
    fn sum(&self, value: u32) -> u32 {
        self.shared.meet(Purpose::Sum, None, u64::from(value)).1 as u32
    }
    fn sum_once(&self, value: u32) -> u32 {
        self.shared.meet(Purpose::SumOnce, None, u64::from(value)).1 as u32
    }
    fn has_front(&self, _lane: Lane) -> bool {
        true
    }
    fn front(&self, lane: Lane) -> Option<Alone> {
        lane.is_leader().then_some(Alone)
    }
    fn warp(&self) -> Self {
        let warps = self.size.div_ceil(WARP);
        Self {
            rank: self.rank % WARP,
            size: self.warp.size,
            index: self.index * warps + self.rank / WARP,
            count: self.count * warps,
            shared: self.warp.clone(),
            warp: self.warp.clone(),
        }
    }
    fn thread(&self) -> Solo {
        Solo::new(self.index * self.size + self.rank, self.count * self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(size: u32, body: impl Fn(&Lanes) + Sync) {
        std::thread::scope(|scope| {
            for lane in Lanes::group(0, 1, size) {
                let body = &body;
                scope.spawn(move || body(&lane));
            }
        });
    }

    #[test]
    fn broadcasts_and_sums_reach_every_lane() {
        for size in [1, 2, 31, 33, 64] {
            run(size, |lane| {
                for round in 0..50 {
                    let value = if lane.rank() == 0 { round + 1 } else { 999 };
                    assert_eq!(lane.broadcast(value), round + 1);
                    assert_eq!(lane.sum(lane.rank()), size * (size - 1) / 2);
                }
            });
        }
    }

    #[test]
    fn warps_of_a_group_work_apart() {
        run(33, |lane| {
            for round in 0..50 {
                // A new value each time, as a kernel may ask for its warp anew at each call.
                let warp = lane.warp();
                assert_eq!(warp.size(), if lane.rank() < 32 { 32 } else { 1 });
                assert_eq!(
                    warp.broadcast(round + u64::from(warp.index())),
                    round + u64::from(lane.rank() / 32)
                );
            }
            assert_eq!(lane.thread().index(), lane.rank());
        });
    }

    #[test]
    fn a_place_is_not_used_again_before_the_lanes_have_met() {
        let twice = |between: fn(&Lanes)| {
            std::panic::catch_unwind(|| {
                run(4, |lane| {
                    lane.broadcast_once::<0>(Lane::of(lane), 1);
                    between(lane);
                    lane.broadcast_once::<0>(Lane::of(lane), 2);
                });
            })
        };
        assert!(twice(Group::sync).is_ok());
        assert!(twice(|lane| _ = lane.broadcast_once::<1>(Lane::of(lane), 3)).is_ok());
        assert!(twice(|_| {}).is_err());
    }

    #[test]
    fn lanes_that_go_different_ways_are_found_out() {
        let result = std::panic::catch_unwind(|| {
            run(3, |lane| {
                if lane.rank() == 2 {
                    lane.sync();
                }
                lane.broadcast(1);
            });
        });
        assert!(result.is_err());
    }

    #[test]
    fn a_panicking_lane_frees_the_others() {
        let result = std::panic::catch_unwind(|| {
            run(4, |lane| {
                assert!(lane.rank() != 2, "on purpose");
                lane.sync();
            });
        });
        assert!(result.is_err());
    }
}
