//! A group, and the proxy's side of its lists.

use crate::world::{GENERATION, SLOTS, World, buffer};
use gpunet_device::PollGroup;
use gpunet_device::Timeout;
use gpunet_device::abi::Word;
use gpunet_device::abi::atomic::{Ordering, fence};
use gpunet_device::abi::control::{Op, Reply};
use gpunet_device::abi::entry::SlotState;
use gpunet_device::abi::poll_group::{ListHeader, PollEntry, PollState, WatchWord, cells_for, list_bytes};
use gpunet_device::abi::region::{RegionOffset, SHARED};
use gpunet_device::group::Solo;
use gpunet_device::poll_group::{Event, Events};

pub const G: Solo = Solo::new(0, 1);

/// Lists of each group: one of a data thread, one of the proxy's others.
pub const LISTS: usize = 2;

/// A poll group, and what the proxy keeps of it.
#[derive(Clone)]
pub struct Proxy<'a> {
    pub world: &'a World,
    pub group: PollGroup,
    /// Where the lists lie in the shared region.
    at: u64,
    pub cells: u64,
    pushed: [u64; LISTS],
    /// By slot: the watch word for which an entry was pushed last.
    last: Vec<u64>,
}

impl<'a> Proxy<'a> {
    /// Makes a group in `slot`, for up to `capacity` sockets.
    pub fn new(world: &'a World, slot: u32, capacity: u32) -> Self {
        world.give_slot(slot);
        let mut seen = world.seen();
        // Behind the rings of the slots.
        let at = world.layout.rings + (600 << 10) + u64::from(slot % 4) * (64 << 10);
        let cells = cells_for(capacity);
        assert!(list_bytes(LISTS, cells) <= 64 << 10);
        (0..size_of::<ListHeader>() as u64 / 8).for_each(|word| world.word(at + word * 8).set(0));
        let group = std::thread::scope(|scope| {
            let made = scope.spawn(|| PollGroup::create(&G, world.net(), capacity));
            let request = world.serve(&mut seen, |request| {
                let mut reply = Reply::new(0, request.value);
                reply.descriptor.recv_ring = RegionOffset::new(SHARED, at);
                reply.descriptor.recv_log2 = cells as u32;
                reply.descriptor.send_log2 = LISTS as u32;
                Some(reply)
            });
            let (op, asked) = (Op::Group as u32, u64::from(capacity));
            assert_eq!((request.op, request.slot, request.value), (op, slot, asked));
            made.join().unwrap().unwrap()
        });
        Self { world, group, at, cells, pushed: [0; LISTS], last: vec![0; SLOTS as usize] }
    }

    /// Closes the group, as one of its blocks does.
    pub fn close(self) {
        let mut seen = self.world.seen();
        std::thread::scope(|scope| {
            let closed = scope.spawn(|| self.group.close(&G));
            let request = self.world.serve(&mut seen, |_| Some(Reply::new(0, 0)));
            assert_eq!((request.op, request.slot), (Op::Close as u32, self.group.handle().slot()));
            closed.join().unwrap().unwrap();
        });
    }

    /// The count of a list.
    pub fn count(&self, list: usize) -> Word {
        self.world.word(self.at + 8 + list as u64 * 8)
    }

    /// What the device asks to be told of a socket.
    pub fn watch(&self, slot: u32) -> WatchWord {
        WatchWord(self.world.word(self.world.layout.watches + u64::from(slot) * 8).observe())
    }

    /// Pushes an entry, whatever it is.
    pub fn push(&mut self, list: usize, entry: u64) {
        let count = &mut self.pushed[list];
        let cell = self.at + 64 + (list as u64 * self.cells + *count % self.cells) * 8;
        self.world.word(cell).set(entry);
        *count += 1;
        let count = *count;
        self.count(list).publish(count);
        let changes = self.world.word(self.at);
        changes.publish(changes.peek() + 1);
    }

    /// Tells of a change of the socket in `slot`, as the proxy does.
    pub fn tell(&mut self, slot: u32) {
        fence(Ordering::SeqCst);
        let watch = self.watch(slot);
        let is_ours = watch.group() == Some(self.group.handle());
        if is_ours && std::mem::replace(&mut self.last[slot as usize], watch.0) != watch.0 {
            self.push(slot as usize % LISTS, watch.entry(slot).0);
        }
    }

    /// Lands bytes up to a position of the stream in `slot`, and tells of it.
    pub fn land(&mut self, slot: u32, position: u64) {
        self.world.landed(slot).publish(position);
        self.tell(slot);
    }

    /// The state of a socket as its group knows it.
    pub fn state(&self, slot: u32) -> PollState {
        let at = self.world.own.polls + u64::from(slot) * size_of::<PollEntry>() as u64;
        // SAFETY: an aligned word of the device region, which everybody accesses atomically.
        PollState(unsafe { Word::from_ptr((self.world.net_device() + at) as *mut u64) }.observe())
    }

    /// Waits without waiting, as the block that has these events; returns the tokens that it got,
    /// in order.
    pub fn take(&self, events: &mut Events) -> Vec<u64> {
        let count = self.group.wait(&G, events, Timeout::NON_BLOCKING).unwrap();
        assert_eq!(count, events.len());
        let mut tokens: Vec<_> = (0..count).map(|index| events.get(index).token).collect();
        tokens.sort_unstable();
        tokens
    }
}

/// Memory of so many events.
pub fn room(events: usize) -> Vec<u8> {
    vec![0; 8 + events * size_of::<Event>()]
}

/// Events in that memory.
pub fn events(memory: &mut [u8]) -> Events {
    Events::new(buffer(memory))
}

/// Ends the socket in `slot`, as the host does for a launch that has ended.
pub fn retire(world: &World, slot: u32) {
    world.set_state(slot, SlotState::retired(GENERATION));
}
