//! The list of sockets of a poll group on which something has changed: one thread of the proxy
//! pushes, blocks claim.
//!
//! ```text
//! cell:        0     1     2     3     4     5
//!           +-----+-----+-----+-----+-----+-----+
//!           |     |     |  a  |  b  |     |     |      a and b are not claimed yet
//!           +-----+-----+-----+-----+-----+-----+
//!                       ^ claimed   ^ pushed           (both only count up; modulo the number of cells)
//! ```
//!
//! The pusher never asks how far the claimers are: a socket has one entry for each time that it was
//! armed, and it is armed anew only after that entry was claimed ([`crate::poll_group`]), so the
//! list has room for all there can be. A block reads the cell *before* it advances `claimed`,
//! because the cell may be written again as soon as it is claimed.

use crate::sync::hand_off::{self, HandOff};

/// Entries that one [`claim`] takes at most.
pub const CLAIMS: usize = 8;

/// A list as the claiming device sees it: its own counter, and the proxy's counter and cells.
pub trait ReadyList {
    /// Loads how many entries were claimed, ordering nothing; beyond every other number if the
    /// group is closed.
    fn claimed(&self) -> u64;
    /// Changes `claimed` from `ticket` to `ticket + count`, or returns what it is. Acquire and
    /// release.
    ///
    /// # Errors
    /// The value found, when it is not `ticket`.
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64>;
    /// Observes how many entries were pushed: an acquire, which makes their cells visible.
    fn pushed(&self) -> u64;
    /// Loads the cell of that ticket, ordering nothing.
    fn cell(&self, ticket: u64) -> u64;
    /// How many cells there are.
    fn cells(&self) -> u64;
}

/// The pusher's count is impossible: somebody has overwritten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// Claims the oldest entries, at most `most` and at most [`CLAIMS`]; returns how many, and puts
/// them into `entries`.
///
/// # Errors
/// [`Overrun`], when more entries were pushed than the list can hold.
#[inline(always)]
pub fn claim<L: ReadyList>(list: &L, most: usize, entries: &mut [u64; CLAIMS]) -> Result<usize, Overrun> {
    let mut ticket = list.claimed();
    loop {
        let there = list.pushed().saturating_sub(ticket);
        if there > list.cells() {
            // Others may have claimed them since, and the pusher gone on.
            match list.claimed() {
                now if now == ticket => return Err(Overrun),
                now => ticket = now,
            }
            continue;
        }
        let most = if most < CLAIMS { most } else { CLAIMS } as u64;
        let count = if there < most { there } else { most };
        if count == 0 {
            return Ok(0);
        }
        for (index, entry) in entries.iter_mut().enumerate().take(count as usize) {
            *entry = list.cell(ticket + index as u64);
        }
        hand_off::at(HandOff::EntryRead);
        match list.advance(ticket, count) {
            Ok(()) => {
                hand_off::at(HandOff::EntryClaimed);
                return Ok(count as usize);
            }
            Err(now) => ticket = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    struct Plain {
        claimed: Cell<u64>,
        pushed: u64,
        cells: [u64; 4],
    }

    impl ReadyList for Plain {
        fn claimed(&self) -> u64 {
            self.claimed.get()
        }
        fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
            assert_eq!(ticket, self.claimed.get());
            self.claimed.set(ticket + count);
            Ok(())
        }
        fn pushed(&self) -> u64 {
            self.pushed
        }
        fn cell(&self, ticket: u64) -> u64 {
            self.cells[ticket as usize % 4]
        }
        fn cells(&self) -> u64 {
            4
        }
    }

    #[test]
    fn entries_are_claimed_in_order_and_once() {
        let list = Plain { claimed: Cell::new(3), pushed: 6, cells: [11, 12, 13, 10] };
        let mut entries = [0; CLAIMS];
        assert_eq!((claim(&list, 2, &mut entries), &entries[..2]), (Ok(2), &[10, 11][..]));
        assert_eq!((claim(&list, 9, &mut entries), entries[0]), (Ok(1), 12));
        assert_eq!(claim(&list, 9, &mut entries), Ok(0));
    }

    #[test]
    fn a_count_that_cannot_be_is_found() {
        for pushed in [9, u64::MAX] {
            let list = Plain { claimed: Cell::new(4), pushed, cells: [0; 4] };
            assert_eq!(claim(&list, 1, &mut [0; CLAIMS]), Err(Overrun), "{pushed}");
        }
        let full = Plain { claimed: Cell::new(4), pushed: 8, cells: [5; 4] };
        assert_eq!(claim(&full, 9, &mut [0; CLAIMS]), Ok(4));
        // Nothing of a closed group is claimed, whatever its lists hold.
        let closed = Plain { claimed: Cell::new(u64::MAX), pushed: 8, cells: [5; 4] };
        assert_eq!(claim(&closed, 9, &mut [0; CLAIMS]), Ok(0));
    }
}
