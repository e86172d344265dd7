//! The first frames of a connection to a daemon.

use crate::model::error::DaemonError;
use crate::model::message::ANSWER_TIMEOUT;
use crate::model::snapshot::Snapshot;
use crate::wire::{self, BadFrame, DaemonRepr, Hello, MAX_FRAME, PROTOCOL, ToDaemon, ToProgram};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// How long a daemon may take to answer. It may have to allocate a gigabyte of rings.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection after its first frames.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) answer: ToProgram,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Connection {
    /// Connects, sends the hello and waits for the answer. `card` is the dma-buf of an attachment
    /// that has one.
    pub(crate) fn open(
        path: &Path,
        hello: &Hello,
        card: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DaemonError> {
        let socket = reach(path)?;
        let (mut answer, mut fds) = ask(path, &socket, &wire::encode_first(hello), &[])?;
        if let (ToProgram::SendCard, Some(card)) = (&answer, card) {
            (answer, fds) = ask(path, &socket, &wire::encode(&ToDaemon::Card), &[card])?;
        }
        Ok(Self { socket, answer, fds })
    }

    /// Connects with a hello that the daemon answers by describing itself.
    pub(crate) fn ready(path: &Path, hello: &Hello) -> Result<(OwnedFd, DaemonRepr), DaemonError> {
        let connection = Self::open(path, hello, None)?;
        match connection.answer {
            ToProgram::Ready(daemon) => Ok((connection.socket, daemon)),
            other => Err(DaemonError::Strange { path: path.to_owned(), what: format!("it said {other:?}") }),
        }
    }
}

/// Sends a first frame, and waits for the answer.
fn ask(
    path: &Path,
    socket: &OwnedFd,
    frame: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(ToProgram, Vec<OwnedFd>), DaemonError> {
    let sent = wire::send(socket.as_fd(), frame, fds);
    let silent = |source| DaemonError::Silent { path: path.to_owned(), source };
    // A daemon that refuses without reading may have sent the reason.
    let packet = next(socket, TIMEOUT).map_err(|error| silent(sent.err().unwrap_or(error)))?;
    match wire::decode_first::<ToProgram>(packet) {
        Ok((ToProgram::Refused { errno, reason }, _)) => Err(DaemonError::Refused { errno, reason }),
        Ok(answer) => Ok(answer),
        Err(BadFrame::Version(daemon)) => Err(DaemonError::Version { daemon, program: PROTOCOL }),
        Err(BadFrame::NoDescriptor) => {
            Err(DaemonError::NoDescriptor { source: io::Error::from_raw_os_error(libc::EMFILE) })
        }
        Err(error) => Err(DaemonError::Strange { path: path.to_owned(), what: error.to_string() }),
    }
}

fn reach(path: &Path) -> Result<OwnedFd, DaemonError> {
    let failed = |error: rustix::io::Errno| {
        let (path, source) = (path.to_owned(), io::Error::from(error));
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                DaemonError::NotThere { path, source }
            }
            _ => DaemonError::Connect { path, source },
        }
    };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed)?;
    // While the daemon's backlog is full, connect blocks as long as a send would.
    let timeout = rustix::net::sockopt::Timeout::Send;
    rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(TIMEOUT)).map_err(failed)?;
    rustix::io::retry_on_intr(|| connect(&socket, &address)).map_err(failed)?;
    Ok(socket)
}

/// The next packet, within `limit`.
pub(crate) fn next(socket: &OwnedFd, limit: Duration) -> io::Result<wire::Packet> {
    let deadline = std::time::Instant::now() + limit;
    let mut buffer = vec![0; MAX_FRAME];
    loop {
        match wire::recv(socket.as_fd(), &mut buffer) {
            Ok(Some(packet)) => return Ok(packet),
            Ok(None) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, "it closed the connection"));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // An interrupted wait is a short one.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], Some(&left));
    }
}

/// Asks the daemon at `path` what it holds. Root, the daemon's own user and the admins in its file
/// see all attachments; other users see their own only.
///
/// # Errors
/// [`DaemonError`], when no daemon listens at `path`, or it does not answer.
pub fn snapshot(path: &Path) -> Result<Snapshot, DaemonError> {
    let silent = |source| DaemonError::Silent { path: path.to_owned(), source };
    let strange = |what| DaemonError::Strange { path: path.to_owned(), what };
    let (socket, _) = Connection::ready(path, &Hello::Admin)?;
    wire::send(socket.as_fd(), &wire::encode(&ToDaemon::Snapshot), &[]).map_err(silent)?;
    let mut bytes = Vec::new();
    loop {
        let packet = next(&socket, ANSWER_TIMEOUT).map_err(silent)?;
        match wire::decode::<ToProgram>(packet) {
            Ok((ToProgram::Snapshot { piece, last }, _)) => {
                bytes.extend(piece);
                if last {
                    return postcard::from_bytes(&bytes).map_err(|error| strange(error.to_string()));
                }
            }
            Ok((other, _)) => return Err(strange(format!("it said {other:?}"))),
            Err(error) => return Err(strange(error.to_string())),
        }
    }
}
