//! The sockets of a device, as the device keeps them.
//!
//! | module | what it is |
//! |---|---|
//! | [`accept`] | Connections accepted ahead. |
//! | [`entry`] | A socket's entry in the device's own table. |
//! | [`recycle`] | Free socket slots. |

pub mod accept;
pub mod entry;
pub mod recycle;
