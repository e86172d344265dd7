//! Where something lies: a region and an offset, never a pointer.
//!
//! Agents map the same memory at different addresses, so nothing in shared memory is a pointer.

/// The memory shared with the proxy (pinned host memory).
pub const SHARED: u8 = 0;
/// The device's own memory (GPU memory; the heap for the CPU device).
pub const DEVICE: u8 = 1;

/// The first number of an entry in the device's table of regions ([`crate::arena::Region`]).
pub const FIRST_ARENA: u8 = 2;
/// Entries of that table, the first [`FIRST_ARENA`] of which are never used.
pub const REGIONS: usize = 256;

/// A region number (top 8 bits) and an offset in it (low 56 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Place(pub u64);

impl Place {
    /// A place in a region.
    #[must_use]
    pub const fn new(region: u8, offset: u64) -> Self {
        Self(((region as u64) << 56) | (offset & ((1 << 56) - 1)))
    }

    /// The region.
    #[must_use]
    pub const fn region(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The offset in bytes.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << 56) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_region_and_an_offset() {
        for (region, offset) in
            [(SHARED, 0), (DEVICE, 64), (255, (1 << 56) - 1), (FIRST_ARENA, 0x1234_5678_9abc)]
        {
            let place = Place::new(region, offset);
            assert_eq!((place.region(), place.offset()), (region, offset));
        }
        assert_eq!(Place::new(3, 1 << 56).region(), 3, "an offset that is too large names no other region");
    }
}
