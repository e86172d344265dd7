//! Poll groups: how the proxy tells blocks which sockets have changed, and how each event goes to
//! one block.
//!
//! ```text
//!          add, modify, rearm            claimed by a block                not ready
//!   NONE -------------------> QUEUED ------------------------> HELD ------------------> ARMED
//!                                ^                             ^  |                        |
//!                                |                             |  +-- delivered            | entry, or a lane that looks:
//!                                +----- modify, rearm ---------+      (the block has it)   | claimed by a block
//!                                                              +---------------------------+
//! ```
//!
//! A socket of a group has one [`PollState`], in device memory, changed by compare-exchange. The
//! block that makes it *held* looks at the socket: if it is ready, the block delivers it, and the
//! socket stays held until that block waits again. If not, the block arms it: it counts the *arm*
//! up, stores it in [`WatchWord`] for the proxy, passes a full fence, and looks once more. The
//! proxy publishes what has changed, passes a full fence, and loads the watch word: so one of the
//! two sees the other. It pushes one [`ReadyEntry`] for each arm. The arm counts up only after that
//! entry was claimed ([`PollState::is_pending`]).

use crate::types::handle::Handle;

/// Lists of a group at most, and so words of [`ListHeader::pushed`]: a data thread has one of its
/// own while there are few, and the proxy's other threads share the last one.
pub const LISTS: usize = 7;

/// The list to which a data thread pushes, if a group has `lists`.
#[must_use]
pub const fn list_of(thread: usize, lists: usize) -> usize {
    if lists <= 1 { 0 } else { thread % (lists - 1) }
}

/// How many lists a group has for a number of data threads.
#[must_use]
pub const fn lists_for(threads: u32) -> usize {
    let wanted = threads as usize + 1;
    if wanted < LISTS { wanted } else { LISTS }
}

/// Cells that each list needs for a group of `capacity` sockets: one for each armed socket, as many
/// again for entries of sockets that have left the group, and some that threads were about to write
/// at that moment.
#[must_use]
pub const fn cells_for(capacity: u32) -> u64 {
    2 * capacity as u64 + 16
}

/// The start of a group's lists, in the shared region: all that waiting blocks look at. The cells
/// follow, list by list.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ListHeader {
    /// Counts entries of all lists. Proxy writes (by fetch-add), device polls.
    pub changes: u64,
    /// By list: how many entries were pushed. Its pusher writes, device reads.
    pub pushed: [u64; LISTS],
}

const _: () = assert!(size_of::<ListHeader>() == 64);

/// Bytes of the lists of a group.
#[must_use]
pub const fn list_bytes(lists: usize, cells: u64) -> u64 {
    size_of::<ListHeader>() as u64 + lists as u64 * cells * 8
}

/// What the device tells the proxy of one socket: which group wants to know of a change, and for
/// which arm. 0: none.
///
/// ```text
///  63        48 47         33 32                     0
/// +------------+-------------+-------------------------+
/// | group slot |  group gen. |           arm           |
/// +------------+-------------+-------------------------+
/// ```
///
/// A slot's arms continue from socket to socket, so the arm also identifies the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct WatchWord(pub u64);

/// The number of bits of an arm. With 18 bits, which wrapped within seconds, the proxy believed
/// that it had reported an arm already.
const ARM_BITS: u32 = 33;
const ARM: u64 = (1 << ARM_BITS) - 1;

impl WatchWord {
    /// Nobody wants to know.
    pub const NONE: Self = Self(0);

    /// The group `group` wants to know of a change of the socket, for that [`PollEntry::arm`].
    #[must_use]
    pub const fn new(group: Handle, arm: u64) -> Self {
        Self((group.slot() as u64) << 48 | (group.generation() as u64) << ARM_BITS | arm & ARM)
    }

    /// The group, if one wants to know.
    #[must_use]
    pub const fn group(self) -> Option<Handle> {
        let generation = (self.0 >> ARM_BITS) as u32 & 0x7fff;
        if generation == 0 { None } else { Some(Handle::new((self.0 >> 48) as u32, generation)) }
    }

    /// The entry to push of the socket in `slot`.
    #[must_use]
    pub const fn entry(self, slot: u32) -> ReadyEntry {
        ReadyEntry((slot as u64 & 0xffff) << 48 | self.0 & ARM)
    }
}

/// One entry of a list: a socket on which something may have changed since it was armed.
///
/// ```text
///  63        48 47         33 32                     0
/// +------------+-------------+-------------------------+
/// |    slot    |      0      |           arm           |
/// +------------+-------------+-------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ReadyEntry(pub u64);

