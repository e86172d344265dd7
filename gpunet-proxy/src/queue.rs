//! Queues: socket operations that happen in order.
//!
//! A [`Queue`] takes operations from the host program and carries them out one after another: on
//! the CPU device by a thread of its own ([`Queue::cpu`]). Enqueueing never waits. The operations
//! use directions that the program has [taken](crate::socket). Kernels may release triggers and
//! wait at gates of the same directions.
//!
//! | operation | does |
//! |---|---|
//! | [`Queue::send`], [`Queue::recv`] | a message of any length, from and into memory of the device, pinned or pageable memory |
//! | [`Queue::start_send`], [`Queue::start_recv`], [`Queue::finish`] | the same, while the operations behind it proceed |
//! | [`Queue::post`] | releases triggers of messages that kernels, or the program, have filled or read |
//! | [`Queue::wait`] | waits at gates |
//! | [`Queue::write`], [`Queue::wait_word`] | a word of the program's own |
//! | [`Queue::put`], [`Queue::put_signal`], [`Queue::signal`], [`Queue::wait_until`] | what a member of a [team](crate::team) does |
//! | [`Queue::barrier`], [`Queue::all_gather`], [`Queue::broadcast`], [`Queue::all_to_all`] | what all members do together |
//! | [`Queue::check`] | stores the queue's first failure in a word, for kernels behind it |
//! | [`Queue::notify`], [`Queue::on_done`] | notifies the program when all earlier operations are done |
//!
//! # On a CUDA stream
//! [`Queue::cuda`] enqueues stream memory operations and short kernels on the caller's stream;
//! kernels and copies that the program enqueues there are in one order with them. A message that is
//! longer than [`QueueSettings::short`], or lies in pageable memory, goes in fragments, by a thread
//! and streams of the queue's own, while the caller's stream waits for one word. So the program
//! need not call anything to drive it. A driver without such operations, a stream that is being
//! captured, and a direction that was captured get kernels of one block instead.
//!
//! # Failures
//! An operation that fails does not stop those behind it: a stream that waits is released, and runs
//! on. The first failure is kept ([`Queue::outcome`]); what the queue received after it is void.
//!
//! # Files
//! | file | holds |
//! |---|---|
//! | `queue` | [`Queue`]: what is enqueued |
//! | `cpu` | the thread that carries it out on the CPU device |
//! | `cuda` and below it | how it is carried out on a CUDA stream: memory operations, kernels, and a thread that follows the stream |
//! | `team` | operations of teams |
//! | `outcome` | what a queue has done, and the future that reports it |
//! | `error` | [`QueueError`] |
//! | `gpunet-proxy/kernel` | a crate: the kernels |
//!
//! Where a message lies in its ring, [`Sender`] and [`Receiver`] find out (`socket/direction`).
//! docs/design/walks.md follows one send through these files.

#[allow(unsafe_code)]
mod cpu;
#[allow(unsafe_code)]
mod cuda;
mod error;
mod outcome;
mod team;

use crate::model::ids::QueueId;
use crate::socket::{Appended, Hold, HostLaunch, HostSockets, Receiver, Sender};
use cpu::CpuQueue;
use cuda::CudaQueue;
pub(crate) use cuda::QueueStreams;
pub use error::{Failure, QueueError};
use gpu_usermap::cuda::CudaStream;
use gpunet_abi::{Direction, Gate, Timeout, Trigger, Word};
use gpunet_device::Buffer;
use outcome::Notify;
pub use outcome::{Done, QueueOutcome};
use std::sync::{Arc, OnceLock};
use team::TeamCall;

/// Operations in order. See the [module](self).
///
/// Dropping it leaves what was enqueued to be done.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
/// use gpunet_proxy::queue::Queue;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = attachment.connect_blocking(server.local_addr()?, Options::DEFAULT)?;
/// let mut sender = socket.take_send()?;
/// let mut message = attachment.alloc(5)?;
/// message.write(0, b"hello")?;
///
/// let mut queue = Queue::cpu(&attachment)?;
/// // SAFETY: the queue is done with it below, before it is dropped.
/// queue.send(&mut sender, unsafe { message.buffer() })?;
/// queue.synchronize()?;
/// # let (mut peer, _) = server.accept()?;
/// # let mut heard = [0; 5];
/// # std::io::Read::read_exact(&mut peer, &mut heard)?;
/// # assert_eq!(&heard, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    engine: Engine,
    id: QueueId,
    /// The last gates that it waits at, one for each sending direction, at most [`MOST_AWAITED`].
    awaited: Vec<Gate>,
    /// Limit of the waits of team operations; 0 is none.
    team_timeout: Timeout,
}

