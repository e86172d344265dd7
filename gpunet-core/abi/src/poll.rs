//! Poll groups: which sockets have changed, and who hears of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`poll_group`] | What the device and the proxy tell each other of a group. |
//! | [`poll_stack`] | Groups that wait for the proxy. |
//! | [`ready_list`] | Which sockets of a group have changed. |

pub mod poll_group;
pub mod poll_stack;
pub mod ready_list;
