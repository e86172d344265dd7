//! What carries a stream: one small trait, and a sibling file for each transport.
//!
//! A transport is only a choice of where rings and words lie and who advances them. A *driven*
//! stream ([`tcp`]) has two local rings, and the proxy moves bytes between them and a [`StreamIo`],
//! or makes a network card move them ([`rc`]). A *direct* stream ([`peer`]) has no proxy on its
//! data path: the sender's ring is the receiver's.

pub mod peer;
pub mod rc;
pub mod tcp;

use crate::verbs;
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Options, RingSpan};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

/// A way to carry streams. The control plane uses it, on one thread.
pub trait Transport {
    /// Which one it is.
    fn kind(&self) -> TransportKind;

    /// Listens at `addr`.
    ///
    /// # Errors
    /// As bind(2) and listen(2).
    fn listen(&self, bound: &Bound, backlog: u32) -> io::Result<Box<dyn Listen>>;

    /// Starts to connect.
    fn connect(&self, request: Connect) -> Connecting;
}

/// A driven stream being opened.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Opened>>>>;

/// A listening socket of one transport.
///
/// Where the transport leaves the handshake to the caller, clients come as requests
/// ([`Listen::has_request`], [`Listen::answer`], [`Listen::refuse`]), and the caller keeps the
/// connections that come of them. Elsewhere they come as connections ([`Listen::ready`],
/// [`Listen::accept`]).
pub trait Listen {
    /// Which transport it is.
    fn kind(&self) -> TransportKind;

    /// Takes the connection that has waited longest.
    ///
    /// # Errors
    /// `WouldBlock` when none waits ([`Listen::may_be_ready`] is false then); else as accept(2).
    fn accept(&mut self) -> io::Result<Accepted>;

    /// Returns how many connections [`Listen::accept`] takes at once; a transport that cannot count
    /// returns 1 for "some".
    fn ready(&mut self) -> u64;

    /// Returns whether [`Listen::accept`] may find a connection. Where only the attempt tells,
    /// true.
    fn may_be_ready(&mut self) -> bool {
        self.ready() > 0
    }

    /// Notes that the descriptor of [`Listen::readiness`] has become readable since it was found
    /// empty.
    fn handle_readable(&mut self) {}

    /// Returns whether a client waits for an answer.
    fn has_request(&mut self) -> bool {
        false
    }

    /// Answers the client that has waited longest, for a stream that will use `memory`. The future
    /// completes when the client has completed the handshake: never, if it has stopped.
    ///
    /// # Errors
    /// `WouldBlock` when none waits. `Unsupported` when the network card cannot register that
    /// dma-buf; else what the system or the card lacks. The client waits on: it can be answered
    /// later, with other memory, or be refused ([`Listen::refuse`]).
    fn answer(&mut self, _memory: &verbs::Memory) -> io::Result<Opening> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Refuses the client that has waited longest, if one waits.
    fn refuse(&mut self) {}

    /// The descriptor that becomes readable when a client waits, where there is one.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;
}

/// An address taken by bind, before listen or connect.
#[derive(Debug)]
pub struct Bound {
    /// The TCP socket that holds the port.
    pub socket: OwnedFd,
    /// The address it got.
    pub addr: SocketAddr,
    /// Options of the socket.
    pub options: Options,
}

/// A connection that a listener hands over.
pub enum Accepted {
    /// A stream for the proxy to drive.
    Driven(Opened),
    /// A peer on this host, whose connect call waits under that ticket.
    Direct(peer::Ticket),
}

/// A driven stream, open.
pub struct Opened {
    /// Which transport carries it.
    pub kind: TransportKind,
    /// Moves the bytes.
    pub io: Box<dyn StreamIo>,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
}

/// A request to connect.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Where to.
    pub to: SocketAddr,
    /// What was bound before, if anything.
    pub from: Option<Arc<Bound>>,
    /// Options of the socket.
    pub options: Options,
    /// Which socket asks: the ticket of a direct connection.
    pub ticket: peer::Ticket,
    /// The memory of the stream to be; `None` as long as it is not known to be a driven one.
    pub memory: Option<verbs::Memory>,
}

