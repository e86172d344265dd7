//! Rings in the memory of a test.
#![allow(unsafe_code)]

use crate::layout::Shape;
use crate::{Level, Reader, Records, WhenFull};
use gpunet_device::Net;

/// No attachment.
pub(crate) const fn no_net() -> Net {
    // SAFETY: 0 is no attachment.
    unsafe { Net::from_raw(0) }
}

/// Rings whose memory stays for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestRings {
    memory: *mut u64,
    device: *mut u64,
    shape: Shape,
}

// SAFETY: the memory is nobody else's, and accessed atomically while threads use it.
unsafe impl Send for TestRings {}
// SAFETY: as above.
unsafe impl Sync for TestRings {}

impl TestRings {
    /// Rings for exactly so many records, at least 2: a power of two.
    pub(crate) fn new(rings: u32, records: u32, payload: usize, formats: usize) -> Self {
        let shape = Shape::for_test(rings, records, payload, formats);
        let zeros =
            |bytes: usize| Box::leak(vec![0_u128; bytes.div_ceil(16)].into_boxed_slice()).as_mut_ptr().cast();
        Self { memory: zeros(shape.bytes()), device: zeros(shape.device_bytes()), shape }
    }

    /// Every execution of a model begins with zeros.
    #[cfg(loom)]
    pub(crate) fn clear(self) {
        // SAFETY: the memory is so long, and no thread uses it yet.
        unsafe { self.memory.write_bytes(0, self.shape.bytes() / 8) };
        // SAFETY: as above.
        unsafe { self.device.write_bytes(0, self.shape.device_bytes() / 8) };
    }

    pub(crate) const fn records(self, full: WhenFull) -> Records {
        // SAFETY: the memory is so long, stays, and was zero.
        unsafe { Records::new(self.memory.cast(), self.device, self.shape, full, Level::Info) }
    }

    pub(crate) fn reader(self, full: WhenFull) -> Reader {
        // SAFETY: as above.
        unsafe { Reader::new(self.records(full)) }
    }

    /// A word of a record's place.
    #[cfg(not(loom))]
    pub(crate) fn word(self, ring: u32, number: u64, at: usize) -> gpunet_device::abi::Word {
        let place = self.records(WhenFull::Overwrite).record(ring, number);
        // SAFETY: an aligned word of the memory.
        unsafe { gpunet_device::abi::Word::from_ptr(place.wrapping_add(at)) }
    }

    /// The shape that the memory tells.
    #[cfg(not(loom))]
    pub(crate) fn found(self) -> Option<(Shape, bool)> {
        // SAFETY: the memory is so long.
        unsafe { Shape::found_in(self.memory.cast(), self.shape.bytes()) }
    }

    #[cfg(not(loom))]
    pub(crate) const fn shape(self) -> Shape {
        self.shape
    }
}
