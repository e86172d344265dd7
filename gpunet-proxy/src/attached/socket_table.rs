//! The device's socket table, as the host reads and writes it while kernels run.
//!
//! *Retiring.* The proxy closes the sockets of a launch that has ended, and keeps their slots and
//! rings out of use. The host then makes their handles stale in the device's own memory, and reads
//! which launches ever used them. Both are needed before a slot may be given out again: a kernel of
//! another launch finds the handle dead, or it is among the users, and its launch is waited for.
//!
//! *Finding.* A program may ask what a handle names that a kernel has returned to it, and close it
//! once no launch runs that knows it.
//!
//! *Opening.* Slots of the host program are taken and entered here. No kernel takes one, and no
//! kernel knows its handle before it is open, so only the host writes this part of the table.

use crate::attached::device_memory::{DeviceMemory, bytes_of};
use gpu_usermap::cuda::CopyError;
use gpunet_abi::accept::{AcceptQueue, TakenWord};
use gpunet_abi::entry::{Entry, Kind, OwnWords, SlotState};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::handle::next_generation;
use gpunet_abi::layout::{DeviceHeader, DeviceLayout, LAUNCHES};
use gpunet_abi::line;
use gpunet_abi::region::{DEVICE, Region, RegionOffset, SHARED};
use gpunet_abi::{Handle, Options, SockAddr, TransportKind};
use gpunet_core::ids::LaunchId;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The table of one attachment.
#[derive(Debug)]
pub(crate) struct SocketTable {
    memory: Arc<DeviceMemory>,
    layout: DeviceLayout,
    slots: u32,
    /// Where the region that is shared with the proxy lies in the device's address space, and its
    /// length.
    shared: (u64, u64),
    /// Held while a slot of the host program changes its state.
    changing: Mutex<()>,
    /// How often launches have ended: the truth behind the words of the device's header.
    ended: Mutex<Ended>,
}

/// What a handle names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// Of a stream.
    pub(crate) transport: Option<TransportKind>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// How many of its slots the host program has taken.
#[derive(Debug, Default)]
pub(crate) struct HostSlots {
    pub(crate) taken: AtomicU64,
}

/// How often launches of each number have ended, a byte each, and all together.
#[derive(Debug)]
struct Ended {
    launches: [u64; LAUNCHES as usize / 8],
    finished: u64,
}

impl SocketTable {
    pub(crate) const fn new(
        memory: Arc<DeviceMemory>,
        layout: DeviceLayout,
        slots: u32,
        shared: (u64, u64),
    ) -> Self {
        let ended = Mutex::new(Ended { launches: [0; LAUNCHES as usize / 8], finished: 0 });
        Self { memory, layout, slots, shared, changing: Mutex::new(()), ended }
    }

    /// Notes that a launch has ended, before its number is another's: what its blocks held of poll
    /// groups is free.
    pub(crate) fn note_ended(&self, launch: LaunchId) -> Result<(), CopyError> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, shift) = (launch.0 as usize / 8, launch.0 % 8 * 8);
        let eight = ended.launches[index];
        let count = (eight >> shift) as u8;
        let eight = eight & !(0xff << shift) | u64::from(count.wrapping_add(1)) << shift;
        (ended.launches[index], ended.finished) = (eight, ended.finished + 1);
        self.memory.store_words(offset_of!(DeviceHeader, ended) + index * size_of::<u64>(), &[eight])?;
        self.memory.store_words(offset_of!(DeviceHeader, finished), &[ended.finished])
    }

    /// The sockets that were made and neither bound nor connected, and the launches that made them.
    pub(crate) fn fresh(&self) -> Result<Vec<(Handle, LaunchId)>, CopyError> {
        let states = self.memory.load_words::<u32>(self.layout.states as usize, self.slots as usize)?;
        let fresh = states.into_iter().map(SlotState).enumerate();
        let fresh = fresh.filter(|(_, state)| state.kind() == Kind::Fresh);
        Ok(fresh
            .map(|(slot, state)| (Handle::new(slot as u32, state.generation()), LaunchId(state.launch())))
            .collect())
    }

    /// Makes handles stale that the proxy has closed and not given out again. Returns for each a
    /// bit for every launch that ever used it.
    ///
    /// Writes the states first and reads the users after them: see `use_handle` in gpunet-device.
    pub(crate) fn retire(&self, closed: &[Handle]) -> Result<Vec<u64>, CopyError> {
        let mut sorted: Vec<Handle> = closed.to_vec();
        sorted.sort_unstable_by_key(|handle| handle.slot());
        for run in sorted.chunk_by(|a, b| a.slot() + 1 == b.slot()) {
            let states: Vec<u32> = run.iter().map(|h| SlotState::retired(h.generation()).0).collect();
            self.memory.store_words(self.state_at(run[0]), &states)?;
        }
        hand_off::at(HandOff::TableTouched);
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Ok(Vec::new()) };
        let (first, count) = (first.slot() as usize, (last.slot() - first.slot()) as usize + 1);
        let users =
            self.memory.load_words::<u64>(self.layout.users as usize + first * size_of::<u64>(), count)?;
        hand_off::at(HandOff::TableTouched);
        Ok(closed.iter().map(|handle| users[handle.slot() as usize - first]).collect())
    }
}

