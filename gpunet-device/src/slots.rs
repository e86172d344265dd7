//! The device's socket slots: taken here, given back by the proxy; who uses them, and in which state.
//!
//! A slot's state, its users and its entry lie in device memory (`gpunet_abi::entry`). What each call
//! finds there by a handle is in `table`.

use crate::{Group, Net, accept_queue, plain, platform, poll_group};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use gpunet_abi::accept::PREPARED;
use gpunet_abi::entry::{Entry, GroupId, Kind, OwnWords, SlotState, lock};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::handle::next_generation;
use gpunet_abi::recycle::{self, SlotRing};
use gpunet_abi::{Direction, Error, Handle, Options, Result, Word};

/// The recycling ring of this device.
struct RecyclingRing {
    net: Net,
    sockets: u64,
}

impl RecyclingRing {
    fn counter<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: the counter lies in this device's memory; only its threads touch it, atomically.
        unsafe { AtomicU64::from_ptr(self.net.taken()) }
    }
}

impl SlotRing for RecyclingRing {
    // Ordering: Relaxed; `advance` decides.
    fn taken(&self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }

    // Ordering: AcqRel among this device's threads: the cell is read before (release), and who takes a
    // slot sees what the thread that used it last left in the table (acquire).
    fn advance(&self, ticket: u64, count: u64) -> core::result::Result<(), u64> {
        self.counter()
            .compare_exchange(ticket, ticket + count, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    // Pairs with the publish in the proxy's `recycle`: the ring cells below it are visible.
    fn reclaimed(&self) -> u64 {
        self.net.reclaimed().observe()
    }

    // Ordering: Relaxed, made visible by `reclaimed`.
    fn cell(&self, ticket: u64) -> u32 {
        let cell = self.net.reclaim_cell(ticket % self.sockets);
        // SAFETY: inside the ring; the proxy wrote it before it published `reclaimed`, and writes it
        // atomically.
        unsafe { AtomicU32::from_ptr(cell.cast_mut()) }.load(Ordering::Relaxed)
    }
}

/// Takes a free slot and prepares its entry and words. By one lane.
///
/// # Errors
/// TooManySockets, when none is free; Protocol, when the ring holds an invalid slot.
#[inline(never)]
pub(crate) fn take(net: Net, options: &Options) -> Result<Handle> {
    let mut slot = [0];
    match take_many(net, &mut slot) {
        0 => Err(Error::TooManySockets),
        _ => open(net, slot[0], Kind::Fresh, options),
    }
}

/// Takes free slots for a listener and prepares them, as many as there are and as find room in `handles`; returns how
/// many. By one lane.
#[inline(never)]
pub(crate) fn take_prepared(net: Net, options: &Options, handles: &mut [i32]) -> usize {
    let mut slots = [0; PREPARED];
    let most = if handles.len() < PREPARED { handles.len() } else { PREPARED };
    let taken = match slots.get_mut(..most) {
        Some(slots) => take_many(net, slots),
        None => 0,
    };
    let mut count = 0;
    for (slot, handle) in slots.iter().take(taken).zip(handles) {
        // What another device could not have written ends the list.
        let Ok(prepared) = open(net, *slot, Kind::Prepared, options) else { break };
        net.taker(*slot).set(0);
        *handle = prepared.raw();
        count += 1;
    }
    count
}

#[inline(never)]
fn take_many(net: Net, slots: &mut [u32]) -> usize {
    match net.context().sockets {
        0 => 0,
        sockets => recycle::take_many(&RecyclingRing { net, sockets: u64::from(sockets) }, slots),
    }
}

/// Prepares entry and words of a slot that was just taken.
#[inline(never)]
fn open(net: Net, slot: u32, kind: Kind, options: &Options) -> Result<Handle> {
    if slot >= net.context().sockets {
        return Err(Error::Protocol);
    }
    // Ordering: Relaxed; the slot is this thread's now, and its last user's store came before it was
    // given back.
    let old = SlotState(state(net, slot).load(Ordering::Relaxed));
    let handle = Handle::new(slot, next_generation(old.generation()));
    let fresh = Entry::fresh(*options);
    // SAFETY: inside the table; the slot is this thread's now.
    unsafe { plain::store(net.entry(slot), &fresh) };
    accept_queue::reset(net, handle);
    poll_group::reset(net, slot);
    // The words this device writes start at 0 before any request names the slot.
    net.published(slot).set(0);
    net.consumed(slot).set(0);
    net.lines_sent(slot).set(0);
    let (published, consumed) = own_words(net.own_words(slot));
    published.set(0);
    consumed.set(0);
    let launch = net.context().launch;
    // Who prepares a slot for a connection does not use it.
    let known = if kind == Kind::Prepared { 0 } else { 1 << launch };
    // Ordering: Relaxed; made visible by the state.
    users(net, slot).store(known, Ordering::Relaxed);
    set_state(net, handle, SlotState::new(kind, handle.generation(), launch));
    Ok(handle)
}

fn own_words(words: *mut OwnWords) -> (Word, Word) {
    // SAFETY: two aligned words of the table in device memory.
    unsafe { (Word::from_ptr(&raw mut (*words).published), Word::from_ptr(&raw mut (*words).consumed)) }
}

#[inline(always)]
fn state<'a>(net: Net, slot: u32) -> &'a AtomicU32 {
    // SAFETY: inside the table, aligned; atomically accessed by this device's threads, and by the host
    // for sockets that the proxy has closed.
    unsafe { AtomicU32::from_ptr(net.state(slot)) }
}

#[inline(always)]
fn users<'a>(net: Net, slot: u32) -> &'a AtomicU64 {
    // SAFETY: inside the table, aligned; atomically accessed by this device's threads; the host reads.
    unsafe { AtomicU64::from_ptr(net.users(slot)) }
}

fn set_state(net: Net, handle: Handle, new: SlotState) {
    // Ordering: Release, pairs with the Acquire load in `kind_of` by another group of this device
    // that was handed the handle.
    state(net, handle.slot()).store(new.0, Ordering::Release);
    hand_off::at(HandOff::StateChanged);
}

/// Makes an open socket of `handle` another kind, by who has it for itself; returns whether the socket
/// was still open: the host retires those of a launch that has ended.
#[inline(never)]
pub(crate) fn turn_into(net: Net, handle: Handle, kind: Kind) -> bool {
    exchange(net, handle, |_| true, |state| state.with_kind(kind))
}

/// Ends the state of a socket that is `kind`, before or after the proxy took the slot back; returns
/// whether this call did it. Of several that close one handle, one wins; and a slot that another
/// group has taken anew meanwhile is left alone.
#[inline(never)]
pub(crate) fn retire(net: Net, handle: Handle, kind: Kind) -> bool {
    exchange(net, handle, |now| now == kind, |state| SlotState::retired(state.generation()))
}

/// Changes the state of an open socket if its kind is `wanted`; returns whether it did.
fn exchange(
    net: Net,
    handle: Handle,
    wanted: impl Fn(Kind) -> bool,
    change: impl Fn(SlotState) -> SlotState,
) -> bool {
    let word = state(net, handle.slot());
    // Ordering: Relaxed; the exchange decides.
    let mut now = SlotState(word.load(Ordering::Relaxed));
    while now.open(handle.generation()).is_some_and(&wanted) {
        // Ordering: AcqRel, pairs with itself in another group and with `set_state` of who takes the
        // slot next: exactly one of two closes sees the socket open.
        match word.compare_exchange(now.0, change(now).0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                hand_off::at(HandOff::StateChanged);
                return true;
            }
            Err(other) => now = SlotState(other),
        }
    }
    false
}

/// What the handle's slot is used for.
///
/// # Errors
/// BadHandle, when the slot is free, out of range, or of another generation.
#[inline(never)]
pub(crate) fn kind_of(net: Net, handle: Handle) -> Result<Kind> {
    if handle.slot() >= net.context().slots {
        return Err(Error::BadHandle);
    }
    // Ordering: Acquire, pairs with the Release store in `set_state`.
    SlotState(state(net, handle.slot()).load(Ordering::Acquire))
        .open(handle.generation())
        .ok_or(Error::BadHandle)
}

/// As [`kind_of`], for a launch that goes on to use the socket: it is noted as one of its users, so
/// that the socket's rings are not given away before this launch has ended, whoever else closes it.
///
/// # Errors
/// As [`kind_of`].
#[inline(never)]
pub(crate) fn use_handle(net: Net, handle: Handle) -> Result<Kind> {
    if handle.slot() >= net.context().slots {
        return Err(Error::BadHandle);
    }
    let is_user = is_user(net, handle.slot());
    let kind = kind_of(net, handle)?;
    if is_user {
        return Ok(kind);
    }
    note_user(net, handle.slot());
    kind_of(net, handle)
}

/// Returns whether this launch is known as one of a socket's users. The state is looked at after it: another group may be
/// about to make the launch known.
#[inline(always)]
pub(crate) fn is_user(net: Net, slot: u32) -> bool {
    // Ordering: Acquire, so that the state that is loaded next is no older than the bit: if the host, which retires the
    // state before it reads the users, has missed the bit, the state shows that the socket is closed.
    users(net, slot).load(Ordering::Acquire) & 1u64 << net.context().launch != 0
}

/// The state of a slot in range, after [`is_user`] has said that this launch is known.
#[inline(always)]
pub(crate) fn state_of(net: Net, slot: u32) -> SlotState {
    // Ordering: Relaxed. Who handed the handle over saw the socket open, and the entry does not change while a launch that
    // is known runs.
    SlotState(state(net, slot).load(Ordering::Relaxed))
}

/// Makes a slot that was prepared, and whose connection this group has taken, a fresh socket of this launch; returns
/// whether the proxy has not closed it meanwhile.
#[inline(never)]
pub(crate) fn take_over(net: Net, handle: Handle) -> bool {
    if handle.slot() >= net.context().slots {
        return false;
    }
    note_user(net, handle.slot());
    let word = state(net, handle.slot());
    // Ordering: Relaxed; the exchange decides.
    let now = SlotState(word.load(Ordering::Relaxed));
    let fresh = SlotState::new(Kind::Fresh, handle.generation(), net.context().launch);
    // Ordering: AcqRel, as in `exchange`. Of the groups only this one changes it; the host may retire it.
    now.kind() == Kind::Prepared
        && now.generation() == handle.generation()
        && word.compare_exchange(now.0, fresh.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Notes this launch as one of a socket's users. The caller checks the state afterwards.
fn note_user(net: Net, slot: u32) {
    let (word, bit) = (users(net, slot), 1u64 << net.context().launch);
    // Ordering: Relaxed, also of the exchange; the fence below orders it.
    let mut known = word.load(Ordering::Relaxed);
    while let Err(now) = word.compare_exchange(known, known | bit, Ordering::Relaxed, Ordering::Relaxed) {
        known = now;
    }
    hand_off::at(HandOff::StateChanged);
    // Ordering: SeqCst, pairs with the host, which retires the state and then reads the users (by the
    // copy engine, in order; on the CPU with the same fence): it sees the bit, or this thread sees
    // the state.
    fence(Ordering::SeqCst);
}

/// Takes a half of a stream for a call by handle, or (`ANNOUNCE`) for one announcement; returns whether
/// it was free.
pub(crate) fn lock(net: Net, slot: u32, half: Direction, value: u32) -> bool {
    // SAFETY: an aligned word in device memory that outlives every kernel, used as a lock only.
    let taken = unsafe { platform::lock(lock_word(net, slot, half), lock::FREE, value) };
    hand_off::at(HandOff::Locked);
    taken
}

/// Gives a half back.
pub(crate) fn unlock(net: Net, slot: u32, half: Direction) {
    // SAFETY: as in `lock`.
    unsafe { platform::unlock(lock_word(net, slot, half), lock::FREE) };
    hand_off::at(HandOff::Locked);
}

/// Locks a half that the host has taken, to release a trigger; returns whether no other group had it locked.
pub(crate) fn lock_taken(net: Net, slot: u32, half: Direction) -> bool {
    // SAFETY: as in `lock`.
    let locked = unsafe { platform::lock(lock_word(net, slot, half), lock::TAKEN, lock::RELEASE) };
    hand_off::at(HandOff::Locked);
    locked
}

/// Leaves a half to the host again.
pub(crate) fn unlock_taken(net: Net, slot: u32, half: Direction) {
    // SAFETY: as in `lock`.
    unsafe { platform::unlock(lock_word(net, slot, half), lock::TAKEN) };
    hand_off::at(HandOff::Locked);
}

/// Returns whether the host has taken a half. Asked after [`use_handle`]: the host takes a half only of a socket that no
/// running launch uses.
#[inline(always)]
pub(crate) fn is_taken(net: Net, slot: u32, half: Direction) -> bool {
    lock::is_taken(locked_as(net, slot, half))
}

/// Returns who has a half: a value of [`gpunet_abi::entry::lock`].
pub(crate) fn locked_as(net: Net, slot: u32, half: Direction) -> u32 {
    // SAFETY: as in `lock`. Ordering: Relaxed; a hint.
    unsafe { AtomicU32::from_ptr(lock_word(net, slot, half)) }.load(Ordering::Relaxed)
}

fn lock_word(net: Net, slot: u32, half: Direction) -> *mut u32 {
    let entry = net.entry(slot);
    match half {
        // SAFETY: field address inside the table's entry.
        Direction::Send => unsafe { &raw mut (*entry).send_lock },
        // SAFETY: as above.
        Direction::Recv => unsafe { &raw mut (*entry).recv_lock },
    }
}

/// Which group of its launch calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    size: u32,
    index: u32,
}

impl Caller {
    #[inline(always)]
    pub(crate) fn of<G: Group>(g: &G) -> Self {
        Self { size: g.size(), index: g.index() }
    }

    /// The group's number among those of its size.
    pub(crate) const fn index(self) -> u32 {
        self.index
    }

    /// The group as the table knows it. The context is there.
    #[inline(always)]
    pub(crate) fn id(self, net: Net) -> GroupId {
        GroupId::new(net.context().launch, self.size, self.index)
    }
}
