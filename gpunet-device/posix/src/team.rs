//! `gpunet_put` and its like: teams as C programs know them, with memory in bytes.
//!
//! A call whose time is over fails with WouldBlock, as those of sockets do. A group sees in its
//! call what its lanes have written before.

mod reduce;

use super::{SOCKET_TIMEOUT, errno, readable, unless};
use crate::call_timeout;
use gpunet_abi::{Error, Result};
use gpunet_device::team::{Rank, Signal, SymmetricPtr, TeamHandle};
use gpunet_device::{Buffer, Group, Source, Timeout};
pub use reduce::*;

/// Bytes in symmetric memory: `gpunet_symmetric_t`.
pub type Symmetric = SymmetricPtr<u8>;

/// The arguments of a C program.
///
/// # Safety
/// `data` is readable for `len` bytes.
#[inline(always)]
unsafe fn source(data: *const u8, len: u64) -> Result<Source> {
    unless(!data.is_null() || len == 0, errno::FAULT)?;
    // SAFETY: the caller's contract.
    Ok(unsafe { readable(data, len as usize) })
}

/// The errno by which C reports the end of a timeout.
#[inline(always)]
fn in_time(result: Result<()>) -> Result<i64> {
    match result {
        Ok(()) => Ok(0),
        // Only a timeout of this call has this number: the end of a team has another.
        Err(Error::TimedOut) => Err(Error::WouldBlock),
        Err(error) => Err(error),
    }
}

/// The team with the timeout of a call that waits: [`SOCKET_TIMEOUT`] is the team's own.
#[inline(always)]
const fn with_timeout(team: TeamHandle, timeout_ns: i64) -> TeamHandle {
    match timeout_ns {
        SOCKET_TIMEOUT => team,
        ns => team.timeout(call_timeout(ns, Timeout::NEVER)),
    }
}

/// Returns the address of symmetric memory in the part of a member, or null.
///
/// # Cooperation
/// The calling lane alone.
///
/// # Examples
///
/// ```
/// # use gpunet_device::team::TeamHandle;
/// # use gpunet_posix::team::{self, Symmetric};
/// # fn example(team: TeamHandle, at: Symmetric) {
/// assert!(team::ptr(team, at, team.size()).is_null()); // no such member
/// # }
/// ```
#[inline(always)]
#[must_use]
pub fn ptr(team: TeamHandle, at: Symmetric, member: u32) -> *mut u8 {
    match at.ptr(team, Rank(member)) {
        Ok(first) => first,
        Err(_) => core::ptr::null_mut(),
    }
}

