//! Sockets in the table of a device, which its kernels use by number: those that the program opens
//! for them, and those that others have opened.

use crate::address;
use crate::detach::detach;
use crate::error::{Failure, timed_out};
use crate::fork::Owned;
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use gpunet_proxy::socket::{self, PendingSocket, TableSocket};
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long an attempt that was given up may take to end.
const LONGEST_END: Duration = Duration::from_secs(1);

/// Waits until the socket is open. A connection that is there when the time is over is not lost.
fn opened(
    py: Python<'_>,
    notify: &Arc<Notify>,
    limit: Limit,
    mut pending: PendingSocket,
    is_closed: impl Fn() -> bool + Send + Sync,
) -> PyResult<Waited<Result<socket::Socket, Failure>>> {
    let mut poll = |cx: &mut std::task::Context<'_>| {
        if is_closed() {
            return Poll::Ready(Err(Failure::closed("listener")));
        }
        Pin::new(&mut pending).poll(cx).map_err(Failure::from)
    };
    match until_ready(py, notify, limit, &mut poll)? {
        Waited::Done(opened) => return Ok(Waited::Done(opened)),
        Waited::WouldBlock | Waited::TimedOut => {}
    }
    pending.abandon();
    let mut poll = |cx: &mut std::task::Context<'_>| Pin::new(&mut pending).poll(cx);
    match until_ready(py, notify, Limit::Until(Instant::now() + LONGEST_END), &mut poll)? {
        Waited::Done(Ok(socket)) => Ok(Waited::Done(Ok(socket))),
        Waited::Done(Err(error)) if error.errno() != libc::ECANCELED => Ok(Waited::Done(Err(error.into()))),
        _ if matches!(limit, Limit::No) => Ok(Waited::WouldBlock),
        _ => Ok(Waited::TimedOut),
    }
}

/// A socket of a device: one that the program has opened, which closes it with this object, or one
/// that others have opened.
enum Held<T> {
    Own(T),
    Known(TableSocket),
}

impl<T> Held<T> {
    /// Closes the socket.
    fn close(self) {
        match self {
            Self::Own(socket) => drop(socket),
            Self::Known(socket) => socket.close(),
        }
    }

    /// Returns whether others have closed it.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Known(socket) if !socket.is_open())
    }
}

/// A connected stream of a device, for its kernels.
#[pyclass(frozen, weakref, module = "gpunet", name = "DeviceSocket")]
pub(crate) struct DeviceSocket {
    /// `None` once it is closed, or left to the kernels.
    socket: Owned<Mutex<Option<Held<socket::Socket>>>>,
}

/// Makes the object of a socket that others have opened.
pub(crate) fn known(py: Python<'_>, socket: TableSocket) -> PyResult<Py<PyAny>> {
    if !socket.is_listener() {
        let socket = DeviceSocket { socket: Owned::new(Mutex::new(Some(Held::Known(socket)))) };
        return Ok(Py::new(py, socket)?.into_any());
    }
    let listener = Owned::new(Mutex::new(Some(Held::Known(socket))));
    Ok(Py::new(py, DeviceListener { listener, notify: Arc::default() })?.into_any())
}

/// An address that every open socket has.
fn addressed(found: Option<SocketAddr>) -> Result<SocketAddr, Failure> {
    found.ok_or_else(|| Failure::new(libc::ENOTCONN, "the socket has no address"))
}

impl DeviceSocket {
    fn new(socket: socket::Socket) -> Self {
        Self { socket: Owned::new(Mutex::new(Some(Held::Own(socket)))) }
    }

    pub(crate) fn connect(
        py: Python<'_>,
        pending: PendingSocket,
        to: SocketAddr,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        match opened(py, &Arc::default(), Limit::of(timeout), pending, || false)? {
            Waited::Done(socket) => Ok(Self::new(socket.map_err(|failure| failure.at(to))?)),
            Waited::WouldBlock => {
                Err(Failure::new(libc::EINPROGRESS, "a connect waits for an answer; give it a timeout")
                    .into())
            }
            Waited::TimedOut => Err(timed_out(&format!("no connection to {to}"))),
        }
    }

    fn with<R>(
        &self,
        own: impl FnOnce(&socket::Socket) -> R,
        known: impl FnOnce(&TableSocket) -> R,
    ) -> Result<R, Failure> {
        match &*lock(self.socket.get()?) {
            Some(Held::Own(socket)) => Ok(own(socket)),
            Some(Held::Known(socket)) if socket.is_open() => Ok(known(socket)),
            _ => Err(Failure::closed("socket")),
        }
    }