/// Sockets that the host program opens.
impl SocketTable {
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn state_at(&self, handle: Handle) -> usize {
        self.layout.states as usize + handle.slot() as usize * size_of::<u32>()
    }

    const fn entry_at(&self, handle: Handle) -> usize {
        self.layout.entries as usize + handle.slot() as usize * size_of::<Entry>()
    }

    const fn users_at(&self, handle: Handle) -> usize {
        self.layout.users as usize + handle.slot() as usize * size_of::<u64>()
    }

    fn state(&self, handle: Handle) -> Result<SlotState, CopyError> {
        Ok(SlotState(self.word(self.state_at(handle))?))
    }

    fn word<T: crate::attached::device_memory::TableWord + Default>(
        &self,
        at: usize,
    ) -> Result<T, CopyError> {
        Ok(self.memory.load_words::<T>(at, 1)?.first().copied().unwrap_or_default())
    }

    /// Prepares entry and words of a slot of the host program that is free, as a device does of one
    /// that it takes.
    pub(crate) fn make(&self, slot: u32, launch: LaunchId, options: &Options) -> Result<Handle, CopyError> {
        let _changing = self.change();
        let generation = next_generation(self.state(Handle::new(slot, 0))?.generation());
        let handle = Handle::new(slot, generation);
        self.memory.write(self.entry_at(handle), bytes_of(&Entry::fresh(generation, *options)))?;
        let words = self.layout.words as usize + slot as usize * size_of::<OwnWords>();
        self.memory.store_words(words, &[0u64; size_of::<OwnWords>() / size_of::<u64>()])?;
        self.memory.store_words(self.users_at(handle), &[1u64 << launch.0])?;
        self.memory
            .store_words(self.state_at(handle), &[SlotState::new(Kind::Fresh, generation, launch.0).0])?;
        Ok(handle)
    }

    /// Sets a line in the device's memory to zero.
    pub(crate) fn clear_line(&self, offset: u64) -> Result<(), CopyError> {
        self.memory.store_words(offset as usize, &[0u64; line::LEN / size_of::<u64>()])
    }

    /// Enters a socket that the proxy has opened. From then on kernels may use the handle.
    pub(crate) fn enter(
        &self,
        handle: Handle,
        kind: Kind,
        launch: LaunchId,
        entry: &Entry,
    ) -> Result<(), CopyError> {
        let _changing = self.change();
        self.memory.write(self.entry_at(handle), bytes_of(entry))?;
        if kind == Kind::Listener {
            // Kernels that accept at it begin a queue of their own.
            let taken = self.entry_at(handle) + offset_of!(Entry, send) + offset_of!(AcceptQueue, taken);
            self.memory.store_words(taken, &[TakenWord::new(handle.generation(), 0).0])?;
        }
        self.memory
            .store_words(self.state_at(handle), &[SlotState::new(kind, handle.generation(), launch.0).0])
    }

    /// Makes the handle stale, unless it is so already; returns whether it was not.
    pub(crate) fn end(&self, handle: Handle) -> Result<bool, CopyError> {
        let _changing = self.change();
        if self.state(handle)?.open(handle.generation()).is_none() {
            return Ok(false);
        }
        self.memory.store_words(self.state_at(handle), &[SlotState::retired(handle.generation()).0])?;
        hand_off::at(HandOff::TableTouched);
        Ok(true)
    }

    /// Returns whether the handle names an open socket.
    pub(crate) fn is_open(&self, handle: Handle) -> Result<bool, CopyError> {
        Ok(self.state(handle)?.open(handle.generation()).is_some())
    }

