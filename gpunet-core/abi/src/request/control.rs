//! Control requests: everything that is not bytes.
//!
//! A control slot belongs to one group at a time, claimed in the device's own memory. The device
//! writes the [`Request`] and then publishes a new sequence number in the slot's request word; the
//! proxy answers by writing the [`Reply`] and then publishing the same number in [`Reply::seq`]. A
//! device that gives up (deadline, cancel) publishes the number in the slot's abandon word too; the
//! proxy then answers at once, with whichever came first. For a group that leaves without the reply
//! see [`crate::claim`].

use crate::table::accept::PREPARED;
use crate::types::addr::SockAddr;
use crate::types::link::Link;
use crate::types::options::Options;
use crate::types::region::RegionOffset;

/// The operation of a request. The numbers are part of the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Bind `slot` to `address`; with [`Request::LISTEN`] also listen.
    Bind = 1,
    /// Listen on the bound `slot`, `backlog` deep.
    Listen = 2,
    /// Connect `slot` to `address`.
    Connect = 3,
    /// Accept from listener `slot` into the fresh slot `target`.
    Accept = 4,
    /// Close `slot`, whose final positions are `send_position` and `recv_position`.
    Close = 5,
    /// Apply `options` to the open `slot`.
    SetOptions = 6,
    /// Read from the open `slot` the value that `value` names ([`Query`]).
    Query = 7,
    /// Hold the fresh `slots` for connections of listener `slot`, from position `value` on
    /// ([`crate::accept`]).
    Prepare = 8,
    /// Make the fresh `slot` a poll group of up to `value` sockets ([`crate::poll_group`]).
    Group = 9,
}

impl Op {
    /// Reads the ABI's number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Bind,
            2 => Self::Listen,
            3 => Self::Connect,
            4 => Self::Accept,
            5 => Self::Close,
            6 => Self::SetOptions,
            7 => Self::Query,
            8 => Self::Prepare,
            9 => Self::Group,
            _ => return None,
        })
    }
}

/// The values that [`Op::Query`] can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Query {
    /// Bytes published by the device that have not left the proxy and the kernel (SIOCOUTQ).
    OutQueue = 1,
}

/// [`Request::target`] of a request that names no second slot.
pub const NO_SLOT: u32 = u32::MAX;

/// A request, written by the device. Plain integers only: the proxy believes none of them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// An [`Op`] as a number.
    pub op: u32,
    /// The socket's slot.
    pub slot: u32,
    /// The socket's generation.
    pub generation: u32,
    /// The launch that asks.
    pub launch: u32,
    /// Accept: the fresh slot for the connection.
    pub target: u32,
    /// Accept: the fresh slot's generation.
    pub target_generation: u32,
    /// Bits of [`Request::LISTEN`], [`Request::NO_WAIT`] and [`Request::ANSWER_FIRST`].
    pub flags: u32,
    /// Listen: how many connections may wait.
    pub backlog: u32,
    /// Options of the socket.
    pub options: Options,
    /// Address to bind or connect to.
    pub address: SockAddr,
    /// Close: bytes published.
    pub send_position: u64,
    /// Close: bytes consumed. Of a listener: how many connections were taken that were accepted
    /// ahead.
    pub recv_position: u64,
    /// Query: what is asked. Accept: how many connections were taken that were accepted ahead, or
    /// [`Request::UNCOUNTED`]. Prepare: the position of the first slot.
    pub value: u64,
    /// Prepare: the handles of the fresh slots, and 0 after the last one.
    pub slots: [i32; PREPARED],
    reserved: u64,
}

impl Request {
    /// Bind: listen as well.
    pub const LISTEN: u32 = 1;
    /// Accept: answer EAGAIN instead of waiting.
    pub const NO_WAIT: u32 = 2;
    /// Close: answer as soon as the request is in the proxy's queue. Whatever the device does
    /// afterwards comes later in that queue.
    pub const ANSWER_FIRST: u32 = 4;

    /// Accept: the caller takes no connection that was accepted ahead.
    pub const UNCOUNTED: u64 = u64::MAX;

