//! Proxies: in this process, or a daemon.

use crate::attachment::{Attachment, AttachmentCore};
use crate::cuda::Context;
use crate::detach::detach;
use crate::error::{self, Failure};
use crate::fork::{self, Owned};
use crate::socket::{Connecting, Listener, Socket};
use crate::wait::lock;
use crate::{address, job, plain};
use gpu_usermap::threads;
use gpunet_proxy::{Config, Host, places};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

/// What makes the sockets of a proxy's program.
#[derive(Debug)]
pub(crate) struct HostCore(Mutex<Option<Host>>);

impl HostCore {
    /// The host.
    ///
    /// # Errors
    /// EBADF, when its proxy was closed.
    pub(crate) fn host(&self) -> Result<Host, Failure> {
        lock(&self.0).clone().ok_or_else(|| Failure::closed("proxy"))
    }
}

impl Drop for HostCore {
    fn drop(&mut self) {
        // The last one waits until what was sent is delivered.
        if let Some(host) = lock(&self.0).take() {
            job::begin(move || drop(host));
        }
    }
}

/// What a proxy has in this program.
#[derive(Debug)]
pub(crate) struct ProxyCore {
    /// `None` once it is closed.
    proxy: Mutex<Option<gpunet_proxy::Proxy>>,
    /// From the first socket on.
    host: Mutex<Option<Arc<HostCore>>>,
    attachments: Mutex<Vec<Weak<AttachmentCore>>>,
}

/// The proxies that are open: the end of the interpreter closes them. It is locked with the GIL
/// held, as `os.fork` holds it: a child finds it free.
static OPEN: Mutex<Vec<Owned<Weak<ProxyCore>>>> = Mutex::new(Vec::new());

impl ProxyCore {
    fn proxy(&self) -> Result<gpunet_proxy::Proxy, Failure> {
        lock(&self.proxy).clone().ok_or_else(|| Failure::closed("proxy"))
    }

    /// Closes what it has, and waits until what was sent is delivered: bytes that were not, and
    /// streams that had not ended.
    fn close(&self) -> (u64, u64) {
        let proxy = lock(&self.proxy).take();
        let attachments = std::mem::take(&mut *lock(&self.attachments));
        let host = lock(&self.host).take();
        let host = host.and_then(|host| lock(&host.0).take());
        let mut sum = (0, 0);
        let mut add = |report: gpunet_proxy::CloseReport| {
            sum = (sum.0 + report.undelivered, sum.1 + report.unfinished);
        };
        // One does not wait for the linger time of the others.
        let closing: Vec<_> = attachments
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|attachment| threads::spawn("gpunet-python", move || attachment.close()).ok())
            .collect();
        if let Some(host) = host {
            add(block_on(host.close()));
        }
        for thread in closing {
            add(thread.join().ok().flatten().unwrap_or_default());
        }
        drop(proxy);
        sum
    }
}

/// Waits for a future on a thread that has nothing else to do.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = std::pin::pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    loop {
        if let std::task::Poll::Ready(output) =
            future.as_mut().poll(&mut std::task::Context::from_waker(&waker))
        {
            return output;
        }
        std::thread::park();
    }
}

/// The sockets, attachments and threads of this program, or its connection to a daemon.
#[pyclass(frozen, weakref, module = "gpunet", name = "Proxy")]
pub(crate) struct Proxy {
    core: Owned<Arc<ProxyCore>>,
}

impl Proxy {
    fn new(proxy: gpunet_proxy::Proxy) -> Self {
        fork::watch();
        let core = Arc::new(ProxyCore {
            proxy: Mutex::new(Some(proxy)),
            host: Mutex::default(),
            attachments: Mutex::default(),
        });
        let mut open = lock(&OPEN);
        open.retain(|open| open.get().is_ok_and(|open| open.strong_count() > 0));
        open.push(Owned::new(Arc::downgrade(&core)));
        Self { core: Owned::new(core) }
    }

