//! `gpunet_setsockopt` and `gpunet_getsockopt`, with Linux's numbers.
//!
//! | file | holds |
//! |---|---|
//! | `get`, `set` | the two calls |
//! | `names` | levels and options, with their numbers |
//! | `value` | values as C programs hold them |

mod get;
mod names;
mod set;
mod value;

pub use get::get;
pub use names::{
    GPUNET_LINES, GPUNET_NONBLOCK, GPUNET_TRANSPORT, IPV6_V6ONLY, SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE,
    SO_LINGER, SO_RCVBUF, SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDLOWAT, SO_SNDTIMEO,
    SO_TYPE, SOL_GPUNET, SOL_IPV6, SOL_SOCKET, SOL_TCP, TCP_NODELAY,
};
pub use set::set;
