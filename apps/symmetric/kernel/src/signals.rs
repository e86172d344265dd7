//! Which example uses which signal: none shares one with another, because values only grow.

use gpunet_device::Signal;

/// How many signals a team needs whose kernels have `blocks` blocks.
#[must_use]
pub const fn signals(blocks: u32) -> u32 {
    FIRST_OF_BLOCKS + OF_A_BLOCK * blocks
}

/// `put-block` counts the shares that have arrived.
pub(crate) const SHARES: Signal = Signal(0);
/// `ring-bcast` counts the chunks that have arrived.
pub(crate) const CHUNKS: Signal = Signal(1);
/// `jacobi` counts, for its first block, how often blocks of this member have counted their cells.
pub(crate) const COUNTED: Signal = Signal(2);
/// `jacobi` numbers the checks whose result the first block has left.
pub(crate) const CHECKED: Signal = Signal(3);
/// `moe-shuffle` numbers the plans that the first block has made.
pub(crate) const PLANNED: Signal = Signal(4);
/// `moe-shuffle` counts the blocks that have put all their rows.
pub(crate) const DISPATCHED: Signal = Signal(5);
/// `moe-shuffle` counts the blocks that have put all their rows back.
pub(crate) const RETURNED: Signal = Signal(6);

/// `on-stream`'s kernel numbers its sums for the queue.
pub const SUMMED: Signal = Signal(7);
/// `on-stream`'s queue numbers what it has gathered for the kernel.
pub const TOLD: Signal = Signal(8);

const FIRST_OF_BLOCKS: u32 = 9;
const OF_A_BLOCK: u32 = 4;

/// `ring-reduce` counts the chunks of a block's growing sum.
pub(crate) const fn growing(block: u32) -> Signal {
    Signal(FIRST_OF_BLOCKS + OF_A_BLOCK * block)
}

/// `ring-reduce` counts the chunks of a block's whole sum.
pub(crate) const fn whole(block: u32) -> Signal {
    Signal(FIRST_OF_BLOCKS + OF_A_BLOCK * block + 1)
}

/// `jacobi` counts the rows that have come to a block from above.
pub(crate) const fn from_above(block: u32) -> Signal {
    Signal(FIRST_OF_BLOCKS + OF_A_BLOCK * block + 2)
}

/// `jacobi` counts the rows that have come to a block from below.
pub(crate) const fn from_below(block: u32) -> Signal {
    Signal(FIRST_OF_BLOCKS + OF_A_BLOCK * block + 3)
}
