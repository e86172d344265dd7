//! The host side of servers in kernels. It starts them, reads their counters and log while they
//! run, and ends them.
//!
//! The only module with unsafe code is `start`: a launch is given addresses, and [`Running`] keeps
//! the memory behind them until the kernel has ended.
//!
//! | file | holds |
//! |---|---|
//! | `start` | starting a server: its memory, and the launch |
//! | `running` | [`Running`]: a running server; [`Ringer`]: turns for its connections |
//! | `error` | errors |
#![deny(unsafe_code)]

mod error;
mod running;
mod start;

pub use error::Error;
pub use gpunet_serve::{Bell, Counters, ServerSettings};
pub use running::{LogLine, Ringer, Running};
pub use start::{start, start_with_data};
