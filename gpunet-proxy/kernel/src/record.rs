//! What a queue's kernels tell their host program.

use gpunet_abi::{Result, Word};
use gpunet_device::Group;

/// Where an operation tells how it ended: in the queue's page, which the CPU shares.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Record {
    /// The page's first word: the number of the last operation that is done. Others follow.
    pub page: Word,
    /// The operation's number, from 1 on; 0 for one that is captured and so has no number.
    pub number: u64,
}

impl Record {
    /// The page's word that holds the errno of the first failure of a kernel, 0 as long as there is
    /// none.
    pub const ERRNO: usize = 8;
    /// The page's word with the number of the operation that failed.
    pub const OPERATION: usize = 9;
    /// The page's word with the bytes of that operation that were through.
    pub const BYTES: usize = 10;

    #[allow(unsafe_code)]
    fn word(self, index: usize) -> Word {
        // SAFETY: the host passes the first word of a page, which is mapped until the kernel has
        // ended.
        unsafe { Word::from_ptr(self.page.as_ptr().wrapping_add(index)) }
    }

    /// Tells that the operation has ended, with `bytes` through.
    pub(crate) fn tell<G: Group>(self, g: &G, result: Result<()>, bytes: u64) {
        // What the lanes did is published with the number.
        g.sync();
        if !g.is_leader() {
            return;
        }
        if let Err(error) = result {
            let errno = self.word(Self::ERRNO);
            // The page is the host's memory: a load takes a microsecond.
            if errno.peek() == 0 {
                self.word(Self::OPERATION).set(self.number);
                self.word(Self::BYTES).set(bytes);
                // Release: pairs with the observe of the queue's thread.
                errno.publish(error.errno() as u32 as u64);
            }
        }
        if self.number != 0 {
            // Release: as above, and with whoever learns of the operation's end.
            self.page.publish(self.number);
        }
    }
}
