//! A queue on a CUDA stream: stream memory operations on the words of sockets, and the copy engine on their rings.
//!
//! A short message is a wait, if one is needed, and a kernel of one block on the caller's stream ([`kernels`]). A longer one, or
//! one of memory that kernels do not reach, is staged ([`lane`]): the caller's stream writes a word that starts it, and waits for
//! one that says it is done. While the stream is being captured, and on a driver without memory operations, every message is a
//! kernel.
//!
//! The copy engine is not used on a stream that may wait: on an H200 two streams that copy within the device's memory and wait for
//! each other stand still, because the copy of one is behind that of the other.
//!
//! A thread follows the stream ([`thread`]): it moves what is staged, tells who waits for [`Done`](super::Done), finds out
//! what an operation that has passed was worth, and releases the stream where a word that it waits for will not come.

mod kernels;
mod lane;
mod page;
mod team;
mod thread;

use super::{Notify, Operation, Outcome, Settings, not_captured};
use crate::socket::{Appended, Hold, HostLaunch, HostSockets, StreamOperations, io_error};
use crate::team::TeamHold;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{
    CudaStream, Device, ForeignLaunches, MemOp, NoStreamMemoryOperations, StreamPriority,
};
use gpunet_abi::{Direction, Error, Gate, Trigger, Word};
use gpunet_device::Buffer;
use gpunet_queue_kernel::TeamOperation;
use kernels::Kernels;
use lane::Transfer;
use page::{At, Page};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use team::{PutCopy, SignalWait};
use thread::State;

/// The most operations of the driver that a queue has on its stream. A stream takes about a thousand, and then holds up who
/// enqueues.
const MOST_ENQUEUED: u64 = 512;
/// How long a full stream is waited for in which nothing passes.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The program's end of a queue on a stream.
pub(super) struct CudaQueue {
    shared: Arc<Shared>,
    /// Whether all operations are kernels.
    by_kernels: bool,
    kernels: Kernels,
    /// Operations enqueued so far.
    enqueued: u64,
    /// Operations of the driver enqueued so far.
    issued: u64,
    counts: Counts,
    /// The last operation was enqueued in part, and the stream does not tell when it has passed that.
    is_untold: bool,
    /// Since something was captured: nothing is given back to the driver while a graph may run.
    captured: Option<ForeignLaunches>,
    thread: Option<JoinHandle<()>>,
}

/// What a queue has on its stream. An operation that the driver refuses counts nothing.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Messages of each direction that were started, and for how many of them the stream waits.
    started: [u64; 2],
    awaited: [u64; 2],
    checks: u64,
    /// Copies into other members' parts so far.
    puts: u64,
}

/// Streams that the queues of an attachment share. They never wait.
#[derive(Debug)]
pub(crate) struct QueueStreams {
    /// Writes and reads words that the CPU cannot reach.
    rescue: CudaStream,
    /// Copy what is staged, by direction. Between two copies of one stream there are words, for which the copy engine waits some
    /// microseconds: meanwhile it copies for the other stream.
    lanes: [Vec<CudaStream>; 2],
    /// Queues that there are.
    queues: AtomicU32,
}

impl QueueStreams {
    /// How many streams copy in one direction: two, unless connections are few.
    fn lanes(device: &Device) -> u32 {
        if device.stream_connections() < 16 { 1 } else { 2 }
    }

    /// Connections of streams that are not the queues' own: these, and the one by which the device copies.
    fn reserved(device: &Device) -> u32 {
        2 + 2 * Self::lanes(device)
    }

    fn new(device: &Device) -> io::Result<Arc<Self>> {
        let stream = |priority| device.create_stream(priority).map_err(io::Error::other);
        let lane = || -> io::Result<Vec<_>> {
            (0..Self::lanes(device)).map(|_| stream(StreamPriority::Normal)).collect()
        };
        let lanes = [lane()?, lane()?];
        let (rescue, queues) = (stream(StreamPriority::Highest)?, AtomicU32::new(0));
        Self::warm_up(device, &rescue)?;
        Ok(Arc::new(Self { rescue, lanes, queues }))
    }

