//! The device's socket slots: taken here, given back by the proxy.
//!
//! The recycling ring in shared memory holds the free slots in order. The device takes the next one
//! by compare-exchange on a counter in its own memory; the proxy, which alone knows when a close is
//! finished, pushes slots back. The counters never repeat, so there is no ABA.

use crate::{Net, plain, platform};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use gpunet_abi::arena::PartHeader;
use gpunet_abi::control::Descriptor;
use gpunet_abi::entry::{Direction, Entry, Kind, OwnWords};
use gpunet_abi::handle::next_generation;
use gpunet_abi::layout::SocketLine;
use gpunet_abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use gpunet_abi::place::Place;
use gpunet_abi::{Error, Handle, Link, Options, Result, SockAddr, Word};

/// Takes a free slot and prepares its entry and words. By one lane.
///
/// # Errors
/// TooManySockets, when none is free.
#[inline(never)]
pub(crate) fn take(net: Net, options: &Options) -> Result<Handle> {
    // SAFETY: the counter lies in this device's memory; only its threads touch it, atomically.
    let taken = unsafe { AtomicU64::from_ptr(net.taken()) };
    // Ordering: Relaxed; the exchange below decides, and the entry it wins is made visible by the
    // proxy's publish of `reclaimed`.
    let mut ticket = taken.load(Ordering::Relaxed);
    let sockets = u64::from(net.context().sockets);
    if sockets == 0 {
        return Err(Error::TooManySockets);
    }
    let slot = loop {
        // Pairs with the publish in the proxy's `recycle`: the ring cells below it are visible.
        if ticket >= net.reclaimed().observe() {
            return Err(Error::TooManySockets);
        }
        // Ordering: AcqRel among this device's threads, so that who takes a slot sees what the
        // thread that used it last wrote to its entry.
        match taken.compare_exchange(ticket, ticket + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let cell = net.reclaim_cell(ticket % sockets);
                // SAFETY: inside the ring; the proxy wrote it before it published `reclaimed`.
                break unsafe { AtomicU32::from_ptr(cell.cast_mut()) }.load(Ordering::Relaxed);
            }
            Err(now) => ticket = now,
        }
    };
    if slot >= net.context().sockets {
        return Err(Error::Protocol);
    }
    let entry = net.entry(slot);
    // SAFETY: inside the table; the slot is this thread's now.
    let old = unsafe { (&raw const (*entry).state).read_volatile() };
    let generation = next_generation(Entry::generation(old));
    let handle = Handle::new(slot, generation);
    let fresh = Entry::fresh(*options);
    // SAFETY: as above.
    unsafe { plain::store(entry, &fresh) };
    set_state(net, handle, Kind::Fresh);
    // The words this device writes start at 0 before any request names the slot.
    net.published(slot).set(0);
    net.consumed(slot).set(0);
    let (published, consumed) = own_words(net.own_words(slot));
    published.set(0);
    consumed.set(0);
    Ok(handle)
}

fn own_words(words: *mut OwnWords) -> (Word, Word) {
    // SAFETY: two aligned words of the table in device memory.
    unsafe { (Word::from_ptr(&raw mut (*words).published), Word::from_ptr(&raw mut (*words).consumed)) }
}

/// Sets what a slot is used for.
#[inline(never)]
pub(crate) fn set_state(net: Net, handle: Handle, kind: Kind) {
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table, aligned; atomically accessed by this device's threads only.
    let state = unsafe { AtomicU32::from_ptr(&raw mut (*entry).state) };
    // Ordering: Release, pairs with the Acquire load in `kind_of` by another group of this device
    // that was handed the handle.
    state.store(Entry::pack(kind, handle.generation()), Ordering::Release);
}

