//! Two ends and the wire between them.

use crate::nic::Nic;
use gpunet_core::rc::Failure;
use gpunet_core::verbs::{Completion, CompletionStatus, Op};

/// An end of a connection: a card, a program that drives it, and an application.
pub trait Node {
    fn nic(&mut self) -> &mut Nic;
    /// The program polls its completions.
    fn enter(&mut self, at_most: usize);
    /// The application writes; returns how much was taken.
    fn write(&mut self, len: u64) -> u64;
    /// The application reads and verifies; returns how much there was.
    fn read(&mut self, len: u64) -> u64;
    /// It writes no more.
    fn shut(&mut self);
    /// It is done.
    fn close(&mut self);
    /// It gives the connection up.
    fn reset(&mut self);
    /// The other end's queue pair is gone.
    fn disconnected(&mut self);
    /// It has read everything that will come.
    fn is_at_end(&self) -> bool;
    /// It has announced that it writes no more.
    fn has_shut(&self) -> bool;
    /// All that it had to send has been sent, and has arrived or failed.
    fn is_settled(&self) -> bool;
    fn failure(&self) -> Option<Failure>;
    /// Control messages sent.
    fn controls(&self) -> u64;
    /// Everything written has arrived.
    fn has_told_all(&self) -> bool;
}

/// What the test asks of one end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    /// Bytes to write, and those written and read so far.
    pub wanted: u64,
    pub written: u64,
    pub read: u64,
}

/// The connection.
pub struct World {
    pub nodes: [Box<dyn Node>; 2],
    pub tasks: [Task; 2],
    /// Times that a message met no receive, by the end that should have posted one.
    pub not_ready: [u64; 2],
}

impl World {
    pub fn new(nodes: [Box<dyn Node>; 2], wanted: [u64; 2]) -> Self {
        let tasks = wanted.map(|wanted| Task { wanted, ..Task::default() });
        Self { nodes, tasks, not_ready: [0; 2] }
    }

    /// Delivers the oldest request of `from`; false if there was none, or the other end was not
    /// ready.
    pub fn deliver(&mut self, from: usize) -> bool {
        let [a, b] = &mut self.nodes;
        let (source, target) = if from == 0 { (a.nic(), b.nic()) } else { (b.nic(), a.nic()) };
        let Some(op) = source.out.front().copied() else { return false };
        if source.dead || target.dead {
            source.out.pop_front();
            source.acks.push_back(false);
            return true;
        }
        let message = match op {
            Op::Write { immediate, .. } => immediate,
            Op::Send { message } => Some(message),
        };
        if message.is_some() && target.receives == 0 {
            self.not_ready[1 - from] += 1;
            return false;
        }
        let mut written = 0;
        if let Op::Write { from, to, rkey, .. } = op {
            let bytes = source.gather(from);
            written = bytes.len() as u32;
            if !bytes.is_empty() {
                target.at(to, rkey, bytes.len()).copy_from_slice(&bytes);
            }
        }
        if let Some(message) = message {
            target.receives -= 1;
            let len = matches!(op, Op::Write { .. }).then_some(written);
            target.completions.push_back(Completion::Received { message, len });
        }
        source.out.pop_front();
        source.acks.push_back(true);
        true
    }

    /// The oldest acknowledgement reaches `side`.
    pub fn acknowledge(&mut self, side: usize) -> bool {
        let nic = self.nodes[side].nic();
        let Some(good) = nic.acks.pop_front() else { return false };
        let status = if good { CompletionStatus::Success } else { CompletionStatus::RetryExceeded };
        nic.completions.push_back(Completion::Sent { id: 0, status });
        true
    }

    pub fn write(&mut self, side: usize, len: u64) -> bool {
        let task = &mut self.tasks[side];
        let len = len.min(task.wanted - task.written);
        let taken = self.nodes[side].write(len);
        task.written += taken;
        taken > 0
    }

    pub fn read(&mut self, side: usize, len: u64) -> bool {
        let taken = self.nodes[side].read(len);
        self.tasks[side].read += taken;
        assert!(self.tasks[side].read <= self.tasks[1 - side].written, "bytes that were never written");
        taken > 0
    }

    /// One step, chosen by two numbers.
    pub fn step(&mut self, (what, how): (u8, u16)) {
        let side = usize::from(what & 1);
        // Sizes from one byte to some ten thousand, small ones as likely as large ones.
        let len = 1 + (u64::from(how) >> (how % 16));
        match what >> 1 & 7 {
            0 => _ = self.write(side, len),
            1 => _ = self.read(side, len),
            2 | 3 => (0..how % 4 + 1).for_each(|_| _ = self.deliver(side)),
            4 => (0..how % 3 + 1).for_each(|_| _ = self.acknowledge(side)),
            5 => self.nodes[side].enter(usize::from(how % 5)),
            6 => self.nodes[side].enter(usize::MAX),
            _ => _ = self.write(side, u64::from(how)),
        }
    }

    /// Delivers, acknowledges and polls until nothing moves any more; nobody writes or reads.
    pub fn settle(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut moved = false;
            for side in 0..2 {
                while self.deliver(side) || self.acknowledge(side) {
                    moved = true;
                }
                moved |= !self.nodes[side].nic().completions.is_empty();
                self.nodes[side].enter(usize::MAX);
                moved |= !self.nodes[side].nic().out.is_empty() && self.nodes[1 - side].nic().receives > 0;
            }
            if !moved {
                return any;
            }
            any = true;
        }
    }

    /// Lets both ends write and read all that they want, `len` bytes at a time, until nothing
    /// moves.
    pub fn drain(&mut self, len: u64) {
        loop {
            let mut moved = self.settle();
            for side in 0..2 {
                moved |= self.write(side, len);
                moved |= self.read(side, len);
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets one end read all that comes.
    pub fn drain_one(&mut self, side: usize) {
        while self.settle() | self.read(side, u64::MAX) {}
    }

    /// Everything that was to be written has been read.
    pub fn assert_delivered(&self) {
        for side in 0..2 {
            let [from, to] = [self.tasks[side], self.tasks[1 - side]];
            assert_eq!((from.written, to.read), (from.wanted, from.wanted), "deadlock from end {side}");
            assert!(self.nodes[side].has_told_all(), "data of end {side} is not known to have arrived");
        }
    }
}
