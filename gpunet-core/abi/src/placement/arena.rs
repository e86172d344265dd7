//! The memory of streams between two attachments, part by part.
//!
//! An arena belongs to one pair of attachments, and has two parts. A part lies in memory that its
//! owner's device polls: its GPU's own, or pinned memory. In it are the rings that the owner
//! *receives* from, and the words that the owner *polls*; the other device writes both. What the
//! owner itself publishes lies in the other part.
//!
//! ```text
//! part of A:  header | lines (A polls, B writes) | rings (B writes, A reads)
//! part of B:  header | lines (B polls, A writes) | rings (A writes, B reads)
//! ```
//!
//! A stream takes one ring in each part. The ring's first page determines its line, so there is
//! nothing else to allocate. What the other pages of the ring have beside them holds the ring's
//! [line](crate::line) of small messages.

use crate::placement::layout::PAGE;
use crate::stream::socket_line::SocketLine;
use crate::types::options::MIN_RING_LOG2;

/// The start of a part.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct PartHeader {
    /// [`crate::MAGIC`].
    pub magic: u32,
    /// [`crate::VERSION`].
    pub version: u32,
    reserved: [u32; 14],
    /// Counts changes that a poll of the owner could wait for. CPU blocks of the other attachment
    /// move it on, if `pollers` is not 0; pollers of the owner sleep on it.
    pub bell: u32,
    reserved2: [u32; 15],
    /// How many CPU blocks and threads of the owner sleep on `bell`.
    pub pollers: u32,
}

const _: () = assert!(size_of::<PartHeader>() == 4096);

/// Offsets in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartLayout {
    /// A [`SocketLine`] for each page of ring memory; the line of messages lies behind that of a
    /// ring's first page.
    pub lines: u64,
    /// Ring memory.
    pub rings: u64,
    /// Length of the part.
    pub len: u64,
}

impl PartLayout {
    /// Lays a part with `rings` bytes of ring memory (a multiple of [`PAGE`]) out.
    #[must_use]
    pub const fn new(rings: u64) -> Self {
        let lines = size_of::<PartHeader>() as u64;
        let count = rings >> MIN_RING_LOG2;
        let at = lines + (count * size_of::<SocketLine>() as u64).div_ceil(PAGE) * PAGE;
        Self { lines, rings: at, len: at + rings }
    }

    /// The line that goes with the ring at offset `ring`.
    #[must_use]
    pub const fn line(&self, ring: u64) -> u64 {
        self.lines + ((ring - self.rings) >> MIN_RING_LOG2) * size_of::<SocketLine>() as u64
    }

    /// The line of messages of the ring at offset `ring`.
    #[must_use]
    pub const fn line_of(&self, ring: u64) -> u64 {
        self.line(ring) + size_of::<SocketLine>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_has_a_line_of_its_own_in_front_of_the_rings() {
        let layout = PartLayout::new(1 << 20);
        assert_eq!(layout.lines, 4096);
        assert_eq!(layout.line(layout.rings), layout.lines);
        let last = layout.line(layout.len - 4096);
        assert!(last + 64 <= layout.rings);
        assert_eq!((layout.rings % PAGE, layout.len % PAGE), (0, 0));
        assert_eq!(last - layout.lines, 255 * 64);
    }
}
