//! What the proxy's threads say to each other.

use super::agent::FromAgent;
use super::attachment_state::{AttachmentState, Usage};
use super::launch::{FinishPolicy, Finished};
use super::snapshot::Snapshot;
use crossbeam_channel::Sender;
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Error, Handle, Options};
use gpunet_core::connection::Counts;
use gpunet_core::ids::{AttachmentId, RequestId, SocketId};
use gpunet_core::memory::PartMemory;
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::{Connect, Opened, StreamIo};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Requests of host programs have numbers from here on, where a device's have its control slots.
pub(crate) const HOST_REQUESTS: u32 = 1 << 31;
/// How long to wait for an answer of the control thread, which answers within a turn.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// To a data thread.
pub(crate) enum Command {
    /// Serve this attachment's words.
    Attach(Arc<AttachmentState>),
    /// Stop serving it; answers once nothing of it is touched any more.
    Detach { device: AttachmentId, done: Sender<()> },
    /// Drive a new stream.
    Open { device: AttachmentId, slot: u32, stream: OpenStream },
    /// The device closed the stream, or it is reaped.
    Close { device: AttachmentId, slot: u32, linger_ns: u64 },
    /// The device is gone and closed nothing: send what it published, then reset.
    Gone { device: AttachmentId, slot: u32, bound_ns: u64 },
    /// Change an open stream's options.
    SetOptions { device: AttachmentId, slot: u32, options: Options },
    /// How many bytes are on their way out? Answered by [`Message::OutQueue`].
    OutQueue { device: AttachmentId, slot: u32, id: RequestId },
    /// How far are the streams of this thread?
    Count { done: Sender<Vec<StreamCount>> },
    /// End the thread.
    Stop,
}

/// How far a driven stream is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCount {
    pub(crate) device: AttachmentId,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) counts: Counts,
    /// Bytes that the transport took and the peer has not acknowledged.
    pub(crate) in_flight: u64,
    /// The device sends no more; the peer does not.
    pub(crate) ended: (bool, bool),
}

/// A connect over a driven transport: what was taken for it.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) slot: u32,
    pub(crate) kind: TransportKind,
    pub(crate) rings: Rings,
    pub(crate) options: Options,
    pub(crate) wish: Connect,
    /// The transport that is tried if this attempt fails.
    pub(crate) next: Option<TransportKind>,
}

/// A stream as the control plane hands it to a data thread.
pub(crate) struct OpenStream {
    pub(crate) generation: u32,
    pub(crate) io: Box<dyn StreamIo>,
    pub(crate) rings: Rings,
    /// What the log says of it is said in here.
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
    /// A network card reaches them, and the owner's account counts that.
    pub(crate) registered: bool,
    /// The owner's account counts the descriptors of the connection whose rings they are.
    pub(crate) driven: bool,
}

impl Rings {
    /// Bytes of both.
    pub(crate) const fn bytes(self) -> u64 {
        self.send.capacity() + self.recv.capacity()
    }
}

/// What is done to all requests and sockets of an attachment or a launch: some at a time, so that nobody else waits long.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Requests that end, by control slot and sequence number; those at the end first.
    pub(crate) requests: Vec<RequestId>,
    pub(crate) why: Error,
    /// Sockets; those at the end first.
    pub(crate) sockets: Vec<SocketId>,
    pub(crate) each: Each,
    /// The attachment ends with them.
    pub(crate) ends: bool,
}

/// What becomes of each socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Each {
    /// It is closed, with that linger time in milliseconds.
    Close(Option<i32>),
    /// As if the device had closed it, but direct streams that it has not closed are reset.
    CloseOrReset,
    /// Its process is gone.
    Cut,
}

/// What is called with the reply to a host program's request, or dropped if there will be none.
pub(crate) type Answer = Box<dyn FnOnce(&Reply) + Send>;

/// What is called with the result of a request to the control thread, there; or dropped if the proxy
/// has stopped.
pub(crate) type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Passes a result on to a thread that waits for it.
pub(crate) fn send_to<T: Send + 'static>(waiting: Sender<T>) -> Done<T> {
    Box::new(move |result| {
        // Who waits may have given up.
        let _ = waiting.send(result);
    })
}

