//! A direction that the host has taken, found by what a trigger or a gate names.

use crate::guard::WaitGuard;
use crate::half::ring_end;
use crate::slots::{self, Half};
use crate::timeout::Deadline;
use crate::{Net, platform, table};
use gpunet_abi::entry::{Entry, Kind};
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Direction, Error, Handle, Result, Word};

/// A direction of a stream, for triggers and gates. By one lane.
#[derive(Clone, Copy)]
pub(super) struct TakenDirection {
    net: Net,
    handle: Handle,
    half: Half,
    entry: *mut Entry,
}

impl TakenDirection {
    /// Finds the stream, and notes this launch as one of its users. Whether the host has the direction is not checked.
    ///
    /// # Errors
    /// BadHandle; NotConnected; InvalidArgument for a direction that is none; NetworkDown without an attachment.
    #[inline(always)]
    pub(super) fn find(net: Net, socket: i32, direction: u32) -> Result<Self> {
        if !net.is_attached() {
            return Err(Error::NetworkDown);
        }
        let handle = Handle::from_raw(socket).ok_or(Error::BadHandle)?;
        let half = Half::of(Direction::from_raw(direction).ok_or(Error::InvalidArgument)?);
        // The rings and the entry stay this socket's now until the launch has ended: kernels close no stream of which
        // the host has a direction.
        if slots::use_handle(net, handle)? != Kind::Stream {
            return Err(Error::NotConnected);
        }
        Ok(Self { net, handle, half, entry: net.entry(handle.slot()) })
    }

    /// Checks that the host has the direction.
    ///
    /// # Errors
    /// InvalidArgument.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<()> {
        if slots::is_taken(self.net, self.handle.slot(), self.half) {
            Ok(())
        } else {
            Err(Error::InvalidArgument)
        }
    }

    /// Locks the direction among the groups that publish in it.
    ///
    /// # Errors
    /// InvalidArgument when the host does not have it; Canceled; NetworkDown.
    pub(super) fn lock(&self) -> Result<()> {
        let mut guard = WaitGuard::new(self.net, Deadline::NEVER);
        while !slots::lock_taken(self.net, self.handle.slot(), self.half) {
            // Another group has it for some stores.
            self.check()?;
            if guard.is_due() {
                guard.check()?;
            }
            platform::back_off();
        }
        Ok(())
    }

    /// Gives the lock back; the direction stays the host's.
    pub(super) fn unlock(&self) {
        slots::unlock_taken(self.net, self.handle.slot(), self.half);
    }

    /// Where the ring and its words lie.
    #[inline(always)]
    pub(super) fn end(&self) -> RingEnd {
        ring_end(&table::half_entry(self.entry, self.half), table::link_of(self.entry))
    }

    /// Bytes in the ring.
    pub(super) fn capacity(&self) -> u64 {
        table::half_entry(self.entry, self.half).capacity
    }

    /// The word that keeps what was published; changed under the lock.
    #[inline(always)]
    pub(super) fn position(&self) -> Word {
        table::position(self.entry, self.half)
    }

    /// The word that keeps what was believed of the other end's.
    #[inline(always)]
    pub(super) fn seen(&self) -> Word {
        table::seen(self.entry, self.half)
    }

    #[inline(always)]
    pub(super) const fn net(&self) -> Net {
        self.net
    }

    #[inline(always)]
    pub(super) const fn handle(&self) -> Handle {
        self.handle
    }

    #[inline(always)]
    pub(super) const fn half(&self) -> Half {
        self.half
    }

    #[inline(always)]
    pub(super) const fn entry(&self) -> *mut Entry {
        self.entry
    }
}
