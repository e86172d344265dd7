//! The device's own books: one entry per socket slot, in device memory, never shared.

use crate::{Link, Options, SockAddr};

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Nothing.
    Free = 0,
    /// Made by gsocket, or a bind or connect is under way.
    Fresh = 1,
    /// Bound, not listening.
    Bound = 2,
    /// A listener.
    Listener = 3,
    /// A stream.
    Stream = 4,
}

impl Kind {
    /// Reads the number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Fresh,
            2 => Self::Bound,
            3 => Self::Listener,
            4 => Self::Stream,
            _ => Self::Free,
        }
    }
}

/// One direction of a stream as the device keeps it between calls. Addresses are the device's own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Direction {
    /// First byte of the ring.
    pub base: u64,
    /// Bytes in the ring.
    pub capacity: u64,
    /// Address of the word this end writes.
    pub mine: u64,
    /// Address of the word the other end writes.
    pub theirs: u64,
    /// Bytes moved so far, with FIN once this end finished and ERR once it gave up.
    pub position: u64,
    /// The other end's position as last believed.
    pub seen: u64,
}

/// A socket slot as the device keeps it. 256 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// A [`Kind`] in the low 8 bits, the generation above.
    pub state: u32,
    /// 1 while a group sends (compare-exchange).
    pub send_lock: u32,
    /// 1 while a group receives (compare-exchange).
    pub recv_lock: u32,
    /// Who is at the other side.
    pub link: Link,
    /// Send direction.
    pub send: Direction,
    /// Receive direction.
    pub recv: Direction,
    /// Options.
    pub options: Options,
    /// This end's address.
    pub local: SockAddr,
    /// The other end's address.
    pub peer: SockAddr,
    /// A [`crate::options::TransportKind`] as a number.
    pub transport: u32,
    /// The errno that SO_ERROR reports once.
    pub error: u32,
    /// Bytes consumed as last announced; `recv.position` may be ahead of it.
    pub announced: u64,
    /// A stream in an arena: address of the other device's part ([`crate::arena::PartHeader`]).
    pub far: u64,
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<Entry>() == 256);

impl Entry {
    /// The entry of a slot that was just taken.
    #[must_use]
    pub const fn fresh(options: Options) -> Self {
        const NONE: Direction = Direction { base: 0, capacity: 0, mine: 0, theirs: 0, position: 0, seen: 0 };
        Self {
            state: 0,
            send_lock: 0,
            recv_lock: 0,
            link: Link::DRIVEN,
            send: NONE,
            recv: NONE,
            options,
            local: SockAddr::NONE,
            peer: SockAddr::NONE,
            transport: 0,
            error: 0,
            announced: 0,
            far: 0,
            reserved: [0; 3],
        }
    }

    /// Packs kind and generation.
    #[must_use]
    pub const fn pack(kind: Kind, generation: u32) -> u32 {
        kind as u32 | (generation << 8)
    }

    /// The kind in a packed state.
    #[must_use]
    pub const fn kind(state: u32) -> Kind {
        Kind::from_raw(state & 0xff)
    }

    /// The generation in a packed state.
    #[must_use]
    pub const fn generation(state: u32) -> u32 {
        state >> 8
    }
}

/// The two words a socket writes when the other end is a socket of the same device: they lie in
/// device memory, where that other end polls them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct OwnWords {
    /// Bytes sent.
    pub published: u64,
    reserved: [u64; 7],
    /// Bytes consumed.
    pub consumed: u64,
    reserved2: [u64; 7],
}

const _: () = assert!(size_of::<OwnWords>() == 128);
