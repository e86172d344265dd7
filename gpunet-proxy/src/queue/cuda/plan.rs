//! What an operation puts on the stream, and what it leaves to the queue's thread. It makes no call
//! of the driver.

use super::page::At;
use super::record::{PutCopy, Record, SignalWait, Transfer, Work};
use crate::queue::team::TeamCall;
use crate::queue::{Operation, QueueError};
use crate::socket::{Appended, Hold};
use gpu_usermap::cuda::MemOp;
use gpunet_abi::team::{Rank, Signal};
use gpunet_abi::{Direction, Gate, Trigger, Word};
use gpunet_device::Buffer;
use gpunet_queue_kernel::{TeamAction, TeamOperation};
use std::sync::Arc;

/// What an operation puts on the stream: memory operations, a kernel, and memory operations behind
/// it.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) before: Vec<MemOp>,
    pub(super) kernel: Option<OperationKernel>,
    pub(super) after: Vec<MemOp>,
}

/// An operation that is a kernel.
pub(super) enum OperationKernel {
    Message(Appended, Buffer),
    Post(Trigger),
    Wait(Gate),
    Write((Word, u64)),
    WaitWord((Word, u64)),
    Team(TeamOperation),
}

/// What a queue has on its stream. An operation that the driver refuses counts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Messages of each direction that were started, and for how many of them the stream waits.
    started: [u64; 2],
    awaited: [u64; 2],
    checks: u64,
    /// Copies into other members' parts so far.
    puts: u64,
}

impl Counts {
    /// Returns whether messages were started that the stream does not wait for yet.
    pub(super) fn has_unfinished(&self) -> bool {
        self.started != self.awaited
    }

    /// How many messages of a direction were started.
    pub(super) const fn started(&self, direction: Direction) -> u64 {
        self.started[direction as usize]
    }
}

/// Plans the operations of a queue, one after another.
pub(super) struct Planner {
    /// Whether all operations are kernels.
    pub(super) by_kernels: bool,
    /// The longest message that is copied on the caller's stream.
    pub(super) short: u64,
    /// The queue's page in the device's address space.
    pub(super) page: u64,
    /// The page's scratch word, as a kernel has it.
    pub(super) scratch: Word,
    pub(super) counts: Counts,
}

/// Returns whether the driver knows memory.
pub(super) type Knows<'a> = &'a dyn Fn(Buffer) -> Result<bool, QueueError>;

impl Planner {
    /// Plans an operation by its number, from 1 on. `knows` is asked of a message's memory.
    ///
    /// # Errors
    /// Those of `knows`; [`QueueError::NoCheck`] for a queue that has kernels only. The counts are
    /// then to be set back.
    pub(super) fn plan(
        &mut self,
        number: u64,
        operation: Operation,
        knows: Knows<'_>,
    ) -> Result<(Plan, Record), QueueError> {
        let (mut plan, mut record) = (Plan::default(), Record { number, ..Record::default() });
        let by_kernels = self.by_kernels;
        match operation {
            Operation::Post(trigger, hold) => {
                self.settle(&mut plan, hold.direction());
                if by_kernels {
                    plan.kernel = Some(OperationKernel::Post(trigger));
                } else {
                    publish(&mut plan.after, &hold, trigger.position);
                }
                record.waits.push((hold, 0));
            }
            Operation::Wait(gate, hold) => {
                if by_kernels {
                    plan.kernel = Some(OperationKernel::Wait(gate));
                } else if !is_known(&hold, gate.position) {
                    plan.before.push(wait_for(&hold, gate.position));
                }
                record.waits.push((hold, gate.position));
            }
            Operation::Send(message, memory) | Operation::Recv(message, memory) => {
                self.place(&mut plan, &mut record, message, memory, knows)?;
            }
            Operation::Start(message, memory) => {
                self.start(&mut plan, &mut record, message, memory, knows)?
            }
            Operation::Finish(started) => self.finish(&mut plan, started.direction, started.nth),
            Operation::Write { word, value } if by_kernels => {
                plan.kernel = Some(OperationKernel::Write((word, value)));
            }
            Operation::WaitWord { word, value } if by_kernels => {
                plan.kernel = Some(OperationKernel::WaitWord((word, value)));
            }
            Operation::Write { word, value } => plan.after.push(store(word.as_ptr() as u64, value)),
            Operation::WaitWord { word, value } => {
                plan.before.push(MemOp::WaitGeq { address: word.as_ptr() as u64, value });
            }
            Operation::Check(word) => self.check(&mut plan, &mut record, word)?,
            Operation::Team(call) => self.team(&mut plan, &mut record, call),
            Operation::Notify(notify) => {
                record.work = Some(Work::Notify(notify));
                if by_kernels {
                    plan.kernel = Some(OperationKernel::Write((self.scratch, 0)));
                }
            }
        }
        Ok((plan, record))
    }

