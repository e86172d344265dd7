//! Messages between the proxy's threads.

use super::agent::FromAgent;
use super::attachment_state::{AttachmentState, Usage};
use super::launch::{FinishPolicy, Finished};
use super::snapshot::Snapshot;
use crossbeam_channel::Sender;
use gpunet_abi::control::{Op, Reply, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Error, Handle, Options};
use gpunet_core::connection::Counts;
use gpunet_core::ids::{AttachmentId, HostRequestId, LaunchId, RequestId, SocketId};
use gpunet_core::memory::PartMemory;
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::{Connect, Opened, StreamIo};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// How long to wait for an answer of the control thread, which normally answers within a turn.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A message to a data thread.
pub(crate) enum Command {
    /// Serve this attachment's words.
    Attach(Arc<AttachmentState>),
    /// Stop serving the attachment, and answer once nothing uses its memory any more.
    Detach { attachment: AttachmentId, done: UnboundedSender<()> },
    /// Drive a new stream.
    Open { attachment: AttachmentId, slot: u32, stream: OpenStream },
    /// Close a stream for its device. What the device has closed itself it closes by a word.
    Close { attachment: AttachmentId, slot: u32, linger_ns: u64 },
    /// The device's process is gone and closed nothing: send what it published, then reset.
    Gone { attachment: AttachmentId, slot: u32, bound_ns: u64 },
    /// Change an open stream's options.
    SetOptions { attachment: AttachmentId, slot: u32, options: Options, linger_ns: u64 },
    /// Count the bytes that are not acknowledged yet. Answered by [`Message::OutQueue`].
    OutQueue { attachment: AttachmentId, slot: u32, id: RequestId },
    /// Report the progress of this thread's streams: of one user's, or of all.
    Count { of: Option<u32>, done: UnboundedSender<Vec<StreamCount>> },
    /// End the thread.
    Stop,
}

/// The progress of a driven stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCount {
    pub(crate) attachment: AttachmentId,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) counts: Counts,
    /// Bytes that the transport took and the peer has not acknowledged.
    pub(crate) in_flight: u64,
    /// Whether the device has ended sending, and whether the peer has.
    pub(crate) ended: (bool, bool),
}

/// A connect over a driven transport, and what was taken for it.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) slot: u32,
    pub(crate) kind: TransportKind,
    pub(crate) rings: Rings,
    pub(crate) options: Options,
    pub(crate) connect: Connect,
    /// The transport that is tried if this attempt fails.
    pub(crate) next: Option<TransportKind>,
}

/// A stream as the control plane hands it to a data thread.
pub(crate) struct OpenStream {
    pub(crate) generation: u32,
    pub(crate) io: Box<dyn StreamIo>,
    pub(crate) rings: Rings,
    /// SO_SNDLOWAT, bytes.
    pub(crate) send_low: u32,
    /// How long what was sent before a close may take, nanoseconds.
    pub(crate) linger_ns: u64,
    /// Its span, for the log.
    pub(crate) span: tracing::Span,
}

/// A ring in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) offset: u64,
    pub(crate) log2: u8,
}

impl Ring {
    pub(crate) const fn capacity(self) -> u64 {
        1 << self.log2
    }
}

/// The two rings of a stream, in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    /// [`gpunet_abi::region::SHARED`] or [`gpunet_abi::region::DEVICE`].
    pub(crate) region: u8,
    pub(crate) send: Ring,
    pub(crate) recv: Ring,
    /// They are registered with a network card, and the owner's account counts that.
    pub(crate) registered: bool,
    /// The owner's account counts the descriptors of their connection.
    pub(crate) driven: bool,
}

impl Rings {
    /// Bytes of both rings.
    pub(crate) const fn bytes(self) -> u64 {
        self.send.capacity() + self.recv.capacity()
    }
}

/// Ends all requests and sockets of an attachment or a launch, a batch in each turn, so that others
/// do not wait long.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Requests to end, from the end of the list.
    pub(crate) requests: Vec<RequestId>,
    pub(crate) why: Error,
    /// Sockets to end after them, from the end of the list.
    pub(crate) sockets: Vec<SocketId>,
    pub(crate) action: SweepAction,
    /// The attachment ends with them.
    pub(crate) ends: bool,
}

/// What a sweep does to each socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SweepAction {
    /// Close it, with that linger time in milliseconds.
    Close(Option<i32>),
    /// Close it as the device would, but reset direct streams that the device has not closed.
    CloseOrReset,
    /// Deliver what was sent and reset it: its process is gone.
    Abort,
}

/// Called with the reply to a host program's request; dropped if there will be none.
pub(crate) type Answer = Box<dyn FnOnce(&Reply) + Send>;

/// Called on the control thread with the result of a request; dropped if the proxy has stopped.
pub(crate) type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Passes a result on to a thread that waits for it.
pub(crate) fn send_to<T: Send + 'static>(waiting: Sender<T>) -> Done<T> {
    Box::new(move |result| {
        // The receiver may have given up.
        let _ = waiting.send(result);
    })
}

/// Passes a result on to a task that waits for it.
pub(crate) fn answer_to<T: Send + 'static>(waiting: oneshot::Sender<T>) -> Done<T> {
    Box::new(move |result| {
        // The task may have given up.
        let _ = waiting.send(result);
    })
}

