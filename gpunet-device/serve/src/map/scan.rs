//! Looking at all entries, some buckets at a time.

use super::entry::Entry;
use super::{Map, SPACES, Structure};
use crate::heap::Chunk;
use crate::{Bytes, Context};
use gpunet_device::{Group, Result};

/// Buckets whose first entries the lanes look at together.
pub(super) const STEP: usize = 32;

/// How far [`Map::scan`] goes.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// The bucket to begin with: 0, or what the last scan returned.
    pub from: usize,
    /// It ends with the bucket by which so many entries were shown.
    pub entries: usize,
    /// It ends after so many buckets.
    pub buckets: usize,
}

impl<S: Structure> Map<S> {
    /// Shows the entries of a space: the key of each, and whether its value is a structure. Returns
    /// the bucket to go on with; `None` at the end.
    ///
    /// An entry that is there from the first of several scans to the last one is shown once: its
    /// bucket never changes.
    ///
    /// # Cooperation
    /// All lanes call it, with no bucket locked, and `show` with the same entries; it may allocate,
    /// and locks no bucket.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`], and those of `show`.
    pub fn scan<G: Group>(
        &self,
        g: &G,
        context: &Context,
        space: u32,
        scan: &Scan,
        mut show: impl FnMut(Bytes<'_>, bool) -> Result<()>,
    ) -> Result<Option<usize>> {
        let space = space % SPACES;
        let (mut start, mut shown) = (scan.from, 0);
        while start <= self.mask {
            let mut filled = self.filled(g, start);
            while filled != 0 {
                let bucket = start + filled.trailing_zeros() as usize;
                filled &= filled - 1;
                let lock = self.bucket_lock(bucket);
                lock.acquire(g, context.net)?;
                let (mut at, mut result) = (self.first(bucket).get(), Ok(()));
                while let Some(chunk) = Chunk::from_raw(at)
                    && result.is_ok()
                {
                    let entry = Entry::at(self.heap, chunk);
                    at = entry.next();
                    let is_expired = entry.expires() != 0 && entry.expires() <= context.now;
                    if entry.space() == space && !is_expired {
                        shown += 1;
                        result = show(entry.key(), entry.is_structure());
                    }
                }
                lock.release(g);
                result?;
                if shown >= scan.entries {
                    return Ok(Some(bucket + 1).filter(|next| *next <= self.mask));
                }
            }
            start += STEP;
            if start - scan.from >= scan.buckets {
                break;
            }
        }
        Ok(Some(start).filter(|next| *next <= self.mask))
    }

    /// Which of the next buckets have entries, a bit each. Without their locks.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn filled<G: Group>(&self, g: &G, start: usize) -> u32 {
        let (mut bits, mut at) = (0, g.rank() as usize);
        while at < STEP && start + at <= self.mask {
            bits |= u32::from(self.first(start + at).get() != 0) << at;
            at += g.size() as usize;
        }
        // Each bit is one lane's.
        g.sum(bits)
    }
}