    /// Returns whether operations of a direction are kernels.
    pub(super) fn is_by_kernel(&self, hold: &Hold) -> bool {
        self.by_kernels || hold.is_captured()
    }

    const fn address(&self, at: At) -> u64 {
        at.address(self.page)
    }

    /// Plans a send or recv: on the caller's stream, staged, or as a kernel.
    fn place(
        &mut self,
        plan: &mut Plan,
        record: &mut Record,
        message: Appended,
        memory: Buffer,
        knows: Knows<'_>,
    ) -> Result<(), QueueError> {
        let hold = message.hold().clone();
        let (direction, len) = (hold.direction(), message.message.len);
        let is_by_kernel = self.is_by_kernel(&hold);
        let is_short = len <= self.short && len <= hold.most_ahead();
        if !is_by_kernel && (!is_short || !knows(memory)?) {
            self.start(plan, record, message, memory, knows)?;
            self.settle(plan, direction);
            return Ok(());
        }
        self.settle(plan, direction);
        let gate = match direction {
            // Its place is found when it runs, or there are no operations that wait.
            _ if is_by_kernel => 0,
            Direction::Send => message.message.room(message.capacity).position,
            Direction::Recv => message.message.arrived().position,
        };
        // The kernel would wait, too, but hold a multiprocessor meanwhile.
        if !is_known(&hold, gate) {
            plan.before.push(wait_for(&hold, gate));
        }
        (record.len, record.tells_itself) = (len, true);
        record.waits.push((hold, gate));
        plan.kernel = Some(OperationKernel::Message(message, memory));
        Ok(())
    }

    /// Plans the start of a staged message.
    fn start(
        &mut self,
        plan: &mut Plan,
        record: &mut Record,
        message: Appended,
        memory: Buffer,
        knows: Knows<'_>,
    ) -> Result<(), QueueError> {
        let direction = message.hold().direction();
        let is_pageable = !knows(memory)?;
        let nth = self.counts.started[direction as usize] + 1;
        self.counts.started[direction as usize] = nth;
        plan.before.push(store(self.address(At::Started(direction)), nth));
        record.work =
            Some(Work::Transfer(Transfer { number: record.number, nth, message, memory, is_pageable }));
        Ok(())
    }

    /// Plans a wait for the first `nth` staged messages of a direction.
    fn finish(&mut self, plan: &mut Plan, direction: Direction, nth: u64) {
        let awaited = &mut self.counts.awaited[direction as usize];
        if *awaited < nth {
            *awaited = nth;
            plan.before.push(MemOp::WaitGeq { address: self.address(At::Done(direction)), value: nth });
        }
    }

    /// Plans a wait for all staged messages of a direction: what follows there comes behind them.
    fn settle(&mut self, plan: &mut Plan, direction: Direction) {
        self.finish(plan, direction, self.counts.started(direction));
    }

    /// Plans a question to the thread, and a wait for its answer.
    fn check(&mut self, plan: &mut Plan, record: &mut Record, answer: Word) -> Result<(), QueueError> {
        if self.by_kernels {
            return Err(QueueError::NoCheck);
        }
        self.counts.checks += 1;
        let nth = self.counts.checks;
        record.work = Some(Work::Check { nth, answer });
        plan.after.push(store(self.address(At::Asked), nth));
        plan.after.push(MemOp::WaitGeq { address: self.address(At::Answered), value: nth });
        Ok(())
    }

