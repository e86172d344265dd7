//! The stack: sockets that leave a group in whatever way, against a block that pushes or takes at
//! that moment. Where a socket is added next, it is looked at.

use gpunet_abi::Handle;
use gpunet_abi::poll_group::{Holder, Phase, PollState, StackTop};
use gpunet_abi::poll_stack::{self, SlotStack};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use loom::thread;

const SLOTS: usize = 2;
/// Two groups, and the next one in the first one's slot.
const A: Handle = Handle::new(0, 5);
const B: Handle = Handle::new(1, 5);
const NEXT_A: Handle = Handle::new(0, 6);

/// What the device keeps of two slots of groups, and of two of sockets.
struct Device {
    tops: [AtomicU64; 2],
    states: [AtomicU64; SLOTS],
    groups: [AtomicI32; SLOTS],
    links: [AtomicU32; SLOTS],
}

/// The stack of a group.
struct Stack<'a>(&'a Device, Handle);

impl SlotStack for Stack<'_> {
    fn generation(&self) -> u32 {
        self.1.generation()
    }
    fn slots(&self) -> u32 {
        SLOTS as u32
    }
    fn top(&self) -> StackTop {
        StackTop(self.0.tops[self.1.slot() as usize].load(Ordering::Acquire))
    }
    fn exchange(&self, from: StackTop, to: StackTop) -> Result<(), StackTop> {
        let top = &self.0.tops[self.1.slot() as usize];
        let changed = top.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        changed.map(|_| ()).map_err(StackTop)
    }
    fn next(&self, slot: u32) -> u32 {
        self.0.links[slot as usize].load(Ordering::Relaxed)
    }
    fn set_next(&self, slot: u32, next: u32) {
        self.0.links[slot as usize].store(next, Ordering::Relaxed);
    }
    fn change(
        &self,
        slot: u32,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Option<(PollState, PollState)> {
        self.0.change(slot, change)
    }
}

impl Device {
    /// Two open groups without sockets.
    fn new() -> Self {
        Self {
            tops: [A, B].map(|group| AtomicU64::new(StackTop::empty(group.generation()).0)),
            states: std::array::from_fn(|_| AtomicU64::new(0)),
            groups: std::array::from_fn(|_| AtomicI32::new(0)),
            links: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The first group has both sockets, the second of them on top.
    fn with_both_in_a() -> Self {
        let device = Self::new();
        (0..SLOTS as u32).for_each(|slot| device.add(A, slot));
        device
    }

    fn change(
        &self,
        slot: u32,
        change: impl Fn(PollState) -> Option<PollState>,
    ) -> Option<(PollState, PollState)> {
        let word = &self.states[slot as usize];
        let mut old = PollState(word.load(Ordering::Acquire));
        loop {
            let new = change(old)?;
            match word.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((old, new)),
                Err(now) => old = PollState(now),
            }
        }
    }

    fn group(&self, slot: u32) -> Option<Handle> {
        Handle::from_raw(self.groups[slot as usize].load(Ordering::Relaxed))
    }

    /// `member::queue`.
    fn queue(&self, slot: u32, queue: impl Fn(PollState) -> Option<PollState>) {
        let queued =
            self.change(slot, |state| Some(queue(state)?.with_phase(Phase::Queued).with_stacked(true)));
        if let (Some((old, _)), Some(group)) = (queued, self.group(slot))
            && !old.is_stacked()
        {
            poll_stack::push(&Stack(self, group), slot);
        }
    }

    /// `change::add`, of a socket that is in no group.
    fn add(&self, group: Handle, slot: u32) {
        let is_free = |state: PollState| {
            state.phase() == Phase::None && (!state.is_stacked() || self.group(slot) == Some(group))
        };
        while self.change(slot, |state| is_free(state).then(|| state.added(1, 1, false))).is_none() {
            poll_stack::take_off(&Stack(self, self.group(slot).expect("it was in one")), slot);
            thread::yield_now();
        }
        self.groups[slot as usize].store(group.raw(), Ordering::Relaxed);
        self.queue(slot, Some);
    }

    /// `change::take_out`.
    fn take_out(&self, slot: u32, which: impl Fn() -> bool) {
        loop {
            let leaving = |state: PollState| {
                let is_it = !matches!(state.phase(), Phase::None | Phase::Changing) && which();
                is_it.then(|| state.with_phase(Phase::Changing))
            };
            if self.change(slot, leaving).is_some() {
                self.change(slot, |state| Some(state.removed()));
            } else if PollState(self.states[slot as usize].load(Ordering::Acquire)).phase() == Phase::Changing
            {
                thread::yield_now();
                continue;
            }
            return;
        }
    }

    fn remove(&self, slot: u32) {
        self.take_out(slot, || true);
    }

    /// `close_lists`.
    fn close(&self, group: Handle) {
        poll_stack::replace(&Stack(self, group), StackTop::default());
        for slot in 0..SLOTS as u32 {
            self.take_out(slot, || self.group(slot) == Some(group));
        }
    }

    /// A block that held the socket for its first turn gives it back.
    fn give_back(&self, slot: u32) {
        self.queue(slot, |state| (state.phase() == Phase::Held && state.turn() == 1).then_some(state));
    }

    fn take(&self, group: Handle) -> Option<u32> {
        poll_stack::take(&Stack(self, group), Holder::default()).map(|(slot, _)| slot)
    }
}

fn check(
    model: impl Fn(&dyn Fn(Device, fn(&Device)) -> (Arc<Device>, thread::JoinHandle<()>)) + Sync + Send + 'static,
) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        model(&|device, beside| {
            let device = Arc::new(device);
            let other = device.clone();
            (device, thread::spawn(move || beside(&other)))
        });
    });
}

