//! A direction that the host has taken, found by what a trigger or a gate names.

use crate::socket::half::ring_end;
use crate::table::{entry, slots};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Net, platform};
use gpunet_abi::entry::{Entry, Kind};
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Direction, Error, Handle, Result, Word, device_scope};

/// A direction of a stream, for triggers and gates. By one lane.
#[derive(Clone, Copy)]
pub(super) struct TakenDirection {
    net: Net,
    handle: Handle,
    half: Direction,
    entry: *mut Entry,
    /// Where the ring and its words lie: that stays while a launch that runs is a user of the
    /// socket.
    end: RingEnd,
    /// The host has it, as far as was known when it was found.
    is_taken: bool,
    /// What was believed of the other end's word then.
    seen: StreamWord,
}

impl TakenDirection {
    /// Finds the stream, and notes this launch as one of its users.
    ///
    /// All that a call needs is loaded together: one load after the other would take a third of a
    /// microsecond each on an H200.
    ///
    /// # Errors
    /// BadHandle; NotConnected; InvalidArgument for a direction that is none, or that the host does
    /// not have; NetworkDown without an attachment.
    #[inline(always)]
    pub(super) fn find(net: Net, socket: i32, direction: u32) -> Result<Self> {
        if !net.is_attached() {
            return Err(Error::NetworkDown);
        }
        let handle = Handle::from_raw(socket).ok_or(Error::BadHandle)?;
        let half = Direction::from_raw(direction).ok_or(Error::InvalidArgument)?;
        if handle.slot() >= net.context().slots {
            return Err(Error::BadHandle);
        }
        // The rings and the entry stay this socket's now until the launch has ended: kernels do not
        // close a stream while the host has one of its directions.
        let kind =
            if slots::is_user(net, handle.slot()) { None } else { Some(slots::use_handle(net, handle)?) };
        let state = slots::state_of(net, handle.slot());
        let found = Self::load(net, handle, half);
        let kind = kind.or_else(|| state.open(handle.generation())).ok_or(Error::BadHandle)?;
        if kind != Kind::Stream {
            return Err(Error::NotConnected);
        }
        if found.is_taken { Ok(found) } else { Err(Error::InvalidArgument) }
    }

    /// A direction that the calling group has locked, with what it believes of the other end's
    /// word. All lanes.
    #[inline(always)]
    pub(super) fn of(net: Net, handle: Handle, half: Direction, seen: StreamWord) -> Self {
        let entry = net.entry(handle.slot());
        let end = ring_end(&entry::half_entry(entry, half), entry::link_of(entry));
        Self { net, handle, half, entry, end, is_taken: true, seen }
    }

    #[inline(always)]
    fn load(net: Net, handle: Handle, half: Direction) -> Self {
        let is_taken = slots::is_taken(net, handle, half);
        let mut found = Self::of(net, handle, half, StreamWord::at(0));
        // Ordering: Acquire, pairs with the Release store in `gate` by another group: what that
        // group's word made visible is visible here, and this group finds no older word when it
        // observes it. The last of the loads, because those behind it wait for it.
        found.seen = StreamWord(device_scope::observe(found.seen()));
        found.is_taken = is_taken;
        found
    }

    /// Checks that the host has the direction still.
    ///
    /// # Errors
    /// InvalidArgument.
    #[inline(always)]
    fn check(&self) -> Result<()> {
        if slots::is_taken(self.net, self.handle, self.half) { Ok(()) } else { Err(Error::InvalidArgument) }
    }

    /// Locks the direction among the groups that publish in it.
    ///
    /// # Errors
    /// InvalidArgument when the host does not have it; Canceled; NetworkDown.
    pub(super) fn lock(&self) -> Result<()> {
        let mut guard = WaitGuard::new(self.net, Deadline::NEVER);
        while !slots::lock_taken(self.net, self.handle, self.half) {
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
        slots::unlock_taken(self.net, self.handle, self.half);
    }

    /// Where the ring and its words lie.
    #[inline(always)]
    pub(super) const fn end(&self) -> RingEnd {
        self.end
    }

    /// What was believed of the other end's word when the direction was found.
    #[inline(always)]
    pub(super) const fn seen_before(&self) -> StreamWord {
        self.seen
    }

    /// The word that keeps what was published; changed under the lock.
    #[inline(always)]
    pub(super) fn position(&self) -> Word {
        entry::position(self.entry, self.half)
    }

    /// The word that keeps what was believed of the other end's.
    #[inline(always)]
    pub(super) fn seen(&self) -> Word {
        entry::seen(self.entry, self.half)
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
    pub(super) const fn half(&self) -> Direction {
        self.half
    }

    #[inline(always)]
    pub(super) const fn entry(&self) -> *mut Entry {
        self.entry
    }
}
