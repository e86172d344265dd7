//! The rc protocol: librdmacm's rsocket protocol, version 1, as a pure state machine.
//!
//! | file | what |
//! |---|---|
//! | `hello` | the 40 bytes of private data that both ends exchange, and the 16 spare bytes by which two gpunet ends know each other |
//! | `message` | the 32-bit messages: immediate data, or 4-byte sends on iWARP |
//! | `sender` | one direction out: the peer's buffers and the credits it gave |
//! | `receiver` | one direction in: what was granted, what came, what is free again |
//! | `work` | what a network card is asked to do |
//! | `violation` | what a peer did that the protocol forbids |
//! | `machine` | both, and shutdown, control messages, signs of life: inputs in, work requests out |
//!
//! No clock and no I/O: [`Machine`] is driven by `handle_*` and [`Machine::poll`]. The driver,
//! which owns a queue pair, is `gpunet_core::transport::rc`.
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
mod violation;
mod work;

pub use hello::{BadHello, Capabilities, HELLO_LEN, Hello, Remote};
pub use machine::{Config, Failure, Machine, Variant};
pub use message::{CONTROL_LIMIT, Message};
pub use receiver::{Receiver, least_area};
pub use sender::Sender;
pub use violation::Violation;
pub use work::{Op, Sge, Source};
