//! The service's own counters: their places in [`gpunet_serve::Counters::own`].

/// Commands carried out.
pub const COMMANDS: usize = 0;
/// Reads of keys that were there.
pub const HITS: usize = 1;
/// Reads of keys that were not.
pub const MISSES: usize = 2;
/// Connections closed because of what they sent.
pub const PROTOCOL_ERRORS: usize = 3;