impl ReadyEntry {
    /// The socket's slot.
    #[must_use]
    pub const fn slot(self) -> u32 {
        (self.0 >> 48) as u32
    }

    /// Returns whether it is about that [`PollEntry::arm`]: the same socket, armed for the same
    /// time.
    #[must_use]
    pub const fn is_about(self, arm: u64) -> bool {
        self.0 & ARM == arm & ARM
    }
}

/// Where a socket of a group is in the figure above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Phase {
    /// In no group.
    None = 0,
    /// A block adds it or takes it out.
    Changing = 1,
    /// A change is waited for.
    Armed = 2,
    /// Some block is to look at it.
    Queued = 3,
    /// A block looks at it, or has got its event.
    Held = 4,
}

/// A launch, and how often one of its number has ended. What a launch held when it ended is some
/// other block's to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder(u16);

impl Holder {
    /// The launch of that number, 0 to 63, before whose end launches of that number have ended so
    /// often (modulo 64).
    #[must_use]
    pub const fn new(launch: u32, ended: u8) -> Self {
        Self((launch as u16 & 0x3f) | (ended as u16 & 0x3f) << 6)
    }

    /// The launch's number.
    #[must_use]
    pub const fn launch(self) -> u32 {
        self.0 as u32 & 0x3f
    }
}

/// The state of one socket in its group, in device memory; changed by compare-exchange.
///
/// ```text
///  63          36 35     24 23           9 8      6   5       4       3     2     0
/// +--------------+---------+--------------+--------+-------+-------+-------+-------+
/// |     turn     | holder  |  generation  | events |stacked|direct |pending| phase |
/// +--------------+---------+--------------+--------+-------+-------+-------+-------+
/// ```
///
/// Each block that holds the socket counts the turn up, so no two states are alike between which
/// somebody held it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PollState(pub u64);

impl PollState {
    const PENDING: u64 = 1 << 3;
    const DIRECT: u64 = 1 << 4;
    const STACKED: u64 = 1 << 5;
    const EVENTS: u32 = 6;
    const GENERATION: u32 = 9;
    const HOLDER: u32 = 24;
    const TURN: u32 = 36;
    /// A block that passed its event on and comes back later takes another's for its own once in so
    /// many deliveries.
    const TURNS: u64 = 1 << (64 - Self::TURN);

    /// A socket that a block adds. Turns continue from the slot's last socket.
    #[must_use]
    pub const fn added(self, generation: u32, events: u32, direct: bool) -> Self {
        Self(
            self.0 & (Self::STACKED | (Self::TURNS - 1) << Self::TURN)
                | (generation as u64 & 0x7fff) << Self::GENERATION
                | (events as u64 & 7) << Self::EVENTS
                | if direct { Self::DIRECT } else { 0 },
        )
        .with_phase(Phase::Changing)
    }

    /// The state once the socket is in no group.
    #[must_use]
    pub const fn removed(self) -> Self {
        Self(self.0 & !(7 << Self::EVENTS | Self::PENDING | Self::DIRECT | 0x7fff << Self::GENERATION))
            .with_phase(Phase::None)
    }

    /// The phase.
    #[must_use]
    pub const fn phase(self) -> Phase {
        match self.0 & 7 {
            1 => Phase::Changing,
            2 => Phase::Armed,
            3 => Phase::Queued,
            4 => Phase::Held,
            _ => Phase::None,
        }
    }

    /// The same in another phase.
    #[must_use]
    pub const fn with_phase(self, phase: Phase) -> Self {
        Self(self.0 & !7 | phase as u64)
    }

    /// Held by one more block, of a launch: a turn that no block has had shortly before.
    #[must_use]
    pub const fn held(self, holder: Holder) -> Self {
        let turn = (self.turn() as u64 + 1) % Self::TURNS;
        let rest = self.0 & ((1 << Self::HOLDER) - 1);
        Self(rest | turn << Self::TURN | (holder.0 as u64) << Self::HOLDER).with_phase(Phase::Held)
    }

    /// The launch whose block held it last.
    #[must_use]
    pub const fn holder(self) -> Holder {
        Holder((self.0 >> Self::HOLDER) as u16 & 0xfff)
    }

    /// Armed: for the present arm if its entry is still to come, else for the next
    /// ([`PollState::needs_arm`]).
    #[must_use]
    pub const fn armed(self) -> Self {
        let pending = if self.is_direct() { 0 } else { Self::PENDING };
        Self(self.0 | pending).with_phase(Phase::Armed)
    }