/// To the control thread.
pub(crate) enum Message {
    /// A control slot holds a new request.
    Request { device: AttachmentId, id: RequestId, request: Box<Request> },
    /// Ring memory up to there exists now; no more will, if it is the last.
    Grown { device: AttachmentId, rings: u64, last: bool },
    /// A host program's request, under a number beyond those of the control slots.
    Ask { device: AttachmentId, control: u32, request: Box<Request>, answer: Answer },
    /// The device gave up waiting for that request.
    Abandon { device: AttachmentId, id: RequestId },
    /// An attempt to connect ended, and nothing uses its rings any more unless it succeeded.
    Attempted { device: AttachmentId, id: RequestId, attempt: Box<Attempt>, result: io::Result<Opened> },
    /// The handshake with a client of that listener (slot and generation) ended, and nothing uses its
    /// rings any more unless it succeeded.
    Handshake {
        device: AttachmentId,
        listener: SocketId,
        number: u64,
        rings: Rings,
        result: io::Result<Opened>,
    },
    /// Refuse what waited in the backlog of a listener that this attachment has closed.
    Refuse { device: AttachmentId, tickets: Vec<Ticket> },
    /// A listener's descriptor became readable.
    ListenerReady { device: AttachmentId, socket: SocketId },
    /// A data thread is done with a stream.
    Finished { device: AttachmentId, socket: SocketId, undelivered: u64, counts: Counts },
    /// The answer to [`Command::OutQueue`].
    OutQueue { device: AttachmentId, id: RequestId, bytes: Option<u64> },
    /// Go on with what is done to all sockets of an attachment.
    Sweep { device: AttachmentId, sweep: Box<Sweep> },
    /// A new attachment.
    Attach(Arc<AttachmentState>),
    /// An attachment's agent answers.
    Agent { device: AttachmentId, answer: FromAgent },
    /// The pinned parts of an arena were made, or why not.
    ArenaParts { arena: u32, parts: Result<[PartMemory; 2], String> },
    /// Agents have had time enough to map an arena.
    ArenaTimeout { arena: u32 },
    /// A launch ended: reap what it left. `fresh` are sockets that only the device knows.
    FinishLaunch {
        device: AttachmentId,
        launch: u32,
        policy: FinishPolicy,
        fresh: Vec<Handle>,
        done: Done<Finished>,
    },
    /// A thread block of a launch failed: the launch's sockets are reset. It is finished later.
    AbortLaunch { device: AttachmentId, launch: u32 },
    /// No running launch knows these closed sockets any more.
    Release { device: AttachmentId, handles: Vec<Handle> },
    /// The device failed: all its sockets are reset.
    ResetAll { device: AttachmentId },
    /// What does an attachment hold?
    Usage { device: AttachmentId, done: Done<Usage> },
    /// Close everything of an attachment and forget it. Requests that wait end with that error.
    Detach { device: AttachmentId, why: Error, done: Done<()> },
    /// The process of an attachment is gone: deliver what it sent within half a second, reset what it
    /// left open, and forget it. Answered as [`Message::Detach`].
    Gone { device: AttachmentId, done: Done<()> },
    /// What does the proxy hold, for people?
    Snapshot { done: Done<Snapshot> },
    /// The bound of a detach is over.
    DetachTimeout { device: AttachmentId },
    /// Still there?
    Ping,
    /// End the thread.
    Stop,
}

/// In place of an attachment: people who look. Their questions wait for each other, and for a turn.
const PEOPLE: AttachmentId = AttachmentId(u32::MAX);

impl Message {
    /// Whose turn it takes; `None` for what goes first.
    pub(crate) const fn attachment(&self) -> Option<AttachmentId> {
        match self {
            Self::Request { device, .. }
            | Self::Grown { device, .. }
            | Self::Ask { device, .. }
            | Self::Abandon { device, .. }
            | Self::Attempted { device, .. }
            | Self::Handshake { device, .. }
            | Self::Refuse { device, .. }
            | Self::Sweep { device, .. }
            | Self::ListenerReady { device, .. }
            | Self::Finished { device, .. }
            | Self::OutQueue { device, .. }
            | Self::Agent { device, .. }
            | Self::FinishLaunch { device, .. }
            | Self::AbortLaunch { device, .. }
            | Self::Release { device, .. }
            | Self::ResetAll { device }
            | Self::Usage { device, .. }
            | Self::Detach { device, .. }
            | Self::Gone { device, .. }
            | Self::DetachTimeout { device } => Some(*device),
            Self::Snapshot { .. } => Some(PEOPLE),
            Self::Attach(_)
            | Self::ArenaParts { .. }
            | Self::ArenaTimeout { .. }
            | Self::Ping
            | Self::Stop => None,
        }
    }
}
