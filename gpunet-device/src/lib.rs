//! Sockets for GPU kernels: the device side.
//!
//! A kernel's thread block (or warp, or thread) listens, accepts, connects, sends, receives, polls
//! and closes. Kernels are written once, generic over [`Group`], and run as PTX on a GPU or as CPU
//! thread blocks.
//!
//! The modules, from below; each imports from those above it in this table only:
//!
//! | module | holds |
//! |---|---|
//! | `net` | [`Net`], the kernel's way to its sockets, and every address derived from it |
//! | `platform` | what differs between GPU and CPU: time, waiting, waking, vector accesses |
//! | [`group`] | who calls: [`Group`] and its implementations |
//! | `memory` | what moves: [`buffer`] ([`Buffer`], [`Source`]), [`copy`](mod@copy) |
//! | `wait` | what ends a wait: timeouts, deadlines, cancel, turns |
//! | `table` | the device's socket table |
//! | `socket` | [`Listener`], [`Stream`] with its halves [`SendHalf`] and [`RecvHalf`] |
//! | [`poll`](mod@poll) | [`poll()`]: one of many sockets |
//! | [`poll_group`] | [`PollGroup`]: many groups of threads wait for many sockets |
//! | [`trigger`] | what the host prepares, and kernels release and wait for |
//! | [`team`] | memory that several devices share |
//! | [`kernel`] | [`Kernel`], `kernel_entry!`, the record of a GPU's panic |
//! | `cpu` | kernels as CPU thread blocks, and what host programs share with them |
//!
//! Data never passes through a control request: a send is a copy and one published word, a receive
//! one observed word and a copy.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, auto_traits, negative_impls))]

#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
pub mod group;
pub mod kernel;
mod memory;
mod net;
mod platform;
pub mod poll;
pub mod poll_group;
mod socket;
mod table;
pub mod team;
#[cfg(test)]
mod test_device;
pub mod trigger;
mod wait;

pub use gpunet_abi as abi;
pub use gpunet_abi::options::TransportKind;
pub use gpunet_abi::{
    Direction, Error, Gate, Handle, Options, Prepared, Result, RingSpan, SockAddr, Timeout, Trigger,
};
pub use group::Group;
pub use kernel::Kernel;
pub use memory::buffer::{Buffer, Source};
pub use memory::{buffer, copy};
pub use net::Net;
pub use platform::{RelayedWord, WakeWords};
pub use poll::{PollCache, PollFd, PollSet, poll, poll_again, poll_until, poll_until_woken};
pub use poll_group::PollGroup;
pub use socket::listener::Listener;
pub use socket::recv::RecvHalf;
pub use socket::send::SendHalf;
pub use socket::stream::{Shutdown, Stream};
pub use socket::{listener, recv, send, stream};
pub use team::{Rank, Signal, SymmetricPtr, TeamHandle};

/// The functions from which gpunet-posix, gpunet-records and gpunet-calls are made. No other
/// program uses them, and they change without notice.
#[doc(hidden)]
pub mod internal {
    pub use crate::group::Lane;
    pub use crate::group::outcome::{by_leader, by_leader_once};
    pub use crate::platform::{CallGuard, back_off, load_published, load_units, store_units, yield_core};
    pub use crate::socket::half::ring_end;
    pub use crate::socket::ownership::{BeforeLock, become_receiver, look_before_lock};
    pub use crate::socket::stream::out_queue_of;
    pub use crate::socket::{close, request};
    pub use crate::table::slots::Caller;
    pub use crate::table::{entry, free_slots, slots};
    pub use crate::trigger::pass;
    pub use crate::wait::deadline::Deadline;
    pub use crate::wait::guard::WaitGuard;
}

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
