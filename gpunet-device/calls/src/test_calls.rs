//! Channels in the memory of a test.
#![allow(unsafe_code)]

use crate::layout::Shape;
use crate::{Answers, Caller, Calls, Requests};
use gpunet_device::Net;
use gpunet_device::group::Solo;

/// Channels whose memory stays for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestCalls {
    memory: *mut u64,
    device: *mut u64,
    shape: Shape,
}

// SAFETY: the memory is nobody else's, and accessed atomically while threads use it.
unsafe impl Send for TestCalls {}
// SAFETY: as above.
unsafe impl Sync for TestCalls {}

impl TestCalls {
    pub(crate) fn new(channels: u32, tickets: u32, request: usize, answer: usize) -> Self {
        let shape = Shape::new(channels, tickets, request, answer).unwrap();
        // Whole pages, at a page's beginning.
        let zeros = |bytes: usize| {
            let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
            // SAFETY: a layout of some bytes.
            unsafe { std::alloc::alloc_zeroed(layout) }.cast()
        };
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

    pub(crate) const fn calls(self) -> Calls {
        // SAFETY: the memory is so long, stays, and was zero.
        unsafe { Calls::new(self.memory.cast(), self.device, self.shape) }
    }

    /// A caller that is one thread, and its group.
    pub(crate) fn caller(self, index: u32) -> (Solo, Caller) {
        let g = Solo::new(index, 8);
        // SAFETY: 0 is no attachment.
        let net = unsafe { Net::from_raw(0) };
        let caller = Caller::open(&g, net, self.calls());
        (g, caller)
    }

    pub(crate) fn requests(self) -> Requests {
        // SAFETY: the memory is so long, stays, and was zero; each test makes one.
        unsafe { Requests::new(self.calls()) }
    }

    pub(crate) fn answers(self, channel: u32) -> Answers {
        // SAFETY: as above.
        unsafe { Answers::new(self.calls(), channel) }
    }

    /// A unit of a request's place.
    #[cfg(not(loom))]
    pub(crate) fn request_unit(self, channel: u32, number: u64, at: usize) -> gpunet_device::abi::Word {
        let place = self.calls().request(channel, number);
        // SAFETY: an aligned word of the memory.
        unsafe { gpunet_device::abi::Word::from_ptr(place.wrapping_add(at)) }
    }

    /// A unit of an answer's place.
    #[cfg(not(loom))]
    pub(crate) fn answer_unit(self, channel: u32, slot: u32, at: usize) -> gpunet_device::abi::Word {
        let place = self.calls().answer(channel, slot);
        // SAFETY: as above.
        unsafe { gpunet_device::abi::Word::from_ptr(place.wrapping_add(at)) }
    }
}
