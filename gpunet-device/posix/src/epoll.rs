//! `gpunet_epoll_create`, `gpunet_epoll_ctl`, `gpunet_epoll_wait` and `gpunet_epoll_close`: poll
//! groups.

use super::{errno, handle, unless};
use crate::call_timeout;
use gpunet_abi::{Error, Result};
use gpunet_device::poll_group::{Event, Events};
use gpunet_device::{Group, Net, PollGroup, Timeout};

/// Adds a socket (Linux's `EPOLL_CTL_ADD`).
pub const GPUNET_EPOLL_ADD: i32 = 1;
/// Takes a socket out (`EPOLL_CTL_DEL`).
pub const GPUNET_EPOLL_DEL: i32 = 2;
/// Changes events and token, and arms the socket (`EPOLL_CTL_MOD`).
pub const GPUNET_EPOLL_MOD: i32 = 3;
/// Arms a socket that was delivered, before the next wait does.
pub const GPUNET_EPOLL_REARM: i32 = 4;

/// Makes a poll group for up to `capacity` sockets; 0: as many as there are. Returns its handle,
/// which `gpunet_close` takes, too.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same handle.
///
/// # Errors
/// As [`PollGroup::create`].
///
/// # Examples
///
/// See [`wait`].
pub fn create<G: Group>(g: &G, net: Net, capacity: u32) -> Result<i64> {
    PollGroup::create(g, net, capacity).map(|group| i64::from(group.handle().raw()))
}

/// Adds a socket, changes it, takes it out or arms it, as `op` says. `events` and `token` are those
/// of [`PollGroup::add`].
///
/// # Cooperation
/// All lanes call it with the same arguments.
///
/// # Errors
/// As [`PollGroup::add`] and [`PollGroup::modify`]; InvalidArgument for another operation.
///
/// # Examples
///
/// See [`wait`].
pub fn ctl<G: Group>(
    g: &G,
    net: Net,
    group: i32,
    op: i32,
    socket: i32,
    events: i32,
    token: u64,
) -> Result<i64> {
    let (group, socket) = (PollGroup::from_handle(g, net, handle(group)?)?, handle(socket)?);
    match op {
        GPUNET_EPOLL_ADD => group.add(g, socket, events as i16, token),
        GPUNET_EPOLL_DEL => group.remove(g, socket),
        GPUNET_EPOLL_MOD => group.modify(g, socket, events as i16, token),
        GPUNET_EPOLL_REARM => group.rearm(g, socket),
        _ => Err(Error::InvalidArgument),
    }?;
    Ok(0)
}

/// Waits until sockets of the group are ready; returns how many events it has written to `events`,
/// at most `max`. The first `last` of them are those of the calling group's last wait, as they
/// were: their sockets are armed again. The timeout is in nanoseconds; negative: no limit; 0: do
/// not wait.
///
/// # Cooperation
/// All lanes call it with the same arguments.
///
/// # Errors
/// As [`PollGroup::wait`]; EFAULT.
///
/// # Safety
/// `events` is null, or points to `max` events that only this group of lanes uses.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result, poll::POLLIN, poll_group::Event};
/// # use gpunet_posix::epoll::{GPUNET_EPOLL_ADD, create, ctl, wait};
/// # fn example<G: Group>(g: &G, net: Net, listener: i32, events: *mut Event) -> Result<()> {
/// let group = create(g, net, 1000)? as i32;
/// ctl(g, net, group, GPUNET_EPOLL_ADD, listener, i32::from(POLLIN), 0)?;
/// let mut last = 0;
/// loop {
///     // SAFETY: 16 events of the block.
///     last = unsafe { wait(g, net, group, events, 16, last, -1) }? as u32;
///     // ... serves them ...
/// }
/// # }
/// ```
pub unsafe fn wait<G: Group>(
    g: &G,
    net: Net,
    group: i32,
    events: *mut Event,
    max: u32,
    last: u32,
    timeout_ns: i64,
) -> Result<i64> {
    unless(!events.is_null() && events.is_aligned(), errno::FAULT)?;
    unless(last <= max, Error::InvalidArgument)?;
    let group = PollGroup::from_handle(g, net, handle(group)?)?;
    // SAFETY: the caller's contract.
    let mut events = unsafe { Events::from_raw_parts(events, max as usize, last as usize) };
    group.wait(g, &mut events, call_timeout(timeout_ns, Timeout::NEVER)).map(|count| count as i64)
}

/// Closes a poll group. Its sockets stay open.
///
/// # Cooperation
/// All lanes call it with the same handle.
///
/// # Errors
/// As [`PollGroup::close`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix::epoll::close;
/// # fn example<G: Group>(g: &G, net: Net, group: i32) -> Result<()> {
/// close(g, net, group)?;
/// # Ok(())
/// # }
/// ```
pub fn close<G: Group>(g: &G, net: Net, group: i32) -> Result<i64> {
    PollGroup::from_handle(g, net, handle(group)?)?.close(g)?;
    Ok(0)
}
