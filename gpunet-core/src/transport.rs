//! What carries a stream: one small trait, and a sibling file for each way.
//!
//! A transport is only a choice of where rings and words lie and who advances them. A *driven*
//! stream ([`tcp`]) has two local rings, and the proxy moves bytes between them and a
//! [`StreamIo`]. A *direct* stream ([`peer`]) has no proxy on its data path: the sender's ring is
//! the receiver's.

pub mod peer;
pub mod tcp;

use gpunet_abi::options::TransportKind;
use gpunet_abi::{Options, RingSpan};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;

/// A way to carry streams. Used by the control plane, on one thread.
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

/// A listening socket of one transport.
pub trait Listen {
    /// Which transport it is.
    fn kind(&self) -> TransportKind;

    /// Takes the connection that has waited longest.
    ///
    /// # Errors
    /// `WouldBlock` when none waits; else as accept(2).
    fn accept(&mut self) -> io::Result<Accepted>;

    /// Says how many connections wait; a transport that cannot count says 1 for "some".
    fn ready(&self) -> u64;

    /// The descriptor that becomes readable when a connection waits, where there is one.
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
    /// Moves the bytes.
    pub io: Box<dyn StreamIo>,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
}

/// A wish to connect.
#[derive(Debug)]
pub struct Connect {
    /// Where to.
    pub to: SocketAddr,
    /// The address bound before, if any.
    pub from: Option<OwnedFd>,
    /// Options of the socket.
    pub options: Options,
    /// Which socket asks: the ticket of a direct connection.
    pub ticket: peer::Ticket,
}

/// What became of a wish to connect.
pub enum Connecting {
    /// Nobody is there by this transport; the next one may try.
    Elsewhere(Connect),
    /// In the listener's backlog: it completes when the ticket is accepted.
    Queued,
    /// Under way.
    Pending(Pin<Box<dyn Future<Output = io::Result<Opened>>>>),
}

/// Moves the bytes of one driven stream. Used by a data thread; no call ever blocks.
pub trait StreamIo: Send {
    /// Offers the bytes of `span`; returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be taken now; else the stream's failure.
    fn offer(&mut self, span: RingSpan) -> io::Result<usize>;

    /// Takes bytes into `span`; 0 is the peer's end of stream.
    ///
    /// # Errors
    /// `WouldBlock` when there are none; else the stream's failure.
    fn take(&mut self, span: RingSpan) -> io::Result<usize>;

    /// Reads and throws away; 0 is the peer's end of stream.
    ///
    /// # Errors
    /// As [`StreamIo::take`].
    fn discard(&mut self) -> io::Result<usize>;

    /// Says that no more will be sent.
    ///
    /// # Errors
    /// The stream's failure.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Makes the coming drop a reset instead of an orderly close.
    fn reset(&mut self);

    /// Applies options that can change on an open stream.
    ///
    /// # Errors
    /// As setsockopt(2).
    fn set_options(&mut self, options: &Options) -> io::Result<()>;

    /// Bytes taken by [`StreamIo::offer`] that the peer has not acknowledged; the end of the stream
    /// does not count.
    fn unacknowledged(&self) -> u64;

    /// The descriptor whose readiness tells when to try again.
    fn readiness(&self) -> BorrowedFd<'_>;
}