/// Gates that a queue remembers to refuse a trigger behind its own gate. A queue may outlive any
/// number of sockets.
const MOST_AWAITED: usize = 64;

/// How a queue on a CUDA stream carries its operations out.
///
/// # Examples
/// ```
/// use gpunet_proxy::queue::QueueSettings;
///
/// let settings = QueueSettings { fragment: 256 << 10, ..QueueSettings::default() };
/// assert_eq!(settings.depth, 4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings {
    /// Messages of up to this many bytes are copied by a kernel of one block. Default 64 KiB. The
    /// kernel needs a multiprocessor that is not full: take 0 beside kernels that fill the GPU and
    /// do not end. Longer ones are copied by the copy engine.
    pub short: usize,
    /// The most bytes that the copy engine copies at a time, at most a quarter of the ring, and of
    /// a message of 256 KiB or more. 1 MiB: on an H200 the copy engine takes 8 us for 64 KiB and 27
    /// us for 1 MiB, and half as long again for the words behind each.
    pub fragment: usize,
    /// The most fragments of a direction that the copy engine has at a time, from 1 to 64.
    pub depth: usize,
    /// All operations are kernels of one block. Each holds a multiprocessor while it waits.
    pub kernels: bool,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { short: 64 << 10, fragment: 1 << 20, depth: 4, kernels: false }
    }
}

/// A message that is transferred while the operations behind it proceed: see [`Queue::start_send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the memory is in use until `Queue::finish` has waited for it"]
pub struct Started {
    queue: QueueId,
    direction: Direction,
    /// Which one of its direction, from 1 on.
    nth: u64,
}

impl Started {
    /// The value as numbers, for a program in another language: the queue, the direction, and which
    /// message of it.
    #[must_use]
    pub const fn to_raw(self) -> (u64, u32, u64) {
        (self.queue.0, self.direction as u32, self.nth)
    }

    /// What [`Started::to_raw`] has returned; `None` for an invalid direction. [`Queue::finish`]
    /// refuses other numbers.
    #[must_use]
    pub const fn from_raw(queue: u64, direction: u32, nth: u64) -> Option<Self> {
        match Direction::from_raw(direction) {
            Some(direction) => Some(Self { queue: QueueId(queue), direction, nth }),
            None => None,
        }
    }
}

/// What carries operations out.
#[derive(Debug)]
enum Engine {
    Cpu(CpuQueue),
    Cuda(CudaQueue),
}

impl Engine {
    /// The right to a direction that a trigger or a gate names.
    fn hold(&self, socket: i32, direction: u32) -> Result<Arc<Hold>, QueueError> {
        Ok(self.host().hold(socket, direction)?)
    }

    /// The attachment's sockets of the program.
    fn host(&self) -> &Arc<HostLaunch> {
        match self {
            Self::Cpu(queue) => queue.host(),
            Self::Cuda(queue) => queue.host(),
        }
    }

    /// Checks that a direction is of the queue's attachment: its socket's number means another
    /// socket elsewhere.
    fn check_attachment(&self, hold: &Hold) -> Result<(), QueueError> {
        if hold.is_of(self.host()) { Ok(()) } else { Err(QueueError::OtherAttachment) }
    }

    /// Checks that an operation could be enqueued now. Returns whether it goes into a graph.
    fn admit(&self) -> Result<bool, QueueError> {
        match self {
            Self::Cpu(_) => Ok(false),
            Self::Cuda(queue) => queue.admit(),
        }
    }

    /// The same for a message, before it takes its place in a direction.
    fn admit_message(&self, hold: &Hold, memory: Buffer) -> Result<bool, QueueError> {
        self.check_attachment(hold)?;
        match self {
            Self::Cpu(_) => Ok(false),
            Self::Cuda(queue) => queue.admit_message(hold, memory),
        }
    }

    /// The same for one that is started.
    fn admit_start(&self, hold: &Hold) -> Result<(), QueueError> {
        self.check_attachment(hold)?;
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(queue) => queue.admit_start(hold),
        }
    }

    /// How many messages of a direction were started.
    const fn started(&self, direction: Direction) -> u64 {
        match self {
            Self::Cpu(queue) => queue.started(direction),
            Self::Cuda(queue) => queue.started(direction),
        }
    }
}

