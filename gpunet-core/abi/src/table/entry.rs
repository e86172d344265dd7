//! The device's own socket table: for each slot a state, the launches that know the socket, and an
//! entry. It lies in device memory. Kernels write it; the host reads it, and retires states of
//! sockets that it had closed for a launch that has ended.

use crate::table::accept::AcceptQueue;
use crate::types::addr::SockAddr;
use crate::types::handle::MAX_GENERATION;
use crate::types::link::Link;
use crate::types::options::Options;

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Not in use.
    Free = 0,
    /// Made by gsocket, or a bind or connect is under way.
    Fresh = 1,
    /// Bound, not listening.
    Bound = 2,
    /// A listener.
    Listener = 3,
    /// A stream.
    Stream = 4,
    /// No socket yet: prepared for a connection that a listener will accept, or has accepted and no
    /// group has taken.
    Prepared = 5,
    /// A [poll group](crate::poll_group).
    Group = 6,
}

impl Kind {
    /// Reads the number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Fresh,
            2 => Self::Bound,
            3 => Self::Listener,
            4 => Self::Stream,
            5 => Self::Prepared,
            6 => Self::Group,
            _ => Self::Free,
        }
    }
}

/// The state of a slot in one word: what it is used for, its generation, and the launch that took
/// it.
///
/// ```text
///  31        23 22            8 7      0
/// +------------+---------------+--------+
/// |   launch   |  generation   |  kind  |
/// +------------+---------------+--------+
/// ```
///
/// Kernels change it by compare-exchange or store. The host stores [`SlotState::retired`] for a
/// socket that the proxy has closed for a finished launch: before the proxy gives the slot out
/// again, which it does only when the host asks for it. So the host's store can only meet a
/// kernel's close of the same socket, which leaves the same value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SlotState(pub u32);

impl SlotState {
    const GENERATION: u32 = 8;
    const LAUNCH: u32 = 23;

    /// The state of a socket of that kind and generation, taken by that launch.
    #[must_use]
    pub const fn new(kind: Kind, generation: u32, launch: u32) -> Self {
        Self(kind as u32 | (generation & MAX_GENERATION) << Self::GENERATION | launch << Self::LAUNCH)
    }

    /// The state after the socket of that generation is closed.
    #[must_use]
    pub const fn retired(generation: u32) -> Self {
        Self::new(Kind::Free, generation, 0)
    }

    /// The same socket as another kind.
    #[must_use]
    pub const fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !0xff | kind as u32)
    }

    /// What the slot is used for.
    #[must_use]
    pub const fn kind(self) -> Kind {
        Kind::from_raw(self.0 & 0xff)
    }

    /// The slot's generation, of the present socket or of the last one.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 >> Self::GENERATION & MAX_GENERATION
    }

    /// The launch that took the slot.
    #[must_use]
    pub const fn launch(self) -> u32 {
        self.0 >> Self::LAUNCH
    }

    /// Returns the kind of the socket of that generation; `None` when it is closed or only
    /// prepared, or the slot was taken anew.
    #[must_use]
    pub const fn open(self, generation: u32) -> Option<Kind> {
        match self.kind() {
            Kind::Free | Kind::Prepared => None,
            kind if self.generation() == generation => Some(kind),
            _ => None,
        }
    }
}

/// Which group used the receiving half of a stream last: its launch, and which lanes of it. Only
/// that group announces what was consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct GroupId(pub u64);

impl GroupId {
    /// The group number `index` of those of `size` lanes, in that launch.
    #[must_use]
    pub const fn new(launch: u32, size: u32, index: u32) -> Self {
        Self((launch as u64 + 1) << 48 | (size as u64 & 0xffff) << 32 | index as u64)
    }
}

/// In [`Entry::lines_sent`]: bytes up to the entry's position are in the ring and not published,
/// because more follows.
pub const DEFERRED: u64 = 1 << 62;
/// Beside [`DEFERRED`]: calls by handle have left them, so whoever locks the direction may publish
/// them.
pub const DEFERRED_BY_HANDLE: u64 = 1 << 63;

/// Bytes by which [`HalfEntry::line`] counts.
pub const LINE_STEP: i64 = 64;

