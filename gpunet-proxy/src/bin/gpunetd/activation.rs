//! A socket that systemd passes.

use crate::socket::SocketError;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::os::fd::{FromRawFd, OwnedFd};

/// The socket that systemd opened for this process, if it did.
///
/// To be called once, before anything else is opened.
///
/// # Errors
/// [`SocketError::Activation`]: there are several, or it is no listening SOCK_SEQPACKET socket.
pub fn inherited() -> Result<Option<OwnedFd>, SocketError> {
    let wrong = |what: String| SocketError::Activation(what);
    let mut passed = sd_notify::listen_fds().map_err(|error| wrong(error.to_string()))?;
    let count = passed.len();
    let Some(fd) = passed.next() else { return Ok(None) };
    if count > 1 {
        return Err(wrong(format!("{count} sockets are too many")));
    }
    // SAFETY: `listen_fds` found it open and made it close-on-exec; LISTEN_PID says that it was
    // opened for this process, in which no other code knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let unix = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
    let packets = sockopt::socket_type(&fd) == Ok(SocketType::SEQPACKET);
    if !unix || !packets || sockopt::socket_acceptconn(&fd) != Ok(true) {
        return Err(wrong("it is no listening Unix socket of type SOCK_SEQPACKET".to_owned()));
    }
    Ok(Some(fd))
}