/// Frees the entry of a socket that is `kind`, before or after the proxy took the slot back; says
/// whether this call did it. Of several that close one handle, one wins; and an entry that another
/// group has taken anew meanwhile is left alone.
#[inline(never)]
pub(crate) fn retire(net: Net, handle: Handle, kind: Kind) -> bool {
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table, aligned; atomically accessed by this device's threads only.
    let state = unsafe { AtomicU32::from_ptr(&raw mut (*entry).state) };
    let (from, to) = (Entry::pack(kind, handle.generation()), Entry::pack(Kind::Free, handle.generation()));
    // Ordering: AcqRel, pairs with itself in another group and with `set_state` of who takes the slot
    // next: exactly one of two closes sees `from`.
    state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// What the handle's slot is used for.
///
/// # Errors
/// BadHandle, when the slot is free, out of range, or of another generation.
#[inline(never)]
pub(crate) fn kind_of(net: Net, handle: Handle) -> Result<Kind> {
    if handle.slot() >= net.context().sockets {
        return Err(Error::BadHandle);
    }
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table (checked), aligned; atomically accessed.
    let state = unsafe { AtomicU32::from_ptr(&raw mut (*entry).state) };
    // Ordering: Acquire, pairs with the Release store in `set_state`.
    let state = state.load(Ordering::Acquire);
    match Entry::kind(state) {
        Kind::Free => Err(Error::BadHandle),
        kind if Entry::generation(state) == handle.generation() => Ok(kind),
        _ => Err(Error::BadHandle),
    }
}

/// Enters an open stream in the device's books, after checking that its rings and words lie inside
/// the regions.
///
/// # Errors
/// Protocol, when the proxy's descriptor cannot be.
#[inline(never)]
pub(crate) fn open(net: Net, handle: Handle, d: &Descriptor) -> Result<()> {
    let entry = net.entry(handle.slot());
    let send = direction(net, d.send_ring, d.send_log2, d.published, d.released)?;
    let recv = direction(net, d.recv_ring, d.recv_log2, d.consumed, d.landed)?;
    if d.link.partner().is_some_and(|slot| slot >= net.context().sockets) {
        return Err(Error::Protocol);
    }
    // A publisher finds whom to wake beside the words, and at the start of the other device's part.
    let far = if d.link.is_far() {
        let whole_lines =
            [d.published, d.consumed, d.landed, d.released].iter().all(|word| in_line(net, *word));
        match net.resolve(Place::new(d.published.region(), 0), size_of::<PartHeader>() as u64) {
            Some(far) if whole_lines => far,
            _ => return Err(Error::Protocol),
        }
    } else {
        0
    };
    // SAFETY: this thread opens the slot; nobody else uses the entry yet.
    let mut book = unsafe { plain::load(entry) };
    book.send = send;
    book.recv = recv;
    book.link = d.link;
    book.far = far;
    book.local = d.local;
    book.peer = d.peer;
    book.transport = d.transport;
    // SAFETY: as above.
    unsafe { plain::store(entry, &book) };
    set_state(net, handle, Kind::Stream);
    Ok(())
}

/// Says whether the whole line that a word lies in is inside its region.
fn in_line(net: Net, word: Place) -> bool {
    let line = size_of::<SocketLine>() as u64;
    net.resolve(Place::new(word.region(), word.offset() / line * line), line).is_some()
}

fn direction(net: Net, ring: Place, log2: u32, mine: Place, theirs: Place) -> Result<Direction> {
    if log2 < MIN_RING_LOG2 as u32 || log2 > MAX_RING_LOG2 as u32 {
        return Err(Error::Protocol);
    }
    let capacity = 1u64 << log2;
    match (net.resolve(ring, capacity), net.resolve(mine, 8), net.resolve(theirs, 8)) {
        (Some(base), Some(mine), Some(theirs)) if mine % 8 == 0 && theirs % 8 == 0 => {
            Ok(Direction { base, capacity, mine, theirs, position: 0, seen: 0 })
        }
        _ => Err(Error::Protocol),
    }
}

/// A copy of the slot's entry. The handle was checked by [`kind_of`].
#[inline(never)]
pub(crate) fn book(net: Net, handle: Handle) -> Entry {
    // SAFETY: inside the table; the entry is plain integers in this device's memory, and groups
    // that share it use different fields (send and receive direction).
    unsafe { plain::load(net.entry(handle.slot())) }
}

/// One half of a stream as the books have it, and who is at the other side.
#[inline(always)]
pub(crate) fn half(net: Net, handle: Handle, half: Half) -> (Direction, Link) {
    let entry = net.entry(handle.slot());
    let direction = match half {
        // SAFETY: field address inside the table's entry.
        Half::Send => unsafe { &raw const (*entry).send },
        // SAFETY: as above.
        Half::Recv => unsafe { &raw const (*entry).recv },
    };
    // SAFETY: the half belongs to the calling group, so nobody writes it now.
    let direction = unsafe { plain::load(direction) };
    // SAFETY: inside the entry; written when the stream was opened.
    let link = unsafe { (&raw const (*entry).link).read_volatile() };
    (direction, link)
}

/// The other device's part of the arena that the stream lies in.
pub(crate) fn far(net: Net, slot: u32) -> *mut PartHeader {
    let entry = net.entry(slot);
    // SAFETY: inside the entry; written when the stream was opened.
    unsafe { (&raw const (*entry).far).read_volatile() as *mut PartHeader }
}

/// The options of a socket.
#[inline(always)]
pub(crate) fn options(net: Net, handle: Handle) -> Options {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry; written word by word.
    unsafe { plain::load(&raw const (*entry).options) }
}

/// The word that keeps what was last announced of the receiving half.
#[inline(always)]
pub(crate) fn announced(entry: *mut Entry) -> Word {
    // SAFETY: an aligned word inside the table's entry.
    unsafe { Word::from_ptr(&raw mut (*entry).announced) }
}

/// Stores the options of a socket.
pub(crate) fn set_options(net: Net, handle: Handle, options: &Options) {
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table; plain integers.
    unsafe { plain::store(&raw mut (*entry).options, options) };
}

/// Stores the addresses of a bound socket.
pub(crate) fn set_local(net: Net, handle: Handle, local: SockAddr) {
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table; plain integers.
    unsafe { plain::store(&raw mut (*entry).local, &local) };
}

/// Keeps an error for SO_ERROR.
pub(crate) fn set_error(net: Net, handle: Handle, error: Error) {
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table; a plain integer.
    unsafe { (&raw mut (*entry).error).write_volatile(error.errno() as u32) };
}

/// Which half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Send,
    Recv,
}