/// One half of a stream as the device keeps it between calls. Addresses are the device's own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct HalfEntry {
    /// First byte of the ring.
    pub base: u64,
    /// Bytes in the ring: at most 2^24.
    pub capacity: u32,
    /// Where the ring's [line](crate::line) or [unit ring](crate::units) lies: twice the steps of
    /// [`LINE_STEP`] bytes from `base`, and 1 more for a unit ring; 0: it has none.
    pub line: i32,
    /// Address of the word this end writes.
    pub mine: u64,
    /// Address of the word the other end writes.
    pub theirs: u64,
    /// This end's [`StreamWord`](crate::StreamWord): bytes moved so far, END once it finished, ERR
    /// once it gave up.
    pub position: u64,
    /// The other end's word as last believed. A receiver that takes messages from its line is ahead
    /// of it.
    pub seen: u64,
}

impl HalfEntry {
    /// Address of the ring's [line](crate::line), or of its unit ring; 0: it has none.
    #[inline(always)]
    #[must_use]
    pub const fn line_at(&self) -> u64 {
        if self.line == 0 { 0 } else { self.base.wrapping_add_signed((self.line >> 1) as i64 * LINE_STEP) }
    }

    /// Returns whether small messages travel in a [unit ring](crate::units).
    #[inline(always)]
    #[must_use]
    pub const fn has_units(&self) -> bool {
        self.line & 1 != 0
    }
}

/// A socket slot as the device keeps it. 256 bytes; what each call needs is in the first 128.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Entry {
    /// A [`lock::word`] (compare-exchange; the host stores that of [`lock::TAKEN`]): who uses the
    /// sending half.
    pub send_lock: u32,
    /// The same for the receiving half.
    pub recv_lock: u32,
    /// A [`crate::options::TransportKind`] as a number.
    pub transport: u32,
    /// Who is at the other side.
    pub link: Link,
    /// The sending half. Of a listener, its [`AcceptQueue`] begins here.
    pub send: HalfEntry,
    /// The receiving half.
    pub recv: HalfEntry,
    /// Bytes consumed as last announced; `recv.position` may be ahead of it.
    pub announced: u64,
    /// A [`GroupId`]: who announces what was consumed. Changed under `recv_lock`.
    pub receiver: u64,
    /// Options.
    pub options: Options,
    /// This end's address.
    pub local: SockAddr,
    /// The other end's address.
    pub peer: SockAddr,
    /// The errno that SO_ERROR reports once.
    pub error: u32,
    /// Of a listener: its generation while a group prepares slots for it, else 0. Changed by
    /// compare-exchange.
    pub prepare_lock: u32,
    /// A stream in an arena: address of the other device's part ([`crate::arena::PartHeader`]).
    pub remote_part: u64,
    /// Of a listener: until when, by the device's clock, its only waiting connection is left to the
    /// group that asks for it without waiting; 0: no group asks. Changed by compare-exchange. Of a
    /// stream with [units](crate::units): how many slots this end has used of the unit ring it
    /// writes (low half), and how many it has taken of the one it reads.
    pub turn_or_units: u64,
    /// How many [lines](crate::line) this end of the stream has sent, [`DEFERRED`] and
    /// [`DEFERRED_BY_HANDLE`].
    pub lines_sent: u64,
}

const _: () = assert!(size_of::<Entry>() == 256);
const _: () = assert!(core::mem::offset_of!(Entry, options) == 128);
const _: () = assert!(size_of::<AcceptQueue>() <= 2 * size_of::<HalfEntry>());

/// [`Entry::send_lock`] and [`Entry::recv_lock`]: who uses a half, of which socket.
///
/// ```text
///  31     23 22            8 7      0
/// +---------+---------------+--------+
/// |    0    |  generation   | holder |
/// +---------+---------------+--------+
/// ```
///
/// A group that is late locks and unlocks nothing of the slot's next socket, whose generation is
/// another.
pub mod lock {
    use crate::types::handle::MAX_GENERATION;

    const GENERATION: u32 = 8;

    /// Nobody uses the half by handle.
    pub const FREE: u32 = 0;
    /// A call by handle uses it.
    pub const CALL: u32 = 1;
    /// A group announces what it has consumed, which takes one store.
    pub const ANNOUNCE: u32 = 2;
    /// The host has taken the direction: calls by handle get EALREADY, and kernels release
    /// [triggers](crate::trigger) and wait at gates instead.
    ///
    /// The host stores it, and [`FREE`] when it gives the direction back, while no running launch
    /// knows the socket. Whoever publishes in a taken direction stores the entry's position before:
    /// a gate believes no word of the other end that is ahead of it.
    pub const TAKEN: u32 = 3;
    /// A group releases a trigger of a direction that the host has taken, which takes a few stores:
    /// [`TAKEN`] before and afterwards.
    pub const RELEASE: u32 = 4;

