//! The one thread that makes calls for a device, and what lives on it: the context, copies,
//! launches, deferred releases.
//!
//! | file | holds |
//! |---|---|
//! | `thread` | the thread |
//! | `context` | what lives on it |
//! | `copies` | copies between host bytes and GPU memory |
//! | `launches` | the kernels that run |
//! | `busy_streams` | how many streams have work on them |
//! | `physical_memory` | physical memory at addresses of its own, and addresses to which memory comes in pieces |
//! | `release` | what dropped handles leave to be given back, once no kernel runs |
//! | `backoff` | how a thread waits for what it has to poll |

mod backoff;
mod busy_streams;
mod context;
mod copies;
mod launches;
mod physical_memory;
mod release;
mod thread;

pub(crate) use backoff::Backoff;
pub(crate) use busy_streams::BusyStreams;
pub(crate) use context::{Context, Origin};
pub(crate) use copies::{CHUNK, check_bounds};
pub(crate) use launches::{Failed, FailureReason, LeftStream, Outcome, Prepared};
pub(crate) use physical_memory::{AddressRange, PhysicalMemory};
pub(crate) use release::Release;
pub(crate) use thread::Agent;