/// A message to the control thread.
pub(crate) enum Message {
    /// A control slot holds a new request.
    Request { attachment: AttachmentId, id: RequestId, request: Box<Request> },
    /// Ring memory is allocated up to `rings`. With `last`, no more will follow.
    Grown { attachment: AttachmentId, rings: u64, last: bool },
    /// A host program's request.
    Ask { attachment: AttachmentId, id: HostRequestId, request: Box<Request>, answer: Answer },
    /// The requester no longer waits for the answer.
    Abandon { attachment: AttachmentId, id: RequestId },
    /// An attempt to connect ended, and nothing uses its rings any more unless it succeeded.
    Attempted { attachment: AttachmentId, id: RequestId, attempt: Box<Attempt>, result: io::Result<Opened> },
    /// The handshake with a client of that listener (slot and generation) ended, and nothing uses
    /// its rings any more unless it succeeded.
    Handshake {
        attachment: AttachmentId,
        listener: SocketId,
        number: u64,
        rings: Rings,
        result: io::Result<Opened>,
    },
    /// Refuse the connects in the backlog of a listener that this attachment has closed.
    Refuse { attachment: AttachmentId, tickets: Vec<Ticket> },
    /// A listener's descriptor became readable.
    ListenerReady { attachment: AttachmentId, socket: SocketId },
    /// A data thread is done with a stream.
    Finished { attachment: AttachmentId, socket: SocketId, undelivered: u64, counts: Counts },
    /// The answer to [`Command::OutQueue`].
    OutQueue { attachment: AttachmentId, id: RequestId, bytes: Option<u64> },
    /// Continue a sweep.
    Sweep { attachment: AttachmentId, sweep: Box<Sweep> },
    /// A new attachment.
    Attach(Arc<AttachmentState>),
    /// An attachment's agent answers.
    Agent { attachment: AttachmentId, answer: FromAgent },
    /// The pinned parts of an arena, or why they could not be allocated.
    ArenaParts { arena: u32, parts: Result<[PartMemory; 2], String> },
    /// The time for agents to map an arena has expired.
    ArenaTimeout { arena: u32 },
    /// A launch ended: reap what it left. `fresh` are sockets that only the device knows.
    FinishLaunch {
        attachment: AttachmentId,
        launch: LaunchId,
        policy: FinishPolicy,
        fresh: Vec<Handle>,
        done: Done<Finished>,
    },
    /// A thread block of a launch failed: the launch's sockets are reset. It is finished later.
    AbortLaunch { attachment: AttachmentId, launch: LaunchId },
    /// No running launch knows these closed sockets any more.
    Release { attachment: AttachmentId, handles: Vec<Handle> },
    /// The device failed: all its sockets are reset.
    ResetAll { attachment: AttachmentId },
    /// Report what an attachment holds.
    Usage { attachment: AttachmentId, done: Done<Usage> },
    /// Close everything of an attachment and forget it. Requests that wait end with that error.
    Detach { attachment: AttachmentId, why: Error, done: Done<()> },
    /// The process of an attachment is gone: deliver what it sent within half a second, reset what
    /// it left open, and forget it. Answered as [`Message::Detach`].
    Gone { attachment: AttachmentId, done: Done<()> },
    /// Report what the proxy holds: for one user, or for all.
    Snapshot { of: Option<u32>, done: Done<Snapshot> },
    /// The time for a detach to deliver what was sent has expired.
    DetachTimeout { attachment: AttachmentId },
    /// A liveness check.
    Ping,
    /// End the thread.
    Stop,
}

/// Stands for an attachment in the queue: operators. Their questions take turns as one.
const OPERATORS: AttachmentId = AttachmentId(u32::MAX);

impl Message {
    /// Returns whether it serves only a program that lives: it is not handled once its program has
    /// died.
    ///
    /// Closes are handled, and the options by which sockets close: the device may know already that
    /// its socket is closed, and the peer must see the end that the program chose.
    pub(crate) fn dies_with_program(&self) -> bool {
        match self {
            Self::Request { request, .. } | Self::Ask { request, .. } => {
                !matches!(Op::from_raw(request.op), Some(Op::Close | Op::SetOptions))
            }
            Self::Abandon { .. } | Self::Usage { .. } => true,
            _ => false,
        }
    }

    /// The attachment whose turn it takes; `None` for messages that go first.
    pub(crate) const fn attachment(&self) -> Option<AttachmentId> {
        match self {
            Self::Request { attachment, .. }
            | Self::Grown { attachment, .. }
            | Self::Ask { attachment, .. }
            | Self::Abandon { attachment, .. }
            | Self::Attempted { attachment, .. }
            | Self::Handshake { attachment, .. }
            | Self::Refuse { attachment, .. }
            | Self::Sweep { attachment, .. }
            | Self::ListenerReady { attachment, .. }
            | Self::Finished { attachment, .. }
            | Self::OutQueue { attachment, .. }
            | Self::Agent { attachment, .. }
            | Self::FinishLaunch { attachment, .. }
            | Self::AbortLaunch { attachment, .. }
            | Self::Release { attachment, .. }
            | Self::ResetAll { attachment }
            | Self::Usage { attachment, .. }
            | Self::Detach { attachment, .. }
            | Self::Gone { attachment, .. }
            | Self::DetachTimeout { attachment } => Some(*attachment),
            Self::Snapshot { .. } => Some(OPERATORS),
            Self::Attach(_)
            | Self::ArenaParts { .. }
            | Self::ArenaTimeout { .. }
            | Self::Ping
            | Self::Stop => None,
        }
    }
}