    /// Copies between all kinds of memory once. The driver loads the code for it then, which waits for streams that wait.
    fn warm_up(device: &Device, stream: &CudaStream) -> io::Result<()> {
        const LEN: usize = 4096;
        let region = PinnedRegion::create("gpunet-warm-up", 2 * LEN).map_err(io::Error::other)?;
        let pinned = device.register(region).map_err(io::Error::other)?;
        let memory = device.alloc(2 * LEN).map_err(io::Error::other)?;
        let ends = [pinned.device_ptr(), memory.ptr()];
        for (from, to) in ends.into_iter().flat_map(|from| ends.map(|to| (from, to + LEN as u64))) {
            for len in [8, LEN] {
                // SAFETY: two halves of memory that nothing else uses; its release waits for the stream.
                unsafe { stream.copy(to, from, len) }.map_err(io::Error::other)?;
            }
        }
        stream.synchronize().map_err(io::Error::other)
    }

    /// Counts a queue, whose stream may wait. Returns which of the streams copy for it.
    fn enter(&self, device: &Device) -> io::Result<usize> {
        let connections = device.stream_connections();
        let most = connections.saturating_sub(Self::reserved(device)).max(1);
        // Ordering: Relaxed; only a count.
        let before = self.queues.fetch_add(1, Ordering::Relaxed);
        if before < most {
            return Ok((before % Self::lanes(device)) as usize);
        }
        self.queues.fetch_sub(1, Ordering::Relaxed);
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{most} queues are open, and a stream of one more that waits could hold up another for ever: the GPU has \
                 {connections} connections for streams; end queues, or set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts"
            ),
        ))
    }
}

/// What the program's end and the thread share.
struct Shared {
    stream: CudaStream,
    streams: Arc<QueueStreams>,
    /// Which of those copy for this queue.
    lane: usize,
    page: Page,
    settings: Settings,
    host: Arc<HostLaunch>,
    state: Mutex<State>,
    changed: Condvar,
    /// Whoever holds it uses the page's scratch word.
    scratch: Mutex<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Ordering: Relaxed; only a count.
        self.streams.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaQueue").field("enqueued", &self.enqueued).finish_non_exhaustive()
    }
}

