//! The socket where clients attach.
//!
//! The socket at the path shows whether a daemon has the path: if no process answers at it, it is
//! replaced. The file `PATH.lock` is locked as long as the daemon runs, only so that two daemons
//! that start at the same time do not replace each other's socket; it stays, since removing it
//! would let a third one lock another file.
//!
//! Others may be able to write to the directory, as to /tmp. Links at these two paths are not
//! followed, and no FIFO is waited for. Only a lock file of this user counts. Others could lock a
//! file of another user, or something that is no file, for ever: it does not keep the daemon from
//! starting, which then runs without a lock. (Any other name that two daemons can agree on, in the
//! directory or in the abstract namespace, can be taken by others as well.)

use crate::activation;
use crate::values::Mode;
use gpunet_proxy::access::Credentials;
use gpunet_proxy::descriptors::hint;
use rustix::fs::{FlockOperation, Mode as Bits};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The backlog of connections: the kernel's usual bound.
const BACKLOG: i32 = 4096;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A daemon has it.
    #[error(
        "gpunetd already runs at {path}, {who}; stop it, or give this one another --listen-path",
        path = path.display(),
        who = pid.map_or("its process is unknown".to_owned(), |pid| format!("pid {pid}"))
    )]
    AlreadyRuns {
        /// Where.
        path: PathBuf,
        /// Which process, if that is known.
        pid: Option<u32>,
    },
    /// Something else is there.
    #[error(
        "{path} exists and is no socket of gpunetd; remove it, or give another --listen-path",
        path = path.display()
    )]
    InTheWay {
        /// Where.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {source}{hint}", hint = hint(.source), path = path.display())]
    System {
        /// What it was to do.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Its answer.
        r#source: io::Error,
    },
    /// systemd passed something else.
    #[error(
        "the socket passed by systemd: {0}; gpunetd.socket needs one ListenSequentialPacket= and no other"
    )]
    Activation(String),
}

/// A listening socket.
#[derive(Debug)]
pub struct Endpoint {
    /// The socket.
    pub listener: OwnedFd,
    /// The path and lock to release at the end; `None` if the socket is systemd's.
    pub place: Option<Place>,
}

/// The socket's file, which goes when this is dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Device and inode: another daemon's file at the same path stays.
    file: Option<(u64, u64)>,
    /// `None` if a file of another user is in its place.
    _lock: Option<File>,
}

/// Takes the socket of systemd, or makes one at `path`.
///
/// # Errors
/// [`SocketError`].
pub fn open(path: &Path, mode: Mode) -> Result<Endpoint, SocketError> {
    match activation::inherited()? {
        Some(listener) => Ok(Endpoint { listener, place: None }),
        None => make(path, mode),
    }
}

/// A file creation mask, until this is dropped.
///
/// It is the process's: to be used while there is one thread.
struct Umask(Bits);

impl Umask {
    /// A mask that clears no mode bits.
    fn none() -> Self {
        Self(rustix::process::umask(Bits::empty()))
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
    }
}

fn make(path: &Path, mode: Mode) -> Result<Endpoint, SocketError> {
    // Files that are made here have the modes that are given here; a service often has a mask that
    // would shut clients out.
    let _umask = Umask::none();
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| SocketError::System { what, path, source }
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(failed("make the directory", directory))?;
    }
    let mut lock_path = path.to_owned().into_os_string();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let lock = lock_file(&lock_path)?;
    if let Some(lock) = &lock {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(SocketError::AlreadyRuns {
                    path: path.to_owned(),
                    pid: owner(path).ok().flatten(),
                });
            }
            Err(errno) => return Err(failed("lock", &lock_path)(errno.into())),
        }
    }
    clear(path)?;
    let mut place = Place { path: path.to_owned(), file: None, _lock: lock };
    let listener = socket().map_err(failed("make a socket for", path))?;
    // Before it has a file: the file is created with this mode, and no other user can replace it.
    let set = rustix::fs::fchmod(&listener, Bits::from_raw_mode(mode.0));
    set.map_err(|errno| failed("set the mode of", path)(errno.into()))?;
    let bound = SocketAddrUnix::new(path).and_then(|addr| rustix::net::bind(&listener, &addr));
    bound.map_err(|errno| failed("bind", path)(errno.into()))?;
    let file = std::fs::symlink_metadata(path).map_err(failed("look at", path))?;
    place.file = Some((file.dev(), file.ino()));
    rustix::net::listen(&listener, BACKLOG).map_err(|errno| failed("listen at", path)(errno.into()))?;
    Ok(Endpoint { listener, place: Some(place) })
}

/// Opens the lock file, and creates it if it is missing. `None` if the path is not a file of this
/// user.
fn lock_file(path: &Path) -> Result<Option<File>, SocketError> {
    let failed = |what| move |source| SocketError::System { what, path: path.to_owned(), source };
    // A link would be followed, and a FIFO would wait for a reader.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let own = rustix::process::geteuid().as_raw();
    let is_own = |file: &Metadata| file.is_file() && file.uid() == own;
    let (lock, there) = match options.open(path) {
        Ok(lock) => {
            let opened = lock.metadata().map_err(failed("look at"))?;
            (Some(lock), opened)
        }
        // The system's answers to links, sockets, files of others and the like are many.
        Err(source) => match std::fs::symlink_metadata(path) {
            Ok(there) if !is_own(&there) => (None, there),
            _ => return Err(failed("open the lock file")(source)),
        },
    };
    if is_own(&there) {
        return Ok(lock);
    }
    tracing::warn!(
        path = %path.display(),
        uid = there.uid(),
        "no file of this user, so it is not locked: two daemons that start at the same time may replace each other's \
         socket; remove it, or give a --listen-path in a directory where others cannot write"
    );
    Ok(None)
}

/// Removes the socket of a daemon that is gone.
fn clear(path: &Path) -> Result<(), SocketError> {
    let in_the_way = || SocketError::InTheWay { path: path.to_owned() };
    let failed = |what| move |source| SocketError::System { what, path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => return Err(in_the_way()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed("look at")(source)),
    }
    match owner(path) {
        Ok(pid) => Err(SocketError::AlreadyRuns { path: path.to_owned(), pid }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "a daemon that is gone has left its socket: replaced");
            std::fs::remove_file(path).map_err(failed("remove the old socket"))
        }
        // Another program listens there, and the socket is of another type.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTOTYPE) => Err(in_the_way()),
        Err(source) => Err(failed("find out who listens at")(source)),
    }
}

/// The process that listens at `path`, if there is one and the kernel says which.
fn owner(path: &Path) -> io::Result<Option<u32>> {
    let socket = socket()?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(Some(Credentials::of_peer(&socket)?.pid).filter(|pid| *pid != 0)),
        // Its backlog is full: it lives.
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl Place {
    /// Removes the file: from now on no client finds the daemon.
    pub fn remove(&mut self) {
        let Some(own) = self.file.take() else { return };
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|file| (file.dev(), file.ino()) == own)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}
