//! The sockets of a poll, and what it asks and finds of each.

/// There is data, or a connection to accept, or the end of the stream.
pub const POLLIN: i16 = 1;
/// There is space to send.
pub const POLLOUT: i16 = 4;
/// The socket has failed.
pub const POLLERR: i16 = 8;
/// Both directions have ended.
pub const POLLHUP: i16 = 16;
/// The handle is stale.
pub const POLLNVAL: i16 = 32;
/// The peer will send no more.
pub const POLLRDHUP: i16 = 0x2000;

/// One socket to watch: Linux's `struct pollfd`.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, PollFd, Result, Stream, poll::{POLLIN, POLLOUT}};
/// # fn example<G: Group>(g: &G, net: Net, stream: &Stream) -> Result<()> {
/// let fd = PollFd { handle: stream.handle().raw(), events: POLLIN | POLLOUT, revents: 0 };
/// # let _ = fd;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PollFd {
    /// A [`crate::Handle`] as C carries it; a negative one is passed over.
    pub handle: i32,
    /// The requested events.
    pub events: i16,
    /// The events that were found.
    pub revents: i16,
}

impl PollFd {
    /// In `revents` before [`crate::poll_again`]: the entry is new, or was changed.
    pub const EXAMINE: i16 = -1;
}

/// Sockets to watch, in memory that the whole group uses.
///
/// # Examples
///
/// ```
/// use gpunet_device::{PollFd, PollSet};
///
/// let mut entries = [PollFd::default(); 2];
/// // SAFETY: `entries` outlives the set, which alone uses it.
/// let set = unsafe { PollSet::from_raw_parts(entries.as_mut_ptr(), entries.len()) };
/// set.set(1, PollFd { handle: -1, events: 0, revents: 0 });
/// assert_eq!((set.len(), set.get(1).handle), (2, -1));
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PollSet {
    ptr: *mut PollFd,
    len: usize,
}

// SAFETY: an address and a length; `from_raw_parts`' contract speaks of all lanes.
unsafe impl Send for PollSet {}

impl PollSet {
    /// Makes a set of the `len` entries at `ptr`.
    ///
    /// # Safety
    /// The entries are aligned and mapped while the value is used, and only this group uses them.
    #[must_use]
    pub const unsafe fn from_raw_parts(ptr: *mut PollFd, len: usize) -> Self {
        Self { ptr, len }
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Entry `index`; an empty one past the end.
    #[must_use]
    pub fn get(self, index: usize) -> PollFd {
        if index >= self.len {
            return PollFd { handle: -1, events: 0, revents: 0 };
        }
        // SAFETY: inside the set (checked), by the constructor's contract.
        unsafe { self.ptr.wrapping_add(index).read_volatile() }
    }

    /// Sets entry `index`; does nothing past the end. One lane calls it, and the group syncs before
    /// others read the entry.
    pub fn set(self, index: usize, fd: PollFd) {
        if index < self.len {
            // SAFETY: inside the set (checked), by the constructor's contract.
            unsafe { self.ptr.wrapping_add(index).write_volatile(fd) };
        }
    }
}
