//! The points at which one agent hands something to another, for tests that stop a thread there.
//!
//! With the feature `pauses`, a `Plan` makes threads pause, yield or stop for good at these points,
//! chosen by a seeded generator, so that a race between two steps shows soon. Without the feature,
//! and on a GPU always, [`at`] does nothing. A plan can also make blocks of the CPU device wait as
//! a GPU's do ([`blocks_poll`]), or sleep until somebody wakes them ([`sleeps_are_endless`]).

#[cfg(all(feature = "pauses", not(target_arch = "nvptx64")))]
mod plan;
#[cfg(all(feature = "pauses", not(target_arch = "nvptx64")))]
pub use plan::{Counts, Plan, at, blocks_poll, counts, hold, is_running, sleeps_are_endless, start, stop};

/// A hand-off that a thread has just made, or is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum HandOff {
    /// A word was published: its reader may act on it.
    Published,
    /// A word was observed: its writer may change it again.
    Observed,
    /// A cell of the recycling ring was read, and the slot is not taken yet.
    CellRead,
    /// A slot was taken, and no entry names it yet.
    SlotTaken,
    /// The state of a slot has changed.
    StateChanged,
    /// A control slot was claimed.
    Claimed,
    /// A claim was given back or left.
    ClaimEnded,
    /// A reply was found.
    ReplyFound,
    /// A direction of a stream was locked or unlocked.
    Locked,
    /// Lanes have copied into or out of a ring, and have not published it yet.
    Copied,
    /// A small message is in its line, and not in the ring yet.
    LineStored,
    /// A thread has announced that it will sleep, and has not polled again yet.
    Parking,
    /// A thread has published, and has not checked yet whether anybody sleeps.
    Waking,
    /// The proxy has taken a message from its queue.
    MessageTaken,
    /// The proxy has taken a command from a data thread's queue.
    CommandTaken,
    /// The proxy has read a request, and has not handed it on yet.
    RequestRead,
    /// The proxy gives rings or a slot back.
    GivenBack,
    /// The host has read or written the device's table.
    TableTouched,
    /// The control thread has given a stream to its data thread, and has not told the device yet.
    StreamGiven,
    /// A data thread has left its words to the thread that watches, and does not sleep yet.
    WordsLeft,
    /// The thread that watches has found a change, and has not woken the other yet.
    ChangeFound,
    /// The control thread has answered a request, and has not shown yet what has changed by it.
    Answered,
    /// A group has taken a turn: to relay the epoch, or to accept.
    TurnTaken,
    /// The group that relays has read a new epoch, and has not relayed it yet.
    EpochRead,
    /// An entry of a poll group's list was read, and is not claimed yet.
    EntryRead,
    /// An entry was claimed, and the socket's state does not show it yet.
    EntryClaimed,
    /// A slot was taken off the stack of a poll group, and its socket is still marked.
    StackPopped,
    /// The poll state of a socket has changed.
    PollStateChanged,
    /// A socket is armed, and was not looked at once more yet.
    Armed,
    /// The proxy has read which group watches a socket, and has not pushed the entry yet.
    WatchRead,
}

/// How many hand-offs there are.
#[cfg(feature = "pauses")]
pub const HAND_OFFS: usize = HandOff::WatchRead as usize + 1;

/// Notes that the calling thread is at a hand-off. Does nothing without the feature `pauses`.
#[cfg(not(all(feature = "pauses", not(target_arch = "nvptx64"))))]
#[inline(always)]
pub fn at(_: HandOff) {}

/// Returns whether a plan makes threads pause. Never without the feature `pauses`.
#[cfg(not(all(feature = "pauses", not(target_arch = "nvptx64"))))]
#[inline(always)]
#[must_use]
pub const fn is_running() -> bool {
    false
}

/// Returns whether blocks of the CPU device wait as those of a GPU: they poll, sleep on nothing,
/// and wake nobody. Never without the feature `pauses`.
#[cfg(not(all(feature = "pauses", not(target_arch = "nvptx64"))))]
#[inline(always)]
#[must_use]
pub const fn blocks_poll() -> bool {
    false
}

/// Returns whether sleeping CPU blocks and host threads wait for somebody who wakes them, and never
/// look for themselves whether they were forgotten. Never without the feature `pauses`.
#[cfg(not(all(feature = "pauses", not(target_arch = "nvptx64"))))]
#[inline(always)]
#[must_use]
pub const fn sleeps_are_endless() -> bool {
    false
}
