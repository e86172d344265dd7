//! What a peer may not do.

/// What a peer did that the protocol forbids. The connection ends with EPROTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message of an operation that is reserved.
    #[error("a message of reserved operation {0}")]
    Reserved(u32),
    /// A data message of no bytes.
    #[error("a data message of 0 bytes")]
    Empty,
    /// More bytes than the buffer that was published.
    #[error("{claimed} bytes announced where {room} were granted")]
    Overrun {
        /// What the message announces.
        claimed: u32,
        /// What was granted.
        room: u64,
    },
    /// The message announces another number of bytes than the card counted.
    #[error("{claimed} bytes announced, {written} written")]
    Length {
        /// What the message announces.
        claimed: u32,
        /// What the network card counted.
        written: u32,
    },
    /// More data messages than credits.
    #[error("a data message without credit")]
    NoCredit,
    /// A credit limit that takes back credits.
    #[error("a credit limit that goes backwards by {0}")]
    CreditsRegress(u16),
    /// A buffer descriptor that overwrites one that is not used up, or wraps round the address
    /// space.
    #[error("an invalid buffer descriptor")]
    BadArea,
    /// Data, or an end, after the end of the stream.
    #[error("a message after the end of the stream")]
    AfterEnd,
}
