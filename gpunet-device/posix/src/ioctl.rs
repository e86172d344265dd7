//! `gpunet_ioctl`: how much can be read, how much is on its way, non-blocking.

use super::direction::Taken;
use super::{errno, handle, unless};
use gpunet_abi::{Direction, Error, Options, Result};
use gpunet_device::internal::{by_leader, entry, out_queue_of, slots};
use gpunet_device::{Group, Net, RecvHalf, SendHalf};

/// Bytes that can be received without waiting.
pub const FIONREAD: u32 = 0x541b;
/// Bytes sent that are not acknowledged (`SIOCOUTQ`).
pub const TIOCOUTQ: u32 = 0x5411;
/// gpunet's own: bytes that can be sent without waiting.
pub const GPUNET_SPACE: u32 = 0x6770_0001;
/// Sets (not 0) or clears non-blocking.
pub const FIONBIO: u32 = 0x5421;

/// Does what `request` names; `value` is an `int`, read by FIONBIO and written by the others.
///
/// # Cooperation
/// All lanes call it with the same arguments; after it every lane sees the value.
///
/// # Errors
/// BadHandle; NotConnected; Busy when another group receives (FIONREAD) or sends (GPUNET_SPACE);
/// ENOTTY; EFAULT.
///
/// # Safety
/// `value` is null, or readable and writable.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix as posix;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32, value: *mut i32) -> Result<()> {
/// // SAFETY: an `int` of the block, in memory that all lanes see.
/// unsafe { posix::ioctl::ioctl(g, net, socket, posix::ioctl::FIONREAD, value) }?;
/// # Ok(())
/// # }
/// ```
pub unsafe fn ioctl<G: Group>(g: &G, net: Net, socket: i32, request: u32, value: *mut i32) -> Result<i64> {
    unless(!value.is_null(), errno::FAULT)?;
    let found = match request {
        FIONREAD => {
            let taken = Taken::take(g, net, socket, Direction::Recv)?;
            let found = RecvHalf::load(net, taken.handle).available(g);
            taken.give(g);
            found? as u64
        }
        GPUNET_SPACE => {
            let taken = Taken::take(g, net, socket, Direction::Send)?;
            let mut half = SendHalf::load_locked(net, taken.handle);
            let found = half.free_space(g);
            taken.give(g);
            found? as u64
        }
        // Not of a `Stream`: this group would become the one that announces what another receives.
        TIOCOUTQ => {
            let handle = handle(socket)?;
            by_leader(g, || out_queue_of(net, handle))?
        }
        FIONBIO => {
            // SAFETY: the caller's contract.
            return nonblocking(g, net, socket, unsafe { value.read_volatile() } != 0);
        }
        _ => return Err(errno::NOT_A_REQUEST),
    };
    by_leader(g, || {
        // SAFETY: the caller's contract; one lane writes.
        unsafe { value.write(i32::try_from(found).unwrap_or(i32::MAX)) };
        Ok(0)
    })?;
    Ok(0)
}

/// `gsetnonblock`: whether calls on the socket wait.
///
/// # Cooperation
/// All lanes call it with the same arguments.
///
/// # Errors
/// BadHandle; NetworkDown.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Result};
/// # use gpunet_posix as posix;
/// # fn example<G: Group>(g: &G, net: Net, socket: i32) -> Result<()> {
/// posix::ioctl::nonblocking(g, net, socket, true)?; // calls return WouldBlock instead of waiting
/// # Ok(())
/// # }
/// ```
pub fn nonblocking<G: Group>(g: &G, net: Net, socket: i32, on: bool) -> Result<i64> {
    let handle = handle(socket)?;
    by_leader(g, || {
        unless(net.is_attached(), Error::NetworkDown)?;
        slots::kind_of(net, handle)?;
        let options = entry::options(net, handle).with_flag(Options::NONBLOCK, on);
        entry::set_options(net, handle, &options);
        Ok(0)
    })?;
    Ok(0)
}
