//! The bytes of a copy that no whole chunk covers: at most 61, at both ends.

/// The two ends: `0..head` and `rest..len`.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub(super) dst: *mut u8,
    pub(super) src: *const u8,
    pub(super) head: usize,
    pub(super) rest: usize,
    pub(super) len: usize,
}

impl Edges {
    #[inline(always)]
    fn count(&self) -> usize {
        self.head + (self.len - self.rest)
    }

    /// Where edge byte `index` lies.
    #[inline(always)]
    fn place(&self, index: usize) -> usize {
        if index < self.head { index } else { self.rest + (index - self.head) }
    }

    /// Loads the first edge byte of a lane, if it has one. Its store comes later, so that the lane
    /// does not wait for it before the chunks.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn load(&self, lane: usize) -> u8 {
        // SAFETY: below `len`; the caller's contract.
        if lane < self.count() { unsafe { self.src.wrapping_add(self.place(lane)).read() } } else { 0 }
    }

    /// Stores what [`Edges::load`] gave, and copies the lane's other edge bytes.
    ///
    /// # Safety
    /// `src` is readable and `dst` writable for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn store(&self, lane: usize, lanes: usize, first: u8) {
        let count = self.count();
        if lane < count {
            // SAFETY: below `len`; the caller's contract.
            unsafe { self.dst.wrapping_add(self.place(lane)).write(first) };
        }
        let mut at = lane + lanes;
        while at < count {
            // SAFETY: as above.
            let byte = unsafe { self.src.wrapping_add(self.place(at)).read() };
            // SAFETY: as above.
            unsafe { self.dst.wrapping_add(self.place(at)).write(byte) };
            at += lanes;
        }
    }
}