/// One operation, with what it needs.
enum Operation {
    Post(Trigger, Arc<Hold>),
    Wait(Gate, Arc<Hold>),
    /// Copies a message into the ring, piece by piece, and publishes each.
    Send(Appended, Buffer),
    /// Copies a message out of the ring, piece by piece, and gives each back.
    Recv(Appended, Buffer),
    /// Begins to send or receive a message, as its direction says.
    Start(Appended, Buffer),
    Finish(Started),
    Write {
        word: Word,
        value: u64,
    },
    WaitWord {
        word: Word,
        value: u64,
    },
    Check(Word),
    Team(TeamCall),
    Notify(Notify),
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Self::Post(..) => "post",
            Self::Wait(..) => "wait",
            Self::Send(..) => "send",
            Self::Recv(..) => "recv",
            Self::Start(..) => "start_send and start_recv",
            Self::Finish(_) => "finish",
            Self::Write { .. } => "write",
            Self::WaitWord { .. } => "wait_word",
            Self::Check(_) => "check",
            Self::Team(..) => "operations of teams",
            Self::Notify(_) => "notify, on_done and synchronize",
        }
    }
}

impl Queue {
    /// See [`Queue::cpu`].
    pub(crate) fn on_cpu(sockets: &HostSockets) -> Result<Self, QueueError> {
        if sockets.device().cuda().is_some() {
            return Err(QueueError::WrongAttachment);
        }
        Ok(Self::of(Engine::Cpu(CpuQueue::new(sockets)?)))
    }

    /// See [`Queue::cuda_with`]. The first queue of an attachment makes the streams that all of
    /// them share.
    pub(crate) fn on_stream(
        sockets: &HostSockets,
        streams: &OnceLock<Arc<QueueStreams>>,
        stream: CudaStream,
        settings: QueueSettings,
    ) -> Result<Self, QueueError> {
        Ok(Self::of(Engine::Cuda(CudaQueue::new(sockets, streams, stream, settings)?)))
    }

    fn of(engine: Engine) -> Self {
        Self { engine, id: QueueId::next(), awaited: Vec::new(), team_timeout: Timeout::NEVER }
    }

    /// Sends `from`, of any length: of the device's memory, or memory of the host.
    ///
    /// # Errors
    /// [`QueueError::Direction`] with
    /// - [`DirectionError::Unpublished`], when messages that were prepared before are neither
    ///   published nor posted on a queue: they would be published before they are filled;
    /// - [`DirectionError::InUseByQueue`], as long as another queue has operations of the
    ///   direction;
    /// - [`DirectionError::EmptyMessage`], [`DirectionError::NoPositions`].
    ///
    /// On a CUDA stream also [`QueueError::Device`] with the CUDA error of the enqueueing;
    /// [`QueueError::StreamFull`]; [`QueueError::Pageable`], when the operation is a kernel; and
    /// [`DirectionError::Failed`] with EPROTO, when the driver has stopped a message of the
    /// direction in the middle. Nothing is sent then, and the memory is the caller's.
    ///
    /// [`DirectionError::Unpublished`]: crate::socket::DirectionError::Unpublished
    /// [`DirectionError::InUseByQueue`]: crate::socket::DirectionError::InUseByQueue
    /// [`DirectionError::EmptyMessage`]: crate::socket::DirectionError::EmptyMessage
    /// [`DirectionError::NoPositions`]: crate::socket::DirectionError::NoPositions
    /// [`DirectionError::Failed`]: crate::socket::DirectionError::Failed
    pub fn send(&mut self, sender: &mut Sender, from: Buffer) -> Result<(), QueueError> {
        let captures = self.engine.admit_message(sender.hold(), from)?;
        let (len, id) = (from.len(), self.id);
        sender.append(len, id, captures, |message| self.submit(Operation::Send(message, from), captures))
    }

    /// Receives exactly as many bytes as `to` has.
    ///
    /// # Errors
    /// As [`Queue::send`].
    pub fn recv(&mut self, receiver: &mut Receiver, to: Buffer) -> Result<(), QueueError> {
        let captures = self.engine.admit_message(receiver.hold(), to)?;
        let (len, id) = (to.len(), self.id);
        receiver.append(len, id, captures, |message| self.submit(Operation::Recv(message, to), captures))
    }

