//! The kernel's way to its sockets, and every address derived from it.

use core::mem::offset_of;
use gpunet_abi::accept::AcceptQueue;
use gpunet_abi::claim::Posted;
use gpunet_abi::context::Context;
use gpunet_abi::control::{ControlSlot, Descriptor};
use gpunet_abi::entry::{Entry, OwnWords};
use gpunet_abi::layout::{DeviceHeader, SharedHeader, SocketLine};
use gpunet_abi::poll_group::{GroupWords, PollEntry};
use gpunet_abi::region::{DEVICE, Region, RegionOffset, SHARED};
#[cfg(not(target_arch = "nvptx64"))]
use gpunet_abi::region::{FIRST_ARENA, REGIONS};
use gpunet_abi::waiting;
use gpunet_abi::{MAGIC, Status, VERSION, Word};

/// The handle by which a kernel uses sockets: the address of its launch's [`Context`].
///
/// A `Copy` value of eight bytes, passed by value as (part of) a kernel's parameters. In C it is
/// `gpunet_net_t`, and the same value is what a host puts into a module's variable
/// `gpunet_attachment`.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Buffer, Net};
///
/// /// A kernel's parameters.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// pub struct Parameters {
///     pub net: Net,
///     pub buffer: Buffer,
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Net(u64);

impl Net {
    /// Makes the handle of the context at that device address; 0 means "no attachment".
    ///
    /// # Safety
    /// A [`Context`] lies at `address`, and it and the regions it names stay mapped while any
    /// socket call uses this value.
    ///
    /// # Examples
    ///
    /// ```
    /// // SAFETY: 0 stands for no context.
    /// let net = unsafe { gpunet_device::Net::from_raw(0) };
    /// assert!(!net.is_attached());
    /// ```
    #[must_use]
    #[inline(always)]
    pub const unsafe fn from_raw(address: u64) -> Self {
        Self(address)
    }

    /// The context's address.
    #[must_use]
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns whether an attachment of this version stands behind the handle.
    #[must_use]
    #[inline(always)]
    pub fn is_attached(self) -> bool {
        self.0 != 0 && self.context().magic == MAGIC && self.context().version == VERSION
    }

    /// The context, copied field by field as needed: it lies in the device's own memory and does
    /// not change while a kernel runs.
    #[inline(always)]
    pub(crate) fn context<'a>(self) -> &'a Context {
        // SAFETY: `from_raw`'s contract. No other agent writes a context while kernels use it, so
        // a reference is allowed here (and is never a kernel parameter).
        unsafe { &*(self.0 as *const Context) }
    }

    #[inline(always)]
    fn shared(self, offset: u64) -> *mut u8 {
        (self.context().shared + offset) as *mut u8
    }

    #[inline(always)]
    fn device(self, offset: u64) -> *mut u8 {
        (self.context().device + offset) as *mut u8
    }

    #[inline(always)]
    fn shared_word(self, offset: u64) -> Word {
        // SAFETY: a word of the layout, inside the mapped shared region, 8-byte aligned.
        unsafe { Word::from_ptr(self.shared(offset).cast()) }
    }

    /// The address of `len` bytes at `place`; `None` unless they lie inside the region.
    #[inline(always)]
    pub(crate) fn resolve(self, place: RegionOffset, len: u64) -> Option<u64> {
        let context = self.context();
        let (base, size) = match place.region() {
            SHARED => (context.shared, context.shared_layout.len),
            DEVICE => (context.device, context.device_layout.len),
            number => self.region(number)?,
        };
        let inside = place.offset() <= size && len <= size - place.offset();
        if inside { Some(base + place.offset()) } else { None }
    }

    /// Base and length of a region that the attachment's agent has entered in the table.
    #[inline(never)]
    fn region(self, number: u8) -> Option<(u64, u64)> {
        let (base, len, flags) = self.region_words(number);
        // Pairs with the agent's publish of the flags, which it writes last.
        if flags.observe() & Region::VALID == 0 {
            return None;
        }
        Some((base.peek(), len.peek()))
    }