    /// Returns whether the block that arms it counts the arm up: no entry of the present one is
    /// still to come.
    #[must_use]
    pub const fn needs_arm(self) -> bool {
        !self.is_pending() && !self.is_direct()
    }

    /// The entry of the present arm was claimed.
    #[must_use]
    pub const fn claimed(self) -> Self {
        Self(self.0 & !Self::PENDING)
    }

    /// Returns whether the entry of the present arm was not claimed: it is in a list, or may still
    /// come.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        self.0 & Self::PENDING != 0
    }

    /// Returns whether it is a stream without a data thread, whose words the waiting blocks look
    /// at.
    #[must_use]
    pub const fn is_direct(self) -> bool {
        self.0 & Self::DIRECT != 0
    }

    /// Returns whether the slot is on a group's stack of sockets to look at.
    #[must_use]
    pub const fn is_stacked(self) -> bool {
        self.0 & Self::STACKED != 0
    }

    /// The same, on a stack or not.
    #[must_use]
    pub const fn with_stacked(self, stacked: bool) -> Self {
        if stacked { Self(self.0 | Self::STACKED) } else { Self(self.0 & !Self::STACKED) }
    }

    /// The requested events: bits of the API's own.
    #[must_use]
    pub const fn events(self) -> u32 {
        (self.0 >> Self::EVENTS) as u32 & 7
    }

    /// The same for other events.
    #[must_use]
    pub const fn with_events(self, events: u32) -> Self {
        Self(self.0 & !(7 << Self::EVENTS) | (events as u64 & 7) << Self::EVENTS)
    }

    /// The generation of the socket; 0: in no group.
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> Self::GENERATION) as u32 & 0x7fff
    }

    /// How often it was held, modulo 2^28.
    #[must_use]
    pub const fn turn(self) -> u32 {
        (self.0 >> Self::TURN) as u32
    }
}

/// A socket as its group knows it, beside the table's entry.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct PollEntry {
    /// A [`PollState`].
    pub state: u64,
    /// The caller's own number for the socket.
    pub token: u64,
    /// The group's handle, once and while it has the socket.
    pub group: i32,
    /// The slot + 1 of the next socket on the stack; 0: none.
    pub next: u32,
    /// The arm: how often a socket of the slot was armed after the entry of the arm before was
    /// claimed, or the socket before had left. Stored by the block that arms the socket, while it
    /// is *changing*.
    pub arm: u64,
}

const _: () = assert!(size_of::<PollEntry>() == 32);

/// The top of the stack of sockets that some block is to look at: those that were added, modified
/// or rearmed.
///
/// ```text
///  63          49 48                17 16       0
/// +--------------+--------------------+----------+
/// | group's gen. |        count       | slot + 1 |
/// +--------------+--------------------+----------+
/// ```
///
/// Each change counts, so that a block that read `next` of the top before another took it changes
/// nothing. With the group's generation, a late block touches no other group's stack; generation 0:
/// closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct StackTop(pub u64);

impl StackTop {
    /// The empty stack of a group of that generation.
    #[must_use]
    pub const fn empty(generation: u32) -> Self {
        Self((generation as u64 & 0x7fff) << 49)
    }

    /// Returns whether the group of that generation is open.
    #[must_use]
    pub(crate) const fn is_open(self, generation: u32) -> bool {
        (self.0 >> 49) as u32 == generation
    }

    /// The slot on top.
    #[must_use]
    pub const fn slot(self) -> Option<u32> {
        match self.0 as u32 & 0x1_ffff {
            0 => None,
            next => Some(next - 1),
        }
    }

    /// The slot on top, + 1; 0: the stack is empty.
    #[must_use]
    pub(crate) const fn next(self) -> u32 {
        self.0 as u32 & 0x1_ffff
    }

    /// The stack after a change, with that slot + 1 on top.
    #[must_use]
    pub(crate) const fn with(self, next: u32) -> Self {
        let count = (self.0 >> 17).wrapping_add(1) & 0xffff_ffff;
        Self(self.0 >> 49 << 49 | count << 17 | next as u64 & 0x1_ffff)
    }
}