    /// Begins to send `from` when all before it is done. What follows on the queue does not wait
    /// for it, until [`Queue::finish`]; only operations of sending directions do. So a program
    /// sends and receives at once.
    ///
    /// # Errors
    /// As [`Queue::send`]; [`QueueError::NotCapturable`] while the stream is being captured;
    /// [`QueueError::NoStart`] where the direction's operations are kernels.
    pub fn start_send(&mut self, sender: &mut Sender, from: Buffer) -> Result<Started, QueueError> {
        self.engine.admit_start(sender.hold())?;
        let (len, id) = (from.len(), self.id);
        sender.append(len, id, false, |message| self.start(Direction::Send, message, from))
    }

    /// Begins to receive exactly as many bytes as `to` has, as [`Queue::start_send`] sends.
    ///
    /// # Errors
    /// As [`Queue::start_send`].
    pub fn start_recv(&mut self, receiver: &mut Receiver, to: Buffer) -> Result<Started, QueueError> {
        self.engine.admit_start(receiver.hold())?;
        let (len, id) = (to.len(), self.id);
        receiver.append(len, id, false, |message| self.start(Direction::Recv, message, to))
    }

    fn start(
        &mut self,
        direction: Direction,
        message: Appended,
        buffer: Buffer,
    ) -> Result<Started, QueueError> {
        self.submit(Operation::Start(message, buffer), false)?;
        Ok(Started { queue: self.id, direction, nth: self.engine.started(direction) })
    }

    /// Waits until what was started is done.
    ///
    /// # Errors
    /// [`QueueError::NotStarted`] for what this queue has not started: then it waits for none of
    /// them. Otherwise as [`Queue::write`].
    pub fn finish(&mut self, started: &[Started]) -> Result<(), QueueError> {
        let is_own = |&Started { queue, direction, nth }: &Started| {
            queue == self.id && (1..=self.engine.started(direction)).contains(&nth)
        };
        if !started.iter().all(is_own) {
            return Err(QueueError::NotStarted);
        }
        started.iter().try_for_each(|&started| self.enqueue(Operation::Finish(started)))
    }

    /// Releases triggers, in this order. One that comes too late does nothing.
    ///
    /// # Errors
    /// [`QueueError::Direction`], when the program has no such socket or has not taken that
    /// direction; [`QueueError::Deadlock`] for a trigger that opens a gate at which this queue
    /// waits before it: only a kernel, or another thread's queue, could release it in time. Then
    /// none is released. [`QueueError::Direction`] also as long as another queue has operations of
    /// the direction. Otherwise as [`Queue::write`].
    pub fn post(&mut self, triggers: &[Trigger]) -> Result<(), QueueError> {
        self.check_not_captured("post")?;
        let hold = |trigger: &Trigger| Ok((*trigger, self.engine.hold(trigger.socket, trigger.direction)?));
        let posts = triggers.iter().map(hold).collect::<Result<Vec<_>, QueueError>>()?;
        posts.iter().try_for_each(|(trigger, hold)| self.check_order(trigger, hold))?;
        for (trigger, hold) in posts {
            self.engine.admit()?;
            let operation = Operation::Post(trigger, hold.clone());
            hold.post(self.id, trigger.position, || self.submit(operation, false))?;
        }
        Ok(())
    }

    /// Waits until all gates have passed.
    ///
    /// # Errors
    /// As [`Queue::post`].
    pub fn wait(&mut self, gates: &[Gate]) -> Result<(), QueueError> {
        self.check_not_captured("wait")?;
        let hold = |gate: &Gate| Ok((*gate, self.engine.hold(gate.socket, gate.direction)?));
        let waits = gates.iter().map(hold).collect::<Result<Vec<_>, QueueError>>()?;
        for (gate, hold) in waits {
            let is_open = gate.position == 0 || hold.direction() == Direction::Recv;
            self.enqueue(Operation::Wait(gate, hold))?;
            if !is_open {
                self.awaited.retain(|other| other.socket != gate.socket);
                if self.awaited.len() == MOST_AWAITED {
                    self.awaited.remove(0);
                }
                self.awaited.push(gate);
            }
        }
        Ok(())
    }

