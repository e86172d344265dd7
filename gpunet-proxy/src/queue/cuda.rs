//! A queue on a CUDA stream: stream memory operations on the words of sockets, and the copy engine
//! on their rings.
//!
//! A short message is a wait, if one is needed, and a kernel of one block on the caller's stream
//! ([`kernels`]). A longer one, or one of memory that kernels do not reach, is staged ([`lane`]):
//! the caller's stream writes a word that starts it, and waits for one that says it is done. While
//! the stream is being captured, and on a driver without memory operations, every message is a
//! kernel.
//!
//! The copy engine is not used on a stream that may wait: on an H200 two streams that copy within
//! the device's memory and wait for each other stand still, because the copy of one is behind that
//! of the other.
//!
//! What an operation puts on the stream is planned without the driver ([`plan`]) and issued in one
//! place ([`CudaQueue::issue`]).
//!
//! A thread follows the stream ([`thread`]): it moves what is staged, completes
//! [`Done`](super::Done), finds out whether an operation that has passed succeeded, and releases
//! the stream from a wait that cannot succeed.
//!
//! | file | holds |
//! |---|---|
//! | `plan` | what an operation puts on the stream, and what it leaves to the thread |
//! | `kernels` | operations that are kernels (the crate gpunet-queue-kernel has their code) |
//! | `lane` | staged messages of one direction (not a lane of a group) |
//! | `team` | operations of teams |
//! | `page` | the words by which streams and thread tell one another how far they are |
//! | `record` | what the thread needs to know about an operation |
//! | `streams` | the streams that all queues of an attachment share |
//! | `thread` | the thread that follows the stream |

mod kernels;
mod lane;
mod page;
mod plan;
mod record;
mod streams;
mod team;
mod thread;

pub(crate) use streams::QueueStreams;

use super::{Operation, QueueError, QueueOutcome, QueueSettings};
use crate::socket::{Hold, HostLaunch, HostSockets};
use gpu_usermap::cuda::{CudaStream, ForeignLaunches, MemOp, NoStreamMemoryOperations};
use gpunet_abi::Direction;
use gpunet_device::Buffer;
use kernels::Kernels;
use page::{At, Page};
use plan::{Counts, OperationKernel, Plan, Planner, store};
use record::Record;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::State;

/// The most operations of the driver that a queue has on its stream. A stream takes about a
/// thousand, and then blocks the thread that enqueues.
const MOST_ENQUEUED: u64 = 512;
/// How long a full stream is waited for in which nothing passes.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The program's end of a queue on a stream.
pub(super) struct CudaQueue {
    shared: Arc<Shared>,
    planner: Planner,
    kernels: Kernels,
    /// Operations enqueued so far.
    enqueued: u64,
    /// Operations of the driver enqueued so far.
    issued: u64,
    /// The last operation was enqueued in part, and the stream does not tell when it has passed
    /// that.
    is_untold: bool,
    /// Since something was captured: nothing is given back to the driver while a graph may run.
    captured: Option<ForeignLaunches>,
    thread: Option<JoinHandle<()>>,
}

/// What the program's end and the thread share.
struct Shared {
    stream: CudaStream,
    streams: Arc<QueueStreams>,
    /// Which of those copy for this queue.
    lane: usize,
    page: Page,
    settings: QueueSettings,
    host: Arc<HostLaunch>,
    state: Mutex<State>,
    changed: Condvar,
    /// Guards the page's scratch word.
    scratch: Mutex<()>,
}

