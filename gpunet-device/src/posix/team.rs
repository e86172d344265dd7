//! `gput` and its like: teams as C programs know them, with memory in bytes.
//!
//! A call whose time is over fails with WouldBlock, as those of sockets do. A group sees in its call what its lanes have written
//! before.

use super::{SOCKET_TIMEOUT, errno, unless};
use crate::team::{
    Bf16, F16, Maximum, Minimum, ONE_SHOT, Rank, Reducible, Signal, Sum, SymmetricPtr, TeamHandle,
};
use crate::{Buffer, Group, Source};
use gpunet_abi::{Error, Result};

/// Bytes in symmetric memory: `gpunet_symmetric_t`.
pub type Symmetric = SymmetricPtr<u8>;

/// What a C program gives.
///
/// # Safety
/// `data` is readable for `len` bytes.
#[inline(always)]
unsafe fn source(data: *const u8, len: u64) -> Result<Source> {
    unless(!data.is_null() || len == 0, errno::FAULT)?;
    Ok(Source { ptr: data, len: len as usize })
}

/// What C calls the end of a timeout.
#[inline(always)]
fn in_time(result: Result<()>) -> Result<i64> {
    match result {
        Ok(()) => Ok(0),
        // Only a timeout of this call has this number: the end of a team has another.
        Err(Error::TimedOut) => Err(Error::WouldBlock),
        Err(error) => Err(error),
    }
}

/// The team with the timeout of a call that waits: [`SOCKET_TIMEOUT`] is the team's own, negative none.
#[inline(always)]
const fn with_timeout(team: TeamHandle, timeout_ns: i64) -> TeamHandle {
    match timeout_ns {
        SOCKET_TIMEOUT => team,
        ns if ns <= 0 => team.timeout(0),
        ns => team.timeout(ns as u64),
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
/// # use gpunet_device::{posix::team::{self, Symmetric}, team::TeamHandle};
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

/// As [`TeamHandle::wait_until`], for so many nanoseconds; negative: without limit; 0: not at all;
/// [`SOCKET_TIMEOUT`]: as long as the team's timeout says. Returns the value.
///
/// # Errors
/// As [`TeamHandle::wait_until`]; WouldBlock when the time is over.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Error, Group, Result, posix::team::signal_wait, team::TeamHandle};
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

/// As [`TeamHandle::set_word`]. Returns 0.
///
/// # Errors
/// As [`TeamHandle::set_word`]; InvalidArgument for a place that is not aligned to eight bytes.
#[inline(always)]
pub fn word_set<G: Group>(g: &G, team: TeamHandle, to: Symmetric, value: u64, member: u32) -> Result<i64> {
    team.set_word(g, to.cast()?, value, Rank(member)).map(|()| 0)
}

/// As [`TeamHandle::wait_word`], with a timeout as [`signal_wait`] has. Returns the value.
///
/// # Errors
/// As [`TeamHandle::wait_word`]; InvalidArgument as [`word_set`]; WouldBlock when the time is over.
#[inline(always)]
pub fn word_wait<G: Group>(
    g: &G,
    team: TeamHandle,
    word: Symmetric,
    value: u64,
    timeout_ns: i64,
) -> Result<i64> {
    // The shortest time there is: one look.
    let timeout_ns = if timeout_ns == 0 { 1 } else { timeout_ns };
    let seen = with_timeout(team, timeout_ns).wait_word(g, word.cast()?, value);
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
    in_time(team.broadcast(g, to, Source { ptr: data, len: len as usize }, Rank(root)))
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

macro_rules! numbers {
    ($($name:ident = $value:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub const $name: i32 = $value;
    )*};
}
numbers! {
    SUM = 1, "The operation of [`reduce`] that adds.";
    MIN = 2, "The operation that takes the smallest.";
    MAX = 3, "The operation that takes the largest.";
    INT32 = 1, "The type of elements of [`reduce`]: `int`.";
    UINT32 = 2, "`unsigned int`.";
    INT64 = 3, "`long long`.";
    UINT64 = 4, "`unsigned long long`.";
    FLOAT = 5, "`float`.";
    DOUBLE = 6, "`double`.";
    HALF = 7, "`__half`.";
    BFLOAT16 = 8, "`__nv_bfloat16`.";
}

/// As [`TeamHandle::reduce`], of all elements of `from`. Returns 0.
///
/// # Errors
/// As [`TeamHandle::reduce`]; InvalidArgument for another type or operation, or memory that is not of whole elements;
/// WouldBlock when the team's timeout is over.
#[inline(always)]
pub fn reduce<G: Group>(
    g: &G,
    team: TeamHandle,
    kind: i32,
    operation: i32,
    to: Symmetric,
    from: Symmetric,
) -> Result<i64> {
    let element = match kind {
        HALF | BFLOAT16 => 2,
        INT32 | UINT32 | FLOAT => 4,
        INT64 | UINT64 | DOUBLE => 8,
        _ => return Err(Error::InvalidArgument),
    };
    unless((SUM..=MAX).contains(&operation), Error::InvalidArgument)?;
    match element {
        2 => to.cast::<u16>().and(from.cast::<u16>()).map(drop)?,
        4 => to.cast::<u32>().and(from.cast::<u32>()).map(drop)?,
        _ => to.cast::<u64>().and(from.cast::<u64>()).map(drop)?,
    }
    team.check_reduction(to, from)?;
    // One collective around all types: its barriers are much code.
    in_time(team.collectively(g, || match kind {
        INT32 => reduce_as::<G, i32>(g, team, operation, to, from),
        UINT32 => reduce_as::<G, u32>(g, team, operation, to, from),
        INT64 => reduce_as::<G, i64>(g, team, operation, to, from),
        UINT64 => reduce_as::<G, u64>(g, team, operation, to, from),
        FLOAT => reduce_as::<G, f32>(g, team, operation, to, from),
        DOUBLE => reduce_as::<G, f64>(g, team, operation, to, from),
        HALF => reduce_as::<G, F16>(g, team, operation, to, from),
        _ => reduce_as::<G, Bf16>(g, team, operation, to, from),
    }))
}

/// Reduces this member's share. The arguments were checked.
fn reduce_as<G: Group, T: Reducible>(
    g: &G,
    team: TeamHandle,
    operation: i32,
    to: Symmetric,
    from: Symmetric,
) {
    let (Ok(to), Ok(from)) = (to.cast::<T>(), from.cast::<T>()) else { return };
    match operation {
        SUM => team.reduce_share(g, Sum, to, from, ONE_SHOT),
        MIN => team.reduce_share(g, Minimum, to, from, ONE_SHOT),
        _ => team.reduce_share(g, Maximum, to, from, ONE_SHOT),
    }
}
