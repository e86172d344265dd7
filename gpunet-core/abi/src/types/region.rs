//! Regions of memory, and positions in them: a number and an offset, never a pointer.
//!
//! Agents map the same memory at different addresses, so nothing in shared memory is a pointer.

/// The memory shared with the proxy (pinned host memory).
pub const SHARED: u8 = 0;
/// The device's own memory (GPU memory; the heap for the CPU device).
pub const DEVICE: u8 = 1;

/// The first number of an entry in the device's table of regions ([`Region`]).
pub const FIRST_ARENA: u8 = 2;
/// Entries of that table. The first [`FIRST_ARENA`] are never used.
pub const REGIONS: usize = 256;

/// A region number (top 8 bits) and an offset in it (low 56 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RegionOffset(pub u64);

impl RegionOffset {
    /// The offset in a region.
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

/// A region in the device's table: where it has an arena's part. Written by the attachment's agent
/// in the device's own memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Region {
    /// Its first byte, in the device's address space.
    pub base: u64,
    /// Bytes that streams may lie in.
    pub len: u64,
    /// Bits of [`Region::VALID`] and its neighbours; written last, and cleared first.
    pub flags: u64,
    reserved: u64,
}

impl Region {
    /// The entry is in use.
    pub const VALID: u64 = 1;
    /// This attachment's own part, whose words its device polls.
    pub const OWN: u64 = 2;
    /// The other device wakes no sleeper, so its words must be polled.
    pub const POLLED: u64 = 4;

    /// An entry.
    #[must_use]
    pub const fn new(base: u64, len: u64, flags: u64) -> Self {
        Self { base, len, flags, reserved: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_and_an_offset_come_apart_again() {
        for (region, offset) in
            [(SHARED, 0), (DEVICE, 64), (255, (1 << 56) - 1), (FIRST_ARENA, 0x1234_5678_9abc)]
        {
            let position = RegionOffset::new(region, offset);
            assert_eq!((position.region(), position.offset()), (region, offset));
        }
        assert_eq!(
            RegionOffset::new(3, 1 << 56).region(),
            3,
            "an offset that is too large names no other region"
        );
    }
}
