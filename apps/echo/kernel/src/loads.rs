//! The number of connections of each block of the server, shared by all its blocks.

use crate::record::{NUMBER, put};
use gpunet_device::abi::Word;
use gpunet_device::{Buffer, Group};

/// One number per block, in device memory. Each block writes its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loads {
    memory: Buffer,
}

impl Loads {
    /// The numbers in `memory`, all 0 at the start of the launch.
    pub(crate) const fn new(memory: Buffer) -> Self {
        Self { memory }
    }

    /// Publishes how many connections this block has.
    pub(crate) fn set<G: Group>(self, g: &G, connections: usize) {
        if g.is_leader() {
            put(self.memory, g.index() as usize, connections as u64);
        }
    }

    /// Returns whether another block has fewer than `connections`. A number may be outdated when it
    /// is read: this is for balance only. All lanes share the work; also a barrier.
    pub(crate) fn someone_has_fewer<G: Group>(self, g: &G, connections: usize) -> bool {
        let mut fewer = 0;
        let mut block = g.rank() as usize;
        while block < g.count() as usize {
            fewer += u32::from(self.get(block) < connections as u64);
            block += g.size() as usize;
        }
        g.sum(fewer) > 0
    }

    #[allow(unsafe_code)]
    fn get(self, block: usize) -> u64 {
        let cell = self.memory.skip(block * NUMBER);
        if cell.len() < NUMBER {
            return u64::MAX;
        }
        // SAFETY: an aligned number inside the buffer (checked); blocks access it atomically.
        unsafe { Word::from_ptr(cell.as_ptr().cast()) }.peek()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::Solo;

    #[test]
    #[allow(unsafe_code)]
    fn idler_blocks_are_seen() {
        let mut memory = [0u64; 3];
        // SAFETY: the array outlives the buffer, which nothing else uses.
        let memory = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr().cast(), 24) };
        let loads = Loads::new(memory);
        let blocks = [0, 1, 2].map(|index| Solo::new(index, 3));
        loads.set(&blocks[0], 2);
        loads.set(&blocks[1], 1);
        assert!(loads.someone_has_fewer(&blocks[0], 2));
        assert!(!loads.someone_has_fewer(&blocks[2], 0));
        loads.set(&blocks[2], 1);
        assert!(!loads.someone_has_fewer(&blocks[1], 1));
        assert!(loads.someone_has_fewer(&blocks[0], 2));
    }
}
