//! What ends a wait, and who waits for whom.
//!
//! | module | holds |
//! |---|---|
//! | [`timeout`] | how long a call may wait, and the deadline that it becomes |
//! | [`guard`] | what ends any wait: the deadline, cancel, a proxy without a heartbeat |
//! | [`turn`] | what one group does for all, or before the others, for a limited time |

pub mod guard;
pub mod timeout;
pub(crate) mod turn;
