//! Verbs: what the rc transport needs of an RDMA stack, as a small trait with two implementations.
//!
//! [`rdma`] is the real one: libibverbs and librdmacm, opened at run time. `sim` (feature `sim`) is
//! a network card in memory, seeded, that delays, drops and fails on demand. The protocol above
//! ([`crate::rc`]) knows neither. `table` is memory that both need: buffer descriptors, which the
//! peer's card writes.
//!
//! The steps of a connection, the same for both ends:
//!
//! ```text
//! active:   Verbs::resolve --> Handshake --prepare--> keys --connect(private data)--> Endpoint
//! passive:  Listening::next --> Handshake --prepare--> keys --accept(private data)--> Endpoint
//! ```
//!
//! Resolving, connecting and accepting take time and are futures, polled on the control thread; an
//! [`Endpoint`] belongs to a data thread, and none of its calls blocks.
//!
//! # Isolation
//! Each handshake has a protection domain of its own (cached with the registrations in it, see
//! [`Memory`]): a peer's key opens the one ring it was given and nothing else, whatever other
//! connections that peer has.

pub mod rdma;
#[cfg(feature = "sim")]
pub mod sim;
#[allow(unsafe_code)]
mod table;

pub use gpunet_stream::rc::{Op, Sge, Source};
pub use table::Table;

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

/// A future of the control thread.
pub type Pending<T> = Pin<Box<dyn Future<Output = io::Result<T>>>>;

/// An RDMA stack: makes and takes connections. Used by the control thread.
pub trait Verbs {
    /// Listens at `addr`; port 0 is refused, since the caller holds the number on TCP.
    ///
    /// # Errors
    /// As rdma_bind_addr(3) and rdma_listen(3): `AddrInUse`, `AddrNotAvailable`,
    /// `PermissionDenied`.
    fn listen(&self, addr: SocketAddr, backlog: u32) -> io::Result<Box<dyn Listening>>;

    /// Finds the device and the route to `to`. The future fails with `NetworkUnreachable` or
    /// `HostUnreachable` when no RDMA device leads there, with `TimedOut` when there is no answer.
    fn resolve(&self, to: SocketAddr, from: Option<SocketAddr>) -> Pending<Box<dyn Handshake>>;

    /// Forgets the registrations cached for memory of that owner (see [`Memory::owner`]); those in
    /// use go with their handshake.
    fn forget(&self, owner: u64);

    /// What it holds at this moment.
    fn usage(&self) -> Usage;
}

/// Counts of live objects, for leak tests and for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Communication identifiers (rdma_cm ids), listeners included.
    pub identifiers: usize,
    /// Memory regions, cached ones included.
    pub memory_regions: usize,
}

/// A listening identifier.
pub trait Listening {
    /// The connection request that has waited longest. Requests whose client has gone are not
    /// shown.
    ///
    /// # Errors
    /// `WouldBlock` when none waits.
    fn next(&mut self) -> io::Result<Request>;

    /// The descriptor that becomes readable when a request may wait.
    fn readiness(&self) -> BorrowedFd<'_>;
}

/// A connection request.
pub struct Request {
    /// The connection to be.
    pub handshake: Box<dyn Handshake>,
    /// What the client sent along; zero padded on InfiniBand and RoCE.
    pub private_data: Vec<u8>,
}

/// A connection being made: its device is known, and `prepare` makes its queue pair.
///
/// Dropping it at any step refuses or abandons the connection. When the drop returns, nothing
/// touches the memory given to `prepare` any more.
pub trait Handshake {
    /// This end's address.
    fn local(&self) -> SocketAddr;

    /// The other end's address.
    fn peer(&self) -> SocketAddr;

    /// What the device can do.
    fn device(&self) -> &DeviceInfo;

    /// Registers memory (or finds it registered), makes the queue pair and posts `receives`
    /// receives. Called once, or again after it returned `Unsupported`.
    ///
    /// # Errors
    /// `OutOfMemory` when the locked-memory limit is too low (the text names it), `Unsupported`
    /// when the device cannot reach that memory, else the failed call's errno.
    fn prepare(&mut self, memory: &Memory, depth: Depth) -> io::Result<Keys>;

    /// Sends the request and waits for the answer: the endpoint and the peer's private data.
    ///
    /// The future fails with `ConnectionRefused` when the peer rejects, `TimedOut` when it does not
    /// answer.
    fn connect(self: Box<Self>, private_data: &[u8]) -> Pending<(Box<dyn Endpoint>, Vec<u8>)>;

    /// Answers the request and waits until the connection is established.
    fn accept(self: Box<Self>, private_data: &[u8]) -> Pending<Box<dyn Endpoint>>;

    /// Refuses the request; the client sees ECONNREFUSED.
    fn reject(self: Box<Self>);
}

