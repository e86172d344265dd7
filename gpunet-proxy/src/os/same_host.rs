//! How two processes of one user on one host find each other without a daemon: those of a team, and
//! the two ends of a channel.
//!
//! They have a connection already, over which each says on which machine it runs ([`MachineId`]).
//! If it is the same one, one of them opens a [`MeetingPoint`] and tells its name, and the other
//! one goes there ([`visit`]). Each then has a Unix-domain socket by which descriptors can be
//! passed and by which the kernel tells who is at the other end: neither reads anything of a
//! process of another user. Any process in the same network namespace can come to a meeting point,
//! so what the visitor says first is a secret that it was given over the first connection.

use super::peer::{Credentials, set_accepts_descriptors};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A machine from one boot to the next: the kernel's boot id, which containers of one machine
/// share.
///
/// # Examples
/// ```
/// use gpunet_proxy::same_host::MachineId;
///
/// let here = MachineId::here()?;
/// assert_eq!(here.to_string().len(), 32);
/// let to_send = here.bytes();
/// # let _ = to_send;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MachineId([u8; 16]);

impl MachineId {
    /// Returns this machine's.
    ///
    /// # Errors
    /// The file cannot be read, or has no boot id.
    pub fn here() -> io::Result<Self> {
        let failed = |kind, why: &dyn fmt::Display| io::Error::new(kind, format!("{BOOT_ID}: {why}"));
        let text = std::fs::read_to_string(BOOT_ID).map_err(|error| failed(error.kind(), &error))?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        // One that cannot be read is no machine's: two of them would be taken for the same.
        match u128::from_str_radix(&digits, 16) {
            Ok(number) if digits.len() == 32 => Ok(Self(number.to_be_bytes())),
            _ => Err(failed(io::ErrorKind::InvalidData, &"it is no boot id")),
        }
    }

    /// The id to send.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Fills `bytes` with values that nobody can guess.
///
/// # Errors
/// The system's.
///
/// # Examples
/// ```
/// let [mut secret, mut other] = [[0; 16]; 2];
/// gpunet_proxy::same_host::random_bytes(&mut secret)?;
/// gpunet_proxy::same_host::random_bytes(&mut other)?;
/// assert_ne!(secret, other);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// This process's effective user.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A Unix-domain socket (SOCK_SEQPACKET) at an abstract name of its own, at which other processes
/// arrive. Calls do not wait.
///
/// # Examples
/// ```
/// use gpunet_proxy::same_host::{MeetingPoint, visit};
///
/// let point = MeetingPoint::open("example", 1)?;
/// let _there = visit(&MeetingPoint::full_name("example", point.name()), None)?;
/// let _here = point.accept()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MeetingPoint {
    socket: OwnedFd,
    name: [u8; 16],
}

