//! Teams: kernels of several devices that store into each other's memory.
//!
//! The members of a team have [symmetric memory](SymmetricPtr): each has a part of the same size,
//! and each can store into and load from every part. A kernel gets a [`TeamHandle`] and
//! [`SymmetricPtr`]s as parameters; the host makes them (`gpunet_proxy::team`).
//!
//! | calls | file |
//! |---|---|
//! | [`put`](TeamHandle::put), [`put_nbi`](TeamHandle::put_nbi), [`get`](TeamHandle::get), [`p`](TeamHandle::p), [`g`](TeamHandle::g), [`fence`](TeamHandle::fence), [`quiet`](TeamHandle::quiet) | `transfer` |
//! | [`signal`](TeamHandle::signal), [`signal_add`](TeamHandle::signal_add), [`put_signal`](TeamHandle::put_signal), [`signal_at`](TeamHandle::signal_at) | `signal` |
//! | [`wait_until`](TeamHandle::wait_until), [`wait_until_any`](TeamHandle::wait_until_any), [`test`](TeamHandle::test), [`wait_until_at`](TeamHandle::wait_until_at) | `wait` |
//! | [`barrier`](TeamHandle::barrier) | `barrier` |
//! | [`all_gather`](TeamHandle::all_gather), [`broadcast`](TeamHandle::broadcast), [`all_to_all`](TeamHandle::all_to_all) | `collective` |
//! | [`reduce`](TeamHandle::reduce) | `reduce` |
//!
//! `pointer` has [`SymmetricPtr`], `element` what it may point to.
//!
//! # Signals
//! For each signal and source a member has one word, which that source alone writes. Its values
//! grow: a waiter waits for "at least". So no atomic operation crosses a bus, and a signal that
//! comes twice or late does no harm.
//!
//! # Failures
//! No call waits for ever for a member that has died: the wait ends with ConnectionReset, on all
//! members. A wait for one that has left in good order ends with NotConnected.
//! [`TeamHandle::timeout`] limits waits; the launch's cancel and the proxy's end also end them, as
//! they do those of sockets.

mod barrier;
mod collective;
pub mod element;
pub mod pointer;
pub mod reduce;
mod signal;
mod transfer;
mod wait;

use crate::Net;
use crate::wait::deadline::Deadline;
use core::mem::offset_of;
pub use element::{Bf16, Element, F16};
use gpunet_abi::arena::PartHeader;
use gpunet_abi::team::TeamState;
pub use gpunet_abi::team::{MAX_VALUE, Rank, Signal};
use gpunet_abi::{Error, MAGIC, Result, Timeout, VERSION, Word};
pub use pointer::SymmetricPtr;
pub use reduce::{Maximum, Minimum, Number, ONE_SHOT, Operation, Reducible, Sum};
pub use wait::Condition;

/// The handle by which a kernel acts as a member of a team.
///
/// A `Copy` value, passed by value as (part of) a kernel's parameters.
/// `gpunet_proxy::team::Team::handle` makes it.
///
/// # Examples
///
/// ```
/// use gpunet_device::team::{Rank, Signal, SymmetricPtr, TeamHandle};
/// use gpunet_device::{Group, Kernel, kernel_entry};
///
/// /// Sends a number around the ring of all members.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Ring {
///     team: TeamHandle,
///     number: SymmetricPtr<u64>,
/// }
///
/// impl Kernel for Ring {
///     const ENTRY: &'static str = "ring";
///     fn run<G: Group>(self, g: &G) {
///         let (team, rank) = (self.team, self.team.rank());
///         if g.is_leader() {
///             let _ = team.p(self.number, u64::from(rank.0), rank.right_of(team.size()));
///         }
///         let _ = team.barrier(g);
///     }
/// }
/// kernel_entry!(ring, "ring", Ring);
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TeamHandle {
    net: Net,
    /// The address of the [`TeamState`].
    state: u64,
    timeout: Timeout,
    rank: u32,
    size: u32,
}

impl TeamHandle {
    /// The handle of no team.
    #[doc(hidden)]
    pub const NONE: Self =
        // SAFETY: 0 stands for no context.
        Self { net: unsafe { Net::from_raw(0) }, state: 0, timeout: Timeout::NEVER, rank: 0, size: 0 };

    /// The context of the launch.
    #[must_use]
    #[inline(always)]
    pub const fn net(self) -> Net {
        self.net
    }

    /// The address of the team's state: 0 for none.
    #[must_use]
    #[inline(always)]
    pub const fn raw_state(self) -> u64 {
        self.state
    }