    /// Returns what a handle names, if it is open.
    pub(crate) fn find(&self, handle: Handle) -> Result<Option<Found>, CopyError> {
        if handle.slot() >= self.slots {
            return Ok(None);
        }
        let kind = || Ok::<_, CopyError>(self.state(handle)?.open(handle.generation()));
        let before = kind()?;
        let transport = self.word::<u32>(self.entry_at(handle) + offset_of!(Entry, transport))?;
        let (local, peer) =
            (self.address(handle, offset_of!(Entry, local))?, self.address(handle, offset_of!(Entry, peer))?);
        // A kernel that closes it meanwhile, and opens another in the slot, changes the generation.
        Ok(kind()?.filter(|kind| before == Some(*kind)).map(|kind| {
            let transport = u8::try_from(transport).ok().and_then(TransportKind::from_raw);
            Found { kind, transport: transport.filter(|_| kind == Kind::Stream), local, peer }
        }))
    }

    /// Loads the address of a socket's entry at that offset.
    fn address(&self, handle: Handle, offset: usize) -> Result<Option<SocketAddr>, CopyError> {
        let words =
            self.memory.load_words::<u64>(self.entry_at(handle) + offset, size_of::<SockAddr>() / 8)?;
        let [head, scope, first, second] = words[..] else { return Ok(None) };
        let ip = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
        let mut address = SockAddr::v6(ip.try_into().unwrap_or_default(), (head >> 16) as u16);
        (address.family, address.flow, address.scope) = (head as u16, (head >> 32) as u32, scope as u32);
        Ok(address.to_std())
    }

    /// A bit for every launch that ever used the socket.
    pub(crate) fn users(&self, handle: Handle) -> Result<u64, CopyError> {
        self.word(self.users_at(handle))
    }

    /// Forgets users that have ended.
    pub(crate) fn set_users(&self, handle: Handle, users: u64) -> Result<(), CopyError> {
        self.memory.store_words(self.users_at(handle), &[users])
    }

    /// Where a socket's entry lies in the device's address space.
    pub(crate) fn entry_address(&self, handle: Handle) -> u64 {
        self.memory.address() + self.entry_at(handle) as u64
    }

    /// Loads a word of the device's own memory by its address; `None` for one that lies elsewhere.
    pub(crate) fn word_of(&self, address: u64) -> Result<Option<u64>, CopyError> {
        let offset = address.wrapping_sub(self.memory.address());
        let is_inside = offset < self.memory.len() as u64;
        is_inside.then(|| self.word(offset as usize)).transpose()
    }

    /// Loads the `u64` of a socket's entry at that offset.
    pub(crate) fn entry_word(&self, handle: Handle, offset: usize) -> Result<u64, CopyError> {
        self.word(self.entry_at(handle) + offset)
    }

    /// Stores the `u64` of a socket's entry at that offset.
    pub(crate) fn set_entry_word(&self, handle: Handle, offset: usize, value: u64) -> Result<(), CopyError> {
        self.memory.store_words(self.entry_at(handle) + offset, &[value])
    }

    /// Stores the `u32` of a socket's entry at that offset.
    pub(crate) fn set_entry_flag(&self, handle: Handle, offset: usize, value: u32) -> Result<(), CopyError> {
        self.memory.store_words(self.entry_at(handle) + offset, &[value])
    }

    /// The device's address of `len` bytes at a position; `None` unless they lie inside its region.
    pub(crate) fn resolve(&self, place: RegionOffset, len: u64) -> Option<u64> {
        let (base, size) = match place.region() {
            SHARED => self.shared,
            DEVICE => (self.memory.address(), self.memory.len() as u64),
            number => {
                let at = self.layout.regions as usize + usize::from(number) * size_of::<Region>();
                let words = self.memory.load_words::<u64>(at, size_of::<Region>() / size_of::<u64>()).ok()?;
                let word = |field: usize| words.get(field / size_of::<u64>()).copied().unwrap_or_default();
                if word(offset_of!(Region, flags)) & Region::VALID == 0 {
                    return None;
                }
                (word(offset_of!(Region, base)), word(offset_of!(Region, len)))
            }
        };
        let inside = place.offset() <= size && len <= size - place.offset();
        inside.then(|| base + place.offset())
    }
}

/// The entry of a listener of that generation, at that address.
pub(crate) const fn listener_entry(generation: u32, options: Options, local: SockAddr) -> Entry {
    let mut entry = Entry::fresh(generation, options);
    entry.local = local;
    entry
}
