//! The two directions of a stream.

/// A direction of a stream, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// This end sends. It publishes, and the other end releases.
    Send = 0,
    /// This end receives. The other end's bytes land, and this end consumes them.
    Recv = 1,
}

impl Direction {
    /// Reads the number; `None` for an invalid one.
    #[must_use]
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Send),
            1 => Some(Self::Recv),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_read_back_and_no_other_number_is_one() {
        for direction in [Direction::Send, Direction::Recv] {
            assert_eq!(Direction::from_raw(direction as u32), Some(direction));
        }
        assert_eq!([2, u32::MAX].map(Direction::from_raw), [None; 2]);
    }
}
