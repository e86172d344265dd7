//! A socket's entry in the table: where its rings lie, its positions, options and addresses.

use crate::Net;
use crate::memory::plain;
use crate::table::slots;
use gpunet_abi::arena::PartHeader;
use gpunet_abi::control::Descriptor;
use gpunet_abi::entry::{DEFERRED, DEFERRED_BY_HANDLE, Entry, GroupId, HalfEntry, Kind};
use gpunet_abi::opened::Opened;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::units::COMPILED;
use gpunet_abi::{
    Direction, Error, Handle, Link, Options, Result, SockAddr, Timeout, Word, device_scope, line, options,
};

/// Enters an open stream in the table, after checking that its rings and words lie inside the
/// regions. The group `receiver` is the first to use it.
///
/// # Errors
/// Protocol, when the proxy's descriptor is invalid; BadHandle, when the socket was closed
/// meanwhile, for a launch that has ended.
#[inline(never)]
pub fn open(net: Net, handle: Handle, d: &Descriptor, receiver: GroupId) -> Result<()> {
    let entry = net.entry(handle.slot());
    let context = net.context();
    let opened = Opened::of(d, context.slots, context.shards, |place, len| net.resolve(place, len))?;
    let opened = if COMPILED { opened } else { opened.without_units() };
    // Field by field: other groups may try the locks beside them.
    // SAFETY: fields of the table's entry, which this thread opens; nobody else reads them yet.
    unsafe {
        plain::store(&raw mut (*entry).send, &opened.send);
        plain::store(&raw mut (*entry).recv, &opened.recv);
        plain::store(&raw mut (*entry).local, &d.local);
        plain::store(&raw mut (*entry).peer, &d.peer);
        (&raw mut (*entry).link).write_volatile(d.link);
        (&raw mut (*entry).remote_part).write_volatile(opened.remote_part);
        (&raw mut (*entry).transport).write_volatile(d.transport);
    }
    if opened.recv.has_units() {
        begin_units(&opened.recv, d.link);
    } else if !d.link.is_remote() {
        // Clears what an earlier stream has left there. In an arena, the side that gives the rings
        // back clears them.
        // SAFETY: the line was found inside its region, and this device reads it from now on.
        unsafe { line::clear(opened.recv.line_at() as *mut u8) };
    }
    self::receiver(entry).set(receiver.0);
    if slots::turn_into(net, handle, Kind::Stream) { Ok(()) } else { Err(Error::BadHandle) }
}

/// The ring's end that a direction in the table describes.
pub fn ring_end(d: &HalfEntry, link: Link) -> RingEnd {
    // SAFETY: addresses that `entry::open` checked against the regions; they stay mapped while the
    // attachment lives.
    let (mine, theirs) =
        unsafe { (Word::from_ptr(d.mine as *mut u64), Word::from_ptr(d.theirs as *mut u64)) };
    let line = d.line_at() as *mut u8;
    let units = d.has_units();
    RingEnd { base: d.base as *mut u8, capacity: d.capacity as u64, line, mine, theirs, link, units }
}

/// Sets the unit ring that this end reads to zero, and grants its slots to the other end.
#[cold]
fn begin_units(recv: &HalfEntry, link: Link) {
    let end = ring_end(recv, link);
    let units = end.unit_ring();
    units.clear();
    // Ordering: Release, pairs with the sender's observe in `SendHalf::ask_credit`: its slots are
    // stored after the zeros.
    end.granted().publish(units.grant(0));
}

/// How many slots of unit rings this end of a stream has used for sending, or taken.
#[inline(always)]
pub(crate) fn unit_slots(entry: *mut Entry, half: Direction) -> u32 {
    // SAFETY: inside the entry; written by the group that uses the half.
    unsafe { unit_slots_at(entry, half).read_volatile() }
}

/// Keeps how many slots of unit rings this end has used, or taken. By one lane.
#[inline(always)]
pub(crate) fn set_unit_slots(entry: *mut Entry, half: Direction, slots: u32) {
    // SAFETY: a plain integer of the half that the calling group owns.
    unsafe { unit_slots_at(entry, half).write_volatile(slots) };
}

#[inline(always)]
fn unit_slots_at(entry: *mut Entry, half: Direction) -> *mut u32 {
    // SAFETY: a field address inside the table's entry.
    let both = unsafe { &raw mut (*entry).turn_or_units }.cast::<u32>();
    both.wrapping_add(match half {
        Direction::Send => 0,
        Direction::Recv => 1,
    })
}

/// One half of a stream as the table has it, and who is at the other side. The handle was checked.
#[inline(always)]
pub fn half(net: Net, handle: Handle, half: Direction) -> (HalfEntry, Link) {
    let entry = net.entry(handle.slot());
    (half_entry(entry, half), link_of(entry))
}

