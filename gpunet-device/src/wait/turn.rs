//! A turn that ends by itself: what one group of a device does for all, or before the others.

use crate::platform;
use gpunet_abi::atomic::{AtomicU64, Ordering};
use gpunet_abi::hand_off::{self, HandOff};

/// A turn that the calling group has. A group that dies in it delays the others until it is over,
/// and nothing else.
pub(crate) struct Turn {
    /// Until when it lasts, by the device's clock; 0: nobody has it.
    word: *mut u64,
    until: u64,
}

fn atomic<'a>(word: *mut u64) -> &'a AtomicU64 {
    // SAFETY: `Turn::take`'s callers pass aligned words of the device region, which only this
    // device's threads touch, atomically.
    unsafe { AtomicU64::from_ptr(word) }
}

// Ordering: Relaxed everywhere here; a turn brings no data. After its time another group may take
// it, too.
impl Turn {
    /// Returns whether some group has the turn.
    #[inline(always)]
    pub(crate) fn is_taken(word: *mut u64) -> bool {
        let until = atomic(word).load(Ordering::Relaxed);
        until != 0 && platform::now_ns() < until
    }

    /// Takes the turn for `length_ns` nanoseconds, unless another group has it. By one lane.
    #[inline(always)]
    pub(crate) fn take(word: *mut u64, length_ns: u64) -> Option<Self> {
        let now = platform::now_ns();
        let seen = atomic(word).load(Ordering::Relaxed);
        if seen > now {
            return None;
        }
        let turn = Self { word, until: now + length_ns };
        if !turn.replace(seen, turn.until) {
            return None;
        }
        hand_off::at(HandOff::TurnTaken);
        Some(turn)
    }

    /// Extends the turn to `length_ns` from now. Returns whether the group still had it.
    #[inline(always)]
    pub(crate) fn renew(&mut self, length_ns: u64) -> bool {
        let old = self.until;
        self.until = platform::now_ns() + length_ns;
        self.replace(old, self.until)
    }

    /// Ends the turn, unless another group has taken it over.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.replace(self.until, 0);
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        atomic(self.word).compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_has_the_turn_until_it_ends_or_is_over() {
        let mut word = 0;
        let word = &raw mut word;
        assert!(!Turn::is_taken(word));
        let mut turn = Turn::take(word, 1 << 40).unwrap();
        assert!(Turn::is_taken(word) && Turn::take(word, 1).is_none());
        assert!(turn.renew(1 << 40) && Turn::is_taken(word));
        turn.end();
        assert!(!Turn::is_taken(word));
        // Over as soon as it begins: the next group takes it, and the first one finds out.
        let mut late = Turn::take(word, 0).unwrap();
        let next = Turn::take(word, 1 << 40).unwrap();
        assert!(!late.renew(1 << 40));
        late.end();
        assert!(Turn::is_taken(word), "not the late one's to end");
        next.end();
    }
}