    /// Makes the handle of the state at that device address.
    ///
    /// # Safety
    /// A [`TeamState`] of this version lies at `state`, with everything that belongs behind it, for
    /// member `rank` of `size`; it and the blocks that it names stay mapped while any call uses
    /// this value. `net` is of a launch of the device that has the state.
    #[must_use]
    #[inline(always)]
    pub const unsafe fn from_raw(net: Net, state: u64, rank: u32, size: u32) -> Self {
        Self { net, state, timeout: Timeout::NEVER, rank, size }
    }

    /// Returns the same handle whose waits end with TimedOut after `timeout`. At first they have no
    /// limit.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result, team::TeamHandle, Timeout};
    /// # fn example<G: Group>(g: &G, team: TeamHandle) -> Result<()> {
    /// team.timeout(Timeout::secs(1)).barrier(g)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn timeout(mut self, timeout: Timeout) -> Self {
        self.timeout = timeout;
        self
    }

    /// This member.
    #[must_use]
    #[inline(always)]
    pub const fn rank(self) -> Rank {
        Rank(self.rank)
    }

    /// How many members there are.
    #[must_use]
    #[inline(always)]
    pub const fn size(self) -> u32 {
        self.size
    }

    /// How many signals there are.
    #[must_use]
    #[inline(always)]
    pub fn signals(self) -> u32 {
        // SAFETY: `from_raw`'s contract; the field does not change.
        unsafe { (*self.state()).signals }
    }

    /// Returns whether a team of this version stands behind the handle: not if it is zero.
    #[must_use]
    #[inline(always)]
    pub fn is_joined(self) -> bool {
        // SAFETY: `from_raw`'s contract; the fields do not change.
        self.state != 0 && unsafe { ((*self.state()).magic, (*self.state()).version) } == (MAGIC, VERSION)
    }

    #[inline(always)]
    const fn state(self) -> *mut TeamState {
        self.state as *mut TeamState
    }

    /// # Errors
    /// InvalidArgument, for a member that does not exist.
    #[inline(always)]
    const fn check_rank(self, rank: Rank) -> Result<()> {
        if rank.0 < self.size { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// # Errors
    /// InvalidArgument, for a signal that does not exist.
    #[inline(always)]
    fn check_signal(self, signal: Signal) -> Result<()> {
        if signal.0 < self.signals() { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// The address of the block of a member that exists.
    #[inline(always)]
    fn block(self, member: Rank) -> u64 {
        let blocks = (self.state + TeamState::BLOCKS) as *const u64;
        // SAFETY: an entry of the table behind the state, which does not change.
        unsafe { blocks.wrapping_add(member.0 as usize).read() }
    }

    /// The header of that block.
    #[inline(always)]
    fn header(self, member: Rank) -> *mut PartHeader {
        self.block(member) as *mut PartHeader
    }

    /// A word of a block.
    #[inline(always)]
    fn block_word(self, member: Rank, offset: u64) -> Word {
        // SAFETY: the layout's offsets are of aligned words inside the block, which stays mapped
        // (`from_raw`).
        unsafe { Word::from_ptr((self.block(member) + offset) as *mut u64) }
    }

    /// The word of a signal in the block of `owner` that `source` writes. All three exist.
    #[inline(always)]
    fn signal_word(self, signal: Signal, owner: Rank, source: Rank) -> Word {
        // SAFETY: `from_raw`'s contract; the layout does not change.
        let (signals, row) = unsafe { ((*self.state()).layout.signals, (*self.state()).layout.row) };
        self.block_word(owner, signals + u64::from(signal.0) * row + u64::from(source.0) * 8)
    }

    /// The value last sent of a signal to a member. Both exist.
    #[inline(always)]
    fn sent(self, signal: Signal, to: Rank) -> Word {
        let at = u64::from(signal.0) * u64::from(self.size) + u64::from(to.0);
        // SAFETY: an aligned word behind the state.
        unsafe { Word::from_ptr((self.state + TeamState::sent(self.size) + at * 8) as *mut u64) }
    }

    /// A word of the state that groups of this device change under its lock.
    #[inline(always)]
    fn state_word(self, offset: usize) -> Word {
        // SAFETY: callers pass the offsets of aligned words of the state.
        unsafe { Word::from_ptr((self.state + offset as u64) as *mut u64) }
    }

    #[inline(always)]
    fn passed(self) -> Word {
        self.state_word(offset_of!(TeamState, passed))
    }

    #[inline(always)]
    fn out_of_step(self) -> Word {
        self.state_word(offset_of!(TeamState, out_of_step))
    }

    /// When a wait that begins now ends.
    #[inline(always)]
    fn deadline(self) -> Deadline {
        Deadline::of_word(self.timeout)
    }
}
