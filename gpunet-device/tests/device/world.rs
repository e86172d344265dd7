//! An attachment's two regions on the heap, and what the proxy would write into them.

use gpunet_device::abi::Link;
use gpunet_device::abi::accept::{AcceptQueue, PREPARED};
use gpunet_device::abi::arena::{PartHeader, PartLayout};
use gpunet_device::abi::atomic::{AtomicU32, AtomicU64, Ordering};
use gpunet_device::abi::context::Context;
use gpunet_device::abi::control::{Descriptor, Reply, Request};
use gpunet_device::abi::entry::{Entry, HalfEntry, Kind, LINE_STEP, OwnWords, SlotState, lock};
use gpunet_device::abi::layout::{
    DeviceHeader, DeviceLayout, Geometry, HEARTBEAT_DOWN, HOST_SOCKETS, SharedHeader, SharedLayout,
    SocketLine,
};
use gpunet_device::abi::line::Line;
use gpunet_device::abi::region::{DEVICE, Region, RegionOffset, SHARED};
use gpunet_device::abi::units::{self, UnitRing};
use gpunet_device::abi::{MAGIC, VERSION, Word};
use gpunet_device::{Buffer, Direction, Handle, Net, Options, SockAddr};
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// The generation of the slots that tests open by hand.
pub const GENERATION: u32 = 7;
/// The launch of every world's kernels.
pub const LAUNCH: u32 = 3;
/// Slots and control slots of every world.
pub const SOCKETS: u32 = 64;
/// All slots: those of the host program, too.
pub const SLOTS: u32 = SOCKETS + HOST_SOCKETS;
pub const CONTROLS: u32 = 4;
/// Bytes of a large ring.
pub const LARGE: u64 = 256 << 10;

#[repr(C, align(4096))]
#[derive(Clone)]
pub struct Page(pub [u64; 512]);

/// The memory of one attachment.
pub struct World {
    shared: Vec<Page>,
    device: Vec<Page>,
    pub layout: SharedLayout,
    pub own: DeviceLayout,
}

// SAFETY: the pages are reached through raw addresses and words only.
unsafe impl Sync for World {}

fn pages(len: u64) -> Vec<Page> {
    vec![Page([0; 512]); len as usize / 4096]
}

/// How the parts of arenas are laid out: one stream in each.
pub const PART: PartLayout = PartLayout::new(4096);

/// One attachment's part of an arena.
pub struct Part(Vec<Page>);

impl Part {
    pub fn new() -> Self {
        Self(pages(PART.len))
    }

    /// The first `len` bytes of the part as a region of a device.
    pub fn region(&self, len: u64, flags: u64) -> Region {
        Region::new(self.0.as_ptr() as u64, len, Region::VALID | flags)
    }

    fn flag(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: a word of the part, which everybody accesses atomically.
        unsafe { AtomicU32::from_ptr((self.0.as_ptr() as u64 + offset) as *mut u32) }
    }

    /// Waits until a block sleeps in a poll that this part's bell ends.
    pub fn await_poller(&self) {
        await_set(self.flag(offset_of!(PartHeader, pollers) as u64));
    }

    /// Waits until a block sleeps until something lands in this part.
    pub fn await_receiver(&self) {
        await_set(self.flag(PART.line(PART.rings) + offset_of!(SocketLine, recv_park) as u64));
    }

    /// Waits until a block sleeps until there is space in the other part.
    pub fn await_sender(&self) {
        await_set(self.flag(PART.line(PART.rings) + offset_of!(SocketLine, send_park) as u64));
    }
}

/// The lock of a half of an open socket that `holder` has.
pub fn held(holder: u32) -> u32 {
    lock::word(GENERATION, holder)
}

