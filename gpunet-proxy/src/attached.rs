//! A device while it is attached to a proxy, in this process or in a daemon.
//!
//! | module | what it is |
//! |---|---|
//! | `device` | what all above take: [`AttachedDevice`](device::AttachedDevice), and the right to it |
//! | `local`, `remote` | attaching to a proxy of this process, and to a daemon |
//! | `prepare`, `placement` | the device's side, made before the proxy knows of it; where rc rings lie |
//! | `link` | what is asked of the proxy, in this process or by a session |
//! | `session` | a program's connection to a daemon |
//! | `agent` | what maps memory for the attachment |
//! | `launches`, `socket_table` | launch numbers and what running launches know; the device's socket table |
//! | [`device_memory`], `mapped` | memory of a device; memory of several devices, as one has it |

pub(crate) mod agent;
pub(crate) mod device;
#[allow(unsafe_code)]
pub mod device_memory;
pub(crate) mod launches;
pub(crate) mod link;
pub(crate) mod local;
#[allow(unsafe_code)]
pub(crate) mod mapped;
pub(crate) mod placement;
pub(crate) mod prepare;
pub(crate) mod remote;
pub(crate) mod session;
pub(crate) mod socket_table;
