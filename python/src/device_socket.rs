//! Sockets in the table of a device, which its kernels use by number: those that the program opens
//! for them and for its queues, and those that others have opened.

use crate::address;
use crate::attachment::AttachmentCore;
use crate::detach::detach;
use crate::error::{Failure, timed_out};
use crate::fork::Owned;
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use gpunet_proxy::socket::{self, DirectionError, PendingSocket, Receiver, Sender, TableSocket};
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
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

/// A connected stream of a device, for its kernels and queues.
#[pyclass(frozen, weakref, module = "gpunet", name = "DeviceSocket")]
pub(crate) struct DeviceSocket {
    inner: Owned<Inner>,
}

struct Inner {
    /// `None` once it is closed, or left to the kernels.
    socket: Mutex<Option<Held<socket::Socket>>>,
    /// The directions that queues use, from their first message on. Each is locked before the
    /// socket, and without the GIL: enqueueing may wait.
    sender: Mutex<Option<Sender>>,
    receiver: Mutex<Option<Receiver>>,
    attachment: Weak<AttachmentCore>,
}

impl Inner {
    fn new(socket: Held<socket::Socket>, attachment: &Weak<AttachmentCore>) -> Self {
        let (socket, attachment) = (Mutex::new(Some(socket)), attachment.clone());
        Self { socket, sender: Mutex::default(), receiver: Mutex::default(), attachment }
    }

    fn with<R>(
        &self,
        own: impl FnOnce(&socket::Socket) -> R,
        known: impl FnOnce(&TableSocket) -> R,
    ) -> Result<R, Failure> {
        match &*lock(&self.socket) {
            Some(Held::Own(socket)) => Ok(own(socket)),
            Some(Held::Known(socket)) if socket.is_open() => Ok(known(socket)),
            _ => Err(Failure::closed("socket")),
        }
    }

    /// Uses a direction, which is taken from the kernels first.
    fn with_direction<D, R>(
        &self,
        direction: &Mutex<Option<D>>,
        take: impl FnOnce(&socket::Socket) -> Result<D, DirectionError>,
        body: impl FnOnce(&mut D) -> R,
    ) -> Result<R, Failure> {
        let mut direction = lock(direction);
        let taken = match &mut *direction {
            Some(taken) => taken,
            none => {
                let take = |socket: &_| take(socket).map_err(|error| Failure::from(&error));
                let known = |_: &_| {
                    Err(Failure::new(libc::EOPNOTSUPP, "a queue uses sockets that this program has opened"))
                };
                none.insert(self.with(take, known)??)
            }
        };
        Ok(body(taken))
    }

    /// Gives directions back that queues have used.
    fn give_back(&self) -> Result<(), Failure> {
        let sent = lock(&self.sender).take().map_or(Ok(()), Sender::give_back);
        let received = lock(&self.receiver).take().map_or(Ok(()), Receiver::give_back);
        sent.and(received).map_err(|error| Failure::from(&error))
    }

    /// Closes it, when the operations of queues are done.
    fn close(&self) {
        // First: nothing is taken from here on.
        let socket = lock(&self.socket).take();
        drop((lock(&self.sender).take(), lock(&self.receiver).take()));
        if let Some(socket) = socket {
            socket.close();
        }
    }
}

/// Makes the object of a socket that others have opened.
pub(crate) fn known(
    py: Python<'_>,
    socket: TableSocket,
    attachment: &Arc<AttachmentCore>,
) -> PyResult<Py<PyAny>> {
    let attachment = Arc::downgrade(attachment);
    if !socket.is_listener() {
        let inner = Inner::new(Held::Known(socket), &attachment);
        return Ok(Py::new(py, DeviceSocket { inner: Owned::new(inner) })?.into_any());
    }
    let listener = Owned::new(Mutex::new(Some(Held::Known(socket))));
    Ok(Py::new(py, DeviceListener { listener, notify: Arc::default(), attachment })?.into_any())
}

/// An address that every open socket has.
fn addressed(found: Option<SocketAddr>) -> Result<SocketAddr, Failure> {
    found.ok_or_else(|| Failure::new(libc::ENOTCONN, "the socket has no address"))
}

impl DeviceSocket {
    fn new(socket: socket::Socket, attachment: &Weak<AttachmentCore>) -> Self {
        Self { inner: Owned::new(Inner::new(Held::Own(socket), attachment)) }
    }

    pub(crate) fn connect(
        py: Python<'_>,
        attachment: &Arc<AttachmentCore>,
        pending: PendingSocket,
        to: SocketAddr,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let attachment = Arc::downgrade(attachment);
        match opened(py, &Arc::default(), Limit::of(timeout), pending, || false)? {
            Waited::Done(socket) => Ok(Self::new(socket.map_err(|failure| failure.at(to))?, &attachment)),
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
        self.inner.get()?.with(own, known)
    }

    fn number(&self) -> Result<i32, Failure> {
        Ok(self.with(socket::Socket::handle, TableSocket::handle)?.raw())
    }

    /// Whether it is a socket of that attachment.
    pub(crate) fn is_of(&self, attachment: &Arc<AttachmentCore>) -> Result<bool, Failure> {
        Ok(std::ptr::eq(self.inner.get()?.attachment.as_ptr(), Arc::as_ptr(attachment)))
    }

    /// Sends by a queue: without the GIL.
    pub(crate) fn with_sender<R>(&self, body: impl FnOnce(&mut Sender) -> R) -> Result<R, Failure> {
        let inner = self.inner.get()?;
        inner.with_direction(&inner.sender, socket::Socket::take_send, body)
    }

    /// Receives by a queue: without the GIL.
    pub(crate) fn with_receiver<R>(&self, body: impl FnOnce(&mut Receiver) -> R) -> Result<R, Failure> {
        let inner = self.inner.get()?;
        inner.with_direction(&inner.receiver, socket::Socket::take_recv, body)
    }
}

#[pymethods]
impl DeviceSocket {
    fn device_number(&self) -> PyResult<i32> {
        Ok(self.number()?)
    }

    fn leave(&self, py: Python<'_>) -> PyResult<i32> {
        let inner = self.inner.get()?;
        detach(py, || inner.give_back())?;
        let socket = lock(&inner.socket).take();
        Ok(match socket.filter(|socket| !socket.is_gone()).ok_or_else(|| Failure::closed("socket"))? {
            Held::Own(socket) => socket.into_handle().raw(),
            Held::Known(socket) => socket.handle().raw(),
        })
    }

    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        Ok(detach(py, || inner.with(|_| (), |_| ()).and_then(|()| inner.give_back()))?)
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
        Ok(lock(&self.inner.get()?.socket).as_ref().is_none_or(Held::is_gone))
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(inner) = self.inner.get() {
            detach(py, || inner.close());
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
    attachment: Weak<AttachmentCore>,
}

impl DeviceListener {
    pub(crate) fn new(listener: socket::ListeningSocket, attachment: &Arc<AttachmentCore>) -> Self {
        let listener = Owned::new(Mutex::new(Some(Held::Own(listener))));
        Self { listener, notify: Arc::default(), attachment: Arc::downgrade(attachment) }
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
                Ok((DeviceSocket::new(socket, &self.attachment), address::tuple(py, peer)?))
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
