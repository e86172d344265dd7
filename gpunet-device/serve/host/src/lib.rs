//! The host side of servers in kernels: starts them, reads their counters and their log while they
//! run, ends them.
//!
//! The one module with unsafe code is `start`: a launch is given addresses, and [`Running`] keeps
//! what they point to until the kernel has ended.
//!
//! | file | holds |
//! |---|---|
//! | `start` | starting: memory, and the launch |
//! | `running` | [`Running`]: a server that runs |
//! | `error` | why one does not |
#![deny(unsafe_code)]

mod error;
mod running;
mod start;

pub use error::Error;
pub use gpunet_serve::{Counters, ServerSettings};
pub use running::{LogLine, Running};
pub use start::start;
