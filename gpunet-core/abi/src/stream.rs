//! What passes through a stream: positions, bytes, small messages.
//!
//! | module | what it is |
//! |---|---|
//! | [`line`] | Small messages whose flag travels with their bytes. |
//! | [`position`] | What a stream word means. |
//! | [`ring`] | The producer's and the consumer's side of a ring. |
//! | [`socket_line`] | What the proxy tells a socket, in one line. |
//! | [`span`] | Pieces of a ring. |
//! | [`trigger`] | What a host hands to kernels, so that they play messages. |
//! | [`units`] | Small messages that travel by their own tags alone. |

pub mod line;
pub mod position;
pub mod ring;
pub mod socket_line;
pub mod span;
pub mod trigger;
pub mod units;