impl CudaQueue {
    pub(super) fn new(
        sockets: &HostSockets,
        shared_streams: &OnceLock<Arc<QueueStreams>>,
        stream: CudaStream,
        settings: Settings,
    ) -> io::Result<Self> {
        let Some(device) = sockets.device().cuda() else { return Err(io_error(Error::NotSupported)) };
        if settings.fragment == 0 || !(1..=64).contains(&settings.depth) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a queue copies fragments of at least 1 byte, and 1 to 64 of them at a time",
            ));
        }
        let by_kernels = match device.stream_memory_operations() {
            Ok(()) => settings.kernels,
            Err(NoStreamMemoryOperations::NotSupported) => true,
            Err(refused) => return Err(io::Error::new(io::ErrorKind::Unsupported, refused)),
        };
        let host = sockets.launch()?.clone();
        let kernels = Kernels::load(sockets.device(), host.net())?;
        let streams = match shared_streams.get() {
            Some(streams) => streams,
            None => {
                let streams = QueueStreams::new(device)?;
                shared_streams.get_or_init(|| streams)
            }
        };
        let page = Page::new(device)?;
        let lane = streams.enter(device)?;
        let (streams, state, changed) = (streams.clone(), Mutex::default(), Condvar::new());
        let scratch = Mutex::default();
        let shared = Shared { stream, streams, lane, page, settings, host, state, changed, scratch };
        let shared = Arc::new(shared);
        let thread = Some(thread::start(shared.clone(), device.clone())?);
        let (enqueued, issued, counts, is_untold) = Default::default();
        Ok(Self { shared, by_kernels, kernels, enqueued, issued, counts, is_untold, captured: None, thread })
    }

    /// The right to a direction that a trigger or a gate names.
    pub(super) fn hold(&self, socket: i32, direction: u32) -> io::Result<Arc<Hold>> {
        self.shared.host.hold(socket, direction)
    }

    /// Whether operations of a direction are kernels.
    fn is_by_kernel(&self, hold: &Hold) -> bool {
        self.by_kernels || hold.is_captured()
    }

    /// Checks that an operation could be enqueued now, before it takes a place in a direction. Returns whether it goes into a
    /// graph.
    pub(super) fn admit(&self) -> io::Result<bool> {
        let captures = self.shared.stream.is_capturing().map_err(io::Error::other)?;
        if !captures {
            self.wait_for_room()?;
        } else if self.counts.started != self.counts.awaited {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "messages that were started are not finished, and a graph cannot wait for them: \
                 finish them before the capture",
            ));
        }
        Ok(captures)
    }

    /// The same for a message.
    pub(super) fn admit_message(&self, hold: &Hold, memory: Buffer) -> io::Result<bool> {
        let captures = self.admit()?;
        if (captures || self.is_by_kernel(hold)) && !self.knows(memory)? {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the operation is a kernel, which does not reach pageable memory: use memory of the device, or pin it",
            ));
        }
        Ok(captures)
    }

    /// The same for one that is started.
    pub(super) fn admit_start(&self, hold: &Hold) -> io::Result<()> {
        if self.is_by_kernel(hold) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the direction's operations are kernels, which nothing runs beside: use send and recv",
            ));
        }
        if self.admit()? { Err(not_captured("start_send and start_recv")) } else { Ok(()) }
    }

    /// How many messages of a direction were started.
    pub(super) const fn started(&self, direction: Direction) -> u64 {
        self.counts.started[direction as usize]
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.shared.outcome()
    }

    /// Puts an operation on the stream, which was admitted.
    ///
    /// # Errors
    /// What the driver refuses, or a part of which it refuses, is not carried out: its memory is the caller's again.
    pub(super) fn enqueue(&mut self, operation: Operation) -> io::Result<()> {
        let before = self.counts;
        self.plan_and_issue(operation).inspect_err(|_| self.counts = before)
    }

    fn plan_and_issue(&mut self, operation: Operation) -> io::Result<()> {
        let number = self.enqueued + 1;
        let (mut plan, mut record) = (Plan::default(), Record::new(number));
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
                self.place(&mut plan, &mut record, message, memory)?;
            }
            Operation::Start(message, memory) => self.start(&mut plan, &mut record, message, memory)?,
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
            Operation::Check(word) => {
                if by_kernels {
                    return Err(io::Error::new(
                        io::ErrorKind::Unsupported,
                        "the queue's operations are kernels, which do not know how it has fared: \
                         ask for its outcome when they are done",
                    ));
                }
                self.counts.checks += 1;
                record.check = Some((self.counts.checks, word));
                plan.after.push(store(self.shared.page.address(At::Asked), self.counts.checks));
                let address = self.shared.page.address(At::Answered);
                plan.after.push(MemOp::WaitGeq { address, value: self.counts.checks });
            }
            Operation::Team(call) => self.plan_for_team(&mut plan, &mut record, call),
            Operation::Notify(notify) => {
                record.notify = Some(notify);
                if by_kernels {
                    plan.kernel = Some(OperationKernel::Write((self.shared.page.scratch(), 0)));
                }
            }
        }
        self.issue(plan, record)
    }

    /// Plans a send or recv: on the caller's stream, staged, or as a kernel.
    fn place(
        &mut self,
        plan: &mut Plan,
        record: &mut Record,
        message: Appended,
        memory: Buffer,
    ) -> io::Result<()> {
        let hold = message.hold().clone();
        let (direction, len) = (hold.direction(), message.message.len);
        let is_by_kernel = self.is_by_kernel(&hold);
        let is_short = len <= self.shared.settings.short as u64 && len <= hold.most_ahead();
        if !is_by_kernel && (!is_short || !self.knows(memory)?) {
            self.start(plan, record, message, memory)?;
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
        (record.len, record.by_kernel) = (len, true);
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
    ) -> io::Result<()> {
        let direction = message.hold().direction();
        let is_pageable = !self.knows(memory)?;
        let nth = self.counts.started[direction as usize] + 1;
        self.counts.started[direction as usize] = nth;
        plan.before.push(store(self.shared.page.address(At::Started(direction)), nth));
        record.transfer = Some(Transfer { number: record.number, nth, message, memory, is_pageable });
        Ok(())
    }

    /// Plans a wait for the first `nth` staged messages of a direction.
    fn finish(&mut self, plan: &mut Plan, direction: Direction, nth: u64) {
        let awaited = &mut self.counts.awaited[direction as usize];
        if *awaited < nth {
            *awaited = nth;
            let address = self.shared.page.address(At::Done(direction));
            plan.before.push(MemOp::WaitGeq { address, value: nth });
        }
    }

    /// Plans a wait for all staged messages of a direction: what follows there comes behind them.
    fn settle(&mut self, plan: &mut Plan, direction: Direction) {
        self.finish(plan, direction, self.counts.started[direction as usize]);
    }

    fn knows(&self, memory: Buffer) -> io::Result<bool> {
        self.shared.stream.device().knows(memory.as_ptr() as u64).map_err(io::Error::other)
    }

    /// Adds an operation to the graph that is being captured.
    pub(super) fn capture(&mut self, operation: Operation) -> io::Result<()> {
        let (Operation::Send(message, memory) | Operation::Recv(message, memory)) = operation else {
            return Err(not_captured(operation.name()));
        };
        if self.captured.is_none() {
            let device = self.shared.stream.device();
            self.captured = Some(device.announce_launches().map_err(io::Error::other)?);
        }
        self.shared.keep(message.hold());
        self.kernels.message(&self.shared.stream, &self.shared.page, &message, memory, 0)
    }

    /// Waits until the stream has room for an operation.
    fn wait_for_room(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        let (mut passed, mut since) = (state.passed, Instant::now());
        while self.issued.saturating_sub(state.passed) > MOST_ENQUEUED {
            drop(state);
            std::thread::sleep(Duration::from_micros(50));
            self.shared.note_passed();
            state = self.shared.lock();
            if state.passed != passed {
                (passed, since) = (state.passed, Instant::now());
            } else if since.elapsed() > STANDSTILL {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    format!(
                        "the stream holds {MOST_ENQUEUED} operations, and none has passed for a second: \
                         let what they wait for happen before you enqueue more"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Puts an operation on the stream.
    fn issue(&mut self, plan: Plan, mut record: Record) -> io::Result<()> {
        let number = record.number;
        let Plan { mut before, kernel, mut after } = plan;
        self.issued += 1 + (before.len() + after.len()) as u64;
        record.issued = self.issued;
        let used = record.transfer.as_ref().map(|transfer| transfer.message.hold());
        let used = used.or_else(|| record.waits.first().map(|(hold, _)| hold));
        record.operations = used.map(|hold| hold.begin_stream_operations());
        // A kernel tells it itself.
        if kernel.is_none() {
            after.push(store(self.shared.page.address(At::Passed), number));
        }
        self.enqueued = number;
        // Before the stream can pass it: the thread then finds it here.
        self.shared.add(record);
        if kernel.is_none() {
            before.append(&mut after);
        }
        // Whether something of it is on the stream.
        let mut is_begun = false;
        let issued = self.batch(&before).and_then(|()| {
            is_begun = !before.is_empty();
            let Some(kernel) = kernel else { return Ok(()) };
            self.launch(kernel, number)?;
            is_begun = true;
            self.batch(&after)
        });
        match issued {
            Ok(()) => {
                self.is_untold = false;
                self.shared.accept(number);
            }
            Err(_) if !is_begun => {
                self.shared.withdraw(number);
                self.enqueued = number - 1;
            }
            Err(_) => {
                self.shared.abandon(number);
                self.tell();
            }
        }
        issued.inspect_err(|error| {
            tracing::debug!(%error, number, "an operation was not enqueued, or not all of it");
        })
    }

    /// Has the stream tell when it has passed an operation of which it has a part: until then that uses its directions.
    fn tell(&mut self) {
        let told = self.batch(&[store(self.shared.page.address(At::Passed), self.enqueued)]);
        // Else what is enqueued next tells it.
        self.is_untold = told.is_err();
    }

    fn launch(&self, kernel: OperationKernel, number: u64) -> io::Result<()> {
        let (kernels, stream, page) = (&self.kernels, &self.shared.stream, &self.shared.page);
        match kernel {
            OperationKernel::Message(message, memory) => {
                kernels.message(stream, page, &message, memory, number)
            }
            OperationKernel::Post(trigger) => kernels.post(stream, page, trigger, number),
            OperationKernel::Wait(gate) => kernels.wait(stream, page, gate, number),
            OperationKernel::Write(word) => kernels.write(stream, page, word, number),
            OperationKernel::Team(operation) => kernels.team(stream, page, operation, number),
            OperationKernel::WaitWord(word) => kernels.wait_word(stream, page, word, number),
        }
    }

    fn batch(&self, operations: &[MemOp]) -> io::Result<()> {
        // SAFETY: words of the queue's page, of the device's table and of a stream's rings, which are mapped while the direction is
        // held: until the thread has found that the operation has passed. Words of the program's own are its promise.
        unsafe { self.shared.stream.batch(operations) }.map_err(io::Error::other)
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if self.is_untold {
            self.tell();
        }
        // The caller may destroy the stream after this, if all was done.
        if self.shared.leave()
            && let Some(thread) =
                self.thread.take().filter(|it| it.thread().id() != std::thread::current().id())
        {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// What an operation puts on the stream.
#[derive(Default)]
struct Plan {
    before: Vec<MemOp>,
    kernel: Option<OperationKernel>,
    after: Vec<MemOp>,
}

/// An operation that is a kernel.
enum OperationKernel {
    Message(Appended, Buffer),
    Post(Trigger),
    Wait(Gate),
    Write((Word, u64)),
    WaitWord((Word, u64)),
    Team(TeamOperation),
}

/// What the thread has to know of an operation.
struct Record {
    /// Its number, from 1 on.
    number: u64,
    /// Its calls of the driver have returned: what is to be carried out beside the stream may be.
    is_issued: bool,
    /// The driver's operations up to its end.
    issued: u64,
    /// The directions that it uses stay taken until it is done. It waits for words of these, up to these positions.
    waits: Vec<(Arc<Hold>, u64)>,
    /// The stream publishes without a doorbell: the data thread looks often until it is done.
    #[allow(dead_code, reason = "it ends with the record")]
    operations: Option<StreamOperations>,
    /// Of a message: its length.
    len: u64,
    /// It tells itself whether it has failed.
    by_kernel: bool,
    /// The stream was let pass a word that it waited for.
    is_released: bool,
    transfer: Option<Transfer>,
    /// Of an operation of a team: what it uses, the signal that the stream waits for, and what is to be copied.
    team: Option<Arc<TeamHold>>,
    signal_wait: Option<SignalWait>,
    put: Option<PutCopy>,
    /// Which check it is, and where the answer goes.
    check: Option<(u64, Word)>,
    notify: Option<Notify>,
}

impl Record {
    fn new(number: u64) -> Self {
        let (is_issued, issued, waits, operations, len, by_kernel, is_released) = Default::default();
        let (transfer, team, signal_wait, put, check, notify) = Default::default();
        Self {
            number,
            is_issued,
            issued,
            waits,
            operations,
            len,
            by_kernel,
            is_released,
            transfer,
            team,
            signal_wait,
            put,
            check,
            notify,
        }
    }

    /// Whether nothing is left of it but what the stream has.
    const fn is_handed_over(&self) -> bool {
        self.is_issued && self.transfer.is_none() && self.put.is_none()
    }

    /// Whether the thread has to know at once when the stream has passed it.
    const fn is_awaited(&self) -> bool {
        self.transfer.is_some() || self.put.is_some() || self.check.is_some() || self.notify.is_some()
    }
}

const fn store(address: u64, value: u64) -> MemOp {
    MemOp::Write { address, value }
}

/// Waits for the other end's word.
fn wait_for(hold: &Hold, position: u64) -> MemOp {
    MemOp::WaitGeq { address: hold.half().theirs, value: position }
}

/// Whether the other end's word is known to have reached a position already.
fn is_known(hold: &Hold, position: u64) -> bool {
    position == 0
        || hold.pinned_other().is_some()
            && hold.other().is_ok_and(|word| !word.err() && word.position() >= position)
}

/// Publishes a direction up to there. The device's table first, as a kernel's trigger does.
fn publish(operations: &mut Vec<MemOp>, hold: &Hold, position: u64) {
    operations.extend(hold.table_words().into_iter().flatten().map(|address| store(address, position)));
    operations.push(store(hold.half().mine, position));
}
