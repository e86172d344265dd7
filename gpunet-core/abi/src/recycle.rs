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
//! There are as many cells as slots, so the proxy never pushes over a cell that is not taken. But it
//! may write a cell again as soon as that is taken: the slot has been used and closed in the meantime.
//! So a thread that takes one reads the cell *before* the exchange on `taken`. If the exchange succeeds,
//! no other thread had taken the cell until then, and the value that was read is the slot's.

use crate::hand_off::{self, HandOff};

/// The ring as the device sees it: its own counter, and the proxy's counter and cells.
pub trait SlotRing {
    /// Loads how many slots were taken, ordering nothing.
    fn taken(&self) -> u64;
    /// Changes `taken` from `ticket` to `ticket + 1`, or returns what it is. Acquire and release.
    ///
    /// # Errors
    /// The value found, when it is not `ticket`.
    fn advance(&self, ticket: u64) -> Result<(), u64>;
    /// Observes how many slots were pushed: an acquire, which makes their cells visible.
    fn reclaimed(&self) -> u64;
    /// Loads the cell of that ticket, ordering nothing.
    fn cell(&self, ticket: u64) -> u32;
}

/// Takes the slot that has been free for longest; `None` when there is none.
#[inline(always)]
pub fn take<R: SlotRing>(ring: &R) -> Option<u32> {
    let mut ticket = ring.taken();
    loop {
        if ticket >= ring.reclaimed() {
            return None;
        }
        let slot = ring.cell(ticket);
        hand_off::at(HandOff::CellRead);
        match ring.advance(ticket) {
            Ok(()) => {
                hand_off::at(HandOff::SlotTaken);
                return Some(slot);
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
        cells: RefCell<[u32; 2]>,
        /// Another thread takes this many tickets before the next exchange.
        others: Cell<u64>,
    }

    impl Busy {
        fn take_one(&self) {
            let ticket = self.taken.get();
            self.taken.set(ticket + 1);
            // The slot was used and closed, and stands behind the others again.
            let slot = self.cells.borrow()[ticket as usize % 2];
            let back = self.reclaimed.get();
            self.cells.borrow_mut()[back as usize % 2] = slot + 10;
            self.reclaimed.set(back + 1);
        }
    }

    impl SlotRing for Busy {
        fn taken(&self) -> u64 {
            self.taken.get()
        }
        fn advance(&self, ticket: u64) -> Result<(), u64> {
            for _ in 0..self.others.take() {
                self.take_one();
            }
            if self.taken.get() != ticket {
                return Err(self.taken.get());
            }
            self.take_one();
            Ok(())
        }
        fn reclaimed(&self) -> u64 {
            self.reclaimed.get()
        }
        fn cell(&self, ticket: u64) -> u32 {
            self.cells.borrow()[ticket as usize % 2]
        }
    }

    #[test]
    fn a_cell_that_is_written_again_at_once_was_read_before() {
        let ring = Busy {
            taken: Cell::new(0),
            reclaimed: Cell::new(2),
            cells: RefCell::new([3, 4]),
            others: Cell::new(0),
        };
        assert_eq!((take(&ring), take(&ring)), (Some(3), Some(4)));
        assert_eq!(ring.cells.borrow()[..], [13, 14]);
        // Somebody else takes that cell, and the next one, while this thread holds what it read.
        ring.others.set(2);
        assert_eq!(take(&ring), Some(23));
    }

    #[test]
    fn an_empty_ring_gives_nothing() {
        let ring = Busy {
            taken: Cell::new(2),
            reclaimed: Cell::new(2),
            cells: RefCell::new([3, 4]),
            others: Cell::new(0),
        };
        assert_eq!(take(&ring), None);
        assert_eq!(ring.taken(), 2);
    }
}
