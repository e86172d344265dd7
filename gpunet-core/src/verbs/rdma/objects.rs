//! Objects of libibverbs that a connection needs besides its queue pair. Each keeps its parent
//! alive.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::super::RingMemory;
use super::cm::set_nonblocking;
use super::context::Context;
use super::counts::{Counts, Kind, Token};
use super::error::{LockedMemory, check_code, errno};
use super::ffi::numbers::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE};
use super::ffi::{self, Wc};

/// Memory regions of different protection domains do not mix.
pub(super) struct ProtectionDomain {
    context: Arc<Context>,
    raw: NonNull<ffi::Pd>,
}

// SAFETY: libibverbs is thread-safe; the object is not changed after it was made.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: a live context.
        let raw = unsafe { (context.library.alloc_pd)(context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { context: Arc::clone(context), raw }))
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::Pd {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: freed once; regions keep it alive, and a queue pair is destroyed before its lease
        // ends.
        unsafe { (self.context.library.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Who may write a region.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Local,
    Remote,
}

/// Registered memory.
pub(super) struct Region {
    domain: Arc<ProtectionDomain>,
    raw: NonNull<ffi::Mr>,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    _token: Token,
}

// SAFETY: as for the protection domain.
unsafe impl Send for Region {}

impl Region {
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        address: u64,
        len: u64,
        memory: &RingMemory,
        access: Access,
        counts: &Arc<Counts>,
    ) -> io::Result<Self> {
        let library = domain.context.library;
        let access = match access {
            Access::Local => ACCESS_LOCAL_WRITE,
            Access::Remote => ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
        } as i32;
        let size = usize::try_from(len).map_err(|_| errno(libc::EINVAL))?;
        let raw = match memory {
            RingMemory::Mapped => {
                let start = ptr::with_exposed_provenance_mut::<c_void>(address as usize);
                // SAFETY: a live domain; the kernel checks that the range is mapped and pins it.
                // The card writes it only by the peer's leave, which is what the caller asked for.
                unsafe { (library.reg_mr)(domain.as_ptr(), start, size, access) }
            }
            RingMemory::DmaBuf { fd, offset } => {
                let register = library.reg_dmabuf_mr.ok_or_else(|| unsupported("this libibverbs"))?;
                // SAFETY: a live domain and descriptor; the kernel checks the range.
                unsafe { register(domain.as_ptr(), *offset, size, address, fd.as_raw_fd(), access) }
            }
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOMEM) => LockedMemory::error(len),
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => unsupported("this device"),
                _ => error,
            });
        };
        // SAFETY: a live region, just made; the keys do not change.
        let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        let token = counts.token(Kind::MemoryRegion);
        Ok(Self { domain: Arc::clone(domain), raw, lkey, rkey, _token: token })
    }
}

fn unsupported(who: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{who} cannot register a dma-buf (ibv_reg_dmabuf_mr)"))
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: deregistered once.
        unsafe { (self.domain.context.library.dereg_mr)(self.raw.as_ptr()) };
    }
}

/// A completion queue with a completion channel of its own, whose descriptor does not block.
pub(super) struct CompletionQueue {
    context: Arc<Context>,
    raw: NonNull<ffi::Cq>,
    channel: CompletionChannel,
}

// SAFETY: libibverbs is thread-safe, and one owner uses a queue at a time.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn new(context: &Arc<Context>, entries: u32) -> io::Result<Self> {
        let channel = CompletionChannel::new(context)?;
        let entries = i32::try_from(entries).map_err(|_| errno(libc::EINVAL))?;
        // SAFETY: a live context and channel; the channel goes after the queue.
        let raw = unsafe {
            (context.library.create_cq)(context.as_ptr(), entries, ptr::null_mut(), channel.raw.as_ptr(), 0)
        };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { context: Arc::clone(context), raw, channel })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::Cq {
        self.raw.as_ptr()
    }

    /// Takes completions; returns how many.
    pub(super) fn poll(&mut self, into: &mut [Wc]) -> io::Result<usize> {
        let poll = self.context.ops()?.poll_cq.ok_or_else(|| errno(libc::ENOSYS))?;
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: a live queue and room for that many entries.
        let taken = unsafe { poll(self.raw.as_ptr(), room, into.as_mut_ptr()) };
        usize::try_from(taken).map_err(|_| errno(libc::EIO))
    }

    /// Takes the events that are there, and asks for one with the next completion.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        self.drain_events()?;
        let notify = self.context.ops()?.req_notify_cq.ok_or_else(|| errno(libc::ENOSYS))?;
        // SAFETY: a live queue.
        check_code(unsafe { notify(self.raw.as_ptr(), 0) })
    }

    fn drain_events(&mut self) -> io::Result<()> {
        let mut taken = 0;
        let end = loop {
            let (mut queue, mut user) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: a live channel; writes two pointers.
            let returned = unsafe {
                (self.context.library.get_cq_event)(self.channel.raw.as_ptr(), &mut queue, &mut user)
            };
            if returned == 0 {
                taken += 1;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => break Ok(()),
                io::ErrorKind::Interrupted => {}
                _ => break Err(error),
            }
        };
        if taken > 0 {
            // SAFETY: a live queue, the only one of its channel: all these events were its own.
            unsafe { (self.context.library.ack_cq_events)(self.raw.as_ptr(), taken) };
        }
        end
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: destroyed once, after the queue pair; every event that was taken is acknowledged.
        unsafe { (self.context.library.destroy_cq)(self.raw.as_ptr()) };
    }
}

struct CompletionChannel {
    context: Arc<Context>,
    raw: NonNull<ffi::CompChannel>,
}

impl CompletionChannel {
    fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: a live context.
        let raw = unsafe { (context.library.create_comp_channel)(context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { context: Arc::clone(context), raw };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live, and so is its descriptor, as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: destroyed once, after its queue (a field of it, so dropped later).
        unsafe { (self.context.library.destroy_comp_channel)(self.raw.as_ptr()) };
    }
}
