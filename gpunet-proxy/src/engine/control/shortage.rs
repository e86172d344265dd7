//! Shortages: what a device is told, what is logged, and when a listener tries again.
//!
//! A blocking accept waits until the shortage is over: for ring memory until a stream closes; for descriptors and
//! system memory by a timer, since no event announces them. The connection stays in the backlog, and the listener
//! does not count as ready what it cannot hand over, so that kernels do not poll in vain.

use super::Control;
use super::tables::AttachmentEntry;
use crate::model::message::Message;
use gpunet_abi::Error;
use gpunet_abi::region::DEVICE;
use gpunet_core::ids::{AttachmentId, SocketId};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often the same shortage of one attachment is logged: rarely enough for a log that people read, often enough
/// to see whether it is over.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How long a listener waits before it tries again. Ten system calls a second cost nothing, and the wait is hardly
/// longer than the shortage.
const RETRY: Duration = Duration::from_millis(100);

/// What is logged of an attachment once in a while only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Short(Shortage),
    AcceptFailed,
}

/// What is short for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shortage {
    /// Ring memory. More of it is being made.
    Growing,
    /// Ring memory in that region.
    Rings { region: u8 },
    /// Memory that the attachment's user may register with network cards.
    Registered,
    /// Socket slots of the attachment.
    Slots,
    /// Sockets of the attachment's user.
    UserSockets,
    /// File descriptors of the attachment's user.
    UserDescriptors,
    /// File descriptors, of this process or of the system.
    Descriptors,
    /// Memory of the system, or memory that it lets this process lock.
    System,
}

impl Shortage {
    /// The shortage that an error of the operating system means, if it means one.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        match (crate::os::errno::from_io(error), error.kind()) {
            (Error::TooManyFiles, _) => Some(Self::Descriptors),
            (Error::NoBuffers, _) | (_, io::ErrorKind::OutOfMemory) => Some(Self::System),
            _ => None,
        }
    }

    /// The error of a call that cannot wait for it.
    pub(super) const fn errno(self) -> Error {
        match self {
            Self::Growing | Self::Rings { .. } | Self::Registered | Self::System => Error::NoBuffers,
            Self::Slots | Self::UserSockets => Error::TooManySockets,
            Self::Descriptors | Self::UserDescriptors => Error::TooManyFiles,
        }
    }

    /// Returns whether an event tells the control plane that it is over.
    const fn is_announced(self) -> bool {
        matches!(self, Self::Growing | Self::Rings { .. } | Self::Slots)
    }
}

impl AttachmentEntry {
    /// Logs a shortage, and which setting to raise; once in a while only, because it repeats as long as it lasts.
    pub(super) fn warn(
        &mut self,
        shortage: Shortage,
        consequence: fmt::Arguments<'_>,
        error: Option<&io::Error>,
    ) {
        if shortage == Shortage::Growing {
            return;
        }
        let Some(held_back) = self.log.pass(Topic::Short(shortage), Instant::now()) else { return };
        let (client, process) = (self.state.id.0, self.state.client.pid);
        let advice = self.advice(shortage);
        let error = error.map(tracing::field::display);
        tracing::warn!(client, process, held_back, error, "{consequence}: {advice}");
    }

    /// What is short, and what helps.
    fn advice(&self, shortage: Shortage) -> String {
        let limits = self.state.account.as_ref().map(|account| (account.uid(), account.limits()));
        match (shortage, limits) {
            (Shortage::Rings { region }, _) => {
                let setting =
                    if region == DEVICE && self.local.is_some() { "device_rings" } else { "shared_rings" };
                let bytes = self.ring_memory(region);
                format!(
                    "its rings find no room in the {bytes} bytes of ring memory; raise the setting {setting}, take smaller \
                     rings, or close streams"
                )
            }
            (Shortage::Slots, _) => {
                let sockets = self.kernel_slots();
                format!("the {sockets} socket slots are in use; raise the setting sockets, or close sockets")
            }
            (Shortage::Descriptors, _) => {
                let limit = getrlimit(Resource::Nofile).current;
                let limit = limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
                format!("the proxy has no file descriptor left; raise its `ulimit -n`, which is {limit}")
            }
            (Shortage::Registered, Some((uid, limits))) => format!(
                "user {uid} has registered the {} bytes with network cards that it may; raise its limit \
                 registered_memory",
                limits.registered_memory
            ),
            (Shortage::UserDescriptors, Some((uid, _))) => {
                let allowed = self.state.account.as_ref().map_or(0, |account| account.allowed_descriptors());
                format!(
                    "user {uid} has the {allowed} file descriptors that it may have, or all users have those of the \
                     daemon; raise its limit descriptors, or the daemon's `ulimit -n`"
                )
            }
            (Shortage::UserSockets, Some((uid, limits))) => {
                format!(
                    "user {uid} has the {} sockets that it may have; raise its limit sockets",
                    limits.sockets
                )
            }
            (
                Shortage::System
                | Shortage::Growing
                | Shortage::Registered
                | Shortage::UserSockets
                | Shortage::UserDescriptors,
                _,
            ) => "the system has no memory for it; see its memory limit and `ulimit -l`".to_owned(),
        }
    }

