//! Every interleaving of a poll group's hand-offs, by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-abi --test loom_poll --release`.
//!
//! The models use loom's atomics in the shapes and orderings of gpunet-device's `poll_group` and of
//! gpunet-core's `memory::groups`; `ready_list::claim`, `poll_stack`, `PollState`, `WatchWord` and
//! `ReadyEntry` are the shipped ones.
#![cfg(loom)]

mod stack;

use gpunet_abi::Handle;
use gpunet_abi::poll_group::{Holder, Phase, PollState, ReadyEntry, WatchWord};
use gpunet_abi::ready_list::{self, CLAIMS, ReadyList};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

const GENERATION: u32 = 7;
const SLOT: u32 = 3;

/// One socket of a group, whose list has one cell: what holds for one arm at a time.
struct Group {
    state: AtomicU64,
    arm: AtomicU64,
    watch: AtomicU64,
    landed: AtomicU64,
    claimed: AtomicU64,
    pushed: AtomicU64,
    cell: AtomicU64,
}

impl Group {
    /// A socket that is held by nobody who is left, and was never armed.
    fn new() -> Self {
        let state = PollState::default().added(GENERATION, 1, false).held(Holder::default());
        Self {
            state: AtomicU64::new(state.0),
            arm: AtomicU64::new(0),
            watch: AtomicU64::new(0),
            landed: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            cell: AtomicU64::new(0),
        }
    }

    fn state(&self) -> PollState {
        PollState(self.state.load(Ordering::Acquire))
    }

    fn change(&self, change: impl Fn(PollState) -> Option<PollState>) -> Option<PollState> {
        self.changed(change).map(|(_, new)| new)
    }