    /// Plans an operation of a team.
    fn team(
        &mut self,
        plan: &mut Plan,
        record: &mut Record,
        TeamCall { operation, has_limit, to, hold }: TeamCall,
    ) {
        let (signal, member, value) = (Signal(operation.signal), Rank(operation.member), operation.value);
        let is_short = operation.from.len() as u64 <= self.short;
        match operation.action() {
            Some(TeamAction::Signal) if !self.by_kernels => {
                plan.after.extend(hold.signal_words(signal, member).map(|address| store(address, value)));
            }
            Some(TeamAction::WaitUntil) if !self.by_kernels && !has_limit => {
                let (block, offset) = hold.own_word(signal, member);
                plan.before.push(MemOp::WaitGeq { address: block.address() + offset, value });
                record.signal_wait = Some(SignalWait { signal, source: member, value });
            }
            Some(action @ (TeamAction::Put | TeamAction::PutSignal)) if !self.by_kernels && !is_short => {
                self.counts.puts += 1;
                let (nth, len, from) =
                    (self.counts.puts, operation.from.len(), operation.from.as_ptr() as u64);
                plan.before.push(store(self.address(At::PutStarted), nth));
                plan.before.push(MemOp::WaitGeq { address: self.address(At::PutDone), value: nth });
                let is_signalled = action == TeamAction::PutSignal;
                let signal = is_signalled.then(|| (hold.signal_words(signal, member), value));
                record.work = Some(Work::Put(PutCopy { number: record.number, nth, to, from, len, signal }));
            }
            _ => {
                record.tells_itself = true;
                plan.kernel = Some(OperationKernel::Team(operation));
            }
        }
        record.team = Some(Arc::new(hold));
    }
}

pub(super) const fn store(address: u64, value: u64) -> MemOp {
    MemOp::Write { address, value }
}

/// Waits for the other end's word.
fn wait_for(hold: &Hold, position: u64) -> MemOp {
    MemOp::WaitGeq { address: hold.half().theirs, value: position }
}

/// Returns whether the other end's word is known to have reached a position already.
fn is_known(hold: &Hold, position: u64) -> bool {
    position == 0
        || hold.pinned_other().is_some()
            && hold.other().is_ok_and(|word| !word.err() && word.position() >= position)
}

