//! The ring of free socket slots: the proxy pushes, the device takes.
//!
//! ```text
//! cell:        0     1     2     3     4     5
//!           +-----+-----+-----+-----+-----+-----+
//!           |     |     |  6  |  0  |  3  |     |      free: 6, then 0, then 3
//!           +-----+-----+-----+-----+-----+-----+
//!                       ^ taken           ^ reclaimed           (both modulo the number of cells)
//! ```
//!
//! There are as many cells as slots, so the proxy never pushes over a cell that is not taken. But
//! it may write a cell again as soon as that is taken: the slot has been used and closed in the
//! meantime. So a thread that takes one reads the cell *before* the exchange on `taken`. If the
//! exchange succeeds, no other thread had taken the cell until then, and the value that was read is
//! the slot's.

use crate::sync::hand_off::{self, HandOff};

/// The ring as the device sees it: its own counter, and the proxy's counter and cells.
pub trait SlotRing {
    /// Loads how many slots were taken, ordering nothing.
    fn taken(&self) -> u64;
    /// Changes `taken` from `ticket` to `ticket + count`, or returns what it is. Acquire and
    /// release.
    ///
    /// # Errors
    /// The value found, when it is not `ticket`.
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64>;
    /// Observes how many slots were pushed: an acquire, which makes their cells visible.
    fn reclaimed(&self) -> u64;
    /// Loads the cell of that ticket, ordering nothing.
    fn cell(&self, ticket: u64) -> u32;
}

/// Takes the slot that has been free for longest; `None` when there is none.
#[inline(always)]
pub fn take<R: SlotRing>(ring: &R) -> Option<u32> {
    let mut slot = [0];
    if take_many(ring, &mut slot) == 1 { Some(slot[0]) } else { None }
}

/// Takes the slots that have been free for longest, as many as there are and as find room in
/// `slots`; returns how many.
#[inline(always)]
pub fn take_many<R: SlotRing>(ring: &R, slots: &mut [u32]) -> usize {
    let mut ticket = ring.taken();
    loop {
        let free = ring.reclaimed().saturating_sub(ticket);
        let count = free.min(slots.len() as u64) as usize;
        if count == 0 {
            return 0;
        }
        for (index, slot) in slots.iter_mut().enumerate().take(count) {
            *slot = ring.cell(ticket + index as u64);
        }
        hand_off::at(HandOff::CellRead);
        match ring.advance(ticket, count as u64) {
            Ok(()) => {
                hand_off::at(HandOff::SlotTaken);
                return count;
            }
            Err(now) => ticket = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};

    /// A ring whose proxy writes a cell again as soon as it is taken.
    struct Busy {
        taken: Cell<u64>,
        reclaimed: Cell<u64>,
        cells: RefCell<[u32; 3]>,
        /// Another thread takes this many tickets before the next exchange.
        others: Cell<u64>,
    }

    impl Busy {
        fn take_one(&self) {
            let ticket = self.taken.get();
            self.taken.set(ticket + 1);
            // The slot was used and closed, and stands behind the others again.
            let slot = self.cells.borrow()[ticket as usize % 3];
            let back = self.reclaimed.get();
            self.cells.borrow_mut()[back as usize % 3] = slot + 10;
            self.reclaimed.set(back + 1);
        }
    }

    impl SlotRing for Busy {
        fn taken(&self) -> u64 {
            self.taken.get()
        }
        fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
            for _ in 0..self.others.take() {
                self.take_one();
            }
            if self.taken.get() != ticket {
                return Err(self.taken.get());
            }
            (0..count).for_each(|_| self.take_one());
            Ok(())
        }
        fn reclaimed(&self) -> u64 {
            self.reclaimed.get()
        }
        fn cell(&self, ticket: u64) -> u32 {
            self.cells.borrow()[ticket as usize % 3]
        }
    }

    #[test]
    fn a_cell_that_is_written_again_at_once_was_read_before() {
        let ring = Busy {
            taken: Cell::new(0),
            reclaimed: Cell::new(2),
            cells: RefCell::new([3, 4, 5]),
            others: Cell::new(0),
        };
        assert_eq!((take(&ring), take(&ring)), (Some(3), Some(4)));
        // The proxy pushed both again: cells 2 and 0.
        assert_eq!(ring.cells.borrow()[..], [14, 4, 13]);
        // Somebody else takes cell 2, and the next one, while this thread holds what it read.
        ring.others.set(2);
        assert_eq!(take(&ring), Some(23));
    }

    #[test]
    fn several_are_taken_in_order_as_many_as_there_are() {
        let ring = Busy {
            taken: Cell::new(4),
            reclaimed: Cell::new(7),
            cells: RefCell::new([3, 4, 5]),
            others: Cell::new(0),
        };
        let mut slots = [0; 4];
        assert_eq!((take_many(&ring, &mut slots), slots), (3, [4, 5, 3, 0]), "fewer than asked for");
        assert_eq!(ring.taken(), 7);
        let mut slots = [0; 2];
        assert_eq!((take_many(&ring, &mut slots), slots), (2, [14, 15]), "more than asked for");
        assert_eq!(ring.taken(), 9);
        // One is gone when the exchange comes: the others are read again.
        ring.others.set(1);
        let mut slots = [0; 2];
        assert_eq!((take_many(&ring, &mut slots), slots), (2, [24, 25]));
        assert_eq!(ring.taken(), 12);
    }

    #[test]
    fn an_empty_ring_gives_nothing() {
        let ring = Busy {
            taken: Cell::new(2),
            reclaimed: Cell::new(2),
            cells: RefCell::new([3, 4, 5]),
            others: Cell::new(0),
        };
        assert_eq!(take(&ring), None);
        assert_eq!(take_many(&ring, &mut []), 0);
        assert_eq!(ring.taken(), 2);
    }
}
