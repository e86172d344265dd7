//! Connections that the proxy accepts before a group of the device asks for them.
//!
//! A device prepares free slots for a listener. The proxy opens the listener's next connections in
//! them, in the order in which they were prepared, and counts. So the order of the connections is
//! known to the device, and the count is all that the proxy has to say:
//!
//! ```text
//! position:     0     1     2     3     4     5     6            cell = position modulo the number of cells
//!            +-----+-----+-----+-----+-----+-----+-----+
//!            |     |     |  6  |  0  |  3  |  9  |     |          6 and 0 are connections that no group has taken,
//!            +-----+-----+-----+-----+-----+-----+-----+          3 and 9 are prepared
//!                        ^ taken     ^ accepted  ^ prepared       (counted by device, proxy, device)
//! ```
//!
//! Groups take connections as they take free slots ([`crate::recycle`]): they read the cell before
//! the exchange on `taken`, because a cell is written again as soon as it is taken.

use crate::types::handle::MAX_GENERATION;

/// The most slots that a listener holds, prepared and accepted together. One request names as many.
pub const PREPARED: usize = 16;

/// How many slots a listener holds of a device that has `sockets`: few enough that other sockets
/// find some.
#[must_use]
pub const fn prepared_of(sockets: u32) -> u32 {
    let share = sockets / 32;
    if share < PREPARED as u32 { share } else { PREPARED as u32 }
}

/// How many connections the groups of a device have taken from a listener.
///
/// ```text
///  63     62        48 47                  0
/// +------+------------+---------------------+
/// |CLOSED| generation |       position      |
/// +------+------------+---------------------+
/// ```
///
/// Changed by compare-exchange. With the listener's generation, a group that knows the slot's last
/// listener takes nothing from the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct TakenWord(pub u64);

impl TakenWord {
    const GENERATION: u32 = 48;
    const CLOSED: u64 = 1 << 63;

    /// So many were taken from the listener of that generation.
    #[must_use]
    pub const fn new(generation: u32, position: u64) -> Self {
        Self(((generation & MAX_GENERATION) as u64) << Self::GENERATION | position)
    }

    /// How many were taken.
    #[must_use]
    pub const fn position(self) -> u64 {
        self.0 & ((1 << Self::GENERATION) - 1)
    }

    /// The position if the listener of that generation is open.
    #[must_use]
    pub const fn open(self, generation: u32) -> Option<u64> {
        let position = self.position();
        if self.0 == Self::new(generation, position).0 { Some(position) } else { None }
    }

    /// The word of the listener once it is closed: no group takes anything any more.
    #[must_use]
    pub const fn closed(self) -> Self {
        Self(self.0 | Self::CLOSED)
    }
}

/// What a listener's entry holds in place of a stream's halves. In device memory; only the device's
/// threads touch it.
#[derive(Debug)]
#[repr(C)]
pub struct AcceptQueue {
    /// A [`TakenWord`].
    pub taken: u64,
    /// The position after the last prepared slot. Changed by the group that has
    /// [`crate::entry::Entry::prepare_lock`].
    pub prepared: u64,
    /// By position: the handles of the prepared slots, whether accepted or not.
    pub cells: [i32; PREPARED],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_belongs_to_one_listener_while_it_is_open() {
        for (generation, position) in [(1, 0), (MAX_GENERATION, (1 << 48) - 1), (7, 3)] {
            let word = TakenWord::new(generation, position);
            assert_eq!((word.position(), word.open(generation)), (position, Some(position)));
            assert_eq!(word.open(generation - 1), None);
            assert_eq!((word.closed().open(generation), word.closed().position()), (None, position));
        }
        assert_eq!(TakenWord::default().open(1), None, "not a listener yet");
    }

    #[test]
    fn a_listener_holds_a_small_part_of_the_slots() {
        for (sockets, prepared) in [(1, 0), (31, 0), (32, 1), (64, 2), (511, 15), (512, 16), (65_536, 16)] {
            assert_eq!(prepared_of(sockets), prepared, "of {sockets}");
        }
    }
}
