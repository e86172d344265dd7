//! Triggers, gates, and words of the program's own.

use crate::Record;
use gpunet_abi::{Direction, Gate, Result, Trigger, Word};
use gpunet_device::trigger::{GateExt, TriggerExt, wait_word};
use gpunet_device::{Group, Kernel, Net, Timeout};

/// Releases a trigger.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueuePost {
    /// The sockets of the host program.
    pub net: Net,
    /// The trigger.
    pub trigger: Trigger,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueuePost {
    const ENTRY: &'static str = "gpunet_queue_post";

    fn run<G: Group>(self, g: &G) {
        let result = self.post(g);
        self.record.tell(g, result, 0);
    }
}

impl QueuePost {
    fn post<G: Group>(self, g: &G) -> Result<()> {
        let Trigger { socket, direction, position } = self.trigger;
        if direction == Direction::Recv as u32 {
            // What the stream's end has cut off is not given back.
            Gate { socket, direction, position }.test(g, self.net)?;
        }
        self.trigger.release(g, self.net)
    }
}

/// Waits at a gate.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueWait {
    /// The sockets of the host program.
    pub net: Net,
    /// The gate.
    pub gate: Gate,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueueWait {
    const ENTRY: &'static str = "gpunet_queue_wait";

    fn run<G: Group>(self, g: &G) {
        let result = self.gate.wait(g, self.net, Timeout::NEVER);
        self.record.tell(g, result, 0);
    }
}

/// Publishes a value in a word of the program's own.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueWrite {
    /// The word.
    pub word: Word,
    /// The value.
    pub value: u64,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueueWrite {
    const ENTRY: &'static str = "gpunet_queue_write";

    fn run<G: Group>(self, g: &G) {
        if g.is_leader() {
            self.word.publish(self.value);
        }
        self.record.tell(g, Ok(()), 0);
    }
}

/// Waits until a word of the program's own has reached a value, by a signed cyclic comparison.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueWaitWord {
    /// The sockets of the host program, whose end ends the wait.
    pub net: Net,
    /// The word.
    pub word: Word,
    /// The value.
    pub value: u64,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueueWaitWord {
    const ENTRY: &'static str = "gpunet_queue_wait_word";

    fn run<G: Group>(self, g: &G) {
        let result = wait_word(g, self.net, self.word, self.value, Timeout::NEVER);
        self.record.tell(g, result, 0);
    }
}
