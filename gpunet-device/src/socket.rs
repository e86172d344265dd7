//! Streams and listeners: what a kernel does with one socket.
//!
//! | module | holds |
//! |---|---|
//! | [`request`] | control requests: claimed, posted, answered |
//! | [`half`] | what both halves of a stream do: find their ring, announce, wake the other side |
//! | [`unpublished`] | bytes that sends have left in the ring, and who publishes them |
//! | [`awaiting`] | waits for the other end's word |
//! | [`ownership`] | which group uses a half |
//! | [`send`], [`recv`] | the two halves |
//! | [`accept_queue`], [`accept_turn`] | connections accepted ahead, and who asks for one |
//! | [`close`] | the end of a socket |
//! | [`stream`] | both halves, and connect |
//! | [`listener`] | bind and accept |

pub(crate) mod accept_queue;
pub(crate) mod accept_turn;
pub(crate) mod awaiting;
pub mod close;
pub mod half;
pub mod listener;
pub(crate) mod next_units;
pub mod ownership;
pub mod recv;
pub mod request;
pub mod send;
pub mod stream;
pub(crate) mod unpublished;
