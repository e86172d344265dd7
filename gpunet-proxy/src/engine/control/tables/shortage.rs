//! Resources that can run out for a socket of an attachment: which errno the device gets, and what
//! is logged.

use super::AttachmentEntry;
use gpunet_abi::Error;
use gpunet_abi::region::DEVICE;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often the same shortage of one attachment is logged: rarely enough for a log that people
/// read, often enough to show whether it has ended.
pub(in crate::engine::control) const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Events of an attachment that are logged once in a while only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine::control) enum Topic {
    Short(Shortage),
    AcceptFailed,
    Undelivered,
}

/// The resource that a socket lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine::control) enum Shortage {
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
    pub(in crate::engine::control) fn of(error: &io::Error) -> Option<Self> {
        match (crate::os::errno::from_io(error), error.kind()) {
            (Error::TooManyFiles, _) => Some(Self::Descriptors),
            (Error::NoBuffers, _) | (_, io::ErrorKind::OutOfMemory) => Some(Self::System),
            _ => None,
        }
    }

    /// The error of a call that cannot wait for it.
    pub(in crate::engine::control) const fn errno(self) -> Error {
        match self {
            Self::Growing | Self::Rings { .. } | Self::Registered | Self::System => Error::NoBuffers,
            Self::Slots | Self::UserSockets => Error::TooManySockets,
            Self::Descriptors | Self::UserDescriptors => Error::TooManyFiles,
        }
    }

    /// Returns whether an event announces the end of the shortage to the control plane.
    pub(in crate::engine::control) const fn is_announced(self) -> bool {
        matches!(self, Self::Growing | Self::Rings { .. } | Self::Slots)
    }
}

impl AttachmentEntry {
    /// Logs a shortage, and which setting to raise; once in a while only, because it repeats as
    /// long as it lasts.
    pub(in crate::engine::control) fn warn(
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

    /// Describes the shortage, and the remedy.
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
    pub(in crate::engine::control) fn accept_failed(&mut self, at: SocketAddr, error: &io::Error) {
        if let Some(held_back) = self.log.pass(Topic::AcceptFailed, Instant::now()) {
            let (client, process) = (self.state.id.0, self.state.client.pid);
            tracing::error!(client, process, %at, held_back, %error, "accept failed");
        }
    }

    /// The errno of a failure of the operating system. A shortage is logged.
    pub(in crate::engine::control) fn refused(
        &mut self,
        consequence: fmt::Arguments<'_>,
        error: &io::Error,
    ) -> Error {
        if let Some(shortage) = Shortage::of(error) {
            self.warn(shortage, consequence, Some(error));
        }
        crate::os::errno::from_io(error)
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
