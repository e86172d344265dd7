//! Channels: whole arrays from one process to another.
//!
//! A half of a channel has a thread, which does one transfer after the other ([`half`]). A call
//! puts a transfer into its queue, and waits for it or not. Who gives a transfer up takes it out of
//! the queue again; one that has begun ends the channel, since the other end waits for its bytes.
//!
//! | module | what it is |
//! |---|---|
//! | `held` | the arrays of a transfer, which are kept until it is over |
//! | `half` | a queue of transfers and its thread |
//! | `transfer` | a transfer as the program sees it |

mod half;
mod held;
mod transfer;

use crate::address;
use crate::detach::{attach, detach};
use crate::error::{Failure, timed_out};
use crate::fork::Owned;
use crate::job;
use crate::proxy::HostCore;
use crate::socket::{Socket, checked};
use crate::wait::{Limit, lock, until_ready};
use gpunet_channel::{
    Channel, ChannelError, ChannelListener, ChannelOptions, Ender, MAX_STREAMS, Receiver, Sender, Side,
};
use half::{Half, Into, Receiving, Sending};
use held::{Devices, Held};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};
use transfer::{Fault, How, Op};
pub(crate) use transfer::{Outcome, Transfer};

/// How long a wait for the network lasts at most before its thread looks whether it is still
/// wanted.
const SLICE: Duration = Duration::from_millis(50);
/// How long a close waits for the threads of the channel.
const CLOSE_WITHIN: f64 = 5.0;

/// An array as the package's Python code passes it: its name, itself, the stream that it is ordered
/// by, its type if that is not what its protocol says, and the type and shape for which memory that
/// is bytes is taken.
pub(crate) type Passed<'py> =
    (String, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<RawKind>, Option<(RawKind, Vec<u64>)>);

/// DLPack's numbers of a type.
pub(crate) type RawKind = (u8, u8, u16);

/// What `gpunet.Channel` is made of.
#[pyclass(frozen, weakref, module = "gpunet", name = "RawChannel")]
pub(crate) struct RawChannel {
    core: Owned<Arc<Core>>,
}

pub(crate) struct Core {
    sending: Arc<Half<Sender, Sending>>,
    receiving: Arc<Half<Receiver, Receiving>>,
    /// `None` once it is closed.
    ender: Mutex<Option<Ender>>,
    closed: AtomicBool,
    why_not_local: Option<String>,
    /// For how many bytes a receive makes arrays.
    most: u64,
    devices: Devices,
    /// What the streams belong to of which it was made.
    _hosts: Vec<Arc<HostCore>>,
}

impl Core {
    fn new(channel: Channel, most: u64, hosts: Vec<Arc<HostCore>>) -> Self {
        let why_not_local = channel.why_not_local().map(|reason| reason.to_string());
        let ender = channel.ender();
        let (sender, receiver) = channel.split();
        Self {
            sending: Half::new(sender),
            receiving: Half::new(receiver),
            ender: Mutex::new(Some(ender)),
            closed: AtomicBool::new(false),
            why_not_local,
            most,
            devices: Devices::default(),
            _hosts: hosts,
        }
    }

    /// Ends the channel for both ends, in the middle of what goes on.
    pub(crate) fn abort(&self) {
        // The lock is not held meanwhile: `end` shuts connections down.
        let ender = lock(&self.ender).clone();
        if let Some(ender) = ender {
            ender.end("the program has ended it");
        }
    }

