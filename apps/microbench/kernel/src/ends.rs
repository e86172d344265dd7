//! Which end of a pair a block is.

/// The ends of its pairs that a launch runs. The other ends are blocks of another launch: of
/// another device, or of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ends {
    /// Even blocks listen, odd blocks connect to the block before them.
    Both = 0,
    /// All blocks listen.
    Servers = 1,
    /// All blocks connect.
    Clients = 2,
}

/// A block's place in its pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The pair's number.
    pub(crate) pair: u32,
    /// Whether it listens, and does not connect.
    pub(crate) listens: bool,
}

impl End {
    /// The place of a block of a launch that runs `ends`, an [`Ends`] as a number.
    #[inline(always)]
    pub(crate) fn of(ends: u32, block: u32) -> Self {
        match ends {
            1 => Self { pair: block, listens: true },
            2 => Self { pair: block, listens: false },
            _ => Self { pair: block / 2, listens: block.is_multiple_of(2) },
        }
    }
}
