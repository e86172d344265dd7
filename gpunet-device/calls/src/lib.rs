//! Functions of the host that kernels call, for GPU and CPU thread blocks.
//!
//! A block, a warp or a thread opens a [`Caller`], writes requests into pinned host memory, and
//! polls for the answers there. Every eight bytes of a request and of an answer carry a tag, so
//! neither side publishes anything or passes a fence. Requests and answers are plain data of types
//! that a [`Function`] names; their sizes are checked at both ends.
//!
//! | module | holds |
//! |---|---|
//! | `plain` | [`Plain`], [`plain!`]: data that kernels and the host have in the same form |
//! | `function` | [`Function`], [`Failure`] |
//! | `wire` | the format of requests and answers |
//! | `layout` | [`Calls`], the kernel's way to the host, and where everything lies |
//! | `caller` | [`Caller`], [`Ticket`]: the kernel's side |
//! | `answer` | how a group waits for an answer and takes it in |
//! | `bytes` | calls whose requests and answers are bytes: those of C |
//! | `responder` | [`Requests`], [`Answers`]: the host's side of the memory |
//! | `names` | [`resolve`], [`connect`]: host names |
//!
//! The crate `gpunet-calls-host` makes the memory and runs the functions.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![deny(unsafe_code)]

mod answer;
mod bytes;
mod caller;
mod function;
mod layout;
#[cfg(all(test, loom))]
mod models;
mod names;
mod plain;
#[cfg(not(target_arch = "nvptx64"))]
mod responder;
#[cfg(test)]
mod test_calls;
#[cfg(all(test, not(loom)))]
mod tests;
mod wire;

pub use bytes::Bytes;
#[doc(hidden)]
pub use caller::Limit;
pub use caller::{Caller, Ticket};
pub use function::{Failure, Function, number_of};
pub use layout::{Calls, Shape};
pub use names::{MAX_NAME, Name, RESOLVE, connect, resolve};
pub use plain::Plain;
#[cfg(not(target_arch = "nvptx64"))]
pub use responder::{Answers, Late, Request, Requests, Return, Taken};
pub use wire::{MAX_ANSWER, MAX_REQUEST, Status};
