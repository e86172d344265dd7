//! `gpunet_close`.

use super::direction::Taken;
use super::handle;
use super::opening::{give, take};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Direction, Error, Result};
use gpunet_device::internal::{by_leader, close, slots};
use gpunet_device::{Group, Listener, Net, PollGroup};

/// Closes a socket of any kind, or a poll group; returns once the close is queued.
///
/// # Cooperation
/// All lanes call it.
///
/// # Errors
/// BadHandle; Busy when another group sends, receives, binds or connects; NetworkDown.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix as posix;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// posix::close::close(g, net, socket)?;
/// # Ok(())
/// # }
/// ```
pub fn close<G: Group>(g: &G, net: Net, socket: i32) -> Result<i64> {
    let handle = handle(socket)?;
    let kind = by_leader(g, || {
        if !net.is_attached() {
            return Err(Error::NetworkDown);
        }
        slots::kind_of(net, handle).map(|kind| kind as u64)
    })?;
    match Kind::from_raw(kind as u32) {
        Kind::Stream => {
            let send = Taken::take(g, net, socket, Direction::Send)?;
            // The lanes meet between the two: both use the same place of a broadcast.
            g.sync();
            let recv = match Taken::take(g, net, socket, Direction::Recv) {
                Ok(recv) => recv,
                Err(error) => {
                    send.give(g);
                    return Err(error);
                }
            };
            // The entry is not this group's any more once it is closed: nothing is given back then.
            close::close_stream(g, net, handle).inspect_err(|_| {
                if by_leader(g, || slots::kind_of(net, handle).map(|_| 0)).is_ok() {
                    send.give(g);
                    recv.give(g);
                }
            })?;
        }
        Kind::Listener => Listener::from_handle(g, net, handle)?.close(g)?,
        Kind::Group => PollGroup::from_handle(g, net, handle)?.close(g)?,
        kind => {
            by_leader(g, || {
                take(net, handle, kind)?;
                // A socket that is still open afterwards can be closed again.
                close::close(net, handle, kind).inspect_err(|_| {
                    if slots::kind_of(net, handle).is_ok() {
                        give(net, handle);
                    }
                })
            })?;
        }
    }
    Ok(0)
}
