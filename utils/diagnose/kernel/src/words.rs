//! Words between a device and a CPU thread.

use crate::Results;
use crate::wait::until;
use gpunet_device::abi::Word;
use gpunet_device::{Error, Group, Kernel, kernel_entry, now_ns};

/// Block 0 publishes `ping` = round and waits for `pong` = round. Result 0: the rounds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Words {
    /// The word the device writes.
    pub ping: *mut u64,
    /// The word the CPU writes.
    pub pong: *mut u64,
    /// Round trips.
    pub rounds: u64,
    /// Nanoseconds that all of them may take.
    pub limit_ns: u64,
    /// The outcome.
    pub results: Results,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Words {}

impl Kernel for Words {
    const ENTRY: &'static str = "gpunet_diagnose_words";

    fn run<G: Group>(self, g: &G) {
        if g.index() == 0 {
            self.results.set_result(g, 0, self.play(g));
        }
    }
}
kernel_entry!(words, "gpunet_diagnose_words", Words);

impl Words {
    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        // SAFETY: the launcher gave two aligned words of pinned memory.
        let (ping, pong) = unsafe { (Word::from_ptr(self.ping), Word::from_ptr(self.pong)) };
        let deadline = now_ns() + self.limit_ns;
        let mut round = 1;
        while round <= self.rounds {
            if g.is_leader() {
                ping.publish(round);
            }
            until(g, || pong.observe(), round, deadline)?;
            round += 1;
        }
        Ok(self.rounds)
    }
}
