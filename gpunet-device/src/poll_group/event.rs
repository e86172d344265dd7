//! The events that a wait has found, in memory that the whole group uses.

use crate::Buffer;

/// One socket that is ready, as a wait found it: C's `struct gpunet_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// The number that the caller gave the socket when it was added.
    pub token: u64,
    /// The socket's [`crate::Handle`] as a number.
    pub handle: i32,
    /// The events of the socket: bits of [`crate::poll::POLLIN`] and its neighbours.
    pub revents: i16,
    #[doc(hidden)]
    pub reserved: u16,
    /// Which delivery of the socket's this is. The next wait, which is given the event, arms the
    /// socket by it.
    pub turn: u64,
}

const _: () = assert!(size_of::<Event>() == 24);

/// Events of one group of threads: room for as many as a wait may deliver, and those of the last
/// wait.
///
/// Each wait arms the sockets of the last one's events again, so keep the value from one wait to
/// the next. It is a small value that every lane holds; the events lie in the memory that it was
/// made of.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Buffer, poll_group::Events};
///
/// let mut memory = [0u64; 12];
/// // SAFETY: `memory` outlives the buffer, which alone uses it.
/// let buffer = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr().cast(), 96) };
/// let events = Events::new(buffer);
/// assert_eq!((events.capacity(), events.len()), (4, 0));
/// ```
#[derive(Debug)]
pub struct Events {
    first: *mut Event,
    capacity: usize,
    len: usize,
}

impl Events {
    /// Makes room for events of a buffer: one for each 24 bytes, from the first address on that is
    /// a multiple of 8.
    #[must_use]
    pub fn new(buffer: Buffer) -> Self {
        let skipped = (buffer.as_ptr() as usize).wrapping_neg() % align_of::<Event>();
        let room = buffer.len().saturating_sub(skipped);
        let first = buffer.as_ptr().wrapping_add(skipped).cast();
        Self { first, capacity: room / size_of::<Event>(), len: 0 }
    }

    /// The events at `first`; the first `len` are those of the last wait.
    ///
    /// # Safety
    /// `capacity` events from `first` on are aligned and mapped, and only this group uses them.
    #[doc(hidden)]
    pub const unsafe fn from_raw_parts(first: *mut Event, capacity: usize, len: usize) -> Self {
        Self { first, capacity, len: if len < capacity { len } else { capacity } }
    }

    /// The most events that a wait delivers.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many the last wait delivered.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the last wait delivered none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Event `index` of the last wait; an empty one past its end.
    #[must_use]
    pub fn get(&self, index: usize) -> Event {
        if index < self.len { self.load(index) } else { Event::default() }
    }

    /// Forgets the last wait's events: the next wait does not arm their sockets.
    pub(super) const fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// The event at a place, whether or not it was delivered.
    pub(super) fn load(&self, at: usize) -> Event {
        if at >= self.capacity {
            return Event::default();
        }
        // SAFETY: inside the memory (checked), by the constructors' contracts.
        unsafe { self.first.wrapping_add(at).read_volatile() }
    }

    /// Stores an event at a place. One lane; the group meets before others read it.
    pub(super) fn store(&self, at: usize, event: Event) {
        if at < self.capacity {
            // SAFETY: as in `load`.
            unsafe { self.first.wrapping_add(at).write_volatile(event) };
        }
    }
}
