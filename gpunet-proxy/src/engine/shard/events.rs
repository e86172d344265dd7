//! The events that end a data thread's sleep: of the network, of doorbells, and of the thread's own
//! eventfd.

use super::{Shard, sleep};
use crate::os::doorbell::Bell;
use gpunet_core::ids::AttachmentId;
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bit in a stream's key (attachment and slot): the event is of the stream's second descriptor.
/// Slots have 16 bits.
const SECOND_FD: u64 = 1 << 31;
/// Bit in a key: the event is of the attachment's doorbell, and nothing is left to do but to have
/// woken up.
const DOORBELL: u64 = 1 << 30;
/// The key of the thread's own eventfd.
const BELL: u64 = u64::MAX;

/// The epoll set of a data thread.
pub(super) struct Events(OwnedFd);

impl Events {
    /// A set with the thread's own eventfd.
    pub(super) fn new(bell: &Bell) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered, so that nobody has to read it: every write is an event.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), flags)?;
        Ok(Self(epoll))
    }

    /// Watches an attachment's doorbell.
    pub(super) fn add_doorbell(&self, attachment: AttachmentId, bell: &OwnedFd) -> io::Result<()> {
        let key = u64::from(attachment.0) << 32 | DOORBELL;
        // Edge-triggered here, too: a client has the same eventfd, and could make a read of it
        // wait.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, bell, epoll::EventData::new_u64(key), flags)?)
    }

    /// Stops watching an attachment's doorbell.
    pub(super) fn remove_doorbell(&self, bell: &OwnedFd) {
        // A client may hold the same eventfd: it does not leave the set by being closed.
        let _ = epoll::delete(&self.0, bell);
    }

    /// Watches the descriptors of a stream.
    pub(super) fn add_stream(
        &self,
        attachment: AttachmentId,
        slot: u32,
        fds: [Option<BorrowedFd<'_>>; 2],
    ) -> io::Result<()> {
        let key = u64::from(attachment.0) << 32 | u64::from(slot);
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::PRI
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        for (fd, key) in fds.into_iter().zip([key, key | SECOND_FD]) {
            if let Some(fd) = fd {
                epoll::add(&self.0, fd, epoll::EventData::new_u64(key), flags)?;
            }
        }
        Ok(())
    }
}

impl Shard {
    /// Takes network events, waiting for them at most `limit`.
    pub(super) fn poll_network(&mut self, limit: Duration) -> bool {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let mut busy = false;
        if !limit.is_zero() {
            sleep::wait_readable(self.events.0.as_fd(), limit);
        }
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.events.0, &mut events, Some(&none)) else { return false };
        for event in events.iter() {
            busy = true;
            let key = event.data.u64();
            if key == BELL || key & DOORBELL != 0 {
                continue;
            }
            let (attachment, slot) = (AttachmentId((key >> 32) as u32), (key & !SECOND_FD) as u32);
            let flags = event.flags;
            let ended =
                flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            if let Some((_, stream)) = self.stream(attachment, slot) {
                stream.events[usize::from(key & SECOND_FD != 0)] = true;
                // Also for urgent data: a read stops short of it.
                stream.read_to_empty |= ended || flags.contains(epoll::EventFlags::PRI);
                stream.was_failure_announced |= flags.contains(epoll::EventFlags::ERR);
                stream.connection.handle_ready(
                    ended || flags.contains(epoll::EventFlags::IN),
                    ended || flags.contains(epoll::EventFlags::OUT),
                );
                self.enqueue(attachment, slot);
            }
        }
        busy
    }
}