impl Half {
    /// The half that the other end has of the same direction.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Send => Self::Recv,
            Self::Recv => Self::Send,
        }
    }
}

/// Keeps a half's positions for the next call by handle, a later launch, or the C functions.
#[inline(always)]
pub(crate) fn store_positions(entry: *mut Entry, half: Half, position: u64, seen: u64) {
    let (p, s) = match half {
        // SAFETY: field addresses inside the table's entry.
        Half::Send => unsafe { (&raw mut (*entry).send.position, &raw mut (*entry).send.seen) },
        // SAFETY: as above.
        Half::Recv => unsafe { (&raw mut (*entry).recv.position, &raw mut (*entry).recv.seen) },
    };
    // SAFETY: plain integers of the half that the calling group owns.
    unsafe {
        p.write(position);
        s.write(seen);
    }
}

/// Takes a half of a stream for one C call; says whether it was free.
pub(crate) fn lock(net: Net, slot: u32, half: Half) -> bool {
    // SAFETY: an aligned word in device memory that outlives every kernel, used as a lock only.
    unsafe { platform::lock(lock_word(net, slot, half)) }
}

/// Gives a half back.
pub(crate) fn unlock(net: Net, slot: u32, half: Half) {
    // SAFETY: as in `lock`.
    unsafe { platform::unlock(lock_word(net, slot, half)) };
}

fn lock_word(net: Net, slot: u32, half: Half) -> *mut u32 {
    let entry = net.entry(slot);
    match half {
        // SAFETY: field address inside the table's entry.
        Half::Send => unsafe { &raw mut (*entry).send_lock },
        // SAFETY: as above.
        Half::Recv => unsafe { &raw mut (*entry).recv_lock },
    }
}

/// The peer's address.
pub(crate) fn peer(net: Net, handle: Handle) -> SockAddr {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry; written when the stream was opened.
    unsafe { plain::load(&raw const (*entry).peer) }
}

/// The socket's own address.
pub(crate) fn local(net: Net, handle: Handle) -> SockAddr {
    let entry = net.entry(handle.slot());
    // SAFETY: as above, or written at bind.
    unsafe { plain::load(&raw const (*entry).local) }
}

/// What carries the stream: a [`gpunet_abi::options::TransportKind`] as a number.
pub(crate) fn transport(net: Net, handle: Handle) -> u32 {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry; written when the stream was opened.
    unsafe { (&raw const (*entry).transport).read_volatile() }
}

/// Stands for the error in the status word once SO_ERROR has told it; no errno.
const STATUS_TOLD: u32 = u32::MAX;

/// What SO_ERROR reports, each error once: the one that the device kept, else `status`, which is the
/// status word's and stays there. By one lane.
pub(crate) fn take_error(net: Net, handle: Handle, status: u32) -> u32 {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry.
    let error = unsafe { &raw mut (*entry).error };
    // SAFETY: a plain integer; of two groups that ask at once both may get it.
    let found = match unsafe { error.read_volatile() } {
        0 => status,
        STATUS_TOLD => 0,
        kept => kept,
    };
    // SAFETY: as above.
    unsafe { error.write_volatile(if status == 0 { 0 } else { STATUS_TOLD }) };
    found
}
