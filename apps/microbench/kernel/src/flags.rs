//! The floor of every hand-off: two words between a device and a CPU.

use crate::Results;
use gpunet_device::abi::Word;
use gpunet_device::copy::copy;
use gpunet_device::{Group, Kernel, kernel_entry, now_ns};

/// Block 0 publishes `ping` = round and waits for `pong` = round, `rounds` times; with `size` > 0
/// it copies `size` bytes out before and in after, as a stream would. `results`: nanoseconds per
/// round.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flags {
    /// The word the device writes.
    pub ping: *mut u64,
    /// The word the CPU writes.
    pub pong: *mut u64,
    /// Shared memory for the data out.
    pub out: *mut u8,
    /// Shared memory for the data in.
    pub back: *mut u8,
    /// The device's own copy of the data.
    pub own: *mut u8,
    /// Bytes; 0 for flags alone.
    pub size: u64,
    /// Round trips.
    pub rounds: u64,
    /// Nanoseconds per round.
    pub results: Results,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Flags {}

impl Kernel for Flags {
    const ENTRY: &'static str = "gpunet_flags";

    fn run<G: Group>(self, g: &G) {
        if g.index() > 0 {
            return;
        }
        // SAFETY: the launcher gave two aligned words of pinned memory.
        let (ping, pong) = unsafe { (Word::from_ptr(self.ping), Word::from_ptr(self.pong)) };
        let mut round = 1;
        while round <= self.rounds {
            let start = now_ns();
            if self.size > 0 {
                // SAFETY: `size` bytes on both sides, by the launcher's word.
                unsafe { copy(g.rank(), g.size(), self.out, self.own, self.size as usize) };
                g.sync();
            }
            if g.is_leader() {
                ping.publish(round);
                while pong.observe() < round {}
            }
            g.sync();
            if self.size > 0 {
                // SAFETY: as above; the CPU wrote them before it published `pong`.
                unsafe { copy(g.rank(), g.size(), self.own, self.back, self.size as usize) };
                g.sync();
            }
            self.results.set(g, round as usize - 1, now_ns() - start);
            round += 1;
        }
    }
}
kernel_entry!(flags, "gpunet_flags", Flags);
