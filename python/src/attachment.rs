//! Attachments: one device's sockets.

use crate::calls::Calls;
use crate::cuda::{self, Context};
use crate::detach::{detach, is_ending};
use crate::device_socket::{self, DeviceListener, DeviceSocket};
use crate::error::{self, Failure};
use crate::fork::Owned;
use crate::launch::{Launch, Policy};
use crate::memory::Memory;
use crate::watch::{Asked, Watch};
use crate::{address, job, plain};
use gpunet_calls_host::Settings;
use gpunet_proxy::CloseReport;
use gpunet_proxy::abi::{Error, Handle};
use gpunet_proxy::socket::SocketError;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// An attachment, until it is closed.
#[derive(Debug)]
pub(crate) struct AttachmentCore {
    attachment: RwLock<Option<Arc<gpunet_proxy::Attachment>>>,
    /// Of a GPU: what its launches use. Dropped last.
    context: Option<Context>,
}

impl AttachmentCore {
    /// Uses the attachment, which is not closed meanwhile.
    ///
    /// # Errors
    /// EBADF, when it was closed.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&gpunet_proxy::Attachment) -> R) -> Result<R, Failure> {
        let attachment = self.attachment.read().unwrap_or_else(PoisonError::into_inner);
        attachment.as_deref().map(body).ok_or_else(|| Failure::closed("attachment"))
    }

    /// The same for what waits for other programs: nobody else waits for it, except a close.
    ///
    /// # Errors
    /// EBADF, when it was closed.
    pub(crate) fn with_others<R>(
        &self,
        body: impl FnOnce(&gpunet_proxy::Attachment) -> R,
    ) -> Result<R, Failure> {
        let attachment = self.attachment.read().unwrap_or_else(PoisonError::into_inner).clone();
        attachment.as_deref().map(body).ok_or_else(|| Failure::closed("attachment"))
    }

    /// Closes it; `None` if it was closed.
    pub(crate) fn close(&self) -> Option<CloseReport> {
        close(self.attachment.write().unwrap_or_else(PoisonError::into_inner).take()?)
    }

    /// The number of its GPU, where it is one.
    pub(crate) fn ordinal(&self) -> Result<Option<u32>, Failure> {
        self.with(|attachment| attachment.cuda().map(gpu_usermap::cuda::Device::ordinal))
    }

    pub(crate) const fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }
}

/// How often an attachment that is to be closed is looked at while it is used.
const LOOK: Duration = Duration::from_millis(2);

/// Closes an attachment when nobody uses it any more. The end of the interpreter does not wait for
/// that.
fn close(mut attachment: Arc<gpunet_proxy::Attachment>) -> Option<CloseReport> {
    loop {
        match Arc::try_unwrap(attachment) {
            Ok(attachment) => return Some(attachment.close()),
            Err(_) if is_ending() => return None,
            Err(used) => attachment = used,
        }
        std::thread::sleep(LOOK);
    }
}

impl Drop for AttachmentCore {
    fn drop(&mut self) {
        let attachment = self.attachment.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(attachment) = attachment {
            let context = self.context.take();
            job::begin(move || {
                let _ = close(attachment);
                drop(context);
            });
        }
    }
}

/// The sockets of one device in a proxy.
#[pyclass(frozen, weakref, module = "gpunet", name = "Attachment")]
pub(crate) struct Attachment {
    core: Owned<Arc<AttachmentCore>>,
}

impl Attachment {
    pub(crate) fn core(&self) -> Result<&Arc<AttachmentCore>, Failure> {
        self.core.get()
    }

    pub(crate) fn new(
        attachment: gpunet_proxy::Attachment,
        context: Option<Context>,
    ) -> (Self, Arc<AttachmentCore>) {
        let core = Arc::new(AttachmentCore { attachment: RwLock::new(Some(Arc::new(attachment))), context });
        (Self { core: Owned::new(core.clone()) }, core)
    }
}

