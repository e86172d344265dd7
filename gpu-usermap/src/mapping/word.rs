//! A word in GPU memory that the CPU writes and kernels poll.

use super::barrier;
use super::error::AccessError;
use super::view::Mapping;

/// One aligned word of 8 bytes in mapped GPU memory.
///
/// The CPU is its one writer. A kernel reads it by an acquire load at system scope, at the price of
/// a load from its own memory.
///
/// # Examples
/// ```no_run
/// # fn stop(mapping: gpu_usermap::mapping::Mapping) -> Result<(), gpu_usermap::mapping::AccessError> {
/// let mut stop = mapping.into_word()?;
/// println!("the kernel polls {:#x}", stop.device_ptr());
/// stop.publish(1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MappedWord {
    mapping: Mapping,
}

impl Mapping {
    /// Turns the part into a word, its first 8 bytes; the rest is given up.
    ///
    /// # Errors
    /// [`AccessError`]: shorter than 8 bytes, or not aligned.
    pub fn into_word(self) -> Result<MappedWord, AccessError> {
        self.word_at(0)?;
        Ok(MappedWord { mapping: self })
    }
}

impl MappedWord {
    /// Returns the GPU's address of the word.
    pub fn device_ptr(&self) -> u64 {
        self.mapping.device_ptr()
    }

    /// Publishes `value`: a kernel that observes it sees all that this thread stored before,
    /// wherever it lies.
    ///
    /// Fence, store, fence. The kernel's side of the argument stands at [`Mapping`], as does what
    /// it needs of the GPU ([`Mapping::is_ordered`]). What other threads wrote is included if this
    /// one acquired it from them.
    pub fn publish(&mut self, value: u64) {
        // Ordering: stores to pinned memory and to other mappings come first; a write-combined
        // store would otherwise pass them.
        barrier::store_fence();
        self.store(value);
    }

    /// Stores `value` and sends it off, in order only after this thread's writes through mappings.
    pub fn store(&mut self, value: u64) {
        // `into_word` checked that the word is there and aligned, which never changes.
        let stored: Result<(), AccessError> = self.mapping.store_u64(0, value);
        debug_assert_eq!(stored, Ok(()));
    }

    /// Loads the word over the bus, about a microsecond: for tests and reports.
    pub fn load(&self) -> u64 {
        let loaded = self.mapping.load_u64(0);
        debug_assert!(loaded.is_ok());
        // As in `store`: it cannot fail.
        loaded.unwrap_or(0)
    }
}