/// What the transport needs to know of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name, such as `mlx5_0` or `rxe0`.
    pub name: String,
    /// iWARP: it has no RDMA write with immediate data, so messages are sends of 4 bytes.
    pub iwarp: bool,
    /// Most work requests of a queue.
    pub max_depth: u32,
}

/// Sizes of a queue pair's queues, in work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The send queue.
    pub sends: u32,
    /// The receive queue, all of which is posted before the connection is made.
    pub receives: u32,
}

/// The memory of one connection.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Where data is sent from. Registered for local access.
    pub send_ring: Ring,
    /// Where the peer writes. Registered for remote writes: these bytes and no others.
    pub recv_ring: Ring,
    /// Whose memory it is. Registrations are cached by owner and place.
    pub owner: u64,
    /// Keeps the memory mapped as long as it is registered.
    pub keep: Keep,
}

/// Something that must outlive a registration.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// A ring as a network card sees it.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Address by which work requests and the peer name its first byte: the CPU's for host memory,
    /// the GPU's for GPU memory.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// How the card finds the memory.
    pub memory: RingMemory,
}

/// How a network card finds a ring's memory.
#[derive(Clone, Debug)]
pub enum RingMemory {
    /// Memory at that address of this process (ibv_reg_mr; GPU memory too where nvidia-peermem is
    /// loaded).
    Mapped,
    /// A part of a dma-buf (ibv_reg_dmabuf_mr).
    DmaBuf {
        /// The dma-buf.
        fd: Arc<OwnedFd>,
        /// Where in it the ring starts.
        offset: u64,
    },
}

/// What the peer needs so that it can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The receive ring's key.
    pub recv_rkey: u32,
    /// Address of the table of buffer descriptors ([`Table`]).
    pub table_address: u64,
    /// The table's key.
    pub table_rkey: u32,
}

/// An established connection's queue pair and completion queue. Used by one data thread.
///
/// Dropping it ends the connection. When the drop returns, nothing touches the rings any more; what
/// takes time (telling the peer, destroying the objects) happens elsewhere.
pub trait Endpoint: Send {
    /// Posts a work request to the send queue. Requests complete in order, each with one
    /// [`Completion::Sent`].
    ///
    /// # Errors
    /// `OutOfMemory` when the queue is full, else the failed call's errno.
    fn post(&mut self, request: &WorkRequest) -> io::Result<()>;

    /// Posts one receive, in the place of one that completed.
    ///
    /// # Errors
    /// As [`Endpoint::post`].
    fn post_receive(&mut self) -> io::Result<()>;

    /// Takes the next completion, if there is one.
    fn poll(&mut self) -> Option<Completion>;

    /// Requests an event with the next completion, and takes the pending events. The caller then
    /// polls again: otherwise it may miss an earlier completion.
    ///
    /// # Errors
    /// The failed call's errno.
    fn arm(&mut self) -> io::Result<()>;

    /// The table into which the peer writes the descriptors of its receive buffers.
    fn table(&self) -> &Table;

    /// Returns whether the peer has disconnected, or its process has died. A host that is gone
    /// sends no sign: only a failing request shows it.
    fn is_disconnected(&mut self) -> bool;

    /// Shortens the time after which the peer tries again when it found no receive posted. On every
    /// connection once, right after it is made: rdma_cm leaves the longest, 655 ms.
    ///
    /// # Errors
    /// The failed call's errno.
    fn shorten_rnr_timer(&mut self) -> io::Result<()>;

    /// The descriptors that become readable with a completion event and with a change of the
    /// connection.
    fn readiness(&self) -> [BorrowedFd<'_>; 2];
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Returned by its completion.
    pub id: u64,
    /// What it does.
    pub op: Op,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A posted request is done: its memory is free, and on success the peer's card has the bytes.
    Sent {
        /// The request's id.
        id: u64,
        /// How it went.
        status: CompletionStatus,
    },
    /// A message came in and took one receive.
    Received {
        /// The message: immediate data, or the 4 bytes of a send.
        message: u32,
        /// Bytes that came with it; `None` where the device does not say (iWARP).
        len: Option<u32>,
    },
    /// A receive ended without a message: the queue pair is in error.
    Flushed,
}

/// How a request ended (ibv_wc_status, as far as the transport distinguishes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// IBV_WC_SUCCESS.
    Success,
    /// IBV_WC_WR_FLUSH_ERR: the queue pair was in error already.
    Flushed,
    /// IBV_WC_RETRY_EXC_ERR: the peer's host does not answer.
    RetryExceeded,
    /// IBV_WC_RNR_RETRY_EXC_ERR: the peer posts no receives.
    RnrRetryExceeded,
    /// IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR: the peer's card refused
    /// it.
    RemoteRefused,
    /// Any other, by its number.
    Other(u32),
}
