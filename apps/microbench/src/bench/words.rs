//! Words that streams, kernels and this program share.

use super::{Bench, Pinned};
use crate::outcome::Outcome;
use crate::sockets::{are_cores_few, spin};
use gpunet_bench_kernel::Turns;
use gpunet_device::abi::Word;
use gpunet_device::now_ns;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// Bytes between two words, so that no two agents write the same cache line.
const APART: usize = 128;
const PAGE: usize = 4096;
/// The pause between two polls of a thread that leaves its core to others.
const NAP: Duration = Duration::from_micros(50);

/// Words of zero, each on a cache line of its own. Dropping them releases everything that waits for
/// them.
///
/// Their page stays mapped until the program ends: operations of a failed measurement may read them
/// later.
pub struct Words(ManuallyDrop<Pinned>);

impl Words {
    /// The number of words.
    pub const COUNT: usize = PAGE / APART;

    pub fn new(bench: &Bench) -> Outcome<Self> {
        Ok(Self(ManuallyDrop::new(bench.pinned(PAGE)?)))
    }

    /// A word, for this program.
    pub fn here(&self, index: usize) -> Word {
        self.0.word(index * APART)
    }

    /// Its address for the device.
    pub fn address(&self, index: usize) -> u64 {
        assert!(index < Self::COUNT);
        self.0.device(index * APART) as u64
    }

    /// Returns a word as operations of queues and parameters of kernels name it.
    pub fn there(&self, index: usize) -> Word {
        // SAFETY: one of the words (checked), at its address of the device; the page stays mapped.
        unsafe { Word::from_ptr(self.address(index) as *mut u64) }
    }

    /// As [`Words::wait`], for a thread that leaves its core to others.
    pub fn wait_asleep(&self, index: usize, value: u64, limit: Duration) -> Outcome<()> {
        let (word, start) = (self.here(index), Instant::now());
        while word.observe() < value {
            if start.elapsed() > limit {
                return Err(stood_still(word, value, limit));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Waits until a word has reached `value`. Returns when that was observed, by this program's
    /// clock.
    pub fn wait(&self, index: usize, value: u64, limit: Duration) -> Outcome<u64> {
        let (word, few, start) = (self.here(index), are_cores_few(), Instant::now());
        while word.observe() < value {
            if start.elapsed() > limit {
                return Err(stood_still(word, value, limit));
            }
            spin(few);
        }
        Ok(now_ns())
    }
}

fn stood_still(word: Word, value: u64, limit: Duration) -> Box<dyn std::error::Error> {
    format!("stood still for {limit:?}: {} of {value}", word.peek()).into()
}

impl Drop for Words {
    fn drop(&mut self) {
        (0..Self::COUNT).for_each(|index| self.here(index).publish(Turns::STOP));
    }
}
