//! Errors as Python has them: `OSError` with the errno, whose subclass Python chooses itself
//! (`ConnectionResetError`, `BrokenPipeError`, ...), and a text that says what to do.

use gpunet_proxy::queue::QueueError;
use gpunet_proxy::settings::SettingsError;
use gpunet_proxy::socket::{DirectionError, SocketError};
use gpunet_proxy::team::TeamError;
use gpunet_proxy::{
    AllocError, AttachError, DaemonError, EmbedError, OpenError, SnapshotError, TooManyLaunches,
};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::net::SocketAddr;

/// Why a call failed: an errno, and what there is to say about it.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// A call on something that was closed.
    pub(crate) fn closed(what: &str) -> Self {
        Self::new(libc::EBADF, format!("the {what} is closed; open a new one"))
    }

    /// A call that would have to wait, and may not.
    pub(crate) fn would_block() -> Self {
        Self::new(libc::EAGAIN, "the call would have to wait, and the socket's timeout is 0")
    }

    /// The same, with the address that it is about.
    pub(crate) fn at(self, address: SocketAddr) -> Self {
        Self { text: format!("{address}: {}", self.text), ..self }
    }
}

/// What `errno` means for a socket. What is short is not always what the number's name says.
fn text_of(errno: i32) -> String {
    let text = match errno {
        libc::ENOBUFS => {
            "no ring memory is free for these rings; raise the setting shared_rings, or ask for smaller rings (send_ring, recv_ring)"
        }
        libc::ENETDOWN => "the proxy, or the daemon behind it, has stopped; open a new one",
        libc::ECANCELED => "the attachment of this socket is closed",
        libc::EOPNOTSUPP => "there is no such transport here",
        _ => {
            let text = io::Error::from_raw_os_error(errno).to_string();
            let end = text.rfind(" (os error").unwrap_or(text.len());
            return text[..end].to_owned();
        }
    };
    text.to_owned()
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => libc::EPROTO,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        // All launch numbers are in use.
        io::ErrorKind::ResourceBusy | io::ErrorKind::QuotaExceeded => libc::EBUSY,
        _ => libc::EIO,
    })
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::new(errno, text_of(errno)),
            None => Self::new(errno_of(&error), error.to_string()),
        }
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        let errno = error.errno();
        let text = match error {
            // Rings have other names in Python.
            SocketError::Failed(_) | SocketError::NoBuffers => text_of(errno),
            error => error.to_string(),
        };
        Self::new(errno, text)
    }
}

impl From<&DirectionError> for Failure {
    fn from(error: &DirectionError) -> Self {
        let text = match error {
            DirectionError::InUseByLaunch => {
                "a launch that runs knows the socket, or may; finish it before a queue uses the socket, or the kernels get it back"
                    .to_owned()
            }
            error => error.to_string(),
        };
        Self::new(error.errno(), text)
    }
}

/// What cannot be is a ValueError, everything else an OSError.
pub(crate) fn queue(error: &QueueError) -> PyErr {
    match error {
        error if error.errno() == libc::EINVAL => PyValueError::new_err(error.to_string()),
        QueueError::Direction(error) => Failure::from(error).into(),
        error => Failure::new(error.errno(), error.to_string()).into(),
    }
}

/// What members cannot do together is a ValueError, everything else an OSError.
pub(crate) fn team(error: &TeamError) -> PyErr {
    match error.errno() {
        libc::EINVAL => PyValueError::new_err(error.to_string()),
        errno => Failure::new(errno, error.to_string()).into(),
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Made at once, as by [`made`].
impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            // The end of the interpreter has closed what a daemon thread waits for.
            crate::detach::stay_if_ending(py);
            let error = py.get_type::<PyOSError>().call1((failure.errno, failure.text));
            error.map_or_else(|error| error, Self::from_value)
        })
    }
}

/// Makes an exception at once. An error of `new_err` is made when it is first looked at, with the
/// GIL let go and taken again, and at the end of the interpreter nobody may ask for it: use this
/// where the error is looked at, to add a cause or an attribute.
pub(crate) fn made<T: PyTypeInfo>(py: Python<'_>, text: String) -> PyErr {
    py.get_type::<T>().call1((text,)).map_or_else(|error| error, PyErr::from_value)
}

/// A timeout of the program's own, as `socket.timeout`.
pub(crate) fn timed_out(what: &str) -> PyErr {
    Python::attach(|py| made::<PyTimeoutError>(py, format!("timed out: {what}")))
}

/// A fault of CUDA.
pub(crate) fn cuda(error: impl std::fmt::Display) -> PyErr {
    Python::attach(|py| made::<PyRuntimeError>(py, error.to_string()))
}

/// What is wrong with settings, a line for each in `text`.
pub(crate) fn settings(error: &SettingsError, text: &str) -> PyErr {
    let SettingsError::Text { line, message } = error else {
        return PyValueError::new_err(error.to_string());
    };
    let setting = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let mut message = message.clone();
    // Rust's types say nothing here.
    for kind in ["u64", "u32", "usize"] {
        message = message.replace(&format!("expected {kind}"), "expected a whole number, not negative");
    }
    PyValueError::new_err(format!("the setting {setting}: {message}"))
}

pub(crate) fn daemon(error: &DaemonError) -> PyErr {
    if let DaemonError::Config(_) = error {
        return PyValueError::new_err(error.to_string());
    }
    Failure::new(error.errno(), error.to_string()).into()
}

pub(crate) fn embed(error: &EmbedError) -> PyErr {
    match error {
        EmbedError::Config(_) => PyValueError::new_err(error.to_string()),
        error => Failure::new(error.errno(), error.to_string()).into(),
    }
}

pub(crate) fn open(error: &OpenError) -> PyErr {
    match error {
        OpenError::Daemon(error) => daemon(error),
        OpenError::Embed(error) => embed(error),
        error => Failure::new(error.errno(), error.to_string()).into(),
    }
}

pub(crate) fn attach(error: &AttachError) -> PyErr {
    Failure::new(error.errno(), error.to_string()).into()
}

pub(crate) fn too_many_launches(error: &TooManyLaunches) -> PyErr {
    Failure::new(libc::EBUSY, format!("{error}; leave the blocks of launches that are done")).into()
}

pub(crate) fn alloc(error: &AllocError) -> PyErr {
    pyo3::exceptions::PyMemoryError::new_err(error.to_string())
}