/// Waits until a flag is set.
fn await_set(flag: &AtomicU32) {
    while flag.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

impl World {
    pub fn new() -> Self {
        Self::with_heartbeat_timeout(60_000_000_000)
    }

    pub fn with_heartbeat_timeout(heartbeat_timeout_ns: u64) -> Self {
        let geometry = Geometry::new(SOCKETS, CONTROLS, 1, 1 << 20, 1 << 20);
        let (layout, own) = (SharedLayout::new(&geometry), DeviceLayout::new(&geometry));
        let world = Self { shared: pages(layout.len), device: pages(own.len), layout, own };
        let context = Context {
            magic: MAGIC,
            version: VERSION,
            launch: LAUNCH,
            sockets: SOCKETS,
            controls: CONTROLS,
            shards: 1,
            slots: SLOTS,
            reserved: 0,
            shared: world.shared.as_ptr() as u64,
            device: world.device.as_ptr() as u64,
            shared_layout: layout,
            device_layout: own,
            heartbeat_timeout_ns,
            doorbells: [-1; 16],
        };
        // SAFETY: the context's page of the fresh region.
        unsafe { ((world.device.as_ptr() as u64 + own.contexts) as *mut Context).write(context) };
        world.word(offset_of!(SharedHeader, heartbeat) as u64).set(1);
        world
    }

    pub fn net(&self) -> Net {
        // SAFETY: the context lies there; tests drop the world after the last call.
        unsafe { Net::from_raw(self.device.as_ptr() as u64 + self.own.contexts) }
    }

    /// Where the shared region begins.
    pub fn net_shared(&self) -> u64 {
        self.shared.as_ptr() as u64
    }

    /// Where the device region begins.
    pub fn net_device(&self) -> u64 {
        self.device.as_ptr() as u64
    }

    /// Ends a launch, as the host does before its number is another's.
    pub fn end_launch(&self, launch: u32) {
        let word = |at: usize| {
            // SAFETY: an aligned word of the device region, which everybody accesses atomically.
            unsafe { Word::from_ptr((self.net_device() + at as u64) as *mut u64) }
        };
        let ended = word(offset_of!(DeviceHeader, ended) + launch as usize / 8 * 8);
        ended.publish(ended.peek() + (1 << (launch % 8 * 8)));
        let finished = word(offset_of!(DeviceHeader, finished));
        finished.publish(finished.peek() + 1);
    }

    /// The attachment's memory as it is.
    #[cfg(loom)]
    pub fn save(&self) -> [Vec<Page>; 2] {
        [self.shared.clone(), self.device.clone()]
    }

    /// Puts memory back that was saved.
    #[cfg(loom)]
    pub fn restore(&self, saved: &[Vec<Page>; 2]) {
        for (pages, saved) in [&self.shared, &self.device].into_iter().zip(saved) {
            // SAFETY: as many pages, which nobody uses now.
            unsafe { pages.as_ptr().cast_mut().copy_from_nonoverlapping(saved.as_ptr(), saved.len()) };
        }
    }

    /// A word of the shared region.
    pub fn word(&self, offset: u64) -> Word {
        // SAFETY: an aligned word of the region.
        unsafe { Word::from_ptr((self.shared.as_ptr() as u64 + offset) as *mut u64) }
    }

    /// A word of a socket's line.
    pub fn line(&self, slot: u32, field: usize) -> Word {
        self.word(self.layout.lines + u64::from(slot) * 64 + field as u64)
    }

    pub fn landed(&self, slot: u32) -> Word {
        self.line(slot, offset_of!(SocketLine, landed))
    }

    pub fn released(&self, slot: u32) -> Word {
        self.line(slot, offset_of!(SocketLine, released))
    }

    pub fn status(&self, slot: u32) -> Word {
        self.word(self.layout.statuses + u64::from(slot) * 8)
    }

    pub fn published(&self, slot: u32) -> Word {
        self.word(self.layout.published + u64::from(slot) * 8)
    }

    pub fn consumed(&self, slot: u32) -> Word {
        self.word(self.layout.consumed + u64::from(slot) * 8)
    }

    pub fn closed(&self, slot: u32) -> Word {
        self.word(self.layout.closed + u64::from(slot) * 8)
    }

    pub fn heartbeat(&self) -> Word {
        self.word(offset_of!(SharedHeader, heartbeat) as u64)
    }

    pub fn cancel(&self) -> Word {
        self.word(offset_of!(SharedHeader, cancel) as u64 + 3 * 8)
    }

    fn flag(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: a word of the region, which everybody accesses atomically.
        unsafe { AtomicU32::from_ptr((self.shared.as_ptr() as u64 + offset) as *mut u32) }
    }

    /// Marks the proxy's data thread as asleep, to be woken by eight bytes written to `doorbell`.
    pub fn sleep_until(&self, doorbell: i32) {
        let context = (self.device.as_ptr() as u64 + self.own.contexts) as *mut Context;
        // SAFETY: the world's context; no kernel uses it yet.
        unsafe { (&raw mut (*context).doorbells[0]).write(doorbell) };
        self.flag(offset_of!(SharedHeader, sleeping) as u64).store(1, Ordering::SeqCst);
    }

    /// Waits until a block sleeps until something lands in a slot's ring.
    pub fn await_receiver(&self, slot: u32) {
        let line = self.layout.lines + u64::from(slot) * 64;
        await_set(self.flag(line + offset_of!(SocketLine, recv_park) as u64));
    }

    /// Waits until a block sleeps until there is space in a slot's ring.
    pub fn await_sender(&self, slot: u32) {
        let line = self.layout.lines + u64::from(slot) * 64;
        await_set(self.flag(line + offset_of!(SocketLine, send_park) as u64));
    }

    /// Waits until a block sleeps in a poll.
    pub fn await_poller(&self) {
        await_set(self.flag(offset_of!(SharedHeader, pollers) as u64));
    }

    /// How many blocks say that they sleep in a poll.
    pub fn pollers(&self) -> u32 {
        self.word(offset_of!(SharedHeader, pollers) as u64).observe() as u32
    }

    pub fn epoch(&self) -> Word {
        self.word(offset_of!(SharedHeader, epoch) as u64)
    }

    /// How many connections of a listener the proxy has accepted ahead.
    pub fn accepted_ahead(&self, slot: u32) -> Word {
        self.line(slot, offset_of!(SocketLine, released))
    }

    /// Which launch has taken a stream that was accepted ahead: 0, or its number + 1.
    pub fn taker(&self, slot: u32) -> Word {
        self.word(self.layout.takers + u64::from(slot) * 8)
    }

    /// Describes a stream that was accepted ahead.
    pub fn describe(&self, slot: u32, descriptor: Descriptor) {
        let at = self.shared.as_ptr() as u64
            + self.layout.accepted
            + u64::from(slot) * size_of::<Descriptor>() as u64;
        // SAFETY: the slot's place in the region, which no kernel reads yet.
        unsafe { (at as *mut Descriptor).write_volatile(descriptor) };
    }

    /// What a slot's receive ring holds, as a proxy would write it.
    pub fn fill(&self, slot: u32, at: u64, bytes: &[u8]) {
        let base = self.shared.as_ptr() as u64 + self.ring(slot).1;
        for (i, &byte) in bytes.iter().enumerate() {
            let place = base + ((at + i as u64) & 4095);
            // SAFETY: inside the slot's ring of 4 KiB.
            unsafe { (place as *mut u8).write_volatile(byte) };
        }
    }

    /// Offsets of a slot's rings in the shared region: send, receive.
    fn ring(&self, slot: u32) -> (u64, u64) {
        let first = self.layout.rings + u64::from(slot) * 8192;
        (first, first + 4096)
    }

    pub fn entry(&self, slot: u32) -> *mut Entry {
        (self.device.as_ptr() as u64 + self.own.entries + u64::from(slot) * 256) as *mut Entry
    }

    pub fn state(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: a word of the table of states, which everybody accesses atomically.
        unsafe {
            AtomicU32::from_ptr(
                (self.device.as_ptr() as u64 + self.own.states + u64::from(slot) * 4) as *mut u32,
            )
        }
    }

    /// Sets the state of a slot, as the host does when it retires one.
    pub fn set_state(&self, slot: u32, state: SlotState) {
        self.state(slot).store(state.0, Ordering::SeqCst);
    }

    /// The launches that know the socket in a slot: a bit for each.
    pub fn users(&self, slot: u32) -> &AtomicU64 {
        let at = self.device.as_ptr() as u64 + self.own.users + u64::from(slot) * 8;
        // SAFETY: a word of the table of users, which everybody accesses atomically.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }
    }

    /// Who has the receiving half of a slot: a word of [`gpunet_device::abi::entry::lock`], as
    /// [`held`] makes it.
    pub fn recv_lock(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: a field of the slot's entry, which everybody accesses atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.entry(slot)).recv_lock) }
    }

    /// Takes a direction of a stream, as the host does.
    pub fn take(&self, slot: u32, direction: Direction) {
        self.direction_lock(slot, direction).store(held(lock::TAKEN), Ordering::SeqCst);
    }

    /// Who has a half of a slot, as [`World::recv_lock`].
    pub fn direction_lock(&self, slot: u32, direction: Direction) -> &AtomicU32 {
        match direction {
            // SAFETY: a field of the slot's entry, which everybody accesses atomically.
            Direction::Send => unsafe { AtomicU32::from_ptr(&raw mut (*self.entry(slot)).send_lock) },
            Direction::Recv => self.recv_lock(slot),
        }
    }

    /// Which listener a group prepares slots for: its generation, or 0.
    pub fn prepare_lock(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: a field of the slot's entry, which everybody accesses atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.entry(slot)).prepare_lock) }
    }

    /// The handles of the slots that were prepared last for the listener in that slot.
    pub fn prepared_cells(&self, slot: u32) -> [i32; PREPARED] {
        // SAFETY: the address of a field; a listener's entry has its queue in place of the halves.
        let queue = unsafe { &raw mut (*self.entry(slot)).send }.cast::<AcceptQueue>();
        // SAFETY: aligned words of the entry, which nobody uses now.
        unsafe { (&raw const (*queue).cells).read() }
    }

    /// Until when a group has the turn to ask for a listener's only connection; 0: no group has it.
    pub fn accept_turn(&self, slot: u32) -> &AtomicU64 {
        // SAFETY: a field of the slot's entry, which everybody accesses atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.entry(slot)).turn_or_units) }
    }

    /// The words a slot writes as one end of a direct stream: (published, consumed), in the device
    /// region.
    fn own_words(&self, slot: u32) -> (u64, u64) {
        let at = self.own.words + u64::from(slot) * size_of::<OwnWords>() as u64;
        (at + offset_of!(OwnWords, published) as u64, at + offset_of!(OwnWords, consumed) as u64)
    }

    pub fn own_consumed(&self, slot: u32) -> Word {
        // SAFETY: as below.
        unsafe { Word::from_ptr((self.device.as_ptr() as u64 + self.own_words(slot).1) as *mut u64) }
    }

    pub fn own_published(&self, slot: u32) -> Word {
        // SAFETY: an aligned word of the device region.
        unsafe { Word::from_ptr((self.device.as_ptr() as u64 + self.own_words(slot).0) as *mut u64) }
    }

    /// Where the rings and words of a proxy-driven stream in `slot` lie.
    pub fn driven(&self, slot: u32) -> Descriptor {
        let line = self.layout.lines + u64::from(slot) * 64;
        Descriptor {
            transport: 1,
            link: Link::driven(0),
            send_ring: RegionOffset::new(SHARED, self.ring(slot).0),
            recv_ring: RegionOffset::new(SHARED, self.ring(slot).1),
            published: RegionOffset::new(SHARED, self.layout.published + u64::from(slot) * 8),
            released: RegionOffset::new(SHARED, line + offset_of!(SocketLine, released) as u64),
            landed: RegionOffset::new(SHARED, line + offset_of!(SocketLine, landed) as u64),
            consumed: RegionOffset::new(SHARED, self.layout.consumed + u64::from(slot) * 8),
            send_line: RegionOffset(0),
            recv_line: RegionOffset(0),
            send_log2: 12,
            recv_log2: 12,
            local: SockAddr::v4([127, 0, 0, 1], 1000),
            peer: SockAddr::v4([127, 0, 0, 1], 2000),
        }
    }

    /// Where those of one end of a direct stream lie.
    pub fn direct(&self, slot: u32, partner: u32) -> Descriptor {
        let (lower, upper) = self.ring(slot.min(partner));
        let (send, recv) = if slot < partner { (lower, upper) } else { (upper, lower) };
        Descriptor {
            transport: 2,
            link: Link::same_device(partner),
            send_ring: RegionOffset::new(SHARED, send),
            recv_ring: RegionOffset::new(SHARED, recv),
            published: RegionOffset::new(DEVICE, self.own_words(slot).0),
            consumed: RegionOffset::new(DEVICE, self.own_words(slot).1),
            landed: RegionOffset::new(DEVICE, self.own_words(partner).0),
            released: RegionOffset::new(DEVICE, self.own_words(partner).1),
            ..self.driven(slot)
        }
    }

    /// Where those of a stream to another attachment lie: `own` and `remote` are the numbers of the
    /// regions of this device's part of the arena and of the other's.
    pub fn remote(&self, slot: u32, [own, remote]: [u8; 2]) -> Descriptor {
        let (ring, line) = (PART.rings, PART.line(PART.rings));
        let (landed, released) = (offset_of!(SocketLine, landed), offset_of!(SocketLine, released));
        Descriptor {
            transport: 2,
            link: Link::REMOTE,
            send_ring: RegionOffset::new(remote, ring),
            recv_ring: RegionOffset::new(own, ring),
            published: RegionOffset::new(remote, line + landed as u64),
            consumed: RegionOffset::new(remote, line + released as u64),
            landed: RegionOffset::new(own, line + landed as u64),
            released: RegionOffset::new(own, line + released as u64),
            ..self.driven(slot)
        }
    }

    /// Enters a region in the device's table, as the attachment's agent does.
    pub fn add_region(&self, number: u8, region: Region) {
        let at = self.own.regions + u64::from(number) * size_of::<Region>() as u64;
        // SAFETY: an entry of the table; no kernel uses the region yet.
        unsafe { ((self.device.as_ptr() as u64 + at) as *mut Region).write_volatile(region) };
    }

    /// A listener in `slot`.
    pub fn open_listener(&self, slot: u32) -> Handle {
        self.open_without_ring(slot, Kind::Listener)
    }

    /// A socket in `slot` that neither listens nor is connected.
    pub fn open_fresh(&self, slot: u32) -> Handle {
        self.open_without_ring(slot, Kind::Fresh)
    }

    fn open_without_ring(&self, slot: u32, kind: Kind) -> Handle {
        self.recv_lock(slot).store(held(lock::FREE), Ordering::SeqCst);
        self.direction_lock(slot, Direction::Send).store(held(lock::FREE), Ordering::SeqCst);
        self.set_state(slot, SlotState::new(kind, GENERATION, LAUNCH));
        Handle::new(slot, GENERATION)
    }

    /// Enters an open stream in the device's table.
    fn open(&self, slot: u32, d: &Descriptor) -> Handle {
        self.open_with(slot, d, 4096, false)
    }

    fn open_with(&self, slot: u32, d: &Descriptor, capacity: u64, has_lines: bool) -> Handle {
        self.open_as(GENERATION, slot, d, capacity, has_lines)
    }

    fn open_as(&self, generation: u32, slot: u32, d: &Descriptor, capacity: u64, has_lines: bool) -> Handle {
        let at = |place: RegionOffset| match place.region() {
            SHARED => self.shared.as_ptr() as u64 + place.offset(),
            _ => self.device.as_ptr() as u64 + place.offset(),
        };
        let line = |ring: RegionOffset| {
            let far =
                self.layout.line_of(ring.offset()).wrapping_sub(ring.offset()).cast_signed() / LINE_STEP;
            if has_lines { 2 * i32::try_from(far).unwrap() } else { 0 }
        };
        let direction = |ring, mine, theirs| HalfEntry {
            base: at(ring),
            capacity: capacity as u32,
            line: line(ring),
            mine: at(mine),
            theirs: at(theirs),
            position: 0,
            seen: 0,
        };
        let mut entry = Entry::fresh(generation, Options::DEFAULT);
        entry.send = direction(d.send_ring, d.published, d.released);
        entry.recv = direction(d.recv_ring, d.consumed, d.landed);
        (entry.link, entry.transport) = (d.link, d.transport);
        (entry.local, entry.peer) = (d.local, d.peer);
        // SAFETY: the slot's entry; no kernel uses it yet.
        unsafe { self.entry(slot).write(entry) };
        self.set_state(slot, SlotState::new(Kind::Stream, generation, LAUNCH));
        Handle::new(slot, generation)
    }

    /// A proxy-driven stream in `slot`; the test plays the proxy.
    pub fn open_driven(&self, slot: u32) -> Handle {
        self.open(slot, &self.driven(slot))
    }

    /// As [`World::open_driven`], of a generation of its own: a slot that was closed and taken anew
    /// has the next one.
    pub fn open_driven_as(&self, generation: u32, slot: u32) -> Handle {
        self.open_as(generation, slot, &self.driven(slot), 4096, false)
    }

    /// A direct stream between two slots.
    pub fn open_pair(&self, a: u32, b: u32) -> (Handle, Handle) {
        (self.open(a, &self.direct(a, b)), self.open(b, &self.direct(b, a)))
    }

    /// A direct stream between two slots, with rings of 256 KiB: behind the small ones of all
    /// slots. One a world.
    pub fn open_large_pair(&self, a: u32, b: u32) -> (Handle, Handle) {
        self.open_pair_of_large(a, b, false)
    }

    /// As [`World::open_large_pair`], with lines for small messages.
    pub fn open_lined_pair(&self, a: u32, b: u32) -> (Handle, Handle) {
        self.open_pair_of_large(a, b, true)
    }

    /// As [`World::open_lined_pair`], but with units; both ends grant all slots.
    pub fn open_pair_with_units(&self, a: u32, b: u32) -> (Handle, Handle) {
        let pair = self.open_pair_of_large(a, b, true);
        for slot in [a, b] {
            // SAFETY: the entry of a slot that nobody uses now.
            let entry = unsafe { &mut *self.entry(slot) };
            (entry.send.line, entry.recv.line) = (entry.send.line | 1, entry.recv.line | 1);
            self.unit_limit(slot).set(self.units_to(slot).grant(0));
        }
        pair
    }

    /// The unit ring of the ring that a slot receives from.
    pub fn units_to(&self, slot: u32) -> UnitRing {
        // SAFETY: the slot's entry, which nobody writes now.
        let at = unsafe { (*self.entry(slot)).recv.line_at() };
        // SAFETY: a unit ring that the world, or a test, keeps.
        unsafe { UnitRing::from_ptr(at as *mut u8, LARGE) }
    }

    /// The word in which a slot grants slots of the unit ring that it reads.
    pub fn unit_limit(&self, slot: u32) -> Word {
        // SAFETY: an aligned word of the device region.
        unsafe { Word::from_ptr(self.own_consumed(slot).as_ptr().wrapping_byte_add(units::LIMIT_AT)) }
    }

    /// Makes slot `b` read a unit ring and a word of its own, into which a test copies what slot
    /// `a` writes when it likes. `memory` is zero, and as long as a unit ring.
    pub fn apart(&self, b: u32, memory: &mut [Page]) -> (Word, UnitRing) {
        let (word, _) = self.part_words(b);
        let at = memory.as_mut_ptr() as u64;
        // SAFETY: the entry of a slot that nobody uses now.
        let recv = unsafe { &mut (*self.entry(b)).recv };
        recv.line = 2 * i32::try_from(at.wrapping_sub(recv.base).cast_signed() / LINE_STEP).unwrap() + 1;
        (word, self.units_to(b))
    }

    /// How many lines a slot has sent, as the proxy is shown.
    pub fn lines_sent(&self, slot: u32) -> Word {
        self.word(self.layout.lines_sent + u64::from(slot) * 8)
    }

    /// The line of messages to a slot.
    pub fn line_to(&self, slot: u32) -> Line {
        // SAFETY: the slot's entry, which nobody writes now.
        let at = unsafe { (*self.entry(slot)).recv.line_at() };
        // SAFETY: a line of the shared region.
        unsafe { Line::from_ptr(at as *mut u8) }
    }

    /// Moves both ends of the direction from slot `a` to slot `b` to a position.
    pub fn set_positions(&self, a: u32, b: u32, position: u64) {
        // SAFETY: the entries of two slots that nobody uses now.
        let (one, other) = unsafe { (&mut *self.entry(a), &mut *self.entry(b)) };
        (one.send.position, one.send.seen) = (position, position);
        (other.recv.position, other.recv.seen, other.announced) = (position, position, position);
        self.own_published(a).set(position);
        self.own_consumed(b).set(position);
    }

    /// Gives slot `b` a word and a line of its own, into which a test copies what slot `a` writes
    /// when it likes.
    pub fn part_words(&self, b: u32) -> (Word, Line) {
        // The words of a slot that no test uses, and lines of rings too small to have one.
        let word = self.own_published(SOCKETS - 1);
        let line = self.shared.as_ptr() as u64 + self.layout.ring_lines;
        // SAFETY: the entry of a slot that nobody uses now.
        let recv = unsafe { &mut (*self.entry(b)).recv };
        recv.theirs = word.as_ptr() as u64;
        recv.line = 2 * i32::try_from(line.wrapping_sub(recv.base).cast_signed() / LINE_STEP).unwrap();
        (word, self.line_to(b))
    }

    fn open_pair_of_large(&self, a: u32, b: u32, has_lines: bool) -> (Handle, Handle) {
        let rings = [0, 1]
            .map(|n| RegionOffset::new(SHARED, self.layout.rings + u64::from(SOCKETS) * 8192 + n * LARGE));
        let of = |me: u32, other: u32, [send_ring, recv_ring]: [RegionOffset; 2]| {
            let d = Descriptor { send_ring, recv_ring, ..self.direct(me, other) };
            self.open_with(me, &d, LARGE, has_lines)
        };
        (of(a, b, rings), of(b, a, [rings[1], rings[0]]))
    }

    /// Publishes how many free slots the proxy has given so far, all of `slots`.
    pub fn give_slots(&self, slots: &[u32]) {
        for (i, slot) in slots.iter().enumerate() {
            let at = self.shared.as_ptr() as u64 + self.layout.reclaim + i as u64 * 4;
            // SAFETY: inside the recycling ring.
            unsafe { (at as *mut u32).write_volatile(*slot) };
        }
        self.word(offset_of!(SharedHeader, reclaimed) as u64).publish(slots.len() as u64);
    }

    /// Gives one more free slot, as the proxy does.
    pub fn give_slot(&self, slot: u32) {
        let reclaimed = self.word(offset_of!(SharedHeader, reclaimed) as u64);
        let count = reclaimed.peek();
        let cell = self.layout.reclaim + count % u64::from(SOCKETS) * 4;
        self.flag(cell).store(slot, Ordering::Relaxed);
        reclaimed.publish(count + 1);
    }

    /// What [`World::serve`] has seen when all requests so far are answered.
    pub fn seen(&self) -> [u64; 4] {
        std::array::from_fn(|control| self.word(self.layout.requests + control as u64 * 8).observe())
    }

    /// Waits for the next request in any control slot and answers it; returns the request.
    pub fn serve(&self, seen: &mut [u64; 4], answer: impl FnOnce(&Request) -> Option<Reply>) -> Request {
        let posted = self.next_request(seen);
        // No answer: not before the device gives up.
        let reply = answer(&posted.request).unwrap_or_else(|| {
            while !self.is_abandoned(&posted) {
                std::thread::yield_now();
            }
            Reply::new(gpunet_device::Error::Canceled.errno() as u32, 0)
        });
        self.reply(&posted, reply);
        posted.request
    }

    /// Waits for the next request in any control slot. If none comes, the test fails, and so does
    /// what its kernels wait for.
    pub fn next_request(&self, seen: &mut [u64; 4]) -> PostedRequest {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(posted) = self.request(seen) {
                return posted;
            }
            if Instant::now() > limit {
                self.heartbeat().publish(HEARTBEAT_DOWN);
                panic!("no request came");
            }
            std::thread::yield_now();
        }
    }

    /// The next request in any control slot, if there is one.
    pub fn request(&self, seen: &mut [u64; 4]) -> Option<PostedRequest> {
        (0..u64::from(CONTROLS)).find_map(|control| {
            let seq = self.word(self.layout.requests + control * 8).observe();
            if std::mem::replace(&mut seen[control as usize], seq) == seq {
                return None;
            }
            let slot = self.shared.as_ptr() as u64 + self.layout.controls + control * 512;
            // SAFETY: published by the device with the sequence number.
            let request = unsafe { (slot as *const Request).read_volatile() };
            Some(PostedRequest { request, control, seq })
        })
    }

    /// Returns whether the device has given a request up.
    pub fn is_abandoned(&self, posted: &PostedRequest) -> bool {
        self.word(self.layout.abandons + posted.control * 8).observe() == posted.seq
    }

    /// Answers a request.
    pub fn reply(&self, posted: &PostedRequest, mut reply: Reply) {
        let slot = self.layout.controls + posted.control * 512;
        reply.seq = self.word(slot + 256).peek();
        // SAFETY: the reply's lines; `seq` keeps its old value until the publish.
        unsafe { ((self.shared.as_ptr() as u64 + slot + 256) as *mut Reply).write_volatile(reply) };
        self.word(slot + 256).publish(posted.seq);
    }
}

/// A request as the proxy finds it.
pub struct PostedRequest {
    pub request: Request,
    control: u64,
    seq: u64,
}

/// A buffer over a vector that outlives it.
pub fn buffer(memory: &mut [u8]) -> Buffer {
    // SAFETY: tests keep the memory until the last call has returned.
    unsafe { Buffer::from_raw_parts(memory.as_mut_ptr(), memory.len()) }
}

/// Test data that differs by position.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}
