//! Sockets for GPU kernels: the device side.
//!
//! A kernel's thread block (or warp, or thread) listens, accepts, connects, sends, receives, polls
//! and closes. Kernels are written once, generic over [`Group`], and run as PTX on a GPU or as CPU
//! thread blocks.
//!
//! | layer | modules |
//! |---|---|
//! | the API | [`Listener`], [`Stream`] with its halves [`SendHalf`] and [`RecvHalf`], [`poll()`], [`PollGroup`], [`trigger`] (what the host prepares), [`team`] (memory that several devices share) |
//! | who calls | [`group`] ([`Group`] and its implementations), [`kernel`] ([`Kernel`], `kernel_entry!`) |
//! | what moves | [`buffer`] ([`Buffer`], [`Source`]), [`copy`](mod@copy) |
//! | below | `half` (what sending and receiving share), `close`, `net` (addresses), `slots` and `table` (the device's socket table), `request` (control slots), `wait` (for the other end's word), `guard` and `timeout` (what ends a wait), `platform` (what differs between GPU and CPU), `panic` (the record of a GPU's panic) |
//! | C | [`posix`]: the calls as C programs know them; `capi` exports them from the PTX (feature `capi`) |
//!
//! Data never passes through a control request: a send is a copy and one published word, a receive
//! one observed word and a copy.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, auto_traits, negative_impls))]

mod accept_queue;
mod accept_turn;
mod accepted;
mod awaiting;
pub mod buffer;
#[cfg(feature = "capi")]
#[doc(hidden)]
pub mod capi;
mod close;
pub mod copy;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
mod entry;
mod free_slots;
pub mod group;
mod guard;
mod half;
pub mod kernel;
mod line;
pub mod listener;
mod lists;
mod member;
mod membership;
mod net;
mod outcome;
mod ownership;
#[cfg(target_arch = "nvptx64")]
mod panic;
mod plain;
mod platform;
pub mod poll;
pub mod poll_group;
pub mod posix;
pub mod recv;
mod request;
pub mod send;
mod slots;
pub mod stream;
pub mod team;
#[cfg(test)]
mod test_device;
mod timeout;
pub mod trigger;
mod turn;
mod unpublished;

pub use buffer::{Buffer, Source};
pub use gpunet_abi as abi;
pub use gpunet_abi::options::TransportKind;
pub use gpunet_abi::{
    Direction, Error, Gate, Handle, Options, Prepared, Result, RingSpan, SockAddr, Trigger,
};
pub use group::Group;
pub use kernel::Kernel;
pub use listener::Listener;
pub use net::Net;
pub use poll::{PollFd, PollSet, poll, poll_until};
pub use poll_group::PollGroup;
pub use recv::RecvHalf;
pub use send::SendHalf;
pub use stream::{Shutdown, Stream};
pub use team::{Rank, Signal, SymmetricPtr, TeamHandle};

/// Nanoseconds of the device's monotonic clock, for measuring within one device.
///
/// # Examples
///
/// ```
/// let start = gpunet_device::now_ns();
/// let elapsed_ns = gpunet_device::now_ns() - start;
/// # let _ = elapsed_ns;
/// ```
#[inline(always)]
#[must_use]
pub fn now_ns() -> u64 {
    platform::now_ns()
}
