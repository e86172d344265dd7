//! The ends of a wait, and who waits for whom.
//!
//! | module | holds |
//! |---|---|
//! | [`deadline`] | when a wait ends |
//! | [`guard`] | what ends any wait: the deadline, cancel, a proxy without a heartbeat |
//! | [`turn`] | what one group does for all, or before the others, for a limited time |

pub mod deadline;
pub mod guard;
pub(crate) mod turn;
