//! Which thread polls: the one whose term it is.
//!
//! A word holds the term and, below it, a count that is odd while that term's thread runs a
//! function. A thread that finds it odd and unchanged after a while begins the next term; the
//! other finds that out when its function returns.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the count.
const COUNT_BITS: u32 = 32;

/// The word.
#[derive(Debug, Default)]
pub(crate) struct Term(AtomicU64);

/// A term, for the thread whose it is.
#[derive(Debug)]
pub(crate) struct MyTerm(u64);

/// What the word was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    const fn runs_function(self) -> bool {
        self.0 & 1 == 1
    }
}

// Ordering: Relaxed everywhere here. The word decides who polls, and brings no data: the requests
// lie behind a lock, and so do the answers.
impl Term {
    /// The first term, in which nobody polls yet: as if its thread ran a function.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen(self.0.load(Ordering::Relaxed))
    }

    /// Begins a term, if the one that was seen still runs the same function.
    pub(crate) fn take_over(&self, seen: Seen) -> Option<MyTerm> {
        let next = ((seen.0 >> COUNT_BITS) + 1) << COUNT_BITS;
        (seen.runs_function() && self.replace(seen.0, next)).then_some(MyTerm(next))
    }

    /// The thread begins a function, or has ended one. Returns whether it is still its term.
    pub(crate) fn step(&self, mine: &mut MyTerm) -> bool {
        let next = mine.0 & !u64::from(u32::MAX) | u64::from((mine.0 as u32).wrapping_add(1));
        let is_mine = self.replace(mine.0, next);
        mine.0 = next;
        is_mine
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_taken_over_in_the_middle_of_a_function_only() {
        let term = Term::new();
        let first = term.seen();
        let mut mine = term.take_over(first).unwrap();
        assert!(term.take_over(first).is_none(), "another thread was faster");
        assert!(term.take_over(term.seen()).is_none(), "it polls");
        assert!(term.step(&mut mine));
        let seen = term.seen();
        assert!(term.step(&mut mine) && term.take_over(seen).is_none(), "that function has ended");
        assert!(term.step(&mut mine));
        let mut next = term.take_over(term.seen()).unwrap();
        assert!(!term.step(&mut mine), "superseded");
        assert!(!term.step(&mut mine), "for good");
        assert!(term.step(&mut next));
    }
}
