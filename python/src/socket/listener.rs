//! A socket that accepts connections.

use super::stream::Pending;
use super::{Socket, Timeout};
use crate::address;
use crate::detach::detach;
use crate::error::{Failure, timed_out};
use crate::fork::Owned;
use crate::proxy::HostCore;
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use gpunet_proxy::abi::Options;
use gpunet_proxy::host::Stream;
use gpunet_proxy::socket::SocketError;
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A socket of the host program that accepts connections.
#[pyclass(frozen, weakref, module = "gpunet", name = "Listener")]
pub(crate) struct Listener {
    core: Owned<Core>,
    timeout: Timeout,
}

struct Core {
    /// `None` once it is closed.
    accepting: Mutex<Option<Accepting>>,
    notify: Arc<Notify>,
    local: SocketAddr,
    host: Arc<HostCore>,
}

struct Accepting {
    listener: Arc<gpunet_proxy::host::Listener>,
    /// Begun by a call that did not wait for its end.
    pending: Option<Pending<(Stream, SocketAddr)>>,
    /// Taken by a look whether there is one, for the next accept.
    taken: Option<Result<(Stream, SocketAddr), SocketError>>,
}

impl Accepting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Stream, SocketAddr), SocketError>> {
        if let Some(taken) = self.taken.take() {
            return Poll::Ready(taken);
        }
        let listener = &self.listener;
        let pending = self.pending.get_or_insert_with(|| {
            let listener = listener.clone();
            Box::pin(async move { listener.accept().await })
        });
        let polled = pending.as_mut().poll(cx);
        if polled.is_ready() {
            self.pending = None;
        }
        polled
    }
}

impl Core {
    fn accept(&self, cx: &mut Context<'_>) -> Poll<Result<Stream, Failure>> {
        match &mut *lock(&self.accepting) {
            Some(accepting) => accepting.poll(cx).map_ok(|(stream, _)| stream).map_err(Failure::from),
            None => Poll::Ready(Err(Failure::closed("listener"))),
        }
    }

    /// Returns whether an accept would not wait.
    fn is_ready(&self) -> bool {
        let waker = Waker::from(self.notify.clone());
        let mut accepting = lock(&self.accepting);
        let Some(accepting) = &mut *accepting else { return true };
        if let Poll::Ready(taken) = accepting.poll(&mut Context::from_waker(&waker)) {
            accepting.taken = Some(taken);
        }
        accepting.taken.is_some()
    }
}

impl Listener {
    pub(crate) fn bind(
        py: Python<'_>,
        host: Arc<HostCore>,
        address: SocketAddr,
        options: Options,
        backlog: u32,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let (sockets, timeout) = (host.host()?, Timeout::new(timeout)?);
        let mut binding = Box::pin(async move { sockets.bind(address, options, backlog).await });
        let notify = Arc::new(Notify::default());
        let waited = until_ready(py, &notify, Limit::Never, |cx| binding.as_mut().poll(cx))?;
        let Waited::Done(listener) = waited else { return Err(Failure::would_block().into()) };
        let listener = listener.map_err(|error| Failure::from(error).at(address))?;
        let local = listener.local_addr().map_err(Failure::from)?;
        let accepting = Accepting { listener: Arc::new(listener), pending: None, taken: None };
        let core = Core { accepting: Mutex::new(Some(accepting)), notify, local, host };
        Ok(Self { core: Owned::new(core), timeout })
    }

    fn open(&self) -> PyResult<&Core> {
        let core = self.core.get()?;
        if lock(&core.accepting).is_none() {
            return Err(Failure::closed("listener").into());
        }
        Ok(core)
    }
}

#[pymethods]
impl Listener {
    fn accept<'py>(&self, py: Python<'py>) -> PyResult<(Socket, Bound<'py, PyAny>)> {
        let core = self.core.get()?;
        let waited = until_ready(py, &core.notify, self.timeout.limit(), |cx| core.accept(cx));
        core.notify.settle(|| core.is_ready());
        match waited? {
            Waited::Done(stream) => {
                let stream = stream?;
                let peer = stream.peer_addr().map_err(Failure::from)?;
                // As with `socket.socket`: what is accepted waits, whatever the listener does.
                Ok((Socket::new(&core.host, stream, None)?, address::tuple(py, peer)?))
            }
            Waited::WouldBlock => Err(Failure::would_block().into()),
            Waited::TimedOut => Err(timed_out("nobody has connected")),
        }
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.open()?.local)
    }

    fn fileno(&self) -> PyResult<i32> {
        let Ok(core) = self.open() else { return Ok(-1) };
        Ok(core.notify.descriptor(|| core.is_ready())?)
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(core) = self.core.get() {
            let accepting = detach(py, || lock(&core.accepting).take());
            detach(py, || drop(accepting));
            core.notify.close();
        }
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(lock(&self.core.get()?.accepting).is_none())
    }

    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.timeout.get()
    }

    fn gettimeout(&self) -> Option<f64> {
        self.timeout.get()
    }

    fn settimeout(&self, value: Option<f64>) -> PyResult<()> {
        self.timeout.set(value)
    }

    fn setblocking(&self, #[pyo3(from_py_with = address::truth)] flag: bool) -> PyResult<()> {
        self.timeout.set(if flag { None } else { Some(0.0) })
    }

    fn getblocking(&self) -> bool {
        self.timeout.get() != Some(0.0)
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
        match self.core.get() {
            Err(_) => "<gpunet.Listener of another process>".to_owned(),
            Ok(core) if lock(&core.accepting).is_none() => "<gpunet.Listener [closed]>".to_owned(),
            Ok(core) => format!("<gpunet.Listener at {}>", core.local),
        }
    }
}
