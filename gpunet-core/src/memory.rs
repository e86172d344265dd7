//! The proxy's view of an attachment's shared region.
//!
//! Every raw access of the proxy to shared memory goes through here. Offsets come from the
//! proxy's own copy of the layout, never from the region itself, and nothing is handed out as a
//! reference.
//!
//! | file | holds |
//! |---|---|
//! | `groups` | the lists of poll groups |
//! | `part` | one part of an arena in pinned memory |

mod groups;
mod part;

pub use groups::GroupLists;
pub use part::PartMemory;

use crate::futex;
use crate::ids::{LaunchId, RequestId};
use gpu_usermap::PinnedRegion;
use gpunet_abi::control::{ControlSlot, Descriptor, Reply, Request};
use gpunet_abi::epoch::Epoch;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::layout::{
    Geometry, HEARTBEAT_DOWN, HOST_SOCKETS, LAUNCHES, SharedHeader, SharedLayout, SocketLine, TAKEN_WORDS,
};
use gpunet_abi::panic_record::PanicRecord;
use gpunet_abi::park::SharedFlag;
use gpunet_abi::{Direction, MAGIC, RingSpan, Status, VERSION, Word, line, waiting};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of a driven stream that the device writes and a data thread scans.
pub const STREAM_WORDS: usize = 3;

/// Tries to name the socket that changed, while others move the epoch on at the same time.
const EPOCH_TRIES: u32 = 4;

/// Pollers that may sleep and have to be woken: those that watch sockets which have changed.
#[must_use = "they sleep on until `SharedMemory::wake_pollers`"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepingPollers(u32);

impl SleepingPollers {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// Adds others of the same attachment.
    pub const fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }
}

/// The shared region of one attachment, as the proxy maps it.
#[derive(Debug)]
pub struct SharedMemory {
    region: Arc<PinnedRegion>,
    geometry: Geometry,
    layout: SharedLayout,
    /// Slots pushed into the recycling ring; the truth behind the shared word.
    reclaimed: AtomicU64,
    /// The same of the host program's slots.
    host_reclaimed: AtomicU64,
    /// The heartbeat; the truth behind the shared word.
    beats: AtomicU64,
    /// The lists of poll groups.
    groups: groups::PollGroups,
}

impl SharedMemory {
    /// Lays a fresh region out: header, empty words, and every slot in the recycling ring.
    ///
    /// Returns `None` when the region is shorter than the layout.
    #[must_use]
    pub fn format(region: Arc<PinnedRegion>, geometry: Geometry) -> Option<Self> {
        let layout = SharedLayout::new(&geometry);
        if (region.len() as u64) < layout.len {
            return None;
        }
        let memory = Self::new(region, geometry, layout, 1);
        let header = memory.base().cast::<SharedHeader>();
        // SAFETY: the header lies at the start of the region, which is page-aligned and long
        // enough (checked above); no other agent has the region yet.
        unsafe {
            (&raw mut (*header).magic).write_volatile(MAGIC);
            (&raw mut (*header).version).write_volatile(VERSION);
            (&raw mut (*header).geometry).write_volatile(geometry);
        }
        memory.beat();
        for slot in 0..geometry.slots() {
            memory.recycle(slot);
        }
        Some(memory)
    }

    /// Takes over a region that a daemon has laid out: the view of the process whose device uses
    /// it. Nothing is written.
    ///
    /// Returns `None` when the region is shorter than the layout of `geometry`, or its header
    /// differs.
    #[must_use]
    pub fn attach(region: Arc<PinnedRegion>, geometry: Geometry) -> Option<Self> {
        let layout = SharedLayout::new(&geometry);
        if (region.len() as u64) < layout.len {
            return None;
        }
        let header = region.base().as_ptr().cast::<SharedHeader>();
        // SAFETY: the header lies at the start of the region, which is page-aligned and long enough
        // (checked above). It is plain integers, whatever stands there.
        let (magic, version, written) = unsafe {
            (
                (&raw const (*header).magic).read_volatile(),
                (&raw const (*header).version).read_volatile(),
                (&raw const (*header).geometry).read_volatile(),
            )
        };
        let known = (magic, version, written) == (MAGIC, VERSION, geometry);
        known.then(|| Self::new(region, geometry, layout, 0))
    }

