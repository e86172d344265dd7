//! `gpunet_shutdown`.

use super::direction::Taken;
use gpunet_abi::{Direction, Error, Result};
use gpunet_device::{Group, Net, RecvHalf, SendHalf};

/// Linux's `SHUT_RD`.
pub const SHUT_RD: i32 = 0;
/// Linux's `SHUT_WR`.
pub const SHUT_WR: i32 = 1;
/// Linux's `SHUT_RDWR`.
pub const SHUT_RDWR: i32 = 2;

/// Ends one direction of a stream, or both. What was sent still arrives, and then the end of the
/// stream.
///
/// # Cooperation
/// All lanes call it with the same arguments.
///
/// # Errors
/// BadHandle; NotConnected; InvalidArgument; Busy when another group uses that direction.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix as posix;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// posix::shutdown::shutdown(g, net, socket, posix::shutdown::SHUT_WR)?;
/// # Ok(())
/// # }
/// ```
pub fn shutdown<G: Group>(g: &G, net: Net, socket: i32, how: i32) -> Result<i64> {
    if !(SHUT_RD..=SHUT_RDWR).contains(&how) {
        return Err(Error::InvalidArgument);
    }
    if how != SHUT_RD {
        let taken = Taken::take(g, net, socket, Direction::Send)?;
        SendHalf::load_locked(net, taken.handle).shutdown(g);
        taken.give(g);
    }
    if how != SHUT_WR {
        let taken = Taken::take(g, net, socket, Direction::Recv)?;
        RecvHalf::load(net, taken.handle).shutdown(g);
        taken.give(g);
    }
    Ok(0)
}
