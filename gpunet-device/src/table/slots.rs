//! The device's socket slots: who uses them, and in which state.
//!
//! A slot's state, its users and its entry lie in device memory (`gpunet_abi::entry`). What each
//! call finds there by a handle is in `entry`.

use crate::{Group, Net, platform};
use gpunet_abi::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use gpunet_abi::entry::{Entry, GroupId, Kind, SlotState, lock};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::{Direction, Error, Handle, Result};

/// The word that has the state of a slot.
#[inline(always)]
pub(crate) fn state<'a>(net: Net, slot: u32) -> &'a AtomicU32 {
    // SAFETY: inside the table, aligned; atomically accessed by this device's threads, and by the
    // host for sockets that the proxy has closed.
    unsafe { AtomicU32::from_ptr(net.state(slot)) }
}

/// The word that has the users of a slot.
#[inline(always)]
pub(crate) fn users<'a>(net: Net, slot: u32) -> &'a AtomicU64 {
    // SAFETY: inside the table, aligned; atomically accessed by this device's threads; the host
    // reads.
    unsafe { AtomicU64::from_ptr(net.users(slot)) }
}

/// Stores the state of a slot that is the calling thread's.
pub(crate) fn set_state(net: Net, handle: Handle, new: SlotState) {
    // Ordering: Release, pairs with the Acquire load in `kind_of` by another group of this device
    // that was handed the handle.
    state(net, handle.slot()).store(new.0, Ordering::Release);
    hand_off::at(HandOff::StateChanged);
}

/// Makes an open socket of `handle` another kind, by who has it for itself; returns whether the
/// socket was still open: the host retires those of a launch that has ended.
#[inline(never)]
pub fn turn_into(net: Net, handle: Handle, kind: Kind) -> bool {
    exchange(net, handle, |_| true, |state| state.with_kind(kind))
}

/// Ends the state of a socket that is `kind`, before or after the proxy took the slot back; returns
/// whether this call did it. Of several that close one handle, one wins; and a slot that another
/// group has taken anew meanwhile is left alone.
#[inline(never)]
pub fn retire(net: Net, handle: Handle, kind: Kind) -> bool {
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
        // Ordering: AcqRel, pairs with itself in another group and with `set_state` of who takes
        // the slot next: exactly one of two closes sees the socket open.
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
pub fn kind_of(net: Net, handle: Handle) -> Result<Kind> {
    if handle.slot() >= net.context().slots {
        return Err(Error::BadHandle);
    }
    // Ordering: Acquire, pairs with the Release store in `set_state`.
    SlotState(state(net, handle.slot()).load(Ordering::Acquire))
        .open(handle.generation())
        .ok_or(Error::BadHandle)
}

/// As [`kind_of`], for a launch that will use the socket. It is recorded as a user: the socket's
/// rings are not given away before it has ended, even if another group closes the socket.
///
/// # Errors
/// As [`kind_of`].
#[inline(never)]
pub fn use_handle(net: Net, handle: Handle) -> Result<Kind> {
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

/// Returns whether this launch is known as one of a socket's users. The state is looked at after
/// it: another group may be about to make the launch known.
#[inline(always)]
pub(crate) fn is_user(net: Net, slot: u32) -> bool {
    // Before the acquire, which empties a GPU's cache of the context.
    let bit = 1u64 << net.context().launch;
    // Ordering: Acquire, so that the state that is loaded next is no older than the bit: if the
    // host, which retires the state before it reads the users, has missed the bit, the state shows
    // that the socket is closed.
    users(net, slot).load(Ordering::Acquire) & bit != 0
}

/// The state of a slot in range, after [`is_user`] has said that this launch is known.
#[inline(always)]
pub(crate) fn state_of(net: Net, slot: u32) -> SlotState {
    // Ordering: Relaxed. Who handed the handle over saw the socket open, and the entry does not
    // change while a launch that is known runs.
    SlotState(state(net, slot).load(Ordering::Relaxed))
}

/// Makes a slot that was prepared, and whose connection this group has taken, a fresh socket of
/// this launch; returns whether the proxy has not closed it meanwhile.
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
    // Ordering: AcqRel, as in `exchange`. Of the groups only this one changes it; the host may
    // retire it.
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
    // Ordering: SeqCst, pairs with the host, which retires the state and then reads the users (by
    // the copy engine, in order; on the CPU with the same fence): it sees the bit, or this thread
    // sees the state.
    fence(Ordering::SeqCst);
}

/// Takes a half of a stream for a call by handle, or (`ANNOUNCE`) for one announcement; returns
/// whether it was free, and this socket's.
pub fn lock(net: Net, handle: Handle, half: Direction, holder: u32) -> bool {
    Place::of(net, handle).lock(half, holder)
}

/// Gives back a half that the calling group has as `holder`. If the slot is the next socket's by
/// now, nothing is given back.
pub fn unlock(net: Net, handle: Handle, half: Direction, holder: u32) {
    Place::of(net, handle).unlock(half, holder);
}

/// Locks a half that the host has taken, to release a trigger; returns whether no other group had
/// it locked.
pub(crate) fn lock_taken(net: Net, handle: Handle, half: Direction) -> bool {
    Place::of(net, handle).change_lock(half, lock::TAKEN, lock::RELEASE)
}

/// Leaves a half to the host again.
pub(crate) fn unlock_taken(net: Net, handle: Handle, half: Direction) {
    Place::of(net, handle).change_unlock(half, lock::RELEASE, lock::TAKEN);
}

/// Where the state and the entry of a handle's slot lie: to find that takes loads of the context,
/// which an acquire removes from a GPU's cache.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    state: *mut u32,
    entry: *mut Entry,
    generation: u32,
}

