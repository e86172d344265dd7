//! What the parts of the proxy say to each other and keep: data only.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`], `settings` | how a proxy is to run; the same as text, from files and arguments |
//! | [`access`] | who may use a daemon, and how much of it; what users hold |
//! | [`snapshot`] | what a proxy holds, for operators |
//! | `attachment_state` | what all threads of a proxy share of an attachment |
//! | `message`, `agent` | what the threads say to each other; what they ask of the owner of an attachment |
//! | `launch` | what is asked and said at the end of a launch |
//! | `ids` | numbers that are unique in the process |
//! | `error` | why a call of the facade failed, and what to do about it |

pub mod access;
pub(crate) mod agent;
pub(crate) mod attachment_state;
pub mod config;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod launch;
pub(crate) mod message;
#[cfg(feature = "settings")]
pub mod settings;
pub mod snapshot;
