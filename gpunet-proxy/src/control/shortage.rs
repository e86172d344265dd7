//! What there is too little of: what a device is told, what the log says, and when a listener tries again.
//!
//! An accept that may wait waits for what comes back: ring memory when a stream closes, descriptors and memory of the
//! system by a timer, since nobody says when they are there. The connection stays in the backlog, and the listener does
//! not show what it cannot hand over, so that nobody who polls asks in vain.

use super::Control;
use super::tables::Device;
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

/// How often the log says the same of one attachment. Long enough for a log that people read, short enough for one who
/// looks whether it is over.
pub(super) const SAY_AGAIN: Duration = Duration::from_secs(60);

/// How long a listener waits before it tries again. Ten system calls a second cost nothing, and nobody waits much longer
/// than whatever held the descriptors or the memory.
const RETRY: Duration = Duration::from_millis(100);

/// What the log says of an attachment once in a while only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Short(Shortage),
    AcceptFailed,
}

/// What there is too little of for a socket.
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
    /// What the operating system has too little of, if that is what it says.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        match (crate::errno::errno(error), error.kind()) {
            (Error::TooManyFiles, _) => Some(Self::Descriptors),
            (Error::NoBuffers, _) | (_, io::ErrorKind::OutOfMemory) => Some(Self::System),
            _ => None,
        }
    }

    /// What a device is told whose call cannot wait for it.
    pub(super) const fn errno(self) -> Error {
        match self {
            Self::Growing | Self::Rings { .. } | Self::Registered | Self::System => Error::NoBuffers,
            Self::Slots | Self::UserSockets => Error::TooManySockets,
            Self::Descriptors | Self::UserDescriptors => Error::TooManyFiles,
        }
    }

    /// Returns whether the control plane hears when there is more.
    const fn is_announced(self) -> bool {
        matches!(self, Self::Growing | Self::Rings { .. } | Self::Slots)
    }
}

impl Device {
    /// Says what there is too little of and which setting is to be raised. Once in a while only: it repeats as long as
    /// it lasts.
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
        let (client, process) = (self.attached.id.0, self.attached.client.pid);
        let advice = self.advice(shortage);
        let error = error.map(tracing::field::display);
        tracing::warn!(client, process, held_back, error, "{consequence}: {advice}");
    }

    /// What there is too little of, and what helps.
    fn advice(&self, shortage: Shortage) -> String {
        let limits = self.attached.account.as_ref().map(|account| (account.uid(), account.limits()));
        match (shortage, limits) {
            (Shortage::Rings { region }, _) => {
                let setting =
                    if region == DEVICE && self.local.is_some() { "device_rings" } else { "shared_rings" };
                let bytes = self.ring_memory(region);
                format!(
                    "its rings find no room in the {bytes} bytes of ring memory; raise Config::{setting}, take smaller \
                     rings, or close streams"
                )
            }
            (Shortage::Slots, _) => {
                let sockets = self.slots.len();
                format!("the {sockets} socket slots are in use; raise Config::sockets, or close sockets")
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
                let allowed =
                    self.attached.account.as_ref().map_or(0, |account| account.allowed_descriptors());
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

    /// Says that an accept failed. Once in a while only: the kernel asks again at once.
    pub(super) fn accept_failed(&mut self, at: SocketAddr, error: &io::Error) {
        if let Some(held_back) = self.log.pass(Topic::AcceptFailed, Instant::now()) {
            let (client, process) = (self.attached.id.0, self.attached.client.pid);
            tracing::error!(client, process, %at, held_back, %error, "accept failed");
        }
    }

    /// The errno of what the operating system refused. A shortage is worth a line in the log.
    pub(super) fn refused(&mut self, consequence: fmt::Arguments<'_>, error: &io::Error) -> Error {
        if let Some(shortage) = Shortage::of(error) {
            self.warn(shortage, consequence, Some(error));
        }
        crate::errno::errno(error)
    }
}

impl Control {
    /// Leaves the connections of one backlog where they are, until there is more of what they lack.
    pub(super) fn run_short(&mut self, device_id: AttachmentId, slot: u32, at: usize, shortage: Shortage) {
        let Some(device) = self.device(device_id) else { return };
        device.starved.insert(slot);
        let Some(listener) = device.listener(slot) else { return };
        let options = listener.bound.options;
        let Some(backlog) = listener.backlogs.get_mut(at) else { return };
        backlog.short = Some(shortage);
        let kind = backlog.listen.kind();
        if !device.could_carry(kind, options.send_log2, options.recv_log2) {
            self.end_accepts(device_id, slot, Error::NoBuffers);
        }
        if !shortage.is_announced() {
            self.serve_again(device_id, slot);
        }
    }

    /// Ends all accepts that wait for what never comes: less ring memory could be made than there was to be.
    fn end_accepts(&mut self, device_id: AttachmentId, slot: u32, error: Error) {
        let Some(listener) = self.device(device_id).and_then(|device| device.listener(slot)) else { return };
        let waiting: Vec<u32> = listener.waiters.iter().map(|waiter| waiter.request.control).collect();
        waiting.into_iter().for_each(|control| self.cancel(device_id, control, error));
    }

    /// Serves a listener again after [`RETRY`].
    pub(super) fn serve_again(&mut self, device_id: AttachmentId, slot: u32) {
        let messages = self.messages.clone();
        let Some(device) = self.device(device_id) else { return };
        let generation = device.slots[slot as usize].generation;
        let Some(listener) = device.listener(slot) else { return };
        if listener.retry.as_ref().is_none_or(JoinHandle::is_finished) {
            listener.retry = Some(tokio::task::spawn_local(async move {
                tokio::time::sleep(RETRY).await;
                let _ = messages.send(Message::ListenerReady {
                    device: device_id,
                    socket: SocketId { slot, generation },
                });
            }));
        }
    }

    /// Rings came back: serves the listeners that may have waited for them.
    pub(super) fn serve_starved(&mut self, device_id: AttachmentId) {
        let Some(device) = self.device(device_id) else { return };
        for slot in std::mem::take(&mut device.starved) {
            self.serve(device_id, slot);
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