/// Publishes a direction up to there. The device's table first, as a kernel's trigger does.
pub(super) fn publish(operations: &mut Vec<MemOp>, hold: &Hold, position: u64) {
    operations.extend(hold.table_words().into_iter().flatten().map(|address| store(address, position)));
    operations.push(store(hold.half().mine, position));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;
    use crate::queue::Started;
    use gpunet_abi::Options;
    use std::cell::Cell;
    use std::net::TcpListener;

    const PAGE: u64 = 0x1000;

    fn planner(by_kernels: bool, word: &u64) -> Planner {
        // SAFETY: a word of the test, which only the planner names.
        let scratch = unsafe { Word::from_ptr(std::ptr::from_ref(word).cast_mut()) };
        Planner { by_kernels, short: 64, page: PAGE, scratch, counts: Counts::default() }
    }

    /// The operations of a plan as text, so that they can be compared.
    fn text(plan: &Plan) -> String {
        let op = |op: &MemOp| match op {
            MemOp::Write { address, value } => format!("{address:#x} = {value}"),
            MemOp::WaitGeq { address, value } => format!("{address:#x} >= {value}"),
        };
        let kernel = plan.kernel.iter().map(|_| "kernel".to_owned());
        plan.before
            .iter()
            .map(op)
            .chain(kernel)
            .chain(plan.after.iter().map(op))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn line(at: At) -> String {
        format!("{:#x}", at.address(PAGE))
    }

    #[test]
    fn words_are_memory_operations_or_kernels() {
        let word = 0;
        // SAFETY: a word of the test, which only the plans name.
        let named = unsafe { Word::from_ptr(std::ptr::from_ref(&word).cast_mut()) };
        let address = named.as_ptr() as u64;
        let knows = |_| panic!("nothing is asked of a word");
        let mut by_operations = planner(false, &word);
        let (plan, record) =
            by_operations.plan(1, Operation::Write { word: named, value: 7 }, &knows).unwrap();
        assert_eq!((text(&plan), record.number), (format!("{address:#x} = 7"), 1));
        let (plan, _) = by_operations.plan(2, Operation::WaitWord { word: named, value: 8 }, &knows).unwrap();
        assert_eq!(text(&plan), format!("{address:#x} >= 8"));
        let mut by_kernels = planner(true, &word);
        for operation in
            [Operation::Write { word: named, value: 7 }, Operation::WaitWord { word: named, value: 8 }]
        {
            assert_eq!(text(&by_kernels.plan(1, operation, &knows).unwrap().0), "kernel");
        }
    }

    #[test]
    fn checks_are_asked_and_waited_for_and_no_kernels() {
        let word = 0;
        // SAFETY: a word of the test, which only the plans name.
        let answer = unsafe { Word::from_ptr(std::ptr::from_ref(&word).cast_mut()) };
        let knows = |_| Ok(true);
        let mut planner = planner(false, &word);
        for nth in 1..=2 {
            let (plan, record) = planner.plan(nth, Operation::Check(answer), &knows).unwrap();
            assert_eq!(text(&plan), format!("{} = {nth}, {} >= {nth}", line(At::Asked), line(At::Answered)));
            assert_eq!(record.check().map(|(nth, _)| nth), Some(nth));
        }
        planner.by_kernels = true;
        let refused = planner.plan(3, Operation::Check(answer), &knows).err().unwrap();
        assert!(matches!(refused, QueueError::NoCheck));
    }

    /// Short messages of known memory wait for their gate and are kernels; others are staged; what
    /// follows waits for those.
    #[test]
    fn messages_are_kernels_or_staged() {
        let attachment = crate::embed(Config::small()).unwrap().attach_cpu().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = attachment.connect_blocking(server.local_addr().unwrap(), Options::DEFAULT).unwrap();
        let (mut sender, queue) = (socket.take_send().unwrap(), crate::model::ids::QueueId::next());
        let (word, is_known) = (0, Cell::new(true));
        let knows = |_| Ok(is_known.get());
        let mut planner = planner(false, &word);
        let memory = [0_u8; 1000];
        // SAFETY: memory of the test, to which nothing is written.
        let buffer = |len| unsafe { Buffer::from_raw_parts(memory.as_ptr().cast_mut(), len) };
        let mut number = 0;
        let mut plan = |operation: &dyn Fn(Appended, Buffer) -> Operation, len: usize| {
            number += 1;
            sender
                .append(len, queue, false, |message| {
                    planner.plan(number, operation(message, buffer(len)), &knows)
                })
                .unwrap()
        };
        let (started, done) = (line(At::Started(Direction::Send)), line(At::Done(Direction::Send)));
        let (short, record) = plan(&Operation::Send, 64);
        assert_eq!(
            (text(&short).as_str(), record.tells_itself, record.work.is_none()),
            ("kernel", true, true)
        );
        let (long, record) = plan(&Operation::Send, 65);
        assert_eq!(text(&long), format!("{started} = 1, {done} >= 1"));
        assert!(
            matches!(&record.work, Some(Work::Transfer(transfer)) if transfer.nth == 1 && !transfer.is_pageable)
        );
        // The stream does not wait twice for a message.
        assert_eq!(text(&plan(&Operation::Send, 8).0), "kernel");
        is_known.set(false);
        let (pageable, record) = plan(&Operation::Start, 8);
        assert_eq!(text(&pageable), format!("{started} = 2"));
        assert!(matches!(&record.work, Some(Work::Transfer(transfer)) if transfer.is_pageable));
        assert!(planner.counts.has_unfinished());
        let finish = Operation::Finish(Started { direction: Direction::Send, nth: 2, queue });
        assert_eq!(text(&planner.plan(5, finish, &knows).unwrap().0), format!("{done} >= 2"));
        assert!(!planner.counts.has_unfinished());
    }
}
