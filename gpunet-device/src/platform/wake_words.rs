//! Words of a group's own that end a wait beside what happens to sockets.

use gpunet_abi::Word;
#[cfg(not(target_arch = "nvptx64"))]
use gpunet_abi::park::SharedFlag;

/// Two words that end the wait of a group ([`crate::poll_until_woken`]) once one of them differs
/// from what the group has seen: for each agent that wakes it, a word that this agent alone
/// changes.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, PollSet, Result, Timeout, WakeWords, abi::Word, poll_until_woken};
/// # fn example<G: Group>(g: &G, net: Net, set: PollSet, host: Word, device: Word, sleeping: *mut u32) -> Result<()> {
/// // SAFETY: both words and the flag are mapped until the group has ended.
/// let words = unsafe { WakeWords::new([host, device].map(|word| (word, word.observe())), sleeping) };
/// poll_until_woken(g, net, set, Timeout::ms(50), Some(words), || words.have_changed())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WakeWords {
    words: [(Word, u64); 2],
    #[cfg_attr(target_arch = "nvptx64", allow(dead_code, reason = "a GPU does not sleep"))]
    sleeping: *mut u32,
}

impl WakeWords {
    /// Makes them of words with what the group has seen of each, and of a flag by which a CPU block
    /// tells that it sleeps.
    ///
    /// # Safety
    /// `sleeping` is 4-byte aligned, mapped as long as the group waits, accessed atomically, and
    /// one group at a time sleeps by it. A GPU does not touch it.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(words: [(Word, u64); 2], sleeping: *mut u32) -> Self {
        Self { words, sleeping }
    }

    /// Returns whether one of them differs from what the group has seen. Orders nothing.
    #[inline(always)]
    #[must_use]
    pub fn have_changed(&self) -> bool {
        let [(first, seen_first), (second, seen_second)] = self.words;
        // Not one after the other: a GPU loads both at once.
        (first.peek() != seen_first) | (second.peek() != seen_second)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) const fn words(&self) -> [(Word, u64); 2] {
        self.words
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) const fn sleeping(&self) -> SharedFlag {
        // SAFETY: the contract of `new`.
        unsafe { SharedFlag::from_ptr(self.sleeping) }
    }
}