/// A block hears of a socket, and pushes it, while another closes the group.
#[test]
fn a_socket_that_is_pushed_while_its_group_is_closed_is_heard_in_the_next() {
    check(|beside| {
        let device = Device::new();
        device.add(A, 0);
        assert_eq!(device.take(A), Some(0), "held");
        let (device, pushing) = beside(device, |device| device.give_back(0));
        device.close(A);
        device.add(B, 0);
        assert_eq!(device.take(B), Some(0));
        pushing.join().unwrap();
        assert_eq!(device.take(B), None);
        device.remove(0);
        device.add(B, 0);
        assert_eq!(device.take(B), Some(0), "not marked");
    });
}

/// A block takes from the stack while another moves the socket at its bottom.
#[test]
fn a_socket_that_is_moved_while_others_take_is_heard_where_it_is() {
    check(|beside| {
        let (device, taking) = beside(Device::with_both_in_a(), |device| {
            // It delivers what it takes, and gives it back.
            while let Some(slot) = device.take(A) {
                device.give_back(slot);
                if slot == 1 {
                    break;
                }
            }
        });
        device.remove(0);
        device.add(B, 0);
        taking.join().unwrap();
        assert_eq!((device.take(B), device.take(B)), (Some(0), None));
        assert_eq!((device.take(A), device.take(A)), (Some(1), None), "who stays is there still");
    });
}

/// Two blocks take sockets out of one group, and add them to another.
#[test]
fn two_sockets_are_moved_at_a_time() {
    check(|beside| {
        let (device, moving) = beside(Device::with_both_in_a(), |device| {
            device.remove(1);
            device.add(B, 1);
        });
        device.remove(0);
        device.add(B, 0);
        moving.join().unwrap();
        let mut taken = [device.take(B), device.take(B)];
        taken.sort_unstable();
        assert_eq!(taken, [Some(0), Some(1)]);
        assert_eq!(device.take(A), None);
    });
}

/// A block moves a socket away while another closes the group that it comes from.
#[test]
fn a_socket_is_moved_out_of_a_group_that_is_being_closed() {
    check(|beside| {
        let (device, closing) = beside(Device::with_both_in_a(), |device| device.close(A));
        device.remove(0);
        device.add(B, 0);
        closing.join().unwrap();
        device.add(B, 1);
        let mut taken = [device.take(B), device.take(B)];
        taken.sort_unstable();
        assert_eq!(taken, [Some(0), Some(1)]);
    });
}

/// The proxy has closed the group, for a launch that has ended. Its slot becomes another group
/// while a socket is moved.
#[test]
fn a_socket_is_moved_while_the_slot_of_its_group_is_reused() {
    check(|beside| {
        let (device, making) = beside(Device::with_both_in_a(), |device| {
            poll_stack::replace(&Stack(device, NEXT_A), StackTop::empty(NEXT_A.generation()));
        });
        device.remove(0);
        device.add(B, 0);
        making.join().unwrap();
        assert_eq!((device.take(B), device.take(NEXT_A)), (Some(0), None));
        device.remove(1);
        device.add(NEXT_A, 1);
        assert_eq!(device.take(NEXT_A), Some(1));
    });
}
