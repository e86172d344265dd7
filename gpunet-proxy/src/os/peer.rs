//! The kernel's view of the other end of a Unix socket, and what it lets that end send.
//!
//! Unsafe code, because rustix has no SO_PEERGROUPS and no SO_PASSRIGHTS, and its SO_PEERCRED takes
//! the process for a number other than 0, which a process of a foreign namespace does not have.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The process at the other end of a connection.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::{Access, Credentials};
///
/// let root = Credentials { pid: 1, uid: 0, gid: 0, groups: vec![] };
/// assert!(Access::default().limits_for(&root).is_some(), "root always may attach");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process id; 0 if this process does not see the client's process namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Reads the credentials of the process that connected to the other end of `socket`, as they
    /// were at that time.
    ///
    /// The kernel keeps them with the connection (SO_PEERCRED and SO_PEERGROUPS), so they cannot
    /// change afterwards. `/proc/PID/status` might by now belong to another process with the same
    /// number, and getgrouplist returns the groups that the user database gives the user, not those
    /// of the process.
    ///
    /// # Errors
    /// `socket` is no connected Unix socket.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::access::Credentials;
    ///
    /// let (here, _there) = std::os::unix::net::UnixStream::pair()?;
    /// assert_eq!(Credentials::of_peer(&here)?.pid, std::process::id());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of_peer(socket: impl AsFd) -> io::Result<Self> {
        credentials(socket.as_fd())
    }

    /// Returns whether the process is in that group.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

/// See [`Credentials::of_peer`].
fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = [libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX }];
    option(socket, libc::SO_PEERCRED, &mut peer)?;
    let [peer] = peer;
    if peer.uid == u32::MAX {
        // The kernel's answer for a socket that is not connected.
        return Err(io::ErrorKind::NotConnected.into());
    }
    // Most processes have a few groups; the kernel allows 65,536.
    let mut groups = vec![0u32; 64];
    let count = loop {
        match option(socket, libc::SO_PEERGROUPS, &mut groups) {
            Ok(count) => break count,
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && groups.len() < 1 << 17 => {
                groups.resize(groups.len() * 4, 0);
            }
            Err(error) => return Err(error),
        }
    };
    groups.truncate(count);
    Ok(Credentials { pid: peer.pid.unsigned_abs(), uid: peer.uid, gid: peer.gid, groups })
}

/// Whether the other end may send descriptors. Linux 6.16 and later;
/// include/uapi/asm-generic/socket.h.
const SO_PASSRIGHTS: i32 = 83;

/// Returns whether the other end of a Unix socket may send descriptors.
///
/// # Errors
/// Before Linux 6.16 it always may, and this is an error.
pub(crate) fn accepts_descriptors(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut on = [0u32];
    option(socket, SO_PASSRIGHTS, &mut on)?;
    Ok(on != [0])
}

/// Sets whether the other end of a Unix socket may send descriptors, from now on. Connections get
/// it from their listener when they are made.
///
/// # Errors
/// As [`accepts_descriptors`].
pub(crate) fn set_accepts_descriptors(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `on`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            std::ptr::from_ref(&on).cast(),
            len,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Plain data, valid for any bytes.
trait Plain: Copy {}
impl Plain for libc::ucred {}
impl Plain for u32 {}

/// Reads a socket option of several values; returns how many there are.
fn option<T: Plain>(socket: BorrowedFd<'_>, name: i32, values: &mut [T]) -> io::Result<usize> {
    let mut len = size_of_val(values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `values`, and any bytes are a valid `T`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, values.as_mut_ptr().cast(), &mut len)
    };
    if result == 0 { Ok(len as usize / size_of::<T>()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getegid, geteuid, getgroups};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = credentials(one.as_fd()).unwrap();
        assert_eq!((peer.pid, peer.uid), (std::process::id(), geteuid().as_raw()));
        assert_eq!(peer.gid, getegid().as_raw());
        let mut own: Vec<u32> = getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        let mut groups = peer.groups;
        own.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, own);
    }

    #[test]
    fn a_socket_without_another_end_has_no_credentials() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(credentials(tcp.as_fd()).is_err());
    }
}
