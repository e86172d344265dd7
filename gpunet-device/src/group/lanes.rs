//! CPU threads that form a group, with a real barrier: for tests of what lanes do together.

use super::{Group, Solo};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Lanes of a warp, as on every NVIDIA GPU.
const WARP: u32 = 32;

/// One lane of a group of CPU threads.
#[derive(Debug)]
pub struct Lanes {
    rank: u32,
    size: u32,
    index: u32,
    count: u32,
    shared: Arc<Shared>,
    warp: Arc<Shared>,
    turn: Cell<usize>,
}

/// What the lanes of a group share.
#[derive(Debug)]
struct Shared {
    size: u32,
    state: Mutex<(u32, u64)>,
    wake: Condvar,
    poisoned: AtomicBool,
    // Two of each, used in turns: a lane that is late to read one turn's value has passed the
    // barrier of the next turn before the slot is written again.
    value: [AtomicU64; 2],
    sums: [AtomicU64; 2],
}

impl Shared {
    fn new(size: u32) -> Arc<Self> {
        Arc::new(Self {
            size,
            state: Mutex::new((0, 0)),
            wake: Condvar::new(),
            poisoned: AtomicBool::new(false),
            value: [const { AtomicU64::new(0) }; 2],
            sums: [const { AtomicU64::new(0) }; 2],
        })
    }

    fn sync(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = state.1;
        state.0 += 1;
        if state.0 == self.size {
            *state = (0, turn + 1);
            self.wake.notify_all();
            return;
        }
        while state.1 == turn && !self.poisoned.load(Ordering::Relaxed) {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        assert!(!self.poisoned.load(Ordering::Relaxed), "another lane of this group panicked");
    }

    fn poison(&self) {
        // Under the lock, so that no waiter misses it between its check and its wait.
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.poisoned.store(true, Ordering::Relaxed);
        drop(guard);
        self.wake.notify_all();
    }
}

impl Lanes {
    /// Makes the `size` lanes of group `index` of `count`; each goes to a thread of its own.
    #[must_use]
    pub fn group(index: u32, count: u32, size: u32) -> Vec<Self> {
        let shared = Shared::new(size);
        let warps: Vec<_> =
            (0..size.div_ceil(WARP)).map(|warp| Shared::new((size - warp * WARP).min(WARP))).collect();
        let lane = |rank: u32| Self {
            rank,
            size,
            index,
            count,
            shared: shared.clone(),
            warp: warps[(rank / WARP) as usize].clone(),
            turn: Cell::new(0),
        };
        (0..size).map(lane).collect()
    }

    fn next_turn(&self) -> usize {
        let turn = self.turn.get();
        self.turn.set(turn ^ 1);
        turn
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
        self.shared.sync();
    }
    // Ordering: Relaxed throughout; the barrier's mutex orders the accesses.
    fn broadcast(&self, value: u64) -> u64 {
        let slot = &self.shared.value[self.next_turn()];
        if self.rank == 0 {
            slot.store(value, Ordering::Relaxed);
        }
        self.sync();
        slot.load(Ordering::Relaxed)
    }
    fn sum(&self, value: u32) -> u32 {
        let turn = self.next_turn();
        self.shared.sums[turn].fetch_add(u64::from(value), Ordering::Relaxed);
        self.sync();
        let sum = self.shared.sums[turn].load(Ordering::Relaxed);
        self.sync();
        if self.rank == 0 {
            self.shared.sums[turn].store(0, Ordering::Relaxed);
        }
        self.sync();
        sum as u32
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
            turn: Cell::new(0),
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
            let warp = lane.warp();
            assert_eq!(warp.size(), if lane.rank() < 32 { 32 } else { 1 });
            assert_eq!(warp.broadcast(u64::from(warp.index())), u64::from(lane.rank() / 32));
            assert_eq!(lane.thread().index(), lane.rank());
        });
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
