//! The progress of running kernels: one number per block, in shared memory.
#![allow(unsafe_code)]

use crate::error::Error;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{Device, Registration};
use gpunet_abi::Word;
use gpunet_app::kernel::NUMBER;
use gpunet_proxy::device::Buffer;
use std::sync::Arc;

/// One number per block. Each block writes its own, the host reads them all while kernels run.
pub struct Ticks {
    // Dropped in this order: the registration before its region.
    registration: Option<Registration>,
    region: Arc<PinnedRegion>,
    blocks: usize,
}

impl Ticks {
    /// Allocates numbers for `blocks` blocks of a kernel on `device`, or on the CPU.
    pub fn new(device: Option<&Device>, blocks: u32) -> Result<Self, Error> {
        let blocks = blocks as usize;
        let region = PinnedRegion::create("gpunet-echo-ticks", blocks * NUMBER)?;
        let registration = device.map(|device| device.register(region.clone())).transpose()?;
        Ok(Self { registration, region, blocks })
    }

    /// Returns the numbers as a kernel takes them.
    ///
    /// # Safety
    /// The kernel ends before this value is dropped.
    pub unsafe fn buffer(&self) -> Buffer {
        let ptr = match &self.registration {
            Some(registration) => registration.device_ptr() as *mut u8,
            None => self.region.base().as_ptr(),
        };
        // SAFETY: the region has room for `blocks` numbers (`new`), and the caller keeps it.
        unsafe { Buffer::from_raw_parts(ptr, self.blocks * NUMBER) }
    }

    fn word(&self, block: usize) -> Word {
        let cell = self.region.base().as_ptr().wrapping_add(block * NUMBER);
        // SAFETY: an aligned word inside the region, which `self` keeps mapped; kernels and host
        // access it atomically.
        unsafe { Word::from_ptr(cell.cast()) }
    }

    /// The sum of all numbers.
    pub fn total(&self) -> u64 {
        (0..self.blocks).map(|block| self.word(block).peek()).sum()
    }

    /// Sets all numbers to 0. No kernel may be using them.
    pub fn reset(&self) {
        (0..self.blocks).for_each(|block| self.word(block).set(0));
    }
}