/// One half of a stream as its entry has it. The handle was checked.
#[inline(always)]
pub(crate) fn half_entry(entry: *mut Entry, half: Direction) -> HalfEntry {
    let direction = match half {
        // SAFETY: field address inside the table's entry.
        Direction::Send => unsafe { &raw const (*entry).send },
        // SAFETY: as above.
        Direction::Recv => unsafe { &raw const (*entry).recv },
    };
    // SAFETY: the half belongs to the calling group, so nobody writes it now.
    unsafe { plain::load(direction) }
}

/// Who is at the other side of a stream.
#[inline(always)]
pub(crate) fn link_of(entry: *mut Entry) -> Link {
    // SAFETY: inside the entry; written when the stream was opened.
    unsafe { (&raw const (*entry).link).read_volatile() }
}

/// The other device's part of the arena that the stream lies in.
pub(crate) fn remote_part(net: Net, slot: u32) -> *mut PartHeader {
    let entry = net.entry(slot);
    // SAFETY: inside the entry; written when the stream was opened.
    unsafe { (&raw const (*entry).remote_part).read_volatile() as *mut PartHeader }
}

/// The options of a socket.
#[inline(always)]
pub fn options(net: Net, handle: Handle) -> Options {
    options_at(net.entry(handle.slot()))
}

/// The options of the socket with that entry.
#[inline(always)]
pub(crate) fn options_at(entry: *const Entry) -> Options {
    // SAFETY: field address inside the table's entry; written word by word.
    unsafe { plain::load(&raw const (*entry).options) }
}

/// Applies the options in an entry to a call's timeout. By one lane.
#[inline(always)]
pub(crate) fn resolve_timeout(entry: *mut Entry, timeout: Timeout, half: Direction) -> Timeout {
    if timeout != Timeout::SOCKET && timeout != Timeout::SOCKET_BLOCKING {
        return timeout;
    }
    let of_half = options_at(entry).timeout(half);
    if timeout == Timeout::SOCKET_BLOCKING && of_half.is_non_blocking() { Timeout::NEVER } else { of_half }
}

/// The low-water marks of a socket, for sending and for receiving: bytes, at least 1.
#[inline(always)]
pub(crate) fn low_water(entry: *const Entry) -> (u32, u32) {
    // SAFETY: field address inside the table's entry.
    let options = unsafe { &raw const (*entry).options }.cast::<u8>();
    // SAFETY: the last eight bytes of the options, aligned; written word by word.
    options::low_water_of(unsafe {
        options.wrapping_add(options::LOW_WATER_AT).cast::<u64>().read_volatile()
    })
}

/// The word that keeps what was last announced of the receiving half.
#[inline(always)]
pub(crate) fn announced(entry: *mut Entry) -> Word {
    // SAFETY: an aligned word inside the table's entry.
    unsafe { Word::from_ptr(&raw mut (*entry).announced) }
}

/// The word that names the group that announces what was consumed: a [`GroupId`].
#[inline(always)]
pub(crate) fn receiver(entry: *mut Entry) -> Word {
    // SAFETY: an aligned word inside the table's entry.
    unsafe { Word::from_ptr(&raw mut (*entry).receiver) }
}

/// Which bytes of a stream are in the ring and not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    None,
    /// The group that uses the half without a lock has left them.
    ByOwner,
    /// Calls by handle have left them. The group that locks the half may publish them.
    ByHandle,
}

impl Deferred {
    #[inline(always)]
    const fn of(word: u64) -> Self {
        if word & DEFERRED_BY_HANDLE != 0 {
            Self::ByHandle
        } else if word & DEFERRED != 0 {
            Self::ByOwner
        } else {
            Self::None
        }
    }
}

/// How many lines this end of a stream has sent.
#[inline(always)]
pub(crate) fn lines_sent(entry: *mut Entry) -> u64 {
    lines_word(entry).peek() & !(DEFERRED | DEFERRED_BY_HANDLE)
}

/// Which bytes are unpublished, for a group that has the half locked, or as a hint.
#[inline(always)]
pub(crate) fn deferred(entry: *mut Entry) -> Deferred {
    Deferred::of(lines_word(entry).peek())
}

/// Which bytes are unpublished, for a group that continues without a lock. By one lane.
#[inline(always)]
pub(crate) fn observe_deferred(entry: *mut Entry) -> Deferred {
    // Ordering: Acquire, pairs with the Release store in `end_deferred`: what the other group has
    // published comes before what this group publishes, and the word does not go back.
    Deferred::of(device_scope::observe(lines_word(entry)))
}