/// As [`TeamHandle::put`]. Returns 0.
///
/// # Safety
/// `data` is readable for `len` bytes.
///
/// # Errors
/// As [`TeamHandle::put`]; EFAULT for null.
#[inline(always)]
pub unsafe fn put<G: Group>(
    g: &G,
    team: TeamHandle,
    to: Symmetric,
    data: *const u8,
    len: u64,
    member: u32,
) -> Result<i64> {
    g.sync();
    // SAFETY: the caller's contract.
    team.put(g, to, unsafe { source(data, len) }?, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::put_nbi`]. Returns 0.
///
/// # Safety
/// `data` is readable for `len` bytes, until the group has called [`quiet`].
///
/// # Errors
/// As [`put`].
#[inline(always)]
pub unsafe fn put_nbi<G: Group>(
    g: &G,
    team: TeamHandle,
    to: Symmetric,
    data: *const u8,
    len: u64,
    member: u32,
) -> Result<i64> {
    g.sync();
    // SAFETY: the caller's contract.
    team.put_nbi(g, to, unsafe { source(data, len) }?, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::get`], but of all `len` bytes. Returns 0.
///
/// # Safety
/// `data` is writable for `len` bytes.
///
/// # Errors
/// As [`TeamHandle::get`]; InvalidArgument when `from` is shorter; EFAULT for null.
#[inline(always)]
pub unsafe fn get<G: Group>(
    g: &G,
    team: TeamHandle,
    data: *mut u8,
    from: Symmetric,
    len: u64,
    member: u32,
) -> Result<i64> {
    g.sync();
    unless(!data.is_null() || len == 0, errno::FAULT)?;
    unless(len as usize <= from.bytes(), Error::InvalidArgument)?;
    // SAFETY: the caller's contract.
    let buffer = unsafe { Buffer::from_raw_parts(data, len as usize) };
    team.get(g, buffer, from, Rank(member)).map(|_| 0)
}

/// As [`TeamHandle::put_signal`]. Returns 0.
///
/// # Safety
/// `data` is readable for `len` bytes.
///
/// # Errors
/// As [`TeamHandle::put_signal`]; EFAULT for null.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "those of the C function")]
pub unsafe fn put_signal<G: Group>(
    g: &G,
    team: TeamHandle,
    to: Symmetric,
    data: *const u8,
    len: u64,
    signal: u32,
    value: u64,
    member: u32,
) -> Result<i64> {
    g.sync();
    // SAFETY: the caller's contract.
    let source = unsafe { source(data, len) }?;
    team.put_signal(g, to, source, Signal(signal), value, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::signal`]. Returns 0.
///
/// # Errors
/// As [`TeamHandle::signal`].
#[inline(always)]
pub fn signal<G: Group>(g: &G, team: TeamHandle, signal: u32, value: u64, member: u32) -> Result<i64> {
    team.signal(g, Signal(signal), value, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::signal_add`]. Returns 0.
///
/// # Errors
/// As [`TeamHandle::signal_add`].
#[inline(always)]
pub fn signal_add<G: Group>(g: &G, team: TeamHandle, signal: u32, value: u64, member: u32) -> Result<i64> {
    team.signal_add(g, Signal(signal), value, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::wait_until`], with a timeout in nanoseconds; negative: without limit; 0: it
/// does not wait; [`SOCKET_TIMEOUT`]: the team's timeout. Returns the value.
///
/// # Errors
/// As [`TeamHandle::wait_until`]; WouldBlock when the time is over.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Error, Group, Result, team::TeamHandle};
/// # use gpunet_posix::team::signal_wait;
/// # fn example<G: Group>(g: &G, team: TeamHandle) -> Result<()> {
/// match signal_wait(g, team, 0, 1, 7, 1_000_000) {
///     Err(Error::WouldBlock) => {} // not within 1 ms
///     value => assert!(value? >= 7),
/// }
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn signal_wait<G: Group>(
    g: &G,
    team: TeamHandle,
    signal: u32,
    source: u32,
    value: u64,
    timeout_ns: i64,
) -> Result<i64> {
    if timeout_ns == 0 && !team.test(g, Signal(signal), Rank(source), value)? {
        return Err(Error::WouldBlock);
    }
    let team = with_timeout(team, timeout_ns);
    let seen = team.wait_until(g, Signal(signal), Rank(source), value);
    in_time(seen.map(drop)).and(seen.map(|seen| seen as i64))
}

/// As [`TeamHandle::test`]. Returns 1 or 0.
///
/// # Errors
/// As [`TeamHandle::test`].
#[inline(always)]
pub fn signal_test<G: Group>(g: &G, team: TeamHandle, signal: u32, source: u32, value: u64) -> Result<i64> {
    team.test(g, Signal(signal), Rank(source), value).map(i64::from)
}

/// As [`TeamHandle::signal_at`]. Returns 0.
///
/// # Errors
/// As [`TeamHandle::signal_at`]; InvalidArgument for a place that is not aligned to eight bytes.
#[inline(always)]
pub fn word_set<G: Group>(g: &G, team: TeamHandle, to: Symmetric, value: u64, member: u32) -> Result<i64> {
    team.signal_at(g, to.cast()?, value, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::wait_until_at`], with a timeout as [`signal_wait`] has. Returns the value.
///
/// # Errors
/// As [`TeamHandle::wait_until_at`]; InvalidArgument as [`word_set`]; WouldBlock when the time is
/// over.
#[inline(always)]
pub fn word_wait<G: Group>(
    g: &G,
    team: TeamHandle,
    word: Symmetric,
    value: u64,
    timeout_ns: i64,
) -> Result<i64> {
    let seen = with_timeout(team, timeout_ns).wait_until_at(g, word.cast()?, value);
    in_time(seen.map(drop)).and(seen.map(|seen| seen as i64))
}

/// As [`TeamHandle::fence`]. Returns 0.
///
/// # Errors
/// None.
#[inline(always)]
pub fn fence<G: Group>(g: &G, team: TeamHandle) -> Result<i64> {
    team.fence(g);
    Ok(0)
}

/// As [`TeamHandle::quiet`]. Returns 0.
///
/// # Errors
/// None.
#[inline(always)]
pub fn quiet<G: Group>(g: &G, team: TeamHandle) -> Result<i64> {
    team.quiet(g);
    Ok(0)
}

/// As [`TeamHandle::barrier`]. Returns 0.
///
/// # Errors
/// As [`TeamHandle::barrier`]; WouldBlock when the team's timeout is over.
#[inline(always)]
pub fn barrier<G: Group>(g: &G, team: TeamHandle) -> Result<i64> {
    in_time(team.barrier(g))
}

/// As [`TeamHandle::all_gather`]. Returns 0.
///
/// # Safety
/// `data` is readable for `len` bytes.
///
/// # Errors
/// As [`TeamHandle::all_gather`]; WouldBlock when the team's timeout is over.
#[inline(always)]
pub unsafe fn all_gather<G: Group>(
    g: &G,
    team: TeamHandle,
    to: Symmetric,
    data: *const u8,
    len: u64,
) -> Result<i64> {
    // SAFETY: the caller's contract.
    in_time(team.all_gather(g, to, unsafe { source(data, len) }?))
}

/// As [`TeamHandle::broadcast`]. Returns 0.
///
/// # Safety
/// At the root `data` is readable for `len` bytes.
///
/// # Errors
/// As [`TeamHandle::broadcast`]; WouldBlock when the team's timeout is over.
#[inline(always)]
pub unsafe fn broadcast<G: Group>(
    g: &G,
    team: TeamHandle,
    to: Symmetric,
    data: *const u8,
    len: u64,
    root: u32,
) -> Result<i64> {
    unless(!data.is_null() || len == 0 || root != team.rank().0, errno::FAULT)?;
    // SAFETY: the caller's contract; the other members' is not read.
    let data = unsafe { readable(data, len as usize) };
    in_time(team.broadcast(g, to, data, Rank(root)))
}

/// As [`TeamHandle::all_to_all`], with `len` bytes for each member. Returns 0.
///
/// # Safety
/// `data` is readable for `len` bytes times the size of the team.
///
/// # Errors
/// As [`TeamHandle::all_to_all`]; WouldBlock when the team's timeout is over.
#[inline(always)]
pub unsafe fn all_to_all<G: Group>(
    g: &G,
    team: TeamHandle,
    to: Symmetric,
    data: *const u8,
    len: u64,
) -> Result<i64> {
    let Some(all) = len.checked_mul(u64::from(team.size())) else { return Err(Error::InvalidArgument) };
    // SAFETY: the caller's contract.
    in_time(team.all_to_all(g, to, unsafe { source(data, all) }?))
}
