//! The copy routine alone.

use crate::Results;
use gpunet_device::copy::copy;
use gpunet_device::{Group, Kernel, kernel_entry, now_ns};

/// Each block copies its `len` bytes from `src` to `dst`, `times` times. `results`: per block its
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Copy {
    /// Source, `len` bytes per block.
    pub src: *mut u8,
    /// Destination, `len` bytes per block.
    pub dst: *mut u8,
    /// Bytes per block.
    pub len: u64,
    /// Repetitions.
    pub times: u64,
    /// Nanoseconds per block.
    pub results: Results,
}

// SAFETY: addresses of device-visible memory; the launching host guarantees them.
unsafe impl Send for Copy {}

impl Kernel for Copy {
    const ENTRY: &'static str = "gpunet_copy";

    fn run<G: Group>(self, g: &G) {
        let offset = g.index() as usize * self.len as usize;
        let (src, dst) = (self.src.wrapping_add(offset), self.dst.wrapping_add(offset));
        g.sync();
        let start = now_ns();
        let mut done = 0;
        while done < self.times {
            // SAFETY: the launcher gave `len` bytes per block on both sides, which do not overlap.
            unsafe { copy(g.rank(), g.size(), dst, src, self.len as usize) };
            g.sync();
            done += 1;
        }
        self.results.set(g, g.index() as usize, now_ns() - start);
    }
}
kernel_entry!(copy_kernel, "gpunet_copy", Copy);