/// Notes that what calls by handle had left is published. Under the lock.
#[inline(always)]
pub(crate) fn end_deferred(entry: *mut Entry) {
    // Ordering: Release, pairs with the Acquire load in `observe_deferred`.
    device_scope::publish(lines_word(entry), lines_sent(entry));
}

/// Stores how many lines this end has sent, and which bytes of it are unpublished.
#[inline(always)]
pub(crate) fn set_lines_sent(entry: *mut Entry, lines: u64, deferred: Deferred) {
    lines_word(entry).set(match deferred {
        Deferred::None => lines,
        Deferred::ByOwner => lines | DEFERRED,
        Deferred::ByHandle => lines | DEFERRED | DEFERRED_BY_HANDLE,
    });
}

#[inline(always)]
fn lines_word(entry: *mut Entry) -> Word {
    // SAFETY: an aligned word inside the table's entry.
    unsafe { Word::from_ptr(&raw mut (*entry).lines_sent) }
}

/// Stores the options of a socket.
pub fn set_options(net: Net, handle: Handle, options: &Options) {
    let entry = net.entry(handle.slot());
    // SAFETY: inside the table; plain integers.
    unsafe { plain::store(&raw mut (*entry).options, options) };
}

/// Stores the addresses of a bound socket.
pub fn set_local(net: Net, handle: Handle, local: SockAddr) {
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

/// Keeps the words of a half, its own and the other end's as last believed, for the next call by
/// handle, a later launch, or the C functions.
#[inline(always)]
pub(crate) fn store_positions(entry: *mut Entry, half: Direction, position: StreamWord, seen: StreamWord) {
    let (p, s) = match half {
        // SAFETY: field addresses inside the table's entry.
        Direction::Send => unsafe { (&raw mut (*entry).send.position, &raw mut (*entry).send.seen) },
        // SAFETY: as above.
        Direction::Recv => unsafe { (&raw mut (*entry).recv.position, &raw mut (*entry).recv.seen) },
    };
    // SAFETY: plain integers of the half that the calling group owns.
    unsafe {
        p.write(position.0);
        s.write(seen.0);
    }
}

/// The word that keeps what this end has published of a half: [`HalfEntry::position`].
#[inline(always)]
pub(crate) fn position(entry: *mut Entry, half: Direction) -> Word {
    match half {
        // SAFETY: an aligned word inside the table's entry.
        Direction::Send => unsafe { Word::from_ptr(&raw mut (*entry).send.position) },
        // SAFETY: as above.
        Direction::Recv => unsafe { Word::from_ptr(&raw mut (*entry).recv.position) },
    }
}

/// The word that keeps what was last believed of the other end's: [`HalfEntry::seen`].
#[inline(always)]
pub(crate) fn seen(entry: *mut Entry, half: Direction) -> Word {
    match half {
        // SAFETY: an aligned word inside the table's entry.
        Direction::Send => unsafe { Word::from_ptr(&raw mut (*entry).send.seen) },
        // SAFETY: as above.
        Direction::Recv => unsafe { Word::from_ptr(&raw mut (*entry).recv.seen) },
    }
}

/// The peer's address.
pub fn peer(net: Net, handle: Handle) -> SockAddr {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry; written when the stream was opened.
    unsafe { plain::load(&raw const (*entry).peer) }
}

/// The socket's own address.
pub fn local(net: Net, handle: Handle) -> SockAddr {
    let entry = net.entry(handle.slot());
    // SAFETY: as above, or written at bind.
    unsafe { plain::load(&raw const (*entry).local) }
}

/// What carries the stream: a [`gpunet_abi::options::TransportKind`] as a number.
pub fn transport(net: Net, handle: Handle) -> u32 {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry; written when the stream was opened.
    unsafe { (&raw const (*entry).transport).read_volatile() }
}

/// Stands for the error in the status word once SO_ERROR has reported it; no errno.
const STATUS_REPORTED: u32 = u32::MAX;

/// What SO_ERROR reports, each error once: the one that the device kept, else `status`, which is
/// the status word's and stays there. By one lane.
pub fn take_error(net: Net, handle: Handle, status: u32) -> u32 {
    let entry = net.entry(handle.slot());
    // SAFETY: field address inside the table's entry.
    let error = unsafe { &raw mut (*entry).error };
    // SAFETY: a plain integer; of two groups that ask at once both may get it.
    let found = match unsafe { error.read_volatile() } {
        0 => status,
        STATUS_REPORTED => 0,
        kept => kept,
    };
    // SAFETY: as above.
    unsafe { error.write_volatile(if status == 0 { 0 } else { STATUS_REPORTED }) };
    found
}