    fn host(&self, py: Python<'_>) -> PyResult<Arc<HostCore>> {
        let core = self.core.get()?;
        let proxy = core.proxy()?;
        if let Some(host) = &*lock(&core.host) {
            return Ok(host.clone());
        }
        let host = job::run(py, move || proxy.host())?.map_err(|error| error::attach(&error))?;
        // Another thread may have been faster: then this one ends with its drop.
        let made = Arc::new(HostCore(Mutex::new(Some(host))));
        Ok(lock(&core.host).get_or_insert(made).clone())
    }

    fn attach(&self, py: Python<'_>, context: Option<Context>) -> PyResult<Attachment> {
        let core = self.core.get()?;
        let proxy = core.proxy()?;
        let device = context.as_ref().map(Context::device).transpose()?;
        let made = job::run(py, move || match device {
            Some(device) => proxy.attach_cuda(&device),
            None => proxy.attach_cpu(),
        })?;
        let (attachment, made) = Attachment::new(made.map_err(|error| error::attach(&error))?, context);
        let mut attachments = lock(&core.attachments);
        attachments.retain(|attachment| attachment.strong_count() > 0);
        attachments.push(Arc::downgrade(&made));
        Ok(attachment)
    }
}

#[pymethods]
impl Proxy {
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
    ) -> PyResult<Socket> {
        let py = address.py();
        let options =
            address::of_keywords(transport, send_ring, recv_ring, linger, keepalive, nodelay, false)?;
        let (timeout, host) = (crate::socket::checked(timeout)?, self.host(py)?);
        address::first_of(py, address::parse_all(address)?, |to| {
            Connecting::begin(host.clone(), to, options)?.wait(py, timeout)
        })
    }

    /// Begins to connect, for `gpunet.connect`, which has looked the name up.
    #[pyo3(signature = (address, *, transport="auto", send_ring=None, recv_ring=None, linger=None, keepalive=false, nodelay=true))]
    #[pyo3(name = "_connecting")]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn connecting(
        &self,
        address: &Bound<'_, PyAny>,
        transport: &str,
        #[pyo3(from_py_with = address::ring)] send_ring: Option<u64>,
        #[pyo3(from_py_with = address::ring)] recv_ring: Option<u64>,
        linger: Option<f64>,
        #[pyo3(from_py_with = address::truth)] keepalive: bool,
        #[pyo3(from_py_with = address::truth)] nodelay: bool,
    ) -> PyResult<Connecting> {
        let options =
            address::of_keywords(transport, send_ring, recv_ring, linger, keepalive, nodelay, false)?;
        Connecting::begin(self.host(address.py())?, address::parse(address)?, options)
    }

    #[pyo3(signature = (address, backlog=128, *, timeout=None, transport="auto", send_ring=None, recv_ring=None, linger=None, keepalive=false, nodelay=true, v6only=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn listen(
        &self,
        address: &Bound<'_, PyAny>,
        backlog: i32,
        timeout: Option<f64>,
        transport: &str,
        #[pyo3(from_py_with = address::ring)] send_ring: Option<u64>,
        #[pyo3(from_py_with = address::ring)] recv_ring: Option<u64>,
        linger: Option<f64>,
        #[pyo3(from_py_with = address::truth)] keepalive: bool,
        #[pyo3(from_py_with = address::truth)] nodelay: bool,
        #[pyo3(from_py_with = address::truth)] v6only: bool,
    ) -> PyResult<Listener> {
        let options =
            address::of_keywords(transport, send_ring, recv_ring, linger, keepalive, nodelay, v6only)?;
        let (py, at) = (address.py(), address::parse(address)?);
        Listener::bind(py, self.host(py)?, at, options, backlog.max(1).unsigned_abs(), timeout)
    }

    fn attach_cpu(&self, py: Python<'_>) -> PyResult<Attachment> {
        self.attach(py, None)
    }

    #[pyo3(signature = (device=None))]
    fn attach_cuda(&self, py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<Attachment> {
        self.core.get()?.proxy()?;
        let context = Context::of(device)?;
        self.attach(py, Some(context))
    }

    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let proxy = self.core.get()?.proxy()?;
        let snapshot = job::run(py, move || proxy.snapshot())?.map_err(Failure::from)?;
        let value =
            serde_json::to_value(&snapshot).map_err(|error| PyValueError::new_err(error.to_string()))?;
        plain::python(py, &value)
    }

    #[getter]
    fn daemon<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let proxy = self.core.get()?.proxy()?;
        let daemon = proxy.daemon().map(|daemon| {
            json!({
                "path": daemon.path,
                "pid": daemon.pid,
                "version": daemon.version,
                "data_threads": daemon.data_threads,
                "heartbeat_ms": daemon.heartbeat.as_millis() as u64,
                "linger_ms": daemon.linger.as_millis() as u64,
            })
        });
        plain::python(py, &json!(daemon))
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let proxy = self.core.get()?.proxy()?;
        detach(py, || proxy.abort());
        Ok(())
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = self.core.get()?.clone();
        let (undelivered, unfinished) = job::run(py, move || core.close())?;
        plain::python(py, &json!({ "undelivered": undelivered, "unfinished": unfinished }))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(lock(&self.core.get()?.proxy).is_none())
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
        match self.core.get().and_then(|core| core.proxy()) {
            Err(_) => "<gpunet.Proxy [closed]>".to_owned(),
            Ok(proxy) => match proxy.daemon() {
                Some(daemon) => format!("<gpunet.Proxy of gpunetd at {}>", daemon.path.display()),
                None => "<gpunet.Proxy in this process>".to_owned(),
            },
        }
    }
}

