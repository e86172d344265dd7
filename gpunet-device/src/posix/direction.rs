//! One direction of a stream, taken for one call.

use super::{handle, unless};
use crate::outcome::by_leader;
use crate::slots::{self, Half};
use crate::{Group, Net};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Options, Result};

/// A direction that the calling group holds.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    half: Half,
}

impl Taken {
    /// Takes a direction of the stream that a C program names. All lanes.
    ///
    /// # Errors
    /// BadHandle; NotConnected; Busy when another group has the direction.
    #[inline(always)]
    pub(crate) fn take<G: Group>(g: &G, net: Net, socket: i32, half: Half) -> Result<Self> {
        let handle = handle(socket)?;
        by_leader(g, || {
            unless(net.is_attached(), Error::NetworkDown)?;
            unless(slots::kind_of(net, handle)? == Kind::Stream, Error::NotConnected)?;
            unless(slots::lock(net, handle.slot(), half), Error::Busy)?;
            // It may have been closed, and even taken anew, between the two looks.
            slots::kind_of(net, handle).inspect_err(|_| slots::unlock(net, handle.slot(), half))?;
            Ok(0)
        })?;
        Ok(Self { net, handle, half })
    }

    /// The socket's options. All lanes.
    #[inline(always)]
    pub(crate) fn options(&self) -> Options {
        slots::options(self.net, self.handle)
    }

    /// Gives the direction back after a call whose socket option allows it `timeout_ns`; that limit
    /// ends with EAGAIN, as in Linux, and ETIMEDOUT is the connection's own. All lanes.
    ///
    /// # Errors
    /// The call's.
    #[inline(always)]
    pub(crate) fn finish<G: Group>(self, g: &G, result: Result<i64>, timeout_ns: u64) -> Result<i64> {
        let result = match result {
            Err(Error::TimedOut) if timeout_ns != 0 => by_leader(g, || {
                let status = self.net.status(self.handle.slot(), self.handle.generation());
                match status.and_then(gpunet_abi::Status::error) {
                    Some(Error::TimedOut) => Err(Error::TimedOut),
                    _ => Err(Error::WouldBlock),
                }
            })
            .map(|_| 0),
            other => other,
        };
        self.give(g);
        result
    }

    /// Gives the direction back. All lanes.
    #[inline(always)]
    pub(crate) fn give<G: Group>(self, g: &G) {
        // All lanes have read the books, and the leader has stored the new positions.
        g.sync();
        if g.is_leader() {
            slots::unlock(self.net, self.handle.slot(), self.half);
        }
    }
}