    #[inline(always)]
    fn region_words(self, number: u8) -> (Word, Word, Word) {
        let at = self.context().device_layout.regions + number as u64 * size_of::<Region>() as u64;
        let entry = self.device(at).cast::<Region>();
        // SAFETY: three aligned words of the table, inside the mapped device region.
        unsafe {
            (
                Word::from_ptr(&raw mut (*entry).base),
                Word::from_ptr(&raw mut (*entry).len),
                Word::from_ptr(&raw mut (*entry).flags),
            )
        }
    }

    /// Base and flags of every region in the table, for CPU pollers.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn arenas(self) -> impl Iterator<Item = (u64, u64)> {
        (FIRST_ARENA..=(REGIONS - 1) as u8).filter_map(move |number| {
            let (base, _, flags) = self.region_words(number);
            let flags = flags.observe();
            if flags & Region::VALID != 0 { Some((base.peek(), flags)) } else { None }
        })
    }

    #[inline(always)]
    fn line(self, slot: u32) -> u64 {
        self.context().shared_layout.lines + slot as u64 * size_of::<SocketLine>() as u64
    }

    /// How many lines a socket has sent, as the proxy is shown now and then.
    #[inline(always)]
    pub(crate) fn lines_sent(self, slot: u32) -> Word {
        self.shared_word(self.context().shared_layout.lines_sent + slot as u64 * 8)
    }

    /// `published` of a proxy-driven socket, which this device writes.
    #[inline(always)]
    pub(crate) fn published(self, slot: u32) -> Word {
        self.shared_word(self.context().shared_layout.published + slot as u64 * 8)
    }

    /// `consumed` of a proxy-driven socket, which this device writes.
    #[inline(always)]
    pub(crate) fn consumed(self, slot: u32) -> Word {
        self.shared_word(self.context().shared_layout.consumed + slot as u64 * 8)
    }

    /// `closed` of a proxy-driven socket, which this device writes.
    #[inline(always)]
    pub(crate) fn closed(self, slot: u32) -> Word {
        self.shared_word(self.context().shared_layout.closed + slot as u64 * 8)
    }

    /// A listener's ready count (a stream's `landed`), which the proxy writes.
    #[inline(always)]
    pub(crate) fn ready(self, slot: u32) -> Word {
        self.shared_word(self.line(slot) + offset_of!(SocketLine, landed) as u64)
    }

    /// How many connections of a listener the proxy has accepted ahead (a stream's `released`).
    #[inline(always)]
    pub(crate) fn accepted_ahead(self, slot: u32) -> Word {
        self.shared_word(self.line(slot) + offset_of!(SocketLine, released) as u64)
    }

    /// The proxy's description of a stream that it has accepted ahead.
    #[inline(always)]
    pub(crate) fn accepted(self, slot: u32) -> *const Descriptor {
        let at = self.context().shared_layout.accepted + slot as u64 * size_of::<Descriptor>() as u64;
        self.shared(at) as *const Descriptor
    }

    /// Which launch has taken a stream that was accepted ahead: 0, or its number + 1.
    #[inline(always)]
    pub(crate) fn taker(self, slot: u32) -> Word {
        self.shared_word(self.context().shared_layout.takers + slot as u64 * 8)
    }

    /// Which poll group is to be told of a socket's changes, which this device writes.
    #[inline(always)]
    pub(crate) fn watch(self, slot: u32) -> Word {
        self.shared_word(self.context().shared_layout.watches + slot as u64 * 8)
    }

    /// A socket's state in its poll group.
    #[inline(always)]
    pub(crate) fn poll_entry(self, slot: u32) -> *mut PollEntry {
        self.device(self.context().device_layout.polls + slot as u64 * size_of::<PollEntry>() as u64).cast()
    }

    /// The poll group in a slot.
    #[inline(always)]
    pub(crate) fn group_words(self, slot: u32) -> *mut GroupWords {
        self.device(self.context().device_layout.groups + slot as u64 * size_of::<GroupWords>() as u64).cast()
    }

    /// The status of a socket, unless the word belongs to another generation.
    #[inline(always)]
    #[doc(hidden)]
    pub fn status(self, slot: u32, generation: u32) -> Option<Status> {
        let word = self.shared_word(self.context().shared_layout.statuses + u64::from(slot) * 8);
        let status = Status(word.peek());
        if status.is_set() && status.generation() == generation { Some(status) } else { None }
    }

    /// The flag on which a CPU block waits for data.
    #[inline(always)]
    pub(crate) fn recv_park(self, slot: u32) -> *mut u32 {
        self.shared(self.line(slot) + offset_of!(SocketLine, recv_park) as u64).cast()
    }

    /// The flag on which a CPU block waits for space.
    #[inline(always)]
    pub(crate) fn send_park(self, slot: u32) -> *mut u32 {
        self.shared(self.line(slot) + offset_of!(SocketLine, send_park) as u64).cast()
    }

    /// Not 0 once the host cancelled this launch.
    #[inline(always)]
    pub(crate) fn cancel(self) -> Word {
        let offset = offset_of!(SharedHeader, cancel) as u64 + self.context().launch as u64 * 8;
        self.shared_word(offset)
    }

    /// Shows what a block of this launch waits for.
    #[inline(always)]
    pub(crate) fn waiting(self, block: u32) -> Word {
        let number = self.context().launch * waiting::BLOCKS + block % waiting::BLOCKS;
        self.shared_word(self.context().shared_layout.waits + number as u64 * 8)
    }

    /// The proxy's sign of life.
    #[inline(always)]
    pub(crate) fn heartbeat(self) -> Word {
        self.shared_word(offset_of!(SharedHeader, heartbeat) as u64)
    }

    /// Counts changes a poll could wait for.
    #[inline(always)]
    pub(crate) fn epoch(self) -> Word {
        self.shared_word(offset_of!(SharedHeader, epoch) as u64)
    }

    /// How many CPU blocks sleep on the epoch.
    #[inline(always)]
    pub(crate) fn pollers(self) -> *mut u32 {
        self.shared(offset_of!(SharedHeader, pollers) as u64).cast()
    }

    /// The sleeping flag and the doorbell of a data thread, by its number: 0 to 15.
    #[inline(always)]
    pub(crate) fn data_thread(self, thread: u32) -> (*mut u32, i32) {
        let (context, shard) = (self.context(), thread as usize);
        let flag = self.shared((offset_of!(SharedHeader, sleeping) + shard * 64) as u64).cast();
        let doorbell = match context.doorbells.get(shard) {
            Some(&fd) => fd,
            None => -1,
        };
        (flag, doorbell)
    }

    /// Slots that the proxy has made free so far.
    #[inline(always)]
    pub(crate) fn reclaimed(self) -> Word {
        self.shared_word(offset_of!(SharedHeader, reclaimed) as u64)
    }

    /// Entry `index` of the recycling ring.
    #[inline(always)]
    pub(crate) fn reclaim_cell(self, index: u64) -> *const u32 {
        self.shared(self.context().shared_layout.reclaim + index * 4) as *const u32
    }

    /// A control slot's request sequence, which this device writes.
    #[inline(always)]
    pub(crate) fn request(self, control: u32) -> Word {
        self.shared_word(self.context().shared_layout.requests + control as u64 * 8)
    }

    /// A control slot's abandon sequence, which this device writes.
    #[inline(always)]
    pub(crate) fn abandon(self, control: u32) -> Word {
        self.shared_word(self.context().shared_layout.abandons + control as u64 * 8)
    }

    /// A control slot.
    #[inline(always)]
    pub(crate) fn control(self, control: u32) -> *mut ControlSlot {
        let offset = self.context().shared_layout.controls + control as u64 * size_of::<ControlSlot>() as u64;
        self.shared(offset).cast()
    }

    /// The owner of the control slot: a value of [`gpunet_abi::claim`].
    #[inline(always)]
    pub(crate) fn claim(self, control: u32) -> *mut u32 {
        self.device(self.context().device_layout.claims + control as u64 * 4).cast()
    }

    /// The control slot's last request, as its holder remembers it.
    #[inline(always)]
    pub(crate) fn posted(self, control: u32) -> *mut Posted {
        self.device(self.context().device_layout.posted + control as u64 * size_of::<Posted>() as u64).cast()
    }

    /// The state of a slot: a [`gpunet_abi::entry::SlotState`].
    #[inline(always)]
    pub(crate) fn state(self, slot: u32) -> *mut u32 {
        self.device(self.context().device_layout.states + slot as u64 * 4).cast()
    }

    /// A bit for each launch that knows the socket in a slot.
    #[inline(always)]
    pub(crate) fn users(self, slot: u32) -> *mut u64 {
        self.device(self.context().device_layout.users + slot as u64 * 8).cast()
    }

    /// Slots that this device has taken so far.
    #[inline(always)]
    pub(crate) fn taken(self) -> *mut u64 {
        self.device(offset_of!(DeviceHeader, taken) as u64).cast()
    }

    /// How often launches of eight numbers have ended, a byte each; the host writes it.
    #[inline(always)]
    pub(crate) fn ended(self, launch: u32) -> u8 {
        let at = offset_of!(DeviceHeader, ended) as u64 + u64::from(launch & 0x3f) / 8 * 8;
        // SAFETY: an aligned word of the device region.
        let eight = unsafe { Word::from_ptr(self.device(at).cast()) }.peek();
        (eight >> (launch % 8 * 8)) as u8
    }

    /// How many launches of this device have ended; the host writes it.
    #[inline(always)]
    pub(crate) fn finished(self) -> Word {
        // SAFETY: an aligned word of the device region.
        unsafe { Word::from_ptr(self.device(offset_of!(DeviceHeader, finished) as u64).cast()) }
    }

    /// The copy of the epoch in this device's memory.
    #[inline(always)]
    pub(crate) fn relayed_epoch(self) -> Word {
        // SAFETY: an aligned word of the device region.
        unsafe { Word::from_ptr(self.device(offset_of!(DeviceHeader, relayed_epoch) as u64).cast()) }
    }

    /// Until when a group has the relay's turn.
    #[inline(always)]
    pub(crate) fn relay_turn(self) -> *mut u64 {
        self.device(offset_of!(DeviceHeader, relay_turn) as u64).cast()
    }

    /// The table's entry of a slot.
    #[inline(always)]
    pub(crate) fn entry(self, slot: u32) -> *mut Entry {
        self.device(self.context().device_layout.entries + slot as u64 * size_of::<Entry>() as u64).cast()
    }

    /// The part of a listener's entry that takes the place of a stream's halves.
    #[inline(always)]
    pub(crate) fn accept_queue(self, slot: u32) -> *mut AcceptQueue {
        self.entry(slot).cast::<u8>().wrapping_add(offset_of!(Entry, send)).cast()
    }

    /// Until when a group asks for the only connection that waits at a listener.
    #[inline(always)]
    pub(crate) fn accept_turn(self, slot: u32) -> *mut u64 {
        self.entry(slot).cast::<u8>().wrapping_add(offset_of!(Entry, turn_or_units)).cast()
    }

    /// The words a socket writes when its other end is a socket of this device.
    #[inline(always)]
    pub(crate) fn own_words(self, slot: u32) -> *mut OwnWords {
        self.device(self.context().device_layout.words + slot as u64 * size_of::<OwnWords>() as u64).cast()
    }
}