/// What became of a request to connect.
pub enum Connecting {
    /// This transport reaches no listener there; the next one may try.
    Elsewhere(Connect),
    /// In the listener's backlog: it completes when the ticket is accepted.
    Queued,
    /// Under way.
    Pending(Opening),
}

/// What a data thread knows at the beginning of a stream's turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Nanoseconds of a monotonic clock.
    pub now: u64,
    /// Which descriptors of [`StreamIo::readiness`] had an event since the last turn.
    pub events: [bool; 2],
    /// The device has consumed what came in, up to this position.
    pub consumed: u64,
    /// What comes in is discarded.
    pub discards: bool,
}

/// What a turn brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    /// [`StreamIo::take`] has something to give: bytes, the end, an error.
    pub readable: bool,
    /// [`StreamIo::offer`] may take something, or has an error to report.
    pub writable: bool,
    /// The peer's end or a failure has arrived. It lies behind the bytes that [`StreamIo::take`]
    /// still gives, and no later event announces it: take until it appears.
    pub ended: bool,
    /// The stream has failed: [`StreamIo::failure`] says why.
    pub failed: bool,
}

/// Moves the bytes of one driven stream. Used by a data thread; no call ever blocks.
///
/// The spans are consecutive: each `offer` begins where the bytes taken so far end, and so does
/// each `take`. A transport whose network card has written the bytes already gives their number.
pub trait StreamIo: Send {
    /// Handles everything but bytes offered or taken: completions, grants, keep-alives. The data
    /// thread calls it at the beginning of each turn of the stream.
    fn turn(&mut self, _turn: &Turn) -> Ready {
        Ready::default()
    }

    /// Returns whether the transport can be polled without a system call ([`StreamIo::poll`]).
    fn is_pollable(&self) -> bool {
        false
    }

    /// Returns whether something has happened; if so, a turn is due. A data thread that spins calls
    /// this for its pollable streams rather than wait for events, which take an interrupt.
    fn poll(&mut self) -> bool {
        false
    }

    /// Offers the bytes of `span`; returns how many were taken. Their memory stays in use until
    /// [`StreamIo::completed`] has counted them.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be taken now; else the stream's failure.
    fn offer(&mut self, span: RingSpan) -> io::Result<usize>;

    /// How many bytes, of those taken, have left ring memory since the last call.
    fn completed(&mut self) -> u64;

    /// Takes bytes into `span`; 0 is the peer's end of stream.
    ///
    /// # Errors
    /// `WouldBlock` when there are none; else the stream's failure.
    fn take(&mut self, span: RingSpan) -> io::Result<usize>;

    /// Reads and discards bytes; 0 is the peer's end of stream.
    ///
    /// # Errors
    /// As [`StreamIo::take`].
    fn discard(&mut self) -> io::Result<usize>;

    /// Why the stream has failed, if an event has told so and no call: asked after the peer's end
    /// of stream, when nothing is read any more. Told once.
    fn failure(&mut self) -> Option<io::Error> {
        None
    }

    /// Announces the end of sending.
    ///
    /// # Errors
    /// The stream's failure.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Makes the coming drop a reset instead of an orderly close.
    fn reset(&mut self);

    /// Begins to close the stream, or continues; returns whether it is closed, so that it may be
    /// dropped. Until then the data thread calls again, at each event and at
    /// [`StreamIo::deadline`].
    fn close(&mut self, _now: u64) -> bool {
        true
    }

    /// When the next turn is due, whatever else happens.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Applies options that can change on an open stream.
    ///
    /// # Errors
    /// As setsockopt(2).
    fn set_options(&mut self, options: &Options) -> io::Result<()>;

    /// Bytes taken by [`StreamIo::offer`] that the peer has not acknowledged; the end of the stream
    /// does not count.
    fn unacknowledged(&self) -> u64;

    /// The descriptors, at least one, whose readiness shows when to try again.
    fn readiness(&self) -> [Option<BorrowedFd<'_>>; 2];
}