    /// Closes it. An idle sending half tells the other end that nothing more comes; what goes on is
    /// ended.
    fn close(&self) {
        // Ordering: Relaxed; who sees it late fails with the channel's own error.
        self.closed.store(true, Ordering::Relaxed);
        self.sending.close();
        self.receiving.close();
        // What goes on returns; its half is dropped by its thread.
        self.abort();
        drop(lock(&self.ender).take());
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

fn options(
    streams: Option<usize>,
    piece: Option<usize>,
    timeout: Option<f64>,
    rendezvous: bool,
    most: Option<u64>,
) -> PyResult<ChannelOptions> {
    let defaults = ChannelOptions::default();
    Ok(ChannelOptions {
        streams: streams.unwrap_or(defaults.streams),
        piece: piece.unwrap_or(defaults.piece),
        timeout: checked(timeout)?.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        rendezvous,
        most: most.unwrap_or(defaults.most),
        ..defaults
    })
}

#[pymethods]
impl RawChannel {
    #[staticmethod]
    #[pyo3(signature = (address, streams, piece, timeout, rendezvous, most))]
    fn connect(
        py: Python<'_>,
        address: &Bound<'_, PyAny>,
        streams: Option<usize>,
        piece: Option<usize>,
        timeout: Option<f64>,
        rendezvous: bool,
        most: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(streams, piece, timeout, rendezvous, most)?;
        let addresses = address::parse_all(address)?;
        let (first, most) = (addresses[0], options.most);
        let made = job::run_with_others(py, move || Channel::connect(&addresses[..], &options))?;
        let channel = made.map_err(|error| opening(&error, first))?;
        Ok(Self { core: Owned::new(Arc::new(Core::new(channel, most, Vec::new()))) })
    }

    /// Makes a channel of sockets, which are closed from then on. They stay as they are if one of
    /// them cannot be taken.
    #[staticmethod]
    #[pyo3(signature = (sockets, accepts, piece, timeout, rendezvous, most))]
    fn of_streams(
        py: Python<'_>,
        sockets: Vec<PyRef<'_, Socket>>,
        accepts: bool,
        piece: Option<usize>,
        timeout: Option<f64>,
        rendezvous: bool,
        most: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(None, piece, timeout, rendezvous, most)?;
        let count = sockets.len();
        if !(2..=MAX_STREAMS + 1).contains(&count) {
            return Err(PyValueError::new_err(format!(
                "a channel is made of 2 to {} sockets, one of which carries answers, and not of {count}",
                MAX_STREAMS + 1
            )));
        }
        for (at, socket) in sockets.iter().enumerate() {
            if sockets[..at].iter().any(|before| before.as_ptr() == socket.as_ptr()) {
                return Err(PyValueError::new_err("a socket is there twice"));
            }
            socket.check_unused()?;
        }
        let taken = sockets.iter().map(|socket| socket.take()).collect::<PyResult<Vec<_>>>()?;
        let (streams, hosts): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        let most = options.most;
        let side = if accepts { Side::Accepts } else { Side::Connects };
        let made = job::run_with_others(py, move || Channel::of_streams(streams, side, &options))?;
        let channel = made.map_err(|error| Fault::Channel(error).raise())?;
        Ok(Self { core: Owned::new(Arc::new(Core::new(channel, most, hosts))) })
    }

    /// Begins to send arrays. `owned`: it is given up once nobody holds it, as when Ctrl-C comes
    /// before its caller has it.
    #[pyo3(signature = (arrays, checksum, progress, timeout, owned=false))]
    fn send(
        &self,
        arrays: Vec<Passed<'_>>,
        checksum: bool,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        owned: bool,
        py: Python<'_>,
    ) -> PyResult<Transfer> {
        let core = self.open()?;
        let arrays = Held::all(&core.devices, arrays, crate::array::Access::Read)?;
        let how = How::new(core, checksum, progress, timeout)?;
        let op = Op::new(how.deadline);
        core.sending.push(py, op.clone(), Sending { arrays, how }, half::serve_sending)?;
        Ok(Transfer::new(core.clone(), op, core.sending.clone(), (false, owned)))
    }

    /// Begins to receive into arrays. `owned` as in `send`.
    #[pyo3(signature = (arrays, progress, timeout, owned=false))]
    fn recv_into(
        &self,
        arrays: Vec<Passed<'_>>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        owned: bool,
        py: Python<'_>,
    ) -> PyResult<Transfer> {
        let core = self.open()?;
        let arrays = Held::all(&core.devices, arrays, crate::array::Access::Write)?;
        self.receive(py, Into::Arrays(arrays), progress, timeout, owned)
    }

    /// Begins to receive into the arrays that `make` returns, with the value of the transfer, when
    /// it is told what comes.
    #[pyo3(signature = (make, progress, timeout, owned=false))]
    fn recv(
        &self,
        make: Py<PyAny>,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        owned: bool,
        py: Python<'_>,
    ) -> PyResult<Transfer> {
        self.receive(py, Into::Made(make), progress, timeout, owned)
    }

    /// Waits until the sends that were begun are over.
    fn finish_sends(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.get()?;
        until_ready(py, core.sending.idle(), Limit::Never, |_| match core.sending.is_idle() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .map(drop)
    }

    /// Ends it, and waits until its threads have let go of arrays and connections.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.get()?;
        detach(py, || core.close());
        let limit = Limit::of(Some(CLOSE_WITHIN));
        until_ready(py, core.sending.idle(), limit, |_| match core.sending.is_over() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })?;
        until_ready(py, core.receiving.idle(), limit, |_| match core.receiving.is_over() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })?;
        Ok(())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        // Ordering: Relaxed; as in `Core::close`.
        Ok(self.core.get()?.closed.load(Ordering::Relaxed))
    }

