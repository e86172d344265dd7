//! What kernels do with prepared messages, and how queues run kernels.

use gpunet_device::abi::Word;
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Buffer, Group, Net, Prepared, Result};
use gpunet_proxy::queue::Queue;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Sends a buffer as a prepared message, once the ring of so many bytes has room for it.
pub fn send<G: Group>(g: &G, net: Net, message: Prepared, ring: u64, from: Buffer) -> Result<()> {
    message.room(ring).wait(g, net, 0)?;
    let span = message.span(g, net)?;
    // SAFETY: the ring has room for the message, which is this group's; the buffer is as long.
    unsafe { copy_into_ring(g, span, from.as_ptr()) };
    message.trigger().release(g, net)
}

/// Receives a prepared message into a buffer, and gives its bytes in the ring back.
pub fn recv<G: Group>(g: &G, net: Net, message: Prepared, to: Buffer) -> Result<()> {
    message.arrived().wait(g, net, 0)?;
    let span = message.span(g, net)?;
    // SAFETY: the message has landed and is this group's; the buffer is as long.
    unsafe { copy_out_of_ring(g, to.as_ptr(), span) };
    message.trigger().release(g, net)
}

/// The message with that number, of those that follow the first.
pub fn nth(first: Prepared, i: u64) -> Prepared {
    first.nth(i).expect("a position")
}

/// Words that queues, kernels and the program share.
pub struct Words(Box<[AtomicU64]>);

impl Words {
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn at(&self, index: usize) -> Word {
        // SAFETY: an atomic of its own; tests keep it until queues and kernels are done.
        unsafe { Word::from_ptr(self.0[index].as_ptr()) }
    }
}

/// Waits for a word, as a kernel and as the program.
pub fn await_word(word: Word, value: u64) {
    while word.observe() < value {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// A kernel in the order of a queue. A queue of the CPU device starts none, so one that runs all the time takes turns.
#[derive(Clone, Copy)]
pub struct Turns {
    pub go: Word,
    pub done: Word,
}

impl Turns {
    /// Of two words of its own.
    pub fn of(words: &Words) -> Self {
        Self { go: words.at(0), done: words.at(1) }
    }

    /// Enqueues the kernel's turn; the first one is 1.
    pub fn enqueue(self, queue: &mut Queue, turn: u64) {
        queue.write(self.go, turn).expect("enqueued");
        queue.wait_word(self.done, turn).expect("enqueued");
    }

    /// The kernel's side: takes that turn.
    pub fn take<G: Group>(self, g: &G, turn: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if g.is_leader() {
            await_word(self.go, turn);
        }
        g.sync();
        work()?;
        g.sync();
        if g.is_leader() {
            self.done.publish(turn);
        }
        Ok(())
    }
}
