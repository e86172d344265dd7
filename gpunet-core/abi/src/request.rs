//! Requests of a device and replies of the proxy.
//!
//! | module | what it is |
//! |---|---|
//! | [`claim`] | Who may use a control slot. |
//! | [`control`] | Requests and replies. |

pub mod claim;
pub mod control;