    fn new(region: Arc<PinnedRegion>, geometry: Geometry, layout: SharedLayout, heartbeat: u64) -> Self {
        let (reclaimed, host_reclaimed) = (AtomicU64::new(0), AtomicU64::new(0));
        let (beats, groups) = (AtomicU64::new(heartbeat), groups::PollGroups::default());
        Self { region, geometry, layout, reclaimed, host_reclaimed, beats, groups }
    }

    /// The attachment's sizes.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Where the parts lie.
    #[must_use]
    pub const fn layout(&self) -> &SharedLayout {
        &self.layout
    }

    /// The region itself.
    #[must_use]
    pub fn region(&self) -> &Arc<PinnedRegion> {
        &self.region
    }

    fn base(&self) -> *mut u8 {
        self.region.base().as_ptr()
    }

    /// The address `offset` bytes into the region. All offsets come from `self.layout` and an index
    /// that was checked, so they stay inside.
    fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.layout.len);
        self.base().wrapping_add(offset as usize)
    }

    fn word(&self, offset: u64) -> Word {
        // SAFETY: in the region (see `at`), 8-byte aligned by the layout, mapped while self lives;
        // callers keep an Arc of self while they use it. All agents access words atomically.
        unsafe { Word::from_ptr(self.at(offset).cast()) }
    }

    fn flag(&self, offset: u64) -> SharedFlag {
        // SAFETY: as `word`, 4-byte aligned; only CPUs touch the flags.
        unsafe { SharedFlag::from_ptr(self.at(offset).cast()) }
    }

    fn line(&self, slot: u32) -> u64 {
        assert!(slot < self.geometry.slots(), "slot out of range");
        self.layout.lines + u64::from(slot) * size_of::<SocketLine>() as u64
    }

    /// The first `published` word; one a socket slot.
    #[must_use]
    pub fn published_words(&self) -> WordArray {
        WordArray { first: self.word(self.layout.published), len: self.geometry.slots() as usize }
    }

    /// The first word that counts lines.
    #[must_use]
    pub fn lines_sent_words(&self) -> WordArray {
        WordArray { first: self.word(self.layout.lines_sent), len: self.geometry.slots() as usize }
    }

    /// What the blocks of a launch wait for: a word of [`gpunet_abi::waiting`] each.
    #[must_use]
    pub fn waiting_words(&self, launch: LaunchId) -> WordArray {
        assert!(launch.0 < LAUNCHES, "launch out of range");
        let first = self.layout.waits + u64::from(launch.0 * waiting::BLOCKS) * 8;
        WordArray { first: self.word(first), len: waiting::BLOCKS as usize }
    }

    /// Shows that no block of a launch waits: its kernels have not begun, or have ended.
    pub fn clear_waiting(&self, launch: LaunchId) {
        let words = self.waiting_words(launch);
        (0..words.len())
            .map(|block| words.get(block))
            .filter(|word| word.peek() != 0)
            .for_each(|word| word.set(0));
    }

    /// The first `consumed` word.
    #[must_use]
    pub fn consumed_words(&self) -> WordArray {
        WordArray { first: self.word(self.layout.consumed), len: self.geometry.slots() as usize }
    }

    /// The first `closed` word.
    #[must_use]
    pub fn closed_words(&self) -> WordArray {
        WordArray { first: self.word(self.layout.closed), len: self.geometry.slots() as usize }
    }

    /// All words that the device writes of its driven streams: `published`, `consumed`, `closed`.
    #[must_use]
    pub fn stream_words(&self) -> [WordArray; STREAM_WORDS] {
        [self.published_words(), self.consumed_words(), self.closed_words()]
    }

    /// Returns whether the device has closed the driven stream of that generation. If so, all that
    /// it has published of the stream is visible.
    #[must_use]
    pub fn is_closed(&self, slot: u32, generation: u32) -> bool {
        // Pairs with the device's publish, which is its last access to the slot.
        self.closed_words().get(slot as usize).observe() == u64::from(generation)
    }

    /// The request words of the control slots.
    #[must_use]
    pub fn request_words(&self) -> WordArray {
        WordArray { first: self.word(self.layout.requests), len: self.geometry.controls as usize }
    }

    /// The abandon words of the control slots.
    #[must_use]
    pub fn abandon_words(&self) -> WordArray {
        WordArray { first: self.word(self.layout.abandons), len: self.geometry.controls as usize }
    }

    /// The word in which the proxy publishes what has landed (of a listener: how many connections
    /// wait).
    #[must_use]
    pub fn landed(&self, slot: u32) -> Word {
        self.word(self.line(slot) + offset_of!(SocketLine, landed) as u64)
    }

    /// The word in which the proxy publishes what is free again.
    #[must_use]
    pub fn released(&self, slot: u32) -> Word {
        self.word(self.line(slot) + offset_of!(SocketLine, released) as u64)
    }

    /// The status word.
    #[must_use]
    pub fn status(&self, slot: u32) -> Word {
        assert!(slot < self.geometry.slots(), "slot out of range");
        self.word(self.layout.statuses + u64::from(slot) * size_of::<u64>() as u64)
    }

    /// The flag of a CPU block that waits for data.
    #[must_use]
    pub fn recv_park(&self, slot: u32) -> SharedFlag {
        self.flag(self.line(slot) + offset_of!(SocketLine, recv_park) as u64)
    }

    /// The flag of a CPU block that waits for space.
    #[must_use]
    pub fn send_park(&self, slot: u32) -> SharedFlag {
        self.flag(self.line(slot) + offset_of!(SocketLine, send_park) as u64)
    }

    /// The flag of data thread `shard`.
    #[must_use]
    pub fn sleeping(&self, shard: usize) -> SharedFlag {
        assert!(shard < gpunet_abi::layout::SHARDS, "shard out of range");
        self.flag((offset_of!(SharedHeader, sleeping) + shard * 64) as u64)
    }

    /// The word in which the host program counts operations of CUDA streams on sockets of data
    /// thread `shard`.
    #[must_use]
    pub fn stream_operations(&self, shard: usize) -> Word {
        assert!(shard < gpunet_abi::layout::SHARDS, "shard out of range");
        self.word((offset_of!(SharedHeader, stream_operations) + shard * size_of::<u64>()) as u64)
    }

    /// Returns whether a slot is one of the host program's.
    #[must_use]
    pub const fn is_host_slot(&self, slot: u32) -> bool {
        slot >= self.geometry.sockets
    }

    /// Where the host program tells whether it has taken a direction of its socket in `slot`: the
    /// number of a word, and a bit in it.
    #[must_use]
    pub fn taken_bit(&self, slot: u32, direction: Direction) -> Option<(usize, u64)> {
        let index = slot.checked_sub(self.geometry.sockets).filter(|index| *index < HOST_SOCKETS)?;
        let bit = index * 2 + direction as u32;
        Some(((bit / u64::BITS) as usize, 1 << (bit % u64::BITS)))
    }

    /// A word of these bits.
    #[must_use]
    pub fn taken_word(&self, number: usize) -> Word {
        assert!(number < TAKEN_WORDS, "word out of range");
        self.word((offset_of!(SharedHeader, taken) + number * size_of::<u64>()) as u64)
    }

    /// Returns whether the host program says that it has taken a direction of its socket in `slot`.
    #[must_use]
    pub fn is_taken(&self, slot: u32, direction: Direction) -> bool {
        self.taken_bit(slot, direction).is_some_and(|(word, bit)| self.taken_word(word).peek() & bit != 0)
    }

    /// Tells pollers that the socket in `slot` changed, also the group that watches it; wakes those
    /// that sleep and may watch it. `thread` is the data thread that calls, `None` another thread.
    pub fn tell_pollers(&self, slot: u32, thread: Option<usize>) {
        let sleepers = self.announce_change(slot, thread);
        self.wake_pollers(sleepers);
    }

    /// As [`SharedMemory::tell_pollers`], but wakes nobody: returns whom the caller has to wake, by
    /// [`SharedMemory::wake_pollers`], before it sleeps itself. Pollers that are awake find the
    /// change at once.
    pub fn announce_change(&self, slot: u32, thread: Option<usize>) -> SleepingPollers {
        // Ordering: SeqCst, pairs with the fence of a block that arms the socket: it finds what was
        // published before, or this thread finds that the socket is watched.
        Self::publish_fence();
        let group = self.push_change(slot, thread);
        // The group's waiters sleep for the bit of the group.
        let group = group.map_or(0, |group| Epoch::wakes(Some(group.slot())));
        self.move_epoch(Some(slot));
        SleepingPollers(Epoch::wakes(Some(slot)) | group)
    }

    /// Tells pollers that the socket in `slot` changed (`None`: any), and wakes those that sleep
    /// and may watch it.
    pub fn bump_epoch(&self, slot: Option<u32>) {
        self.move_epoch(slot);
        self.wake_pollers(SleepingPollers(Epoch::wakes(slot)));
    }

    fn move_epoch(&self, slot: Option<u32>) {
        let word = self.word(offset_of!(SharedHeader, epoch) as u64);
        // SAFETY: aligned and mapped as `word` says. CPUs alone change this word (the proxy's
        // threads, and CPU thread blocks for peer streams), so a read-modify-write is sound; a GPU
        // only loads it.
        let epoch = unsafe { AtomicU64::from_ptr(word.as_ptr()) };
        // Ordering: Release, pairs with the Acquire load of `epoch` in the device's poll; the word
        // that changed is visible to who sees the new epoch. SeqCst below via `must_wake`'s fence.
        let named = slot.is_some_and(|slot| {
            (0..EPOCH_TRIES).any(|_| {
                let now = epoch.load(Ordering::Relaxed);
                let next = Epoch(now).after(slot).0;
                epoch.compare_exchange(now, next, Ordering::Release, Ordering::Relaxed).is_ok()
            })
        });
        if !named {
            epoch.fetch_add(Epoch::ANY, Ordering::Release);
        }
    }

    /// Wakes pollers that sleep, after the changes that they are to find.
    pub fn wake_pollers(&self, sleepers: SleepingPollers) {
        let pollers = self.flag(offset_of!(SharedHeader, pollers) as u64);
        // A poller that has not gone to sleep yet finds that the epoch has moved.
        if sleepers != SleepingPollers::NONE && gpunet_abi::park::must_wake(&pollers) {
            futex::wake_some(self.flag(offset_of!(SharedHeader, epoch) as u64), sleepers.0);
        }
    }

    /// Makes a slot free: pushes it into the recycling ring, of kernels or of the host program.
    pub fn recycle(&self, slot: u32) {
        let Geometry { sockets, host_sockets, .. } = self.geometry;
        let (counter, cells, len, word) = if slot < sockets {
            (&self.reclaimed, self.layout.reclaim, sockets, offset_of!(SharedHeader, reclaimed))
        } else {
            (
                &self.host_reclaimed,
                self.layout.host_reclaim,
                host_sockets,
                offset_of!(SharedHeader, host_reclaimed),
            )
        };
        // One thread recycles (the control thread), so load and store need not be one operation.
        let count = counter.load(Ordering::Relaxed);
        // Ordering: Relaxed, made visible by the publish of the count below.
        self.cell(cells, count % u64::from(len)).store(slot, Ordering::Relaxed);
        hand_off::at(HandOff::GivenBack);
        counter.store(count + 1, Ordering::Relaxed);
        self.word(word as u64).publish(count + 1);
    }

    /// How many slots of the host program were pushed into its recycling ring.
    #[must_use]
    pub fn host_reclaimed(&self) -> Word {
        self.word(offset_of!(SharedHeader, host_reclaimed) as u64)
    }

    /// The slot that was pushed there at that position.
    #[must_use]
    pub fn host_cell(&self, position: u64) -> u32 {
        let index = position % u64::from(self.geometry.host_sockets.max(1));
        // Ordering: Relaxed, made visible by `host_reclaimed`.
        self.cell(self.layout.host_reclaim, index).load(Ordering::Relaxed)
    }

    /// A cell of a recycling ring.
    fn cell(&self, cells: u64, index: u64) -> &AtomicU32 {
        // SAFETY: inside the ring (callers take the index modulo its length), 4-byte aligned,
        // mapped while `self` lives; everybody accesses it atomically.
        unsafe { AtomicU32::from_ptr(self.at(cells + index * 4).cast()) }
    }

    /// Shows that the proxy lives.
    pub fn beat(&self) {
        let beat = self.beats.fetch_add(1, Ordering::Relaxed);
        self.word(offset_of!(SharedHeader, heartbeat) as u64).publish(beat);
    }

    /// Shows that the proxy has stopped for good, and wakes everyone who sleeps. Also for the
    /// process that was attached to a daemon and sees it gone: the word has no other writer any
    /// more.
    pub fn beat_down(&self) {
        self.word(offset_of!(SharedHeader, heartbeat) as u64).publish(HEARTBEAT_DOWN);
        self.wake_everyone();
    }

    /// The proxy's sign of life.
    #[must_use]
    pub fn heartbeat(&self) -> Word {
        self.word(offset_of!(SharedHeader, heartbeat) as u64)
    }

    /// Returns whether a launch is cancelled.
    #[must_use]
    pub fn is_cancelled(&self, launch: LaunchId) -> bool {
        assert!(launch.0 < LAUNCHES, "launch out of range");
        self.word((offset_of!(SharedHeader, cancel) + launch.0 as usize * 8) as u64).peek() != 0
    }

    /// Cancels a launch, or (`false`) clears the mark for the next launch of that number.
    pub fn set_cancelled(&self, launch: LaunchId, cancelled: bool) {
        assert!(launch.0 < LAUNCHES, "launch out of range");
        self.word((offset_of!(SharedHeader, cancel) + launch.0 as usize * 8) as u64)
            .publish(u64::from(cancelled));
        if cancelled {
            self.wake_everyone();
        }
    }

    /// Cancels every launch.
    pub fn cancel_all(&self) {
        for launch in 0..LAUNCHES {
            self.word((offset_of!(SharedHeader, cancel) + launch as usize * 8) as u64).publish(1);
        }
        self.wake_everyone();
    }

    /// Wakes every CPU block that sleeps on any flag of this attachment.
    pub fn wake_everyone(&self) {
        self.bump_epoch(None);
        for slot in 0..self.geometry.slots() {
            futex::wake_if_parked(self.recv_park(slot));
            futex::wake_if_parked(self.send_park(slot));
        }
        for index in 0..self.geometry.controls {
            futex::wake_if_parked(self.control_park(index));
        }
    }

    fn control(&self, index: u32) -> u64 {
        assert!(index < self.geometry.controls, "control slot out of range");
        self.layout.controls + u64::from(index) * size_of::<ControlSlot>() as u64
    }

    fn control_park(&self, index: u32) -> SharedFlag {
        self.flag(self.control(index) + offset_of!(ControlSlot, park) as u64)
    }

    /// Returns whether the device has given that request up. The abandon may not have been
    /// handed on yet.
    #[must_use]
    pub fn is_abandoned(&self, id: RequestId) -> bool {
        let RequestId::Device { control, seq } = id else { return false };
        // Pairs with the device's publish; nothing is read after it.
        control < self.geometry.controls && self.abandon_words().get(control as usize).peek() == seq
    }

    /// Copies the request out of a control slot. The caller checks every field.
    #[must_use]
    pub fn read_request(&self, index: u32) -> Request {
        let ptr = self.at(self.control(index)).cast::<Request>();
        // SAFETY: aligned and inside the region. A Request is plain integers, so any bytes a
        // misbehaving device leaves there are a valid value, torn or not.
        unsafe { ptr.read_volatile() }
    }

    /// Writes a reply and publishes its sequence number.
    pub fn write_reply(&self, index: u32, seq: u64, reply: &Reply) {
        let offset = self.control(index) + offset_of!(ControlSlot, reply) as u64;
        let word = self.word(offset + offset_of!(Reply, seq) as u64);
        let ptr = self.at(offset).cast::<Reply>();
        let mut reply = *reply;
        reply.seq = word.peek();
        // SAFETY: aligned and inside the region; only the proxy writes replies, and the device
        // reads the body only after it observed `seq`. The old number stays in place until then.
        unsafe { ptr.write_volatile(reply) };
        word.publish(seq);
        futex::wake_if_parked(self.control_park(index));
    }

    /// Writes what the device is to know of a stream that was accepted ahead. It reads it once its
    /// listener's count, published afterwards, includes the stream.
    pub fn write_accepted(&self, slot: u32, descriptor: &Descriptor) {
        assert!(slot < self.geometry.slots(), "slot out of range");
        let offset = self.layout.accepted + u64::from(slot) * size_of::<Descriptor>() as u64;
        // SAFETY: aligned and inside the region; only the proxy writes there, and the device reads
        // it after the count.
        unsafe { self.at(offset).cast::<Descriptor>().write_volatile(*descriptor) };
    }

    /// The launch that has taken a stream that was accepted ahead, as its device says. Final once
    /// that launch has ended.
    #[must_use]
    pub fn taker(&self, slot: u32) -> Option<LaunchId> {
        assert!(slot < self.geometry.slots(), "slot out of range");
        // Ordering: Relaxed; the end of the launch has come to the proxy after the device's store.
        let taker = self.word(self.layout.takers + u64::from(slot) * 8).peek();
        (1..=u64::from(LAUNCHES)).contains(&taker).then(|| LaunchId(taker as u32 - 1))
    }

    /// What a GPU of this attachment recorded before it ended a kernel with a trap.
    #[must_use]
    pub fn panic_record(&self) -> Option<PanicRecord> {
        let record = self.at(self.layout.panic).cast::<PanicRecord>();
        // SAFETY: inside the region, aligned; a GPU writes it atomically.
        let told = unsafe { AtomicU32::from_ptr(&raw mut (*record).told) };
        // Ordering: Acquire, pairs with the Release store of the thread that panicked.
        if told.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: as above; plain integers, whatever stands there.
        Some(unsafe { record.read_volatile() })
    }

    /// The bytes of a ring in the shared region, as raw addresses.
    ///
    /// `ring` is an offset that this proxy allocated from the region's ring memory.
    pub fn span(&self, ring: u64, capacity: u64, position: u64, len: u64) -> RingSpan {
        assert!(ring >= self.layout.rings && ring + capacity <= self.layout.len, "ring outside the region");
        RingSpan::new(self.at(ring), capacity, position, len)
    }

    /// Sets the line of messages at `offset` to zero, before anybody looks at it.
    ///
    /// # Panics
    /// If it does not lie in the region.
    pub fn clear_line(&self, offset: u64) {
        assert!(
            offset <= self.layout.len && line::LEN as u64 <= self.layout.len - offset,
            "a line outside the region"
        );
        // SAFETY: inside the region, which is mapped while self lives; its other users access it
        // atomically.
        unsafe { line::clear(self.at(offset)) };
    }

    /// Prepares a slot's line for a new stream or listener.
    pub fn open_line(&self, slot: u32, generation: u32) {
        self.landed(slot).set(0);
        self.released(slot).set(0);
        self.status(slot).publish(Status::open(generation).0);
    }

    /// Sets a slot's status and wakes the blocks that wait there.
    pub fn set_status(&self, slot: u32, status: Status) {
        self.status(slot).publish(status.0);
        self.wake_slot(slot);
    }

    /// Wakes the CPU blocks that wait on a slot, and the pollers.
    pub fn wake_slot(&self, slot: u32) {
        futex::wake_if_parked(self.recv_park(slot));
        futex::wake_if_parked(self.send_park(slot));
        self.tell_pollers(slot, None);
    }
}