    /// The word of a half that `holder` has, of the socket of that generation.
    #[must_use]
    #[inline(always)]
    pub const fn word(generation: u32, holder: u32) -> u32 {
        (generation & MAX_GENERATION) << GENERATION | holder
    }

    /// Returns who has the half of the socket of that generation; `None` if the word is another
    /// socket's.
    #[must_use]
    #[inline(always)]
    pub const fn holder(word: u32, generation: u32) -> Option<u32> {
        if word >> GENERATION == generation { Some(word & ((1 << GENERATION) - 1)) } else { None }
    }

    /// Returns whether the host has the direction.
    #[must_use]
    #[inline(always)]
    pub const fn is_taken(holder: u32) -> bool {
        holder == TAKEN || holder == RELEASE
    }
}

impl Entry {
    /// The entry of a slot that was just taken, for a socket of that generation.
    #[must_use]
    pub const fn fresh(generation: u32, options: Options) -> Self {
        const NONE: HalfEntry =
            HalfEntry { base: 0, capacity: 0, line: 0, mine: 0, theirs: 0, position: 0, seen: 0 };
        Self {
            send_lock: lock::word(generation, lock::FREE),
            recv_lock: lock::word(generation, lock::FREE),
            transport: 0,
            link: Link::driven(0),
            send: NONE,
            recv: NONE,
            announced: 0,
            receiver: 0,
            options,
            local: SockAddr::NONE,
            peer: SockAddr::NONE,
            error: 0,
            prepare_lock: 0,
            remote_part: 0,
            turn_or_units: 0,
            lines_sent: 0,
        }
    }
}

/// The two words a socket writes when the other end is a socket of the same device: they lie in
/// device memory, where that other end polls them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct OwnWords {
    /// Bytes sent.
    pub published: u64,
    reserved: [u64; 7],
    /// Bytes consumed.
    pub consumed: u64,
    reserved2: u64,
    /// Of a stream with [units](crate::units): how many slots of its unit ring the other end may
    /// have used. 0: none yet.
    pub unit_limit: u64,
    reserved3: [u64; 5],
}

const _: () = assert!(size_of::<OwnWords>() == 128);
// Where `RingEnd::unit_limit` finds it.
const _: () = assert!(
    core::mem::offset_of!(OwnWords, unit_limit)
        == core::mem::offset_of!(OwnWords, consumed) + crate::stream::units::LIMIT_AT
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::layout::LAUNCHES;

    #[test]
    fn a_state_holds_kind_generation_and_launch() {
        for (kind, generation, launch) in [
            (Kind::Fresh, 1, 0),
            (Kind::Bound, 2, 1),
            (Kind::Stream, MAX_GENERATION, LAUNCHES - 1),
            (Kind::Listener, 77, 5),
        ] {
            let state = SlotState::new(kind, generation, launch);
            assert_eq!((state.kind(), state.generation(), state.launch()), (kind, generation, launch));
            assert_eq!(state.open(generation), Some(kind));
            assert_eq!(state.open(generation - 1), None);
            assert_eq!(state.with_kind(Kind::Bound), SlotState::new(Kind::Bound, generation, launch));
            assert_eq!(SlotState::retired(generation).open(generation), None);
            assert_eq!(state.with_kind(Kind::Prepared).open(generation), None);
            assert_eq!(SlotState::retired(generation).generation(), generation);
        }
    }

    #[test]
    fn a_direction_stays_the_hosts_while_a_trigger_is_released() {
        let values = [lock::FREE, lock::CALL, lock::ANNOUNCE, lock::TAKEN, lock::RELEASE];
        assert_eq!(values.map(lock::is_taken), [false, false, false, true, true]);
    }

    #[test]
    fn a_lock_is_one_sockets() {
        for generation in [1, 77, MAX_GENERATION] {
            for holder in [lock::FREE, lock::CALL, lock::ANNOUNCE, lock::TAKEN, lock::RELEASE] {
                let word = lock::word(generation, holder);
                assert_eq!(lock::holder(word, generation), Some(holder));
                assert_eq!(lock::holder(word, generation - 1), None);
            }
        }
    }

    #[test]
    fn groups_of_one_launch_have_ids_of_their_own() {
        let block = GroupId::new(3, 256, 1);
        assert_ne!(block, GroupId::new(3, 32, 1));
        assert_ne!(block, GroupId::new(3, 256, 0));
        assert_ne!(block, GroupId::new(4, 256, 1));
        assert_ne!(GroupId::new(0, 1, 0), GroupId::default());
    }
}
