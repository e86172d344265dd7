//! Lines of small messages in the shared region, as the host writes them.

use super::SharedMemory;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::line::{self, CHUNK_BYTES, Line};
use gpunet_abi::{RingSpan, Word};

impl SharedMemory {
    /// The [line](mod@line) at `offset`.
    ///
    /// # Panics
    /// If it does not lie in the region.
    fn message_line(&self, offset: u64) -> Line {
        let len = self.layout.len;
        assert!(offset <= len && line::LEN as u64 <= len - offset, "a line outside the region");
        assert!(offset.is_multiple_of(16), "a line that is not aligned");
        // SAFETY: inside the region, which is mapped while self lives; its other users access it atomically.
        unsafe { Line::from_ptr(self.at(offset)) }
    }

    /// Sets the line at `offset` to zero, before anybody looks at it.
    ///
    /// # Panics
    /// If it does not lie in the region.
    pub fn clear_line(&self, offset: u64) {
        self.message_line(offset).clear();
    }

    /// Stores the first `len` bytes of a span, which have landed at `position`, in the line at `offset`, unless they are too many;
    /// returns whether it did. The caller publishes them afterwards, as all that land. By the data thread of the stream.
    ///
    /// # Panics
    /// If the line does not lie in the region.
    pub fn store_line(&self, offset: u64, position: u64, span: RingSpan, len: u64) -> bool {
        let line = self.message_line(offset);
        if line::passes_segment(position, len) {
            // Before tags repeat.
            line.clear();
        }
        if len > line::MAX as u64 || len > span.len() as u64 {
            return false;
        }
        let mut bytes = [0; line::MAX];
        let bytes = &mut bytes[..len as usize];
        copy_out(span, bytes);
        let tag = line::tag(position);
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            for (at, data) in chunk.chunks(CHUNK_BYTES / 2).enumerate() {
                let mut unit = [0; CHUNK_BYTES / 2];
                unit[..data.len()].copy_from_slice(data);
                // SAFETY: a unit of the line: the message is not too long.
                let word = unsafe { Word::from_ptr(line.chunk(index).wrapping_add(at)) };
                word.set(line::unit(u32::from_le_bytes(unit), tag));
            }
        }
        // Last: who finds it mostly finds the rest at the same look.
        line.header().set(line::header(position, bytes.len()));
        hand_off::at(HandOff::LineStored);
        true
    }
}

/// Copies the first bytes of a span, which is at least as long as `to`.
fn copy_out(span: RingSpan, to: &mut [u8]) {
    let (first, second) = to.split_at_mut(to.len().min(span.first.len));
    for (piece, to) in [(span.first, first), (span.second, second)] {
        // SAFETY: bytes of the ring that have landed, and that their receiver has not given back; a receiver that breaks
        // the rules changes bytes only.
        unsafe { std::ptr::copy_nonoverlapping(piece.ptr, to.as_mut_ptr(), to.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_usermap::PinnedRegion;
    use gpunet_abi::layout::{Geometry, SharedLayout};

    fn found(line: Line, position: u64) -> Option<Vec<u8>> {
        let empty = line::header(position, 0);
        let len = line::len_within(line.header().peek(), empty, line::MAX as u64) as usize;
        let mut bytes = Vec::new();
        for index in 0..len.div_ceil(CHUNK_BYTES / 2) {
            // SAFETY: a unit of the line.
            let unit = unsafe { Word::from_ptr(line.chunk(index / 2).wrapping_add(index % 2)) }.peek();
            assert!(line::has_tag(unit, line::tag(position)), "unit {index}");
            bytes.extend((unit as u32).to_le_bytes());
        }
        bytes.truncate(len);
        (len > 0).then_some(bytes)
    }

    #[test]
    fn what_lands_is_found_in_the_line_until_the_next_message_or_segment() {
        let geometry = Geometry {
            sockets: 1,
            controls: 1,
            shards: 1,
            host_sockets: 0,
            shared_rings: 1 << 16,
            device_rings: 0,
        };
        let len = SharedLayout::new(&geometry).len as usize;
        let memory =
            SharedMemory::format(PinnedRegion::create("gpunet-test", len).unwrap(), geometry).unwrap();
        let (ring, capacity) = (memory.layout().rings, 1 << 16);
        let offset = memory.layout().line_of(ring);
        let line = memory.message_line(offset);
        let at = |position: u64, len: u64| memory.span(ring, capacity, position, len);
        // SAFETY: the ring's bytes, which nobody else uses here.
        let write = |index: u64, value: u8| unsafe { memory.at(ring + index).write(value) };
        (0..capacity).for_each(|index| write(index, (index * 7) as u8));
        // Over the end of the ring, too.
        for (position, len) in [(0, 1), (1, 3), (4, 256), (capacity - 100, 255), (5 << 30, 64)] {
            assert!(memory.store_line(offset, position, at(position, len), len));
            let expected: Vec<u8> =
                (position..position + len).map(|byte| (byte % capacity * 7) as u8).collect();
            assert_eq!(found(line, position), Some(expected), "{len} bytes at {position}");
            assert_eq!(found(line, position + len), None);
        }
        assert!(!memory.store_line(offset, 100, at(100, 257), 257));
        assert!(found(line, 5 << 30).is_some(), "a long one leaves it as it is");
        assert!(!memory.store_line(offset, (6 << 30) - 4, at((6 << 30) - 4, 300), 300));
        assert_eq!(line.header().peek(), 0, "cleared at the end of a segment");
    }
}
