//! What moves: bytes between buffers and rings, and plain values between agents.
//!
//! | module | holds |
//! |---|---|
//! | [`buffer`] | memory that a kernel sends from and receives into |
//! | [`copy`](mod@copy) | copies by all lanes of a group |
//! | [`line`](mod@line) | small messages in the line beside a ring |
//! | [`units`] | small messages in the unit ring beside a ring |
//! | [`plain`] | integers that are moved word by word |

pub mod buffer;
pub mod copy;
pub(crate) mod line;
pub(crate) mod plain;
pub(crate) mod units;