    fn changed(&self, change: impl Fn(PollState) -> Option<PollState>) -> Option<(PollState, PollState)> {
        let mut old = self.state();
        loop {
            let new = change(old)?;
            match self.state.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((old, new)),
                Err(now) => old = PollState(now),
            }
        }
    }

    /// What `settle` does with a socket that the block holds and of whose words it has read `read`.
    /// Returns the state in which the block delivers the socket.
    fn settle(&self, held: PollState, read: u64) -> Option<PollState> {
        let is_held = |state: PollState| state.phase() == Phase::Held && state.turn() == held.turn();
        loop {
            if self.landed.load(Ordering::Relaxed) > read {
                return Some(held);
            }
            let arm = self.arm.load(Ordering::Relaxed) + 1;
            let (before, _) =
                self.changed(|state| is_held(state).then(|| state.armed().with_phase(Phase::Changing)))?;
            if before.needs_arm() {
                self.arm.store(arm, Ordering::Relaxed);
                let watch = WatchWord::new(Handle::new(9, 1), arm);
                self.watch.store(watch.0, Ordering::Release);
            }
            let armed = |state: PollState| {
                let phase = if state.is_pending() { Phase::Armed } else { Phase::Held };
                Some(state.with_phase(phase))
            };
            if self.change(armed)?.phase() == Phase::Armed {
                break;
            }
        }
        fence(Ordering::SeqCst);
        if self.landed.load(Ordering::Relaxed) <= read {
            return None;
        }
        let is_armed = |state: PollState| state.phase() == Phase::Armed && state.turn() == held.turn();
        self.change(|state| is_armed(state).then(|| state.held(Holder::default())))
    }

    /// What a wait does with the lists: returns the state in which the block holds the socket.
    fn gather(&self) -> Option<PollState> {
        let mut entries = [0; CLAIMS];
        let count = ready_list::claim(self, 1, &mut entries).expect("no list overflows");
        let entry = ReadyEntry(entries[0]);
        if count == 0 {
            return None;
        }
        assert_eq!(entry.slot(), SLOT, "a cell that was not written");
        let (before, claimed) = self.changed(|state| {
            if !state.is_pending() || !entry.is_about(self.arm.load(Ordering::Relaxed)) {
                return None;
            }
            let state = state.claimed();
            Some(if state.phase() == Phase::Armed { state.held(Holder::default()) } else { state })
        })?;
        (before.phase() == Phase::Armed).then_some(claimed)
    }

    /// The proxy lands something and tells of it; `last` is what it pushed last.
    fn land(&self, position: u64, last: &mut u64) {
        self.landed.store(position, Ordering::Release);
        fence(Ordering::SeqCst);
        let watch = WatchWord(self.watch.load(Ordering::Acquire));
        if watch.group().is_none() || std::mem::replace(last, watch.0) == watch.0 {
            return;
        }
        self.cell.store(watch.entry(SLOT).0, Ordering::Relaxed);
        self.pushed.store(self.pushed.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl ReadyList for Group {
    fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
        let to = ticket + count;
        self.claimed.compare_exchange(ticket, to, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
    fn pushed(&self) -> u64 {
        self.pushed.load(Ordering::Acquire)
    }
    fn cell(&self, _: u64) -> u64 {
        self.cell.load(Ordering::Relaxed)
    }
    fn cells(&self) -> u64 {
        1
    }
}

fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model
}

/// A block arms a socket while something lands and another block waits: exactly one gets the event,
/// whether it finds it itself or by the proxy's entry.
#[test]
fn a_change_is_delivered_to_one_block() {
    bounded().check(|| {
        let group = Arc::new(Group::new());
        let proxy = {
            let group = group.clone();
            thread::spawn(move || group.land(1, &mut 0))
        };
        let other = {
            let group = group.clone();
            thread::spawn(move || group.gather().and_then(|held| group.settle(held, 0)).is_some())
        };
        let mut delivered = u32::from(group.settle(group.state(), 0).is_some());
        proxy.join().unwrap();
        delivered += u32::from(other.join().unwrap());
        // Whoever waits next finds what nobody has got.
        let next = group.gather().and_then(|held| group.settle(held, 0));
        delivered += u32::from(next.is_some());
        assert_eq!(delivered, 1);
        assert_eq!(group.state().phase(), Phase::Held);
    });
}

/// Something lands twice. A block that has got the first event arms the socket again as soon as it
/// has read what came, and the cell of its entry is written again: no change is lost, and the list
/// has room.
#[test]
fn a_cell_is_written_again_only_after_its_entry_was_claimed() {
    bounded().check(|| {
        let group = Arc::new(Group::new());
        assert!(group.settle(group.state(), 0).is_none(), "armed");
        let proxy = {
            let group = group.clone();
            thread::spawn(move || {
                let mut last = 0;
                group.land(1, &mut last);
                group.land(2, &mut last);
            })
        };
        let wait = |group: &Group, read: &mut u64, held: Option<PollState>| {
            let held = held.or_else(|| group.gather())?;
            let held = group.settle(held, *read)?;
            *read = group.landed.load(Ordering::Relaxed);
            Some(held)
        };
        let block = {
            let group = group.clone();
            thread::spawn(move || {
                let (mut read, mut held) = (0, None);
                for _ in 0..2 {
                    held = wait(&group, &mut read, held);
                }
                (read, held)
            })
        };
        proxy.join().unwrap();
        let (mut read, mut held) = block.join().unwrap();
        // As often as there can be something left.
        for _ in 0..3 {
            held = wait(&group, &mut read, held);
        }
        assert_eq!(read, 2, "something that landed was told to nobody");
    });
}

/// Two blocks claim entries of one socket that is armed again and again: an entry is one block's.
#[test]
fn an_entry_is_claimed_by_one_block() {
    bounded().check(|| {
        let group = Arc::new(Group::new());
        assert!(group.settle(group.state(), 0).is_none(), "armed");
        group.land(1, &mut 0);
        let claim = |group: &Arc<Group>| {
            let group = group.clone();
            thread::spawn(move || group.gather().map(PollState::turn))
        };
        let blocks = [claim(&group), claim(&group)];
        let turns = blocks.map(|block| block.join().unwrap());
        assert_eq!(turns.iter().flatten().count(), 1);
        assert_eq!(group.claimed(), 1);
    });
}

/// The proxy tells of something that is not waited for, just as the socket is armed, and another
/// block claims the entry: what lands afterwards is delivered all the same.
#[test]
fn an_entry_in_vain_does_not_disarm() {
    bounded().check(|| {
        let group = Arc::new(Group::new());
        let proxy = {
            let group = group.clone();
            thread::spawn(move || {
                let mut last = 0;
                group.land(0, &mut last);
                group.land(1, &mut last);
            })
        };
        let other = {
            let group = group.clone();
            thread::spawn(move || group.gather().and_then(|held| group.settle(held, 0)).is_some())
        };
        let mut delivered = u32::from(group.settle(group.state(), 0).is_some());
        proxy.join().unwrap();
        delivered += u32::from(other.join().unwrap());
        // An entry in vain may be the first that is found.
        for _ in 0..2 {
            delivered += u32::from(group.gather().and_then(|held| group.settle(held, 0)).is_some());
        }
        assert_eq!(delivered, 1);
    });
}