/// Reads the settings of a proxy that is to be made, whose log goes to `logging`.
fn config(py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Config> {
    py.import("gpunet._log")?.call_method0("start")?;
    let text = plain::toml(settings)?;
    Config::from_toml(&text).map_err(|error| error::settings(&error, &text))
}

/// Reads a path as `open` of Python does: text, bytes, or what has one.
fn path_of(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let bytes: Vec<u8> = path.py().import("os")?.call_method1("fsencode", (path,))?.extract()?;
    Ok(OsString::from_vec(bytes).into())
}

/// Starts a proxy in this process.
#[pyfunction]
#[pyo3(signature = (**settings))]
pub(crate) fn embed(py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Proxy> {
    let config = config(py, settings)?;
    let made = job::run(py, move || gpunet_proxy::embed(config))?;
    made.map(Proxy::new).map_err(|error| error::embed(&error))
}

/// Joins a daemon.
#[pyfunction]
#[pyo3(signature = (path=None, **settings))]
pub(crate) fn attach(
    py: Python<'_>,
    path: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Proxy> {
    let path = path.map_or_else(|| Ok(places::daemon_path()), path_of)?;
    let config = config(py, settings)?;
    let made = job::run(py, move || gpunet_proxy::attach(&path, config))?;
    made.map(Proxy::new).map_err(|error| error::daemon(&error))
}

/// Joins the daemon if there is one, else starts a proxy in this process.
#[pyfunction]
#[pyo3(signature = (path=None, **settings))]
pub(crate) fn open(
    py: Python<'_>,
    path: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Proxy> {
    let (path, config) = (path.map(path_of).transpose()?, config(py, settings)?);
    let made = job::run(py, move || gpunet_proxy::open(path.as_deref(), config))?;
    made.map(Proxy::new).map_err(|error| error::open(&error))
}

/// The end of the interpreter: closes what is open, and waits until what was sent is delivered.
#[pyfunction]
#[pyo3(name = "_close_all")]
pub(crate) fn close_all(py: Python<'_>) -> PyResult<()> {
    crate::detach::begin_end();
    crate::team::leave_all();
    let open = std::mem::take(&mut *lock(&OPEN));
    for core in open.iter().filter_map(|open| open.get().ok()?.upgrade()) {
        job::begin(move || {
            core.close();
        });
    }
    let waited = job::wait_for_all(py).and_then(|()| crate::log::flush(py));
    crate::detach::end(py);
    waited
}
