//! The host side of calls from kernels: registers functions, runs them, and answers.
//!
//! One thread of a bounded pool polls for requests and runs the functions itself, which takes no
//! switch of threads. If a function keeps it for longer than a millisecond, another thread of the
//! pool goes on in its place. A panic is caught, and is the answer of that call alone.
//!
//! | file | holds |
//! |---|---|
//! | `error` | errors |
//! | `desk` | who may answer: each channel's answers, and what is counted |
//! | `functions` | [`Functions`], [`Reply`]: what kernels may call |
//! | `names` | the resolver of host names |
//! | `term` | which thread polls |
//! | `pool` | the threads |
//! | `server` | [`CallServer`]: memory and threads |
#![deny(unsafe_code)]

mod desk;
mod error;
mod functions;
mod names;
mod pool;
mod server;
mod term;

pub use desk::Counts;
pub use error::{Error, Registered};
pub use functions::{Functions, Reply};
pub use gpunet_calls::{Calls, Failure, Function, Plain, number_of};
pub use server::{CallServer, Settings};