/// A dense array of words, one writer (the device) and one scanner.
#[derive(Clone, Copy, Debug)]
pub struct WordArray {
    first: Word,
    len: usize,
}

impl WordArray {
    /// Makes an array of the words from `first`.
    ///
    /// # Safety
    /// `len` words from `first` are mapped while the array is used.
    #[must_use]
    pub const unsafe fn new(first: Word, len: usize) -> Self {
        Self { first, len }
    }

    /// How many words there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The word at `index`.
    ///
    /// # Panics
    /// When `index` is out of range.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Word {
        assert!(index < self.len, "word out of range");
        // SAFETY: within the array (checked), whose memory the constructor's contract covers.
        unsafe { Word::from_ptr(self.first.as_ptr().wrapping_add(index)) }
    }

    /// Looks at the words at `which`, and calls `changed(at, value)` for each that differs from
    /// what `seen` has at the same place `at` of the list. Afterwards `seen` has what was found.
    ///
    /// The values are hints; who uses one observes the word again.
    ///
    /// # Panics
    /// When one is out of range, or the two lists are not of one length.
    #[inline]
    pub fn scan(&self, which: &[u32], seen: &mut [u64], mut changed: impl FnMut(usize, u64)) {
        assert_eq!(which.len(), seen.len(), "a value for each word");
        for (at, (&index, seen)) in which.iter().zip(seen).enumerate() {
            let value = self.get(index as usize).peek();
            if value != *seen {
                *seen = value;
                changed(at, value);
            }
        }
    }
}