impl Place {
    /// The place of a handle whose slot is in range.
    #[inline(always)]
    pub(crate) fn of(net: Net, handle: Handle) -> Self {
        let slot = handle.slot();
        Self { state: net.state(slot), entry: net.entry(slot), generation: handle.generation() }
    }

    /// The socket's entry.
    #[inline(always)]
    pub(crate) const fn entry(&self) -> *mut Entry {
        self.entry
    }

    /// The slot's state, without order: a hint.
    #[inline(always)]
    pub(crate) fn glance(&self) -> SlotState {
        // SAFETY: as in `state`.
        SlotState(unsafe { AtomicU32::from_ptr(self.state) }.load(Ordering::Relaxed))
    }

    /// As [`kind_of`]; `None`: BadHandle.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Option<Kind> {
        // SAFETY: as in `state`.
        let state = unsafe { AtomicU32::from_ptr(self.state) };
        // Ordering: Acquire, as in `kind_of`.
        SlotState(state.load(Ordering::Acquire)).open(self.generation)
    }

    /// See [`lock`].
    #[inline(always)]
    pub(crate) fn lock(&self, half: Direction, holder: u32) -> bool {
        self.change_lock(half, lock::FREE, holder)
    }

    /// See [`unlock`].
    #[inline(always)]
    pub(crate) fn unlock(&self, half: Direction, holder: u32) {
        self.change_unlock(half, holder, lock::FREE);
    }

    #[inline(always)]
    fn change_lock(&self, half: Direction, from: u32, to: u32) -> bool {
        let [from, to] = [from, to].map(|holder| lock::word(self.generation, holder));
        // SAFETY: an aligned word in device memory that outlives every kernel, used as a lock only.
        let locked = unsafe { platform::lock(lock_word(self.entry, half), from, to) };
        hand_off::at(HandOff::Locked);
        locked
    }

    #[inline(always)]
    fn change_unlock(&self, half: Direction, from: u32, to: u32) {
        let [from, to] = [from, to].map(|holder| lock::word(self.generation, holder));
        // SAFETY: as in `change_lock`.
        unsafe { platform::unlock(lock_word(self.entry, half), from, to) };
        hand_off::at(HandOff::Locked);
    }
}

/// Returns whether the host has taken a half. Asked after [`use_handle`]: the host takes a half
/// only of a socket that no running launch uses.
#[inline(always)]
pub(crate) fn is_taken(net: Net, handle: Handle, half: Direction) -> bool {
    holder(net, handle, half).is_ok_and(lock::is_taken)
}

/// Returns who has a half: a value of [`gpunet_abi::entry::lock`].
///
/// # Errors
/// BadHandle, when the slot is the next socket's.
pub fn holder(net: Net, handle: Handle, half: Direction) -> Result<u32> {
    // SAFETY: as in `Place::change_lock`.
    let word = unsafe { AtomicU32::from_ptr(lock_word(net.entry(handle.slot()), half)) };
    // Ordering: Relaxed; a hint.
    lock::holder(word.load(Ordering::Relaxed), handle.generation()).ok_or(Error::BadHandle)
}

fn lock_word(entry: *mut Entry, half: Direction) -> *mut u32 {
    match half {
        // SAFETY: field address inside the table's entry.
        Direction::Send => unsafe { &raw mut (*entry).send_lock },
        // SAFETY: as above.
        Direction::Recv => unsafe { &raw mut (*entry).recv_lock },
    }
}

/// Which group of its launch calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    size: u32,
    index: u32,
}

impl Caller {
    /// The group.
    #[inline(always)]
    pub fn of<G: Group>(g: &G) -> Self {
        Self { size: g.size(), index: g.index() }
    }

    /// The group's number among those of its size.
    pub(crate) const fn index(self) -> u32 {
        self.index
    }

    /// The group as the table knows it. The context is there.
    #[inline(always)]
    pub fn id(self, net: Net) -> GroupId {
        GroupId::new(net.context().launch, self.size, self.index)
    }
}