impl Shared {
    /// Returns whether the driver knows memory: whether kernels and the copy engine reach it.
    fn knows(&self, memory: Buffer) -> Result<bool, QueueError> {
        self.stream.device().knows(memory.as_ptr() as u64).map_err(QueueError::device)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.streams.leave();
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
        settings: QueueSettings,
    ) -> Result<Self, QueueError> {
        let Some(device) = sockets.device().cuda() else { return Err(QueueError::WrongAttachment) };
        if settings.fragment == 0 || !(1..=64).contains(&settings.depth) {
            return Err(QueueError::Settings);
        }
        let by_kernels = match device.stream_memory_operations() {
            Ok(()) => settings.kernels,
            Err(NoStreamMemoryOperations::NotSupported) => true,
            Err(refused) => return Err(QueueError::NoStreamMemoryOperations(refused)),
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
        let thread = Some(thread::start(shared.clone(), device.clone()).map_err(QueueError::Thread)?);
        let (short, page, scratch) =
            (settings.short as u64, shared.page.address(At::Passed), shared.page.scratch());
        let planner = Planner { by_kernels, short, page, scratch, counts: Counts::default() };
        let (enqueued, issued, is_untold) = Default::default();
        Ok(Self { shared, planner, kernels, enqueued, issued, is_untold, captured: None, thread })
    }

    /// The attachment's sockets of the program.
    pub(super) fn host(&self) -> &Arc<HostLaunch> {
        &self.shared.host
    }

    /// Checks that an operation could be enqueued now, before it takes a place in a direction.
    /// Returns whether it goes into a graph.
    pub(super) fn admit(&self) -> Result<bool, QueueError> {
        let captures = self.shared.stream.is_capturing().map_err(QueueError::device)?;
        if !captures {
            self.wait_for_room()?;
        } else if self.planner.counts.has_unfinished() {
            return Err(QueueError::Unfinished);
        }
        Ok(captures)
    }

    /// The same for a message.
    pub(super) fn admit_message(&self, hold: &Hold, memory: Buffer) -> Result<bool, QueueError> {
        let captures = self.admit()?;
        if (captures || self.planner.is_by_kernel(hold)) && !self.shared.knows(memory)? {
            return Err(QueueError::Pageable);
        }
        Ok(captures)
    }

    /// The same for one that is started.
    pub(super) fn admit_start(&self, hold: &Hold) -> Result<(), QueueError> {
        if self.planner.is_by_kernel(hold) {
            return Err(QueueError::NoStart);
        }
        if self.admit()? {
            Err(QueueError::NotCapturable { operation: "start_send and start_recv" })
        } else {
            Ok(())
        }
    }

    /// How many messages of a direction were started.
    pub(super) const fn started(&self, direction: Direction) -> u64 {
        self.planner.counts.started(direction)
    }

    pub(super) fn outcome(&self) -> QueueOutcome {
        self.shared.outcome()
    }

    /// Returns whether all that was enqueued is done, as the stream tells it at this moment.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.note_passed();
        self.shared.done() == self.enqueued
    }

    /// Puts an operation on the stream, which was admitted.
    ///
    /// # Errors
    /// An operation is not carried out if the driver refuses it or a part of it: its memory is the
    /// caller's again.
    pub(super) fn enqueue(&mut self, operation: Operation) -> Result<(), QueueError> {
        let before = self.planner.counts;
        self.plan_and_issue(operation).inspect_err(|_| self.planner.counts = before)
    }

    fn plan_and_issue(&mut self, operation: Operation) -> Result<(), QueueError> {
        let shared = self.shared.clone();
        let (plan, record) =
            self.planner.plan(self.enqueued + 1, operation, &|memory| shared.knows(memory))?;
        self.issue(plan, record)
    }

    /// Adds an operation to the graph that is being captured.
    pub(super) fn capture(&mut self, operation: Operation) -> Result<(), QueueError> {
        let (Operation::Send(message, memory) | Operation::Recv(message, memory)) = operation else {
            return Err(QueueError::NotCapturable { operation: operation.name() });
        };
        if self.captured.is_none() {
            let device = self.shared.stream.device();
            self.captured = Some(device.announce_launches().map_err(QueueError::device)?);
        }
        self.shared.keep(message.hold());
        self.kernels.message(&self.shared.stream, &self.shared.page, &message, memory, 0)
    }

    /// Waits until the stream has room for an operation.
    fn wait_for_room(&self) -> Result<(), QueueError> {
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
                return Err(QueueError::StreamFull { enqueued: MOST_ENQUEUED });
            }
        }
        Ok(())
    }

    /// Puts an operation on the stream.
    fn issue(&mut self, plan: Plan, mut record: Record) -> Result<(), QueueError> {
        let number = record.number;
        let Plan { mut before, kernel, mut after } = plan;
        self.issued += 1 + (before.len() + after.len()) as u64;
        record.issued = self.issued;
        record.operations = record.hold().map(|hold| hold.begin_stream_operations());
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

    /// Makes the stream report that it has passed an operation of which only a part was enqueued:
    /// until then the operation uses its directions.
    fn tell(&mut self) {
        let told = self.batch(&[store(self.shared.page.address(At::Passed), self.enqueued)]);
        // Else what is enqueued next tells it.
        self.is_untold = told.is_err();
    }

    fn launch(&self, kernel: OperationKernel, number: u64) -> Result<(), QueueError> {
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

    fn batch(&self, operations: &[MemOp]) -> Result<(), QueueError> {
        // SAFETY: words of the queue's page, of the device's table and of a stream's rings, which
        // are mapped while the direction is held: until the thread has found that the operation has
        // passed. Words of the program's own are its promise.
        unsafe { self.shared.stream.batch(operations) }.map_err(QueueError::device)
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
