//! An attachment's words by raw address: what a faulty kernel could reach.

use super::until;
use gpunet_device::Net;
use gpunet_device::abi::control::{ControlSlot, Request};
use gpunet_device::abi::entry::{Entry, HalfEntry, OwnWords};
use gpunet_device::abi::layout::SocketLine;
use gpunet_device::abi::{Context, Word};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

/// What a launch is handed.
pub fn context(net: Net) -> Context {
    // SAFETY: a context lies there for as long as the launch, and nobody writes it.
    unsafe { *(net.raw() as *const Context) }
}

fn word(address: u64) -> Word {
    // SAFETY: an aligned word in one of the attachment's regions, which live as long as the world.
    unsafe { Word::from_ptr(address as *mut u64) }
}

/// The word in which a TCP stream's device says what it sent.
pub fn published(net: Net, slot: u32) -> Word {
    let context = context(net);
    word(context.shared + context.shared_layout.published + u64::from(slot) * 8)
}

/// The word in which a TCP stream's device says what it received.
pub fn consumed(net: Net, slot: u32) -> Word {
    let context = context(net);
    word(context.shared + context.shared_layout.consumed + u64::from(slot) * 8)
}

/// The word in which the proxy says what came, or how many wait.
pub fn landed(net: Net, slot: u32) -> Word {
    let context = context(net);
    let line = context.shared_layout.lines + u64::from(slot) * size_of::<SocketLine>() as u64;
    word(context.shared + line + offset_of!(SocketLine, landed) as u64)
}

/// The flag of a CPU block that sleeps until it can send, and that of one that sleeps until
/// something lands.
pub fn park_flags(net: Net, slot: u32) -> [&'static AtomicU32; 2] {
    let context = context(net);
    let line = context.shared_layout.lines + u64::from(slot) * size_of::<SocketLine>() as u64;
    [offset_of!(SocketLine, send_park), offset_of!(SocketLine, recv_park)].map(|field| {
        let flag = (context.shared + line + field as u64) as *mut u32;
        // SAFETY: an aligned flag in the shared region, which lives as long as the world, and which
        // everybody accesses atomically.
        unsafe { AtomicU32::from_ptr(flag) }
    })
}

/// The word in which an end of a direct stream says what it sent.
pub fn own_published(net: Net, slot: u32) -> Word {
    let context = context(net);
    let words = context.device_layout.words + u64::from(slot) * size_of::<OwnWords>() as u64;
    word(context.device + words + offset_of!(OwnWords, published) as u64)
}

/// The word in which an end of a direct stream says what it received.
pub fn own_consumed(net: Net, slot: u32) -> Word {
    let context = context(net);
    let words = context.device_layout.words + u64::from(slot) * size_of::<OwnWords>() as u64;
    word(context.device + words + offset_of!(OwnWords, consumed) as u64)
}

/// The word of the device's own table that says how far a stream's direction is published: of the
/// sending or the receiving half.
pub fn table_position(net: Net, slot: u32, half: usize) -> Word {
    let context = context(net);
    let entry = context.device_layout.entries + u64::from(slot) * size_of::<Entry>() as u64;
    word(context.device + entry + (half + offset_of!(HalfEntry, position)) as u64)
}

/// A control slot.
pub struct ControlWords {
    pub request: Word,
    pub abandon: Word,
    slot: *mut ControlSlot,
}

impl ControlWords {
    pub fn new(net: Net, index: u32) -> Self {
        let context = context(net);
        let slot = context.shared_layout.controls + u64::from(index) * size_of::<ControlSlot>() as u64;
        Self {
            request: word(context.shared + context.shared_layout.requests + u64::from(index) * 8),
            abandon: word(context.shared + context.shared_layout.abandons + u64::from(index) * 8),
            slot: (context.shared + slot) as *mut ControlSlot,
        }
    }

    /// Posts a request as a device does.
    pub fn post(&self, seq: u64, request: Request) {
        // SAFETY: the control slot's request, in the shared region; no group uses this slot.
        unsafe { (&raw mut (*self.slot).request).write_volatile(request) };
        self.request.publish(seq);
    }

    /// Waits for the answer and returns its errno.
    pub fn answer(&self, seq: u64) -> u32 {
        // SAFETY: the address of an aligned word in the shared region.
        let answered = unsafe { Word::from_ptr(&raw mut (*self.slot).reply.seq) };
        until("an answer", || answered.observe() == seq);
        // SAFETY: the proxy has written the reply and leaves it alone until the next request.
        unsafe { (&raw const (*self.slot).reply.errno).read_volatile() }
    }
}
