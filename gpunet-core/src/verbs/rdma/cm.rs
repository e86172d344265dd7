//! Communication identifiers of rdma_cm, each with an event channel of its own.

use std::ffi::c_void;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::address::{Sockaddr, from_storage};
use super::counts::{Counts, Kind, Token};
use super::error::check;
use super::event::{Event, Parameters};
use super::ffi::numbers::{OPTION_ID, OPTION_ID_ACK_TIMEOUT, OPTION_ID_REUSEADDR, PS_TCP, QPS_RTR};
use super::ffi::{self, Library};

/// How long the card waits for an acknowledgement: 4.096 us * 2^18, about 1 s. With 7 retries a
/// connection outlives a cable that is out for 5 s; the value that the fabric suggests is shorter.
const ACK_TIMEOUT: u8 = 18;

/// An event channel whose descriptor does not block.
pub(super) struct Channel {
    library: &'static Library,
    raw: NonNull<ffi::EventChannel>,
}

// SAFETY: librdmacm is thread-safe; the channel is a file descriptor on the heap.
unsafe impl Send for Channel {}

impl Channel {
    pub(super) fn new(library: &'static Library) -> io::Result<Self> {
        // SAFETY: takes nothing.
        let raw = unsafe { (library.create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { library, raw };
        set_nonblocking(channel.as_fd())?;
        Ok(channel)
    }

    /// The next event.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    fn next(&self) -> io::Result<RawEvent> {
        loop {
            let mut event = ptr::null_mut();
            // SAFETY: a live channel; on success one event is written, which is acknowledged on
            // drop.
            let result = check(unsafe { (self.library.get_cm_event)(self.raw.as_ptr(), &mut event) });
            match (result, NonNull::new(event)) {
                (Ok(()), Some(raw)) => return Ok(RawEvent { library: self.library, raw }),
                (Ok(()), None) => return Err(io::ErrorKind::WouldBlock.into()),
                (Err(e), _) if e.kind() == io::ErrorKind::Interrupted => {}
                (Err(e), _) => return Err(e),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live, and so is its descriptor, as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by create_event_channel, destroyed once, after the id that used it.
        unsafe { (self.library.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// Makes a descriptor's reads return EAGAIN instead of waiting.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

struct RawEvent {
    library: &'static Library,
    raw: NonNull<ffi::CmEvent>,
}

impl RawEvent {
    fn event(&self) -> Event {
        // SAFETY: a live event, acknowledged (freed) only when this is dropped.
        let raw = unsafe { self.raw.as_ref() };
        // SAFETY: librdmacm fills `param` by the kind of event; the private data of kinds that
        // carry connection parameters lies inside the event.
        unsafe { Event::read(raw) }
    }

    /// The identifier that a connection request brought.
    fn id(&self) -> Option<NonNull<ffi::CmId>> {
        // SAFETY: as in `event`.
        NonNull::new(unsafe { self.raw.as_ref() }.id)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // SAFETY: got from get_cm_event, acknowledged once.
        unsafe { (self.library.ack_cm_event)(self.raw.as_ptr()) };
    }
}

/// An identifier, with the queue pair made on it (see `queue_pair`).
///
/// Dropping it destroys the queue pair, the identifier and the channel, in this order. That may
/// take the kernel a while.
pub(super) struct Id {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<ffi::CmId>,
    channel: Channel,
    pub(super) queue_pair: Option<NonNull<ffi::Qp>>,
    _token: Option<Token>,
}

// SAFETY: librdmacm and libibverbs are thread-safe, and one owner uses an identifier at a time.
unsafe impl Send for Id {}
// SAFETY: through a shared reference only the device, the addresses and the descriptor are read,
// which change in calls that take the identifier by unique reference.
unsafe impl Sync for Id {}

impl Id {
    /// A new identifier; not counted when `counts` is `None`.
    pub(super) fn new(library: &'static Library, counts: Option<&Arc<Counts>>) -> io::Result<Self> {
        let channel = Channel::new(library)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a live channel, which lives as long as the id; writes one pointer.
        check(unsafe { (library.create_id)(channel.raw.as_ptr(), &mut raw, ptr::null_mut(), PS_TCP) })?;
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let token = counts.map(|counts| counts.token(Kind::Identifier));
        Ok(Self { library, raw, channel, queue_pair: None, _token: token })
    }

    pub(super) fn set_ack_timeout(&mut self) {
        // Older kernels and some devices know no such option; then the fabric's value stays.
        let mut timeout = ACK_TIMEOUT;
        let _ = self.set_option(OPTION_ID_ACK_TIMEOUT, &mut timeout);
    }

    pub(super) fn set_reuse_address(&mut self) -> io::Result<()> {
        self.set_option(OPTION_ID_REUSEADDR, &mut 1_i32)
    }

    fn set_option<T: Copy>(&mut self, option: i32, value: &mut T) -> io::Result<()> {
        let at: *mut T = value;
        // SAFETY: a live id; reads the value, of the option's type and of this size.
        check(unsafe {
            (self.library.set_option)(
                self.raw.as_ptr(),
                OPTION_ID,
                option,
                at.cast::<c_void>(),
                size_of::<T>(),
            )
        })
    }

    pub(super) fn bind(&mut self, addr: SocketAddr) -> io::Result<()> {
        let addr = Sockaddr::new(addr);
        // SAFETY: a live id and an address, which is only read.
        check(unsafe { (self.library.bind_addr)(self.raw.as_ptr(), addr.as_ptr()) })
    }

    pub(super) fn listen(&mut self, backlog: i32) -> io::Result<()> {
        // SAFETY: a live id.
        check(unsafe { (self.library.listen)(self.raw.as_ptr(), backlog) })
    }

    pub(super) fn resolve_addr(
        &mut self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout_ms: i32,
    ) -> io::Result<()> {
        let from = from.map(Sockaddr::new);
        let from = from.as_ref().map_or(ptr::null_mut(), Sockaddr::as_ptr);
        let to = Sockaddr::new(to);
        // SAFETY: a live id and addresses (the first may be null), which are only read.
        check(unsafe { (self.library.resolve_addr)(self.raw.as_ptr(), from, to.as_ptr(), timeout_ms) })
    }

    pub(super) fn resolve_route(&mut self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: a live id.
        check(unsafe { (self.library.resolve_route)(self.raw.as_ptr(), timeout_ms) })
    }

    pub(super) fn connect(&mut self, parameters: Parameters, private_data: &[u8]) -> io::Result<()> {
        let mut raw = parameters.with_data(private_data)?;
        // SAFETY: a live id with a queue pair; the private data is read during the call.
        check(unsafe { (self.library.connect)(self.raw.as_ptr(), &mut raw) })
    }

    pub(super) fn accept(&mut self, parameters: Parameters, private_data: &[u8]) -> io::Result<()> {
        let mut raw = parameters.with_data(private_data)?;
        // SAFETY: as in `connect`.
        check(unsafe { (self.library.accept)(self.raw.as_ptr(), &mut raw) })
    }

    pub(super) fn reject(&mut self) -> io::Result<()> {
        // SAFETY: a live id; no private data.
        check(unsafe { (self.library.reject)(self.raw.as_ptr(), ptr::null(), 0) })
    }

    /// Returns whether a connection request still waits for its answer.
    ///
    /// The kernel reports no event on a request before it is accepted; but only while the request
    /// stands can it return how the queue pair would have to be set up.
    pub(super) fn is_pending(&mut self) -> bool {
        let Some(init_qp_attr) = self.library.init_qp_attr else { return true };
        let mut attributes = ffi::QpAttr { qp_state: QPS_RTR, ..ffi::QpAttr::default() };
        let mut mask = 0;
        // SAFETY: a live id; reads the state and writes the attributes and the mask.
        let code = unsafe { init_qp_attr(self.raw.as_ptr(), &mut attributes, &mut mask) };
        check(code).is_ok()
    }

    pub(super) fn disconnect(&mut self) -> io::Result<()> {
        // SAFETY: a live id.
        check(unsafe { (self.library.disconnect)(self.raw.as_ptr()) })
    }

    /// The next event of this identifier.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    pub(super) fn next_event(&mut self) -> io::Result<Event> {
        Ok(self.channel.next()?.event())
    }

    /// The next event of a listener; a connection request comes with an identifier, on a channel of
    /// its own. A request for which there is no channel is refused, and comes without.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    pub(super) fn next_request(&mut self, counts: &Arc<Counts>) -> io::Result<(Event, Option<Self>)> {
        let raw = self.channel.next()?;
        let event = raw.event();
        let id = if event.is_request() { raw.id() } else { None };
        // Acknowledged now: moving the identifier waits for that.
        drop(raw);
        let Some(id) = id else { return Ok((event, None)) };
        let library = self.library;
        let moved = Channel::new(library).and_then(|channel| {
            // SAFETY: the request's id is live and ours; the new channel lives as long as the id.
            check(unsafe { (library.migrate_id)(id.as_ptr(), channel.raw.as_ptr()) })?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => {
                let token = Some(counts.token(Kind::Identifier));
                Ok((event, Some(Self { library, raw: id, channel, queue_pair: None, _token: token })))
            }
            Err(e) => {
                tracing::warn!(error = %e, "no event channel for a connection request: its client is refused");
                // SAFETY: ours, destroyed once; its client is refused.
                unsafe { (library.destroy_id)(id.as_ptr()) };
                Ok((event, None))
            }
        }
    }

    /// The device's context, once the address is resolved or bound.
    pub(super) fn context(&self) -> Option<NonNull<ffi::Context>> {
        // SAFETY: a live id; written by calls that take it by unique reference.
        NonNull::new(unsafe { self.raw.as_ref() }.verbs)
    }

    pub(super) fn local(&self) -> SocketAddr {
        // SAFETY: as in `context`.
        from_storage(&unsafe { self.raw.as_ref() }.src_addr)
    }

    pub(super) fn peer(&self) -> SocketAddr {
        // SAFETY: as in `context`.
        from_storage(&unsafe { self.raw.as_ref() }.dst_addr)
    }
}

impl AsFd for Id {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.destroy_queue_pair();
        // SAFETY: a live id, destroyed once; every event that was taken has been acknowledged, so
        // this does not wait for one. The channel goes after it.
        unsafe { (self.library.destroy_id)(self.raw.as_ptr()) };
    }
}