#[pymethods]
impl Attachment {
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(self.core.get()?.with(|attachment| attachment.device_name().to_owned())?)
    }

    #[getter]
    fn is_cuda(&self) -> PyResult<bool> {
        Ok(self.core.get()?.context().is_some())
    }

    #[getter]
    fn device_id(&self) -> PyResult<Option<u32>> {
        Ok(self.core.get()?.ordinal()?)
    }

    #[getter]
    fn compute_capability(&self) -> PyResult<Option<(u32, u32)>> {
        Ok(self
            .core
            .get()?
            .with(|attachment| attachment.cuda().map(gpu_usermap::cuda::Device::compute_capability))?)
    }

    #[pyo3(signature = (stream=None, *, leftover="close"))]
    fn launch(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>, leftover: &str) -> PyResult<Launch> {
        let core = self.core.get()?;
        let (policy, stream) = (Policy::parse(leftover)?, stream.map_or(Ok(0), cuda::stream_of)?);
        if core.context().is_none() && stream != 0 {
            return Err(PyValueError::new_err("the CPU device has no streams; leave the stream out"));
        }
        // The event first: the driver may wait for kernels that run.
        let event = core.context().map(Context::event).transpose()?;
        let token = detach(py, || core.with(|attachment| attachment.token()))?;
        let token = token.map_err(|error| error::too_many_launches(&error))?;
        Ok(Launch::new(core, token, event, stream, policy))
    }

    #[pyo3(signature = (address, *, timeout=None, transport="auto", send_ring=None, recv_ring=None, linger=None, keepalive=false, nodelay=true))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn connect(
        &self,
        address: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        transport: &str,
        #[pyo3(from_py_with = address::ring)] send_ring: Option<u64>,
        #[pyo3(from_py_with = address::ring)] recv_ring: Option<u64>,
        linger: Option<f64>,
        #[pyo3(from_py_with = address::truth)] keepalive: bool,
        #[pyo3(from_py_with = address::truth)] nodelay: bool,
    ) -> PyResult<DeviceSocket> {
        let options =
            address::of_keywords(transport, send_ring, recv_ring, linger, keepalive, nodelay, false)?;
        let (py, core, timeout) = (address.py(), self.core.get()?, crate::socket::checked(timeout)?);
        address::first_of(py, address::parse_all(address)?, |to| {
            let pending = core.with(|attachment| attachment.connect(to, options))?;
            DeviceSocket::connect(py, core, pending, to, timeout)
        })
    }

    #[pyo3(signature = (address, backlog=128, *, transport="auto", send_ring=None, recv_ring=None, linger=None, keepalive=false, nodelay=true, v6only=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn listen(
        &self,
        address: &Bound<'_, PyAny>,
        backlog: i32,
        transport: &str,
        #[pyo3(from_py_with = address::ring)] send_ring: Option<u64>,
        #[pyo3(from_py_with = address::ring)] recv_ring: Option<u64>,
        linger: Option<f64>,
        #[pyo3(from_py_with = address::truth)] keepalive: bool,
        #[pyo3(from_py_with = address::truth)] nodelay: bool,
        #[pyo3(from_py_with = address::truth)] v6only: bool,
    ) -> PyResult<DeviceListener> {
        let options =
            address::of_keywords(transport, send_ring, recv_ring, linger, keepalive, nodelay, v6only)?;
        let (py, at, core) = (address.py(), address::parse(address)?, self.core.get()?.clone());
        let (backlog, of) = (backlog.max(1).unsigned_abs(), core.clone());
        let made =
            job::run(py, move || core.with(|attachment| attachment.listen_blocking(at, options, backlog)))?;
        Ok(DeviceListener::new(made?.map_err(|error| Failure::from(error).at(at))?, &of))
    }

    fn socket(&self, py: Python<'_>, number: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let core = self.core.get()?.clone();
        let none = || {
            PyValueError::new_err(format!(
                "{number} is no connected socket and no listener of this device, or it is closed"
            ))
        };
        let handle = match number.extract::<i32>() {
            Ok(number) => Handle::from_raw(number).ok_or_else(none)?,
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => return Err(none()),
            Err(error) => return Err(error),
        };
        let of = core.clone();
        let found = job::run(py, move || core.with(|attachment| attachment.socket(handle)))?;
        match found? {
            Ok(socket) => device_socket::known(py, socket, &of),
            Err(SocketError::Failed(Error::BadHandle)) => Err(none()),
            Err(error) => Err(Failure::from(error).into()),
        }
    }

    fn alloc(&self, py: Python<'_>, nbytes: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let core = self.core.get()?;
        let nbytes = match nbytes.extract::<usize>() {
            Ok(nbytes @ 1..) => nbytes,
            Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
            _ => {
                let text = format!("memory has at least one byte, and fewer than 2**64, not {nbytes}");
                return Err(PyValueError::new_err(text));
            }
        };
        let (ordinal, made) =
            (core.ordinal()?, detach(py, || core.with(|attachment| attachment.alloc(nbytes)))?);
        Ok(Memory::new(core, ordinal, made.map_err(|error| error::alloc(&error))?))
    }

    #[pyo3(signature = (functions, *, channels, tickets=16, threads=4, request=256, answer=256, latency=1e-4, names=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn serve_calls(
        &self,
        functions: &Bound<'_, PyDict>,
        channels: u32,
        tickets: u32,
        threads: u32,
        request: usize,
        answer: usize,
        latency: f64,
        names: bool,
    ) -> PyResult<Calls> {
        if !(1..=1 << 16).contains(&channels) {
            let text = "it is 1 to 65536, one for each block, warp or thread that calls at a time";
            return Err(PyValueError::new_err(format!("channels is {channels}; {text}")));
        }
        if !(2..=1024).contains(&threads) {
            return Err(PyValueError::new_err(format!("threads is {threads}; it is 2 to 1024")));
        }
        let latency = Duration::try_from_secs_f64(latency)
            .map_err(|_| PyValueError::new_err(format!("latency is a number of seconds, not {latency}")))?;
        let settings = Settings { tickets, threads, latency, ..Settings::new(channels) };
        Calls::new(self.core.get()?, functions, settings, (request, answer), names)
    }

    #[pyo3(signature = (*, rings, records=1024, payload=44, texts=128, level="info", wait=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn watch(
        &self,
        py: Python<'_>,
        rings: u32,
        records: u32,
        payload: usize,
        texts: u32,
        level: &str,
        wait: Option<f64>,
    ) -> PyResult<Watch> {
        Watch::new(py, self.core.get()?, &Asked { rings, records, payload, texts, level, wait })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = self.core.get()?;
        let value = detach(py, || {
            core.with(|attachment| {
                let (stats, usage) = (attachment.stats(), attachment.usage());
                json!({
                    "device": attachment.device_name(),
                    "opened": stats.opened,
                    "closed": stats.closed,
                    "undelivered": stats.undelivered,
                    "sockets": usage.sockets,
                    "requests": usage.requests,
                    "ring_bytes": usage.ring_bytes,
                    "free_ring_bytes": usage.free_ring_bytes,
                })
            })
        })?;
        plain::python(py, &value)
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = self.core.get()?.clone();
        let report = job::run(py, move || core.close())?.unwrap_or_default();
        plain::python(py, &json!({ "undelivered": report.undelivered, "unfinished": report.unfinished }))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.core.get()?.with(|_| ()).is_err())
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
    ) -> PyResult<()> {
        self.close(py).map(drop)
    }

    fn __repr__(&self) -> String {
        match self.core.get().and_then(|core| core.with(|attachment| attachment.device_name().to_owned())) {
            Ok(name) => format!("<gpunet.Attachment of {name}>"),
            Err(_) => "<gpunet.Attachment [closed]>".to_owned(),
        }
    }
}
