//! Counts of live objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::Usage;

/// How many objects of each kind live.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counts: [AtomicUsize; 3],
}

/// Kinds of objects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    QueuePair,
    Identifier,
    MemoryRegion,
}

/// Counts one object as long as it lives.
#[derive(Debug)]
pub(super) struct Token {
    counts: Arc<Counts>,
    kind: Kind,
}

impl Counts {
    pub(super) fn token(self: &Arc<Self>, kind: Kind) -> Token {
        // Ordering: Relaxed, here and below: figures for people; nothing is ordered by them.
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        Token { counts: Arc::clone(self), kind }
    }

    pub(super) fn usage(&self) -> Usage {
        let count = |kind: Kind| self.counts[kind as usize].load(Ordering::Relaxed);
        Usage {
            queue_pairs: count(Kind::QueuePair),
            identifiers: count(Kind::Identifier),
            memory_regions: count(Kind::MemoryRegion),
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.counts.counts[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
