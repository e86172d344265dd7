//! The handle: what a C program calls a socket descriptor.

/// Slots are 16 bits of a handle.
pub const MAX_SOCKETS: u32 = 1 << 16;
/// Generations count in 15 bits, 1 to 32767; 0 is never valid.
pub const MAX_GENERATION: u32 = (1 << 15) - 1;

/// A socket slot and its generation in one positive `i32`.
///
/// Bits 0-15 hold the slot, bits 16-30 the generation. A handle whose generation is not the slot's
/// current one is stale, and every call rejects it with EBADF.
///
/// # Examples
///
/// ```
/// use gpunet_abi::Handle;
///
/// let handle = Handle::new(7, 1);
/// assert_eq!(Handle::from_raw(handle.raw()), Some(handle));
/// assert_eq!(Handle::from_raw(-1), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Handle(i32);

impl Handle {
    /// Makes the handle of a slot and generation.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self((((generation & MAX_GENERATION) << 16) | (slot & 0xffff)) as i32)
    }

    /// Reads a handle as C programs carry it; `None` for an invalid number.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Option<Self> {
        if raw <= 0 || (raw >> 16) == 0 { None } else { Some(Self(raw)) }
    }

    /// The value that C programs carry.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The slot.
    #[must_use]
    pub const fn slot(self) -> u32 {
        (self.0 & 0xffff) as u32
    }

    /// The generation.
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 16) as u32
    }
}

/// The generation that follows, skipping 0.
#[must_use]
pub const fn next_generation(generation: u32) -> u32 {
    if generation >= MAX_GENERATION { 1 } else { generation + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_positive_and_come_apart_again() {
        for (slot, generation) in [(0, 1), (MAX_SOCKETS - 1, MAX_GENERATION), (65535, 9), (7, 12)] {
            let handle = Handle::new(slot, generation);
            assert!(handle.raw() > 0);
            assert_eq!(Handle::from_raw(handle.raw()), Some(handle));
            assert_eq!((handle.slot(), handle.generation()), (slot, generation));
        }
    }

    #[test]
    fn what_cannot_be_a_handle_is_none() {
        for raw in [0, -1, i32::MIN, 5, 65535] {
            assert_eq!(Handle::from_raw(raw), None);
        }
    }

    #[test]
    fn generations_skip_zero() {
        assert_eq!(next_generation(MAX_GENERATION), 1);
        assert_eq!(next_generation(1), 2);
    }
}
