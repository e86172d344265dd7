//! Sockets in the table of a device that the program opens for its kernels, which use them by
//! number.

use crate::address;
use crate::detach::detach;
use crate::error::{Failure, timed_out};
use crate::fork::Owned;
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use gpunet_proxy::socket::{self, PendingSocket};
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

/// A connected stream of a device, for its kernels.
#[pyclass(frozen, weakref, module = "gpunet", name = "DeviceSocket")]
pub(crate) struct DeviceSocket {
    /// `None` once it is closed, or left to the kernels.
    socket: Owned<Mutex<Option<socket::Socket>>>,
}

impl DeviceSocket {
    fn new(socket: socket::Socket) -> Self {
        Self { socket: Owned::new(Mutex::new(Some(socket))) }
    }

    pub(crate) fn connect(
        py: Python<'_>,
        pending: PendingSocket,
        to: SocketAddr,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let limit = Limit::of(crate::socket::checked(timeout)?);
        match opened(py, &Arc::default(), limit, pending, || false)? {
            Waited::Done(socket) => Ok(Self::new(socket.map_err(|failure| failure.at(to))?)),
            Waited::WouldBlock => {
                Err(Failure::new(libc::EINPROGRESS, "a connect waits for an answer; give it a timeout")
                    .into())
            }
            Waited::TimedOut => Err(timed_out(&format!("no connection to {to}"))),
        }
    }

    fn with<R>(&self, body: impl FnOnce(&socket::Socket) -> R) -> Result<R, Failure> {
        lock(self.socket.get()?).as_ref().map(body).ok_or_else(|| Failure::closed("socket"))
    }
}

#[pymethods]
impl DeviceSocket {
    fn device_number(&self) -> PyResult<i32> {
        Ok(self.with(|socket| socket.handle().raw())?)
    }

    fn leave(&self) -> PyResult<i32> {
        let socket = lock(self.socket.get()?).take().ok_or_else(|| Failure::closed("socket"))?;
        Ok(socket.into_handle().raw())
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.with(socket::Socket::local_addr)?.map_err(Failure::from)?)
    }

    fn getpeername<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.with(socket::Socket::peer_addr)?.map_err(Failure::from)?)
    }

    #[getter]
    fn transport(&self) -> PyResult<&'static str> {
        Ok(address::name_of(self.with(socket::Socket::transport)?))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(lock(self.socket.get()?).is_none())
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(socket) = self.socket.get() {
            detach(py, || drop(lock(socket).take()));
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
        let text =
            |socket: &socket::Socket| format!("<gpunet.DeviceSocket number {}>", socket.handle().raw());
        self.with(text).unwrap_or_else(|_| "<gpunet.DeviceSocket [closed]>".to_owned())
    }
}

/// A listener of a device: kernels accept at it by its number, and so does the program.
#[pyclass(frozen, weakref, module = "gpunet", name = "DeviceListener")]
pub(crate) struct DeviceListener {
    listener: Owned<Mutex<Option<socket::ListeningSocket>>>,
    notify: Arc<Notify>,
}

impl DeviceListener {
    pub(crate) fn new(listener: socket::ListeningSocket) -> PyResult<Self> {
        Ok(Self { listener: Owned::new(Mutex::new(Some(listener))), notify: Arc::default() })
    }

    fn with<R>(&self, body: impl FnOnce(&socket::ListeningSocket) -> R) -> Result<R, Failure> {
        lock(self.listener.get()?).as_ref().map(body).ok_or_else(|| Failure::closed("listener"))
    }
}

#[pymethods]
impl DeviceListener {
    fn device_number(&self) -> PyResult<i32> {
        Ok(self.with(|listener| listener.handle().raw())?)
    }

    fn leave(&self) -> PyResult<i32> {
        let listener = lock(self.listener.get()?).take().ok_or_else(|| Failure::closed("listener"))?;
        Ok(listener.into_handle().raw())
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.with(socket::ListeningSocket::local_addr)?)
    }

    #[pyo3(signature = (timeout=None))]
    fn accept<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<(DeviceSocket, Bound<'py, PyAny>)> {
        let limit = Limit::of(crate::socket::checked(timeout)?);
        let pending = self.with(socket::ListeningSocket::accept)?;
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
        Ok(lock(self.listener.get()?).is_none())
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(listener) = self.listener.get() {
            detach(py, || drop(lock(listener).take()));
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
        let text = |listener: &socket::ListeningSocket| {
            format!("<gpunet.DeviceListener number {} at {}>", listener.handle().raw(), listener.local_addr())
        };
        self.with(text).unwrap_or_else(|_| "<gpunet.DeviceListener [closed]>".to_owned())
    }
}