    /// Logs that an accept failed; once in a while only, because the kernel tries again at once.
    pub(super) fn accept_failed(&mut self, at: SocketAddr, error: &io::Error) {
        if let Some(held_back) = self.log.pass(Topic::AcceptFailed, Instant::now()) {
            let (client, process) = (self.state.id.0, self.state.client.pid);
            tracing::error!(client, process, %at, held_back, %error, "accept failed");
        }
    }

    /// The errno of a failure of the operating system. A shortage is logged.
    pub(super) fn refused(&mut self, consequence: fmt::Arguments<'_>, error: &io::Error) -> Error {
        if let Some(shortage) = Shortage::of(error) {
            self.warn(shortage, consequence, Some(error));
        }
        crate::os::errno::from_io(error)
    }
}

impl Control {
    /// Leaves the connections of one backlog where they are until the shortage is over.
    pub(super) fn run_short(
        &mut self,
        attachment_id: AttachmentId,
        slot: u32,
        at: usize,
        shortage: Shortage,
    ) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        attachment.starved.insert(slot);
        let Some(listener) = attachment.listener(slot) else { return };
        let options = listener.bound.options;
        let Some(backlog) = listener.backlogs.get_mut(at) else { return };
        backlog.short = Some(shortage);
        let kind = backlog.listen.kind();
        if !attachment.could_carry(kind, &options) {
            self.end_accepts(attachment_id, slot, Error::NoBuffers);
        }
        if !shortage.is_announced() {
            self.serve_again(attachment_id, slot);
        }
    }

    /// Ends all accepts that wait for ring memory that will never come, because it could not all be allocated.
    fn end_accepts(&mut self, attachment_id: AttachmentId, slot: u32, error: Error) {
        let Some(listener) = self.attachment(attachment_id).and_then(|attachment| attachment.listener(slot))
        else {
            return;
        };
        let waiting: Vec<_> = listener.waiters.iter().map(|waiter| waiter.request).collect();
        waiting.into_iter().for_each(|id| self.cancel(attachment_id, id, error));
    }

    /// Serves a listener again after [`RETRY`].
    pub(super) fn serve_again(&mut self, attachment_id: AttachmentId, slot: u32) {
        let messages = self.messages.clone();
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let generation = attachment.slots[slot as usize].generation;
        let Some(listener) = attachment.listener(slot) else { return };
        if listener.retry.as_ref().is_none_or(JoinHandle::is_finished) {
            listener.retry = Some(tokio::task::spawn_local(async move {
                tokio::time::sleep(RETRY).await;
                let _ = messages.send(Message::ListenerReady {
                    attachment: attachment_id,
                    socket: SocketId { slot, generation },
                });
            }));
        }
    }

    /// Serves the listeners that may have waited for the rings that came back.
    pub(super) fn serve_starved(&mut self, attachment_id: AttachmentId) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        for slot in std::mem::take(&mut attachment.starved) {
            self.serve(attachment_id, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_told_apart() {
        let of = |code| Shortage::of(&io::Error::from_raw_os_error(code));
        assert_eq!([libc::EMFILE, libc::ENFILE].map(of), [Some(Shortage::Descriptors); 2]);
        assert_eq!([libc::ENOBUFS, libc::ENOMEM].map(of), [Some(Shortage::System); 2]);
        assert_eq!([libc::EPERM, libc::EAGAIN, libc::ECONNABORTED].map(of), [None; 3]);
        let locked = io::Error::new(io::ErrorKind::OutOfMemory, "more than ulimit -l allows");
        assert_eq!(Shortage::of(&locked), Some(Shortage::System));
    }
}
