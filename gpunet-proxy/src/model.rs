//! What the parts of the proxy say to each other and keep: data only.

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