    /// Why the two ends do not copy from memory to memory.
    #[getter]
    fn why_not_local(&self) -> PyResult<Option<String>> {
        Ok(self.core.get()?.why_not_local.clone())
    }
}

impl RawChannel {
    fn open(&self) -> PyResult<&Arc<Core>> {
        let core = self.core.get()?;
        // Ordering: Relaxed; as in `Core::close`.
        if core.closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("channel").into());
        }
        Ok(core)
    }

    fn receive(
        &self,
        py: Python<'_>,
        into: Into,
        progress: Option<Py<PyAny>>,
        timeout: Option<f64>,
        owned: bool,
    ) -> PyResult<Transfer> {
        let core = self.open()?;
        let how = How::new(core, false, progress, timeout)?;
        let op = Op::new(how.deadline);
        let raises_at_end = matches!(into, Into::Arrays(_));
        let receiving = Receiving { into, most: core.most, devices: core.devices.clone(), how };
        core.receiving.push(py, op.clone(), receiving, half::serve_receiving)?;
        Ok(Transfer::new(core.clone(), op, core.receiving.clone(), (raises_at_end, owned)))
    }
}

fn opening(error: &ChannelError, address: SocketAddr) -> PyErr {
    match error {
        ChannelError::Invalid(_) => Fault::Channel(error.clone()).raise(),
        error => Failure::new(error.errno(), error.to_string()).at(address).into(),
    }
}

/// Accepts channels.
#[pyclass(frozen, weakref, module = "gpunet", name = "RawChannelListener")]
pub(crate) struct RawChannelListener {
    /// `None` once it is closed.
    listener: Owned<Mutex<Option<Arc<ChannelListener>>>>,
    local: SocketAddr,
    most: u64,
}

#[pymethods]
impl RawChannelListener {
    #[new]
    #[pyo3(signature = (address, streams, piece, timeout, rendezvous, most))]
    fn new(
        py: Python<'_>,
        address: &Bound<'_, PyAny>,
        streams: Option<usize>,
        piece: Option<usize>,
        timeout: Option<f64>,
        rendezvous: bool,
        most: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(streams, piece, timeout, rendezvous, most)?;
        let address = address::parse(address)?;
        let listener = detach(py, || ChannelListener::bind(address, &options));
        let listener = listener.map_err(|error| opening(&error, address))?;
        let local = listener.local_addr().map_err(Failure::from)?;
        Ok(Self { listener: Owned::new(Mutex::new(Some(Arc::new(listener)))), local, most: options.most })
    }

    #[pyo3(signature = (timeout))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<RawChannel> {
        let end = match Limit::of(checked(timeout)?) {
            Limit::No => Some(Instant::now()),
            Limit::Until(end) => Some(end),
            Limit::Never => None,
        };
        loop {
            let accepted = detach(py, || {
                let listener =
                    lock(self.listener.get()?).clone().ok_or_else(|| Failure::closed("listener"))?;
                let slice = Instant::now() + SLICE;
                Ok::<_, Failure>(listener.accept_until(Some(end.map_or(slice, |end| end.min(slice)))))
            });
            match accepted? {
                Ok(channel) => {
                    let core = Core::new(channel, self.most, Vec::new());
                    return Ok(RawChannel { core: Owned::new(Arc::new(core)) });
                }
                Err(error) if error.errno() == libc::ETIMEDOUT => {
                    if end.is_some_and(|end| Instant::now() >= end) {
                        return Err(timed_out("nobody has opened a channel"));
                    }
                }
                Err(error) => return Err(opening(&error, self.local)),
            }
            py.check_signals()?;
        }
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.local)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let listener = self.listener.get()?;
        // An accept that goes on has it until it looks again.
        detach(py, || drop(lock(listener).take()));
        Ok(())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(lock(self.listener.get()?).is_none())
    }
}

/// Drops what has Python's objects in it. When the interpreter ends they stay.
fn let_go<T>(what: T) {
    let mut what = Some(what);
    if attach(|_| drop(what.take())).is_none() {
        std::mem::forget(what);
    }
}

/// Whether it is the error of a wait that is over, in which nothing was lost.
fn is_nothing_yet(error: &ChannelError) -> bool {
    matches!(error, ChannelError::Failed { total: 0, .. }) && error.errno() == libc::ETIMEDOUT
}
