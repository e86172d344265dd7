//! The page of a queue: words by which its stream, its own streams and its thread tell one another
//! how far they are.

use crate::queue::QueueError;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{Device, Registration};
use gpunet_abi::{Direction, Word};
use gpunet_queue_kernel::Record;

/// Each word that two agents use has a line of 64 bytes for itself.
const LINE: usize = 8;

/// Memory that CPU and device share. Each word has one writer.
pub(super) struct Page {
    registration: Registration,
}

/// A word of the page.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// The number of the last operation that the stream has passed.
    Passed,
    /// How many messages of a direction the stream has started.
    Started(Direction),
    /// How many messages of a direction are done. Written by the thread.
    Done(Direction),
    /// How many fragments of a direction the lane's stream has copied.
    Copied(Direction),
    /// How many checks the stream has asked for.
    Asked,
    /// How many checks are answered. Written by the stream that never waits.
    Answered,
    /// A word that was copied from elsewhere.
    Scratch,
    /// How many copies into other members' parts the stream has started.
    PutStarted,
    /// How many of them are done. Written by the stream that copies; by the thread for one that
    /// could not be copied.
    PutDone,
}

impl At {
    const fn index(self) -> usize {
        LINE * match self {
            Self::Passed => 0,
            // Line 1 is the record of kernels.
            Self::Started(direction) => 2 + direction as usize,
            Self::Done(direction) => 4 + direction as usize,
            Self::Copied(direction) => 6 + direction as usize,
            Self::Asked => 8,
            Self::Answered => 9,
            Self::Scratch => 10,
            Self::PutStarted => 11,
            Self::PutDone => 12,
        }
    }

    /// Where it lies in a page that begins at this address.
    pub(super) const fn address(self, page: u64) -> u64 {
        page + 8 * self.index() as u64
    }
}

const _: () = assert!(Record::ERRNO == LINE && Record::BYTES < 2 * LINE);

impl Page {
    pub(super) fn new(device: &Device) -> Result<Self, QueueError> {
        let region = PinnedRegion::create("gpunet-queue", 4096).map_err(QueueError::device)?;
        Ok(Self { registration: device.register(region).map_err(QueueError::device)? })
    }

    /// The device's address of a word.
    pub(super) fn address(&self, at: At) -> u64 {
        at.address(self.registration.device_ptr())
    }

    /// The first word, for kernels.
    pub(super) fn base(&self) -> Word {
        // SAFETY: the device's address of the page, which is mapped while `self` lives. The CPU
        // does not use it.
        unsafe { Word::from_ptr(self.registration.device_ptr() as *mut u64) }
    }

    /// A word that a kernel may write, in the device's address space.
    pub(super) fn scratch(&self) -> Word {
        // SAFETY: as in `base`.
        unsafe { Word::from_ptr(self.address(At::Scratch) as *mut u64) }
    }

    fn word(&self, index: usize) -> Word {
        let base = self.registration.region().base().as_ptr().cast::<u64>();
        // SAFETY: inside the page, which is mapped while `self` lives; all agents use its words
        // atomically.
        unsafe { Word::from_ptr(base.wrapping_add(index)) }
    }

    /// Loads a word, with what was written before it.
    pub(super) fn observe(&self, at: At) -> u64 {
        self.word(at.index()).observe()
    }

    pub(super) fn publish(&self, at: At, value: u64) {
        self.word(at.index()).publish(value);
    }

    /// What the queue's kernels record of their first failure: its errno, the operation's number,
    /// and its bytes.
    pub(super) fn kernel_failure(&self) -> Option<(u64, u64, u64)> {
        let errno = self.word(Record::ERRNO).observe();
        (errno != 0)
            .then(|| (errno, self.word(Record::OPERATION).observe(), self.word(Record::BYTES).observe()))
    }
}
