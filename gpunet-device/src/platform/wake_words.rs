//! Words of a group's own that end a wait beside what happens to sockets.

use gpunet_abi::Word;
#[cfg(not(target_arch = "nvptx64"))]
use gpunet_abi::park::SharedFlag;

/// Two words that end the wait of a group ([`crate::poll_until_woken`]) once one of them differs
/// from what the group has seen: for each agent that wakes it, a word that this agent alone
/// changes.
///
/// A block of the CPU device sleeps on them. A GPU's group loads them between two looks at its
/// sockets; of a word that lies in host memory it may know by a copy instead
/// ([`WakeWords::relayed`]).
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, PollSet, Result, Timeout, WakeWords, abi::Word, poll_until_woken};
/// # fn example<G: Group>(g: &G, net: Net, set: PollSet, host: Word, device: Word, sleeping: *mut u32) -> Result<()> {
/// // SAFETY: both words and the flag are mapped until the group has ended.
/// let words = unsafe { WakeWords::new([device, host].map(|word| (word, word.observe())), sleeping) };
/// poll_until_woken(g, net, set, Timeout::ms(50), Some(words), || false)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WakeWords {
    words: [(Word, u64); 2],
    #[cfg_attr(target_arch = "nvptx64", allow(dead_code, reason = "a GPU does not sleep"))]
    sleeping: *mut u32,
    relayed: Option<RelayedWord>,
}

/// A word in host memory that one of the groups that wait loads, and a copy of it for the others.
#[derive(Clone, Copy, Debug)]
pub struct RelayedWord {
    /// The word: each change of the host's other words of this kind comes before a change of it.
    pub host: Word,
    /// Its copy, in the device's memory.
    pub copy: *mut u64,
    /// Until when a group loads `host`, by the device's clock; 0: none does. In the device's
    /// memory, and changed by compare-exchange.
    pub turn: *mut u64,
    /// What the group has seen of the copy.
    pub seen: u64,
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
        Self { words, sleeping, relayed: None }
    }

    /// Lets a GPU's group wait for `relayed` in place of the second word. A change of that comes
    /// before one of this. A CPU block waits for the second word.
    ///
    /// # Safety
    /// All three words are mapped as long as the group waits. The groups of one device alone change
    /// copy and turn, and all of them use the same.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn relayed(mut self, relayed: RelayedWord) -> Self {
        self.relayed = Some(relayed);
        self
    }

    /// Returns whether one of them differs from what the group has seen. Orders nothing.
    #[inline(always)]
    #[must_use]
    pub fn have_changed(&self) -> bool {
        let [(first, seen_first), (second, seen_second)] = self.words;
        // Not one after the other: a GPU loads both at once.
        (first.peek() != seen_first) | (second.peek() != seen_second)
    }

    pub(crate) const fn words(&self) -> [(Word, u64); 2] {
        self.words
    }

    pub(crate) const fn relayed_word(&self) -> Option<RelayedWord> {
        self.relayed
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) const fn sleeping(&self) -> SharedFlag {
        // SAFETY: the contract of `new`.
        unsafe { SharedFlag::from_ptr(self.sleeping) }
    }
}