    /// Returns whether the request is answered before it is carried out.
    #[must_use]
    pub const fn is_answered_first(&self) -> bool {
        self.op == Op::Close as u32 && self.flags & Self::ANSWER_FIRST != 0
    }

    /// A request without operands.
    #[must_use]
    pub const fn new(op: Op, slot: u32, generation: u32, launch: u32) -> Self {
        Self {
            op: op as u32,
            slot,
            generation,
            launch,
            target: NO_SLOT,
            target_generation: 0,
            flags: 0,
            backlog: 128,
            options: Options::DEFAULT,
            address: SockAddr::NONE,
            send_position: 0,
            recv_position: 0,
            value: 0,
            slots: [0; PREPARED],
            reserved: 0,
        }
    }
}

/// Where the rings and words of an open stream lie. Written by the proxy; the device copies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// A [`crate::options::TransportKind`] as a number: what carries the stream.
    pub transport: u32,
    /// Who is at the other side.
    pub link: Link,
    /// Send ring.
    pub send_ring: RegionOffset,
    /// Receive ring.
    pub recv_ring: RegionOffset,
    /// Word the device writes: bytes sent.
    pub published: RegionOffset,
    /// Word the device polls: bytes of the send ring that are free again.
    pub released: RegionOffset,
    /// Word the device polls: bytes received.
    pub landed: RegionOffset,
    /// Word the device writes: bytes consumed.
    pub consumed: RegionOffset,
    /// The [line](crate::line) of the send ring, in the ring's region; 0: the stream has none in
    /// this direction.
    pub send_line: RegionOffset,
    /// The line of the receive ring, likewise.
    pub recv_line: RegionOffset,
    /// log2 of the send ring's size, and perhaps [`Descriptor::UNITS`].
    pub send_log2: u32,
    /// log2 of the receive ring's size.
    pub recv_log2: u32,
    /// This end's address.
    pub local: SockAddr,
    /// The other end's address.
    pub peer: SockAddr,
}

const _: () = assert!(size_of::<Descriptor>() == 144);

impl Descriptor {
    /// Beside [`Descriptor::send_log2`]: the two lines are [unit rings](crate::units).
    pub const UNITS: u32 = 1 << 8;

    /// Returns whether it describes no stream: the slot was prepared for a connection, and the
    /// proxy has refused it.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.transport == 0
    }
}

/// A reply, written by the proxy. `seq` is published last.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Reply {
    /// The request's sequence number, once the rest is in place.
    pub seq: u64,
    /// 0, or the positive errno.
    pub errno: u32,
    reserved: u32,
    /// Query: the answer.
    pub value: u64,
    /// Connect and accept: the stream. Bind and listen: only `local` is set.
    pub descriptor: Descriptor,
}

impl Reply {
    /// A reply without a stream.
    #[must_use]
    pub const fn new(errno: u32, value: u64) -> Self {
        Self {
            seq: 0,
            errno,
            reserved: 0,
            value,
            descriptor: Descriptor {
                transport: 0,
                link: Link::driven(0),
                send_ring: RegionOffset(0),
                recv_ring: RegionOffset(0),
                published: RegionOffset(0),
                released: RegionOffset(0),
                landed: RegionOffset(0),
                consumed: RegionOffset(0),
                send_line: RegionOffset(0),
                recv_line: RegionOffset(0),
                send_log2: 0,
                recv_log2: 0,
                local: SockAddr::NONE,
                peer: SockAddr::NONE,
            },
        }
    }
}

/// One control slot: the request's lines, the reply's lines, and the CPU waiter's flag.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct ControlSlot {
    /// Written by the device that holds the claim.
    pub request: Request,
    reserved: [u64; 8],
    /// Written by the proxy.
    pub reply: Reply,
    reserved2: [u64; 6],
    /// Set by a CPU waiter that sleeps until the reply; see [`crate::park`].
    pub park: u32,
    reserved3: [u32; 7],
}

const _: () = assert!(size_of::<Request>() == 192);
const _: () = assert!(size_of::<ControlSlot>() == 512);
const _: () = assert!(core::mem::offset_of!(ControlSlot, reply) == 256);
