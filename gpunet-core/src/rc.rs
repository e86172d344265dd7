//! The rc protocol: librdmacm's rsocket protocol, version 1, as a pure state machine.
//!
//! | file | what |
//! |---|---|
//! | `hello` | the 40 bytes of private data that both ends exchange, and the 16 spare bytes by which two gpunet ends know each other |
//! | `message` | the 32-bit messages: immediate data, or 4-byte sends on iWARP |
//! | `sender` | one direction out: the peer's buffers and the credits it gave |
//! | `receiver` | one direction in: what was granted, what came, what is free again |
//! | `machine` | both, and shutdown, control messages, signs of life: inputs in, work requests out |
//!
//! No clock and no I/O: [`Machine`] is driven by `handle_*` and [`Machine::poll`]. The driver, which
//! owns a queue pair, is [`crate::transport::rc`].
//!
//! # The stream in positions
//! A receive ring of `C` bytes is published to the sender piece by piece. Every piece (an *area*)
//! continues where the last one ended, so byte `p` of the stream always lands at ring offset
//! `p mod C`, and four positions describe a direction:
//!
//! ```text
//! consumed <= received <= granted <= consumed + C
//! ```

mod hello;
mod machine;
mod message;
mod receiver;
mod sender;

pub use hello::{BadHello, Capabilities, HELLO_LEN, Hello, Remote};
pub use machine::{Config, Failure, Machine, Variant};
pub use message::{CONTROL_LIMIT, Message};
pub use receiver::Receiver;
pub use sender::Sender;

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
        /// What the message says.
        claimed: u32,
        /// What it could say.
        room: u64,
    },
    /// The message tells another number of bytes than the card counted.
    #[error("{claimed} bytes announced, {written} written")]
    Length {
        /// What the message says.
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
    /// A buffer descriptor that overwrites one that is not used up, or wraps round the address space.
    #[error("a buffer descriptor that cannot be")]
    BadArea,
    /// Data, or an end, after the end of the stream.
    #[error("a message after the end of the stream")]
    AfterEnd,
}
