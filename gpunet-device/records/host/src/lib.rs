//! The host side of what kernels say about themselves: makes rings of records, reads them while
//! kernels run and after they have hung or were killed, prints their lines, and sends everything to
//! collectors.
//!
//! The only module with unsafe code is `rings`: a kernel is given addresses, and a [`Reader`] keeps
//! the memory behind its own.
//!
//! | file | holds |
//! |---|---|
//! | `error` | errors |
//! | `rings` | [`Rings`]: making rings; [`Reader`]: reading them |
//! | `formats` | [`Formats`]: makes lines of records |
//! | `wire` | the format in which records travel |
//! | `collectors` | programs that connect and are sent what comes |
//! | `watch` | [`Watch`]: a thread that reads, prints and sends |
#![deny(unsafe_code)]

mod collectors;
mod error;
mod formats;
mod rings;
mod watch;
pub mod wire;

pub use error::Error;
pub use formats::Formats;
pub use gpunet_records::{
    ChromeTrace, FormatInfo, FormatText, Found, Kind, Level, Line, NoLine, Record, Records, TraceCounts,
    WhenFull,
};
pub use rings::{Reader, Rings, Settings};
pub use watch::{Watch, Watching};