    fn number(&self) -> Result<i32, Failure> {
        Ok(self.with(socket::Socket::handle, TableSocket::handle)?.raw())
    }
}

#[pymethods]
impl DeviceSocket {
    fn device_number(&self) -> PyResult<i32> {
        Ok(self.number()?)
    }

    fn leave(&self) -> PyResult<i32> {
        let socket = lock(self.socket.get()?).take();
        Ok(match socket.filter(|socket| !socket.is_gone()).ok_or_else(|| Failure::closed("socket"))? {
            Held::Own(socket) => socket.into_handle().raw(),
            Held::Known(socket) => socket.handle().raw(),
        })
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(
            py,
            self.with(|own| own.local_addr().map_err(Failure::from), |known| addressed(known.local_addr()))??,
        )
    }

    fn getpeername<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(
            py,
            self.with(|own| own.peer_addr().map_err(Failure::from), |known| addressed(known.peer_addr()))??,
        )
    }

    #[getter]
    fn transport(&self) -> PyResult<&'static str> {
        let known = |known: &TableSocket| known.transport().unwrap_or_default();
        Ok(address::name_of(self.with(socket::Socket::transport, known)?))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(lock(self.socket.get()?).as_ref().is_none_or(Held::is_gone))
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(socket) = self.socket.get() {
            detach(py, || lock(socket).take().map_or((), Held::close));
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let text = |number| format!("<gpunet.DeviceSocket number {number}>");
        self.number().map_or_else(|_| "<gpunet.DeviceSocket [closed]>".to_owned(), text)
    }
}

/// A listener of a device: kernels accept at it by its number, and so does the program.
#[pyclass(frozen, weakref, module = "gpunet", name = "DeviceListener")]
pub(crate) struct DeviceListener {
    listener: Owned<Mutex<Option<Held<socket::ListeningSocket>>>>,
    notify: Arc<Notify>,
}

impl DeviceListener {
    pub(crate) fn new(listener: socket::ListeningSocket) -> PyResult<Self> {
        Ok(Self { listener: Owned::new(Mutex::new(Some(Held::Own(listener)))), notify: Arc::default() })
    }

    fn with<R>(
        &self,
        own: impl FnOnce(&socket::ListeningSocket) -> R,
        known: impl FnOnce(&TableSocket) -> R,
    ) -> Result<R, Failure> {
        match &*lock(self.listener.get()?) {
            Some(Held::Own(listener)) => Ok(own(listener)),
            Some(Held::Known(listener)) if listener.is_open() => Ok(known(listener)),
            _ => Err(Failure::closed("listener")),
        }
    }

    fn number(&self) -> Result<i32, Failure> {
        Ok(self.with(socket::ListeningSocket::handle, TableSocket::handle)?.raw())
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        self.with(|own| Ok(own.local_addr()), |known| addressed(known.local_addr()))?
    }
}

#[pymethods]
impl DeviceListener {
    fn device_number(&self) -> PyResult<i32> {
        Ok(self.number()?)
    }

    fn leave(&self) -> PyResult<i32> {
        let listener = lock(self.listener.get()?).take();
        Ok(match listener.filter(|held| !held.is_gone()).ok_or_else(|| Failure::closed("listener"))? {
            Held::Own(listener) => listener.into_handle().raw(),
            Held::Known(listener) => listener.handle().raw(),
        })
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.address()?)
    }

    #[pyo3(signature = (timeout=None))]
    fn accept<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<(DeviceSocket, Bound<'py, PyAny>)> {
        let limit = Limit::of(crate::socket::checked(timeout)?);
        let pending = self.with(socket::ListeningSocket::accept, TableSocket::accept)?;
        let listener = self.listener.get()?;
        match opened(py, &self.notify, limit, pending, || lock(listener).is_none())? {
            Waited::Done(socket) => {
                let socket = socket?;
                let peer = socket.peer_addr().map_err(Failure::from)?;
                Ok((DeviceSocket::new(socket), address::tuple(py, peer)?))
            }
            Waited::WouldBlock => Err(Failure::would_block().into()),
            Waited::TimedOut => Err(timed_out("nobody has connected")),
        }
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(lock(self.listener.get()?).as_ref().is_none_or(Held::is_gone))
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(listener) = self.listener.get() {
            detach(py, || lock(listener).take().map_or((), Held::close));
            self.notify.close();
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match (self.number(), self.address()) {
            (Ok(number), Ok(address)) => format!("<gpunet.DeviceListener number {number} at {address}>"),
            _ => "<gpunet.DeviceListener [closed]>".to_owned(),
        }
    }
}
