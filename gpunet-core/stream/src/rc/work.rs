//! What the machine asks of a network card: the requests of a send queue, and the descriptors that
//! they write.

/// What a send-queue request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// RDMA WRITE, with immediate data if there is any (not on iWARP).
    Write {
        /// The bytes.
        from: Source,
        /// Where to, in the peer's address space; 0 when there are no bytes.
        to: u64,
        /// The key for that place; 0 when there are no bytes.
        rkey: u32,
        /// The message that the peer receives with it, in host order.
        immediate: Option<u32>,
    },
    /// SEND of these 4 bytes, in the host's byte order (the messages of iWARP).
    Send {
        /// The message.
        message: u32,
    },
}

/// The bytes of an RDMA write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// None.
    Nothing,
    /// 16 bytes that travel inside the request (inline), never from a ring.
    Inline([u8; 16]),
    /// One or two pieces of the send ring: (address, length).
    Ring([(u64, u32); 2]),
}

/// A descriptor of a buffer, as it lies in memory: address u64, rkey u32, length u32, in the byte
/// order of the host that owns the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// First byte.
    pub address: u64,
    /// Key.
    pub rkey: u32,
    /// Bytes; 0 for "none".
    pub len: u32,
}

impl Sge {
    /// The 16 bytes of the wire, for a table on a host of this byte order.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.len.to_ne_bytes());
        bytes
    }

    /// The 16 bytes for a table on a host of the other byte order.
    #[must_use]
    pub fn to_swapped_bytes(self) -> [u8; 16] {
        let swapped = Self {
            address: self.address.swap_bytes(),
            rkey: self.rkey.swap_bytes(),
            len: self.len.swap_bytes(),
        };
        swapped.to_bytes()
    }
}
