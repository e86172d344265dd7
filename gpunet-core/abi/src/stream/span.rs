//! Pieces of a ring, as raw addresses.

/// One contiguous run of ring bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// At most two pieces: a run of ring positions, which may wrap round the ring's end.
///
/// Never a slice: the other end of the ring may be a GPU, a NIC or another process. The bytes are
/// read and written by copies of raw memory, and only inside the window that the positions allow.
///
/// # Examples
///
/// ```
/// use gpunet_abi::RingSpan;
///
/// let mut ring = [0u8; 16];
/// let span = RingSpan::new(ring.as_mut_ptr(), 16, 12, 7); // wraps after 4 bytes
/// assert_eq!((span.first.len, span.second.len), (4, 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RingSpan {
    /// The piece up to the ring's end.
    pub first: Piece,
    /// The piece from the ring's start; empty unless the span wraps.
    pub second: Piece,
}

impl RingSpan {
    /// The span of `len` bytes from `position` of a ring of `capacity` bytes at `base`.
    ///
    /// `capacity` is a power of two, at most 2^31, and `len <= capacity`; a larger `len` is cut.
    #[inline(always)]
    pub fn new(base: *mut u8, capacity: u64, position: u64, len: u64) -> Self {
        let len = if len > capacity { capacity } else { len };
        // A GPU computes with 32 bits, and each step of a send is waited for: with 64 they are
        // twice as many.
        let (capacity, position, len) = (capacity as u32, position as u32, len as u32);
        let start = position & (capacity - 1);
        let to_end = capacity - start;
        let first = if len < to_end { len } else { to_end };
        Self {
            first: Piece { ptr: base.wrapping_add(start as usize), len: first as usize },
            second: Piece { ptr: base, len: (len - first) as usize },
        }
    }

    /// The length of both pieces.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.first.len + self.second.len
    }

    /// Returns whether the span has no bytes.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    #[inline(always)]
    #[must_use]
    pub const fn pieces(&self) -> [Piece; 2] {
        [self.first, self.second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_wrap_at_the_end_of_the_ring() {
        let mut ring = [0u8; 16];
        let base = ring.as_mut_ptr();
        let span = RingSpan::new(base, 16, 16 * 5 + 12, 7);
        assert_eq!((span.first.len, span.second.len, span.len()), (4, 3, 7));
        assert_eq!(span.first.ptr, base.wrapping_add(12));
        assert_eq!(span.second.ptr, base);
        assert_eq!(RingSpan::new(base, 16, 0, 99).len(), 16);
        assert!(RingSpan::new(base, 16, 3, 0).is_empty());
    }
}
