//! The way between two ends on one machine: a Unix socket by which each knows the other's process,
//! and by which descriptors travel. It tells at once, and for sure, when the other end has given
//! up: a process that ends, or a transfer that is abandoned, shuts it down before the memory is
//! used for anything else.

use crate::error::Reason;
use crate::wire::ready;
use gpunet_proxy::access::Credentials;
use gpunet_proxy::same_host::{MachineId, MeetingPoint, VisitError, random_bytes, take_descriptors, visit};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recv, recvmsg, send, sendmsg, shutdown,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the other end may take to come, which it does before it says that it has.
const ACCEPT_WITHIN: Duration = Duration::from_secs(5);
/// The kernel passes at most 253 at once, and a process may have few.
pub(crate) const BATCH: usize = 32;

/// Who this process is, for those on the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The machine's boot id.
    pub(crate) machine: [u8; 16],
    pub(crate) uid: u32,
    /// A random number of this process.
    pub(crate) process: [u8; 16],
}

impl Identity {
    /// Returns this process's.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        static PROCESS: std::sync::OnceLock<(u32, [u8; 16])> = std::sync::OnceLock::new();
        let pid = std::process::id();
        let random = random()?;
        let &(made_by, process) = PROCESS.get_or_init(|| (pid, random));
        // A child that was forked is another process.
        let process = if made_by == pid { process } else { random };
        #[cfg(test)]
        let process = if PRETENDS.get() { random } else { process };
        // Where /proc is hidden, this may be any machine: the bytes go by connections.
        let machine = MachineId::here().map_or(random, MachineId::bytes);
        Ok(Self { machine, uid: rustix::process::geteuid().as_raw(), process })
    }
}

#[cfg(test)]
thread_local! {
    static PRETENDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Has channels that this thread opens take it for another process's.
#[cfg(test)]
pub(crate) fn pretend_another_process(pretends: bool) {
    PRETENDS.set(pretends);
}

/// Returns random bytes that nobody can guess.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    random_bytes(&mut bytes)?;
    Ok(bytes)
}

/// A socket at which the other end arrives.
pub(crate) struct Door {
    point: MeetingPoint,
    pub(crate) name: [u8; 16],
}

/// What a door's name says.
const PURPOSE: &str = "channel";

impl Door {
    pub(crate) fn open() -> io::Result<Self> {
        let point = MeetingPoint::open(PURPOSE, 4)?;
        Ok(Self { name: point.name(), point })
    }

    /// Accepts the other end, which knows the channel's secret.
    pub(crate) fn accept(self, secret: [u8; 16], same_process: bool) -> Result<Local, Reason> {
        let deadline = Some(Instant::now() + ACCEPT_WITHIN);
        // Other programs can come to the same name.
        for _ in 0..16 {
            ready(&self.point, PollFlags::IN, deadline).map_err(|_| Reason::OtherNamespace)?;
            let Ok(socket) = self.point.accept() else { continue };
            let mut said = [0; 16];
            let came = ready(&socket, PollFlags::IN, deadline).is_ok()
                && recv(&socket, &mut said, RecvFlags::empty()).is_ok_and(|(n, _)| n == 16);
            if came && said == secret {
                return Local::new(socket, same_process);
            }
        }
        Err(Reason::OtherNamespace)
    }
}

/// The connection to the other end's process.
#[derive(Debug)]
pub(crate) struct Local {
    socket: OwnedFd,
    process: Option<(Pid, OwnedFd)>,
    pub(crate) same_process: bool,
}

impl Local {
    /// Goes to the other end's door.
    pub(crate) fn connect(name: [u8; 16], secret: [u8; 16], same_process: bool) -> Result<Self, Reason> {
        let socket = visit(&MeetingPoint::full_name(PURPOSE, name), Some(ACCEPT_WITHIN)).map_err(
            |error| match error {
                VisitError::Unreachable(_) => Reason::OtherNamespace,
                VisitError::OtherUser { .. } => Reason::OtherUser,
            },
        )?;
        ioctl_fionbio(&socket, true).map_err(|_| Reason::OtherNamespace)?;
        send(&socket, &secret, SendFlags::NOSIGNAL).map_err(|_| Reason::OtherNamespace)?;
        Self::new(socket, same_process)
    }

    fn new(socket: OwnedFd, same_process: bool) -> Result<Self, Reason> {
        take_descriptors(&socket);
        let pid = Credentials::of_peer(&socket).map_err(|_| Reason::OtherNamespace)?.pid;
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(|pid| {
            // It is the process that connected, or dead: `is_there` finds out.
            pidfd_open(pid, PidfdFlags::empty()).ok().map(|fd| (pid, fd))
        });
        Ok(Self { socket, process, same_process })
    }

    /// Returns the other end's process, if it is visible here.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(|&(pid, _)| pid)
    }

    /// Returns whether the other end's process lives, and has not given up.
    pub(crate) fn is_there(&self) -> bool {
        let fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![fd(self.socket.as_fd())];
        fds.extend(self.process.as_ref().map(|(_, process)| fd(process.as_fd())));
        // Nothing comes by the socket but its end; the process's is readable when that has ended.
        loop {
            match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Err(rustix::io::Errno::INTR) => {}
                ready => return ready == Ok(0),
            }
        }
    }

    /// Tells the other end that no memory of this one may be used any more.
    pub(crate) fn shut_down(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Passes descriptors, at most [`BATCH`], or the word that there are none.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn pass(&self, fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
        loop {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            match sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => ready(&self.socket, PollFlags::OUT, deadline)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives the descriptors of one [`pass`](Self::pass).
    ///
    /// # Errors
    /// The system's; `InvalidData`, if it were too many for this process.
    pub(crate) fn receive(&self, deadline: Option<Instant>) -> io::Result<Vec<OwnedFd>> {
        ready(&self.socket, PollFlags::IN, deadline)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                fds.extend(came);
            }
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(fds)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.shut_down();
    }
}