    /// Checks that the queue does not wait for what a trigger is to publish behind that wait.
    fn check_order(&mut self, trigger: &Trigger, hold: &Hold) -> Result<(), QueueError> {
        let concerns = |gate: &Gate| gate.socket == trigger.socket && hold.direction() == Direction::Send;
        if !self.awaited.iter().any(concerns) {
            return Ok(());
        }
        let published = hold.published()?;
        self.awaited.retain(|gate| !concerns(gate) || gate.position > published);
        match self.awaited.iter().find(|gate| concerns(gate) && gate.position <= trigger.position) {
            None => Ok(()),
            Some(gate) => Err(QueueError::Deadlock { position: gate.position }),
        }
    }

    /// Publishes a value in a word of the program's own. An agent that observes the value sees what
    /// the queue did before.
    ///
    /// The word lies in memory of the device, or in memory that is registered with it, and is
    /// aligned to 8 bytes.
    ///
    /// # Errors
    /// On a CUDA stream: [`QueueError::Device`] with the CUDA error of the enqueueing;
    /// [`QueueError::StreamFull`]; [`QueueError::NotCapturable`] while the stream is being
    /// captured, because the graph would repeat it with the same value.
    pub fn write(&mut self, word: Word, value: u64) -> Result<(), QueueError> {
        self.enqueue(Operation::Write { word, value })
    }

    /// Waits until a word of the program's own has reached `value`: by a signed cyclic comparison,
    /// as CUDA streams do.
    ///
    /// # Errors
    /// As [`Queue::write`].
    pub fn wait_word(&mut self, word: Word, value: u64) -> Result<(), QueueError> {
        self.enqueue(Operation::WaitWord { word, value })
    }

    /// Stores 0, or the errno of the queue's first failure, in a word, as [`Queue::write`] does.
    /// Operations behind it on the stream, kernels above all, find it there.
    ///
    /// # Errors
    /// As [`Queue::write`]; [`QueueError::NoCheck`] where the queue's operations are kernels.
    pub fn check(&mut self, word: Word) -> Result<(), QueueError> {
        self.enqueue(Operation::Check(word))
    }

    /// Returns a future that completes when all that was enqueued before is done: with the queue's
    /// first failure, if it has one by then. [`QueueError::Canceled`], when the queue ends before.
    pub fn notify(&mut self) -> Done {
        let (notify, done) = Done::new();
        // One that cannot be enqueued is dropped, and the future knows.
        let _ = self.enqueue(Operation::Notify(notify));
        done
    }

    /// Calls `function` once when all that was enqueued before is done, on a thread of the queue or
    /// on one that makes a call of it, which it must not hold up.
    ///
    /// # Errors
    /// As [`Queue::write`]; the function was dropped then.
    pub fn on_done(
        &mut self,
        function: impl FnOnce(QueueOutcome) + Send + 'static,
    ) -> Result<(), QueueError> {
        self.enqueue(Operation::Notify(Box::new(function)))
    }

    /// Blocks until all that was enqueued is done.
    ///
    /// # Errors
    /// [`QueueError::Failed`] with the first failure of the queue; [`QueueError::Canceled`].
    pub fn synchronize(&mut self) -> Result<(), QueueError> {
        self.notify().wait()
    }

    /// Returns whether all that was enqueued is done. It enqueues nothing and waits for nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        match &self.engine {
            Engine::Cpu(queue) => queue.is_idle(),
            Engine::Cuda(queue) => queue.is_idle(),
        }
    }

    /// Returns what the queue has done so far, and its first failure.
    #[must_use]
    pub fn outcome(&self) -> QueueOutcome {
        match &self.engine {
            Engine::Cpu(queue) => queue.outcome(),
            Engine::Cuda(queue) => queue.outcome(),
        }
    }

    fn check_not_captured(&self, operation: &'static str) -> Result<(), QueueError> {
        if self.engine.admit()? { Err(QueueError::NotCapturable { operation }) } else { Ok(()) }
    }

    fn enqueue(&mut self, operation: Operation) -> Result<(), QueueError> {
        let captures = self.engine.admit()?;
        self.submit(operation, captures)
    }

    /// Enqueues what was admitted.
    fn submit(&mut self, operation: Operation, captures: bool) -> Result<(), QueueError> {
        match &mut self.engine {
            Engine::Cpu(queue) => queue.enqueue(operation),
            Engine::Cuda(queue) if captures => return queue.capture(operation),
            Engine::Cuda(queue) => return queue.enqueue(operation),
        }
        Ok(())
    }
}