impl MeetingPoint {
    /// Opens one for `purpose`, at which `backlog` visitors may wait.
    ///
    /// # Errors
    /// The system's.
    pub fn open(purpose: &str, backlog: i32) -> io::Result<Self> {
        let mut name = [0; 16];
        random_bytes(&mut name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Before Linux 6.16 this is not possible.
        let _ = set_accepts_descriptors(socket.as_fd(), false);
        bind(&socket, &SocketAddrUnix::new_abstract_name(Self::full_name(purpose, name).as_bytes())?)?;
        listen(&socket, backlog)?;
        Ok(Self { socket, name })
    }

    /// What tells it from others of its purpose.
    #[must_use]
    pub const fn name(&self) -> [u8; 16] {
        self.name
    }

    /// The name to visit.
    #[must_use]
    pub fn full_name(purpose: &str, name: [u8; 16]) -> String {
        format!("gpunet-{purpose}-{:032x}", u128::from_le_bytes(name))
    }

    /// Accepts a visitor that waits. Its socket does not wait either, and takes no descriptors
    /// before [`take_descriptors`].
    ///
    /// # Errors
    /// `PermissionDenied`: it is of another user. `WouldBlock`: none waits. Others are the
    /// system's.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let is_own = Credentials::of_peer(&socket)?.uid == own_user();
        if is_own { Ok(socket) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// The listening socket, for who accepts by rules of its own.
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

/// Readable when a visitor waits.
impl AsFd for MeetingPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Lets the other end of a socket of [`visit`] or [`MeetingPoint::accept`] pass descriptors from
/// now on. Before Linux 6.16 it always may.
///
/// # Examples
/// ```
/// use gpunet_proxy::same_host::{MeetingPoint, take_descriptors, visit};
///
/// let point = MeetingPoint::open("example", 1)?;
/// let there = visit(&MeetingPoint::full_name("example", point.name()), None)?;
/// // After the other end has said its secret.
/// take_descriptors(&there);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn take_descriptors(socket: impl AsFd) {
    let _ = set_accepts_descriptors(socket.as_fd(), true);
}

/// Why a meeting point was visited in vain.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// There is nobody at that name: another network namespace, or the process has ended.
    #[error("cannot reach the other process's Unix-domain socket (another network namespace?)")]
    Unreachable(#[from] io::Error),
    /// It belongs to another user. Nothing was sent.
    #[error("the Unix-domain socket is of user {uid}, and this process's user is {own}")]
    OtherUser {
        /// The effective user of the process that opened it.
        uid: u32,
        /// This process's.
        own: u32,
    },
}

/// Goes to the meeting point with that full name, and checks that a process of this user has opened
/// it. Where its backlog is full, waits `within`, or without an end. The socket waits in its calls,
/// and takes no descriptors before [`take_descriptors`].
///
/// # Errors
/// [`VisitError`].
///
/// # Examples
/// ```
/// use gpunet_proxy::same_host::{VisitError, visit};
///
/// assert!(matches!(visit("gpunet-nobody-is-here", None), Err(VisitError::Unreachable(_))));
/// ```
pub fn visit(full_name: &str, within: Option<Duration>) -> Result<OwnedFd, VisitError> {
    let system = |error: rustix::io::Errno| VisitError::Unreachable(error.into());
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(system)?;
    let _ = set_accepts_descriptors(socket.as_fd(), false);
    // While the backlog is full, connect waits as long as a send would.
    set_socket_timeout(&socket, Timeout::Send, within).map_err(system)?;
    let address = SocketAddrUnix::new_abstract_name(full_name.as_bytes()).map_err(system)?;
    connect(&socket, &address).map_err(system)?;
    let (uid, own) = (Credentials::of_peer(&socket)?.uid, own_user());
    if uid == own { Ok(socket) } else { Err(VisitError::OtherUser { uid, own }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvFlags, SendFlags, recv, send};

    #[test]
    fn a_machine_is_the_same_each_time() {
        let here = MachineId::here().unwrap();
        assert_eq!(MachineId::here().unwrap(), here);
        let boot_id = std::fs::read_to_string(BOOT_ID).unwrap();
        assert_eq!(here.to_string(), boot_id.trim().replace('-', ""), "as an operator reads it");
    }

    #[test]
    fn visitors_are_accepted_one_after_the_other_and_none_is_waited_for() {
        let point = MeetingPoint::open("test", 2).unwrap();
        assert_eq!(point.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let name = MeetingPoint::full_name("test", point.name());
        let visitors = [(); 2].map(|()| visit(&name, Some(Duration::from_secs(10))).unwrap());
        for (number, visitor) in (0u8..).zip(&visitors) {
            send(visitor, &[number], SendFlags::NOSIGNAL).unwrap();
            let (accepted, mut said) = (point.accept().unwrap(), [9]);
            assert_eq!(recv(&accepted, &mut said, RecvFlags::empty()).unwrap().0, 1);
            assert_eq!(said, [number]);
        }
        drop(point);
        assert!(matches!(visit(&name, None), Err(VisitError::Unreachable(_))));
    }

    #[test]
    fn a_visit_to_a_point_with_a_full_backlog_ends() {
        let point = MeetingPoint::open("test", 0).unwrap();
        let name = MeetingPoint::full_name("test", point.name());
        let mut visitors = Vec::new();
        let error = loop {
            match visit(&name, Some(Duration::from_millis(1))) {
                Ok(socket) => visitors.push(socket),
                Err(error) => break error,
            }
            assert!(visitors.len() < 100, "a backlog without an end");
        };
        let VisitError::Unreachable(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