/// A group as the device keeps it, one for each slot. Only the device's threads touch it.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct GroupWords {
    /// A [`StackTop`]. Changed by compare-exchange.
    pub stack: u64,
    /// Of a GPU: the [`ListHeader::changes`] that the relay read last in host memory.
    pub relayed: u64,
    /// Until when, by the device's clock, the relay has its turn; 0: nobody has. Changed by
    /// compare-exchange.
    pub relay_turn: u64,
    /// Sockets in the group. Changed by compare-exchange.
    pub members: u32,
    /// Slots of direct streams lie below this one. Changed by compare-exchange; only grows.
    pub direct_below: u32,
    /// By list: how many entries were claimed, as a [`crate::accept::TakenWord`] of the group's
    /// generation.
    pub claimed: [u64; LISTS],
    /// Address of the group's [`ListHeader`].
    pub lists_at: u64,
    /// Cells of each list.
    pub cells: u32,
    /// How many lists there are.
    pub lists: u32,
    /// Sockets at most.
    pub capacity: u32,
    /// The [`crate::layout::DeviceHeader::finished`] for which somebody has looked at who holds
    /// what. Changed by compare-exchange.
    pub swept: u32,
}

const _: () = assert!(size_of::<GroupWords>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_word_names_group_and_arm() {
        for (group, slot, arm) in
            [(Handle::new(0, 1), 0, 1), (Handle::new(0xffff, 0x7fff), 0xffff, 0x1_ffff_ffff)]
        {
            let watch = WatchWord::new(group, arm);
            assert_eq!(watch.group(), Some(group));
            let entry = watch.entry(slot);
            assert_eq!((entry.slot(), entry.is_about(arm)), (slot, true));
            // No arm of hours is another's.
            for other in [arm + 1, arm + (1 << 18), arm ^ 1 << 32] {
                assert!(!entry.is_about(other));
                assert_ne!(watch, WatchWord::new(group, other));
            }
        }
        assert_eq!(WatchWord::NONE.group(), None);
    }

    #[test]
    fn an_arm_counts_up_once_its_entry_was_claimed() {
        let added = PollState::default().added(7, 5, false);
        assert_eq!((added.phase(), added.generation(), added.events()), (Phase::Changing, 7, 5));
        assert!(added.needs_arm());
        let armed = added.armed();
        assert_eq!((armed.phase(), armed.is_pending()), (Phase::Armed, true));
        // Found ready without its entry, and armed again: the entry is still to come.
        let held = armed.held(Holder::new(3, 1));
        assert_eq!((held.needs_arm(), held.armed().turn()), (false, armed.turn() + 1));
        let claimed = held.claimed();
        assert_eq!((claimed.needs_arm(), claimed.armed().is_pending()), (true, true));
        // Another socket in the slot has other arms and turns.
        let removed = held.armed().removed();
        assert_eq!((removed.phase(), removed.generation(), removed.is_pending()), (Phase::None, 0, false));
        let next = removed.added(8, 1, false);
        assert_eq!((next.needs_arm(), next.turn()), (true, held.turn()));
        assert!(removed.with_stacked(true).added(8, 1, true).is_stacked());
        // A direct stream has no entries.
        let direct = removed.added(8, 1, true);
        assert_eq!((direct.needs_arm(), direct.armed().is_pending()), (false, false));
    }

    #[test]
    fn counts_wrap_within_their_fields() {
        let last = PollState(u64::MAX).with_phase(Phase::Held).claimed();
        let next = last.held(Holder::new(63, 65));
        assert_eq!((next.turn(), next.generation(), next.events()), (0, 0x7fff, 7));
        assert_eq!((next.holder(), next.holder().launch()), (Holder::new(63, 1), 63));
        assert_eq!((last.turn(), last.armed().turn()), ((1 << 28) - 1, (1 << 28) - 1));
    }

    #[test]
    fn a_stack_changes_with_each_push_and_pop() {
        let empty = StackTop::empty(0x7fff);
        assert_eq!((empty.slot(), empty.is_open(0x7fff), empty.is_open(1)), (None, true, false));
        let one = empty.with(0x1_0000);
        assert_eq!((one.slot(), one.is_open(0x7fff)), (Some(0xffff), true));
        assert_ne!(one.with(0), empty);
        let last = StackTop(empty.0 | 0xffff_ffff << 17);
        assert_eq!(last.with(0), empty, "after 2^32 changes");
    }

    #[test]
    fn lists_are_shared_where_threads_are_many() {
        assert_eq!((lists_for(1), lists_for(6), lists_for(16)), (2, 7, 7));
        assert_eq!((list_of(0, 2), list_of(5, 7), list_of(6, 7)), (0, 5, 0));
    }
}
