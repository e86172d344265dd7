//! Queues: operations on sockets and teams, in the order of a CUDA stream or of a thread of the CPU
//! device.
//!
//! An operation keeps its array until it has ended: what has ended is found out by the calls that
//! follow. A queue that is dropped leaves that to a thread.

use crate::array::{Access, Array, OnStream, Runner};
use crate::attachment::{Attachment, AttachmentCore};
use crate::cuda;
use crate::detach::{attach, detach};
use crate::device_socket::DeviceSocket;
use crate::error::{self, Failure, made, timed_out};
use crate::fork::Owned;
use crate::team::{Symmetric, Team};
use crate::wait::{Limit, Notify, Waited, lock, until_ready};
use crate::{job, plain};
use gpunet_device::{Buffer, Rank, Signal};
use gpunet_proxy::queue::{self, Failure as FirstFailure, QueueError, QueueSettings};
use gpunet_proxy::team::{self, PutSource, SymmetricSlice};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{self, Poll, Waker};
use std::time::Duration;

/// How often a queue that was dropped is asked whether its operations have ended, where it cannot
/// tell.
const LOOK: Duration = Duration::from_millis(2);

/// A message that was started, as numbers.
type StartedNumbers = (u64, u32, u64);

/// What the program and a queue share.
pub(crate) struct QueueCore {
    /// Locked without the GIL: enqueueing may wait for room on the stream.
    inner: Mutex<Inner>,
    attachment: Arc<AttachmentCore>,
    /// Of a GPU.
    on_stream: Option<OnStream>,
}

#[derive(Default)]
struct Inner {
    /// `None` once it is closed.
    queue: Option<queue::Queue>,
    /// Operations enqueued so far.
    enqueued: u64,
    /// Arrays of operations, each with the number of the operation that is done when the array is
    /// free.
    kept: VecDeque<(u64, Array)>,
    /// Arrays of messages that were started and are not finished.
    started: HashMap<StartedNumbers, Array>,
    /// Arrays that graphs use.
    captured: Vec<Array>,
}

impl Inner {
    fn queue(&mut self) -> Result<&mut queue::Queue, Failure> {
        self.queue.as_mut().ok_or_else(|| Failure::closed("queue"))
    }

    /// Takes the arrays out whose operations have ended. They are dropped with the GIL.
    fn ended(&mut self) -> Vec<Array> {
        let Some(queue) = &self.queue else { return Vec::new() };
        if self.kept.is_empty() {
            return Vec::new();
        }
        let is_idle = queue.is_idle();
        let done = queue.outcome().done;
        // An operation that could not be enqueued was counted, perhaps: then these numbers are
        // ahead of the queue's, and an array is kept until the queue is idle.
        let count = match is_idle {
            true => self.kept.len(),
            false => self.kept.iter().take_while(|(number, _)| *number <= done).count(),
        };
        self.kept.drain(..count).map(|(_, array)| array).collect()
    }
}

/// Why an operation was not enqueued.
pub(crate) enum Refused {
    Failure(Failure),
    Queue(QueueError),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<QueueError> for Refused {
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Failure(failure) => failure.into(),
            Refused::Queue(error) => error::queue(&error),
        }
    }
}

impl QueueCore {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    fn runner(&self) -> Runner<'_> {
        self.on_stream.as_ref().map_or(Runner::Cpu, Runner::Gpu)
    }

    /// Enqueues an operation, which uses an array.
    fn submit<T: Send>(
        &self,
        py: Python<'_>,
        array: Option<Array>,
        operation: impl FnOnce(&mut queue::Queue) -> Result<T, Refused> + Send,
    ) -> PyResult<T> {
        let captures = match (&array, &self.on_stream) {
            (Some(_), Some(on)) => on.context.is_capturing(on.stream)?,
            _ => false,
        };
        // What is dropped is dropped with the GIL.
        let (result, _free) = detach(py, move || {
            let mut inner = self.lock();
            // A capture is no time to look.
            let mut free = if captures { Vec::new() } else { inner.ended() };
            let result = inner.queue().map_err(Refused::from).and_then(operation);
            match (&result, array) {
                (Err(_), array) => free.extend(array),
                (Ok(_), Some(array)) if captures => inner.captured.push(array),
                (Ok(_), array) => {
                    inner.enqueued += 1;
                    let number = inner.enqueued;
                    inner.kept.extend(array.map(|array| (number, array)));
                }
            }
            (result, free)
        });
        Ok(result?)
    }

    /// Begins a message that operations behind it do not wait for.
    fn start(
        &self,
        py: Python<'_>,
        array: Array,
        operation: impl FnOnce(&mut queue::Queue) -> Result<queue::Started, Refused> + Send,
    ) -> PyResult<Started> {
        let (result, _free) = detach(py, move || {
            let mut inner = self.lock();
            let mut free = inner.ended();
            match inner.queue().map_err(Refused::from).and_then(operation) {
                Ok(started) => {
                    inner.enqueued += 1;
                    inner.started.insert(started.to_raw(), array);
                    (Ok(Started { numbers: started.to_raw() }), free)
                }
                Err(refused) => {
                    free.push(array);
                    (Err(refused), free)
                }
            }
        });
        Ok(result?)
    }

    fn finish(&self, py: Python<'_>, numbers: Vec<StartedNumbers>) -> PyResult<()> {
        let raw = |&(queue, direction, nth): &StartedNumbers| queue::Started::from_raw(queue, direction, nth);
        let started: Option<Vec<_>> = numbers.iter().map(raw).collect();
        let started = started.ok_or(Refused::Queue(QueueError::NotStarted))?;
        let (result, _free) = detach(py, move || {
            let mut inner = self.lock();
            let free = inner.ended();
            let result = inner.queue().map_err(Refused::from).and_then(|queue| Ok(queue.finish(&started)?));
            if result.is_ok() {
                inner.enqueued += started.len() as u64;
                let number = inner.enqueued;
                for numbers in numbers {
                    let array = inner.started.remove(&numbers);
                    inner.kept.extend(array.map(|array| (number, array)));
                }
            }
            (result, free)
        });
        Ok(result?)
    }

    /// Notes the arrays free whose operations have ended.
    fn settle(&self, py: Python<'_>) {
        drop(detach(py, || self.lock().ended()));
    }

    /// Closes the queue: what was enqueued is done nevertheless, and its arrays are kept so long.
    fn close(&self) -> Closing {
        let inner = std::mem::take(&mut *self.lock());
        Closing(Some(inner))
    }
}

/// A queue that nothing is enqueued on any more.
struct Closing(Option<Inner>);

impl Closing {
    /// Ends without waiting: a thread waits where it must, and then drops `with` and the arrays.
    fn end(mut self, with: Option<OnStream>) {
        let Some(Inner { mut queue, kept, mut started, captured, .. }) = self.0.take() else { return };
        if let (Some(queue), false) = (&mut queue, started.is_empty()) {
            let all: Vec<_> =
                started.keys().filter_map(|&(a, b, c)| queue::Started::from_raw(a, b, c)).collect();
            if queue.finish(&all).is_err() {
                // Nobody knows when they end.
                std::mem::forget(std::mem::take(&mut started));
            }
        }
        // If there is no thread, nobody knows when they end, either.
        let arrays = ManuallyDrop::new((kept, started, captured, with));
        job::begin(move || {
            if let Some(mut queue) = queue {
                loop {
                    let _ = queue.notify().wait();
                    if queue.is_idle() {
                        break;
                    }
                    std::thread::sleep(LOOK);
                }
            }
            // When the interpreter ends, its objects stay.
            attach(|_| drop(ManuallyDrop::into_inner(arrays)));
        });
    }
}

impl Drop for QueueCore {
    fn drop(&mut self) {
        let with = self.on_stream.take();
        self.close().end(with);
    }
}

/// Socket and team operations in the order of a stream.
#[pyclass(frozen, weakref, module = "gpunet", name = "Queue")]
pub(crate) struct Queue {
    core: Owned<Arc<QueueCore>>,
}

/// A message that was started.
#[pyclass(frozen, module = "gpunet", name = "Started")]
pub(crate) struct Started {
    numbers: StartedNumbers,
}

impl Queue {
    /// The memory of an object, for an operation of this queue.
    fn array(&self, object: &Bound<'_, PyAny>, access: Access) -> PyResult<Array> {
        Array::new(object, access, self.core.get()?.runner())
    }

    fn check_socket<'a>(&self, socket: &'a Bound<'_, PyAny>) -> PyResult<&'a DeviceSocket> {
        let py = socket.py();
        let Ok(found) = socket.cast::<DeviceSocket>() else {
            let kind = socket.get_type().name()?;
            let text = format!(
                "a queue moves messages of sockets of its device (attachment.connect, attachment.listen), not of {kind}"
            );
            return Err(made::<PyTypeError>(py, text));
        };
        if !found.get().is_of(&self.core.get()?.attachment)? {
            let text =
                "the socket is of another attachment than the queue; make the queue of the same".to_owned();
            return Err(made::<PyValueError>(py, text));
        }
        Ok(found.get())
    }

    /// The source of a put: symmetric memory of the team, or an array.
    fn source(&self, from: &Bound<'_, PyAny>) -> PyResult<(PutSource<u8>, Option<Array>)> {
        if let Ok(memory) = from.cast::<Symmetric>() {
            return Ok((memory.get().source()?, None));
        }
        let array = self.array(from, Access::Read)?;
        // SAFETY: kept until the operation has ended.
        Ok((unsafe { buffer(&array) }.into(), Some(array)))
    }

    /// Enqueues an operation of a team that moves nothing.
    fn for_team(
        &self,
        py: Python<'_>,
        team: &Team,
        operation: impl FnOnce(&mut queue::Queue, &team::Team) -> Result<(), QueueError> + Send,
    ) -> PyResult<()> {
        let team = team.core()?;
        self.core.get()?.submit(py, None, |queue| Ok(team.with(|team| operation(queue, team))??))
    }

    /// Enqueues one that moves an array to the elements of `to` from `offset` on.
    fn move_to(
        &self,
        to: &Symmetric,
        data: &Bound<'_, PyAny>,
        offset: usize,
        operation: impl FnOnce(&mut queue::Queue, SymmetricSlice<'_, u8>, PutSource<u8>) -> Result<(), QueueError>
        + Send,
    ) -> PyResult<()> {
        let (source, array) = self.source(data)?;
        self.core
            .get()?
            .submit(data.py(), array, |queue| Ok(to.with_rest(offset, |to| operation(queue, to, source))??))
    }
}

/// # Safety
/// The array is kept until the operation that gets the buffer has ended.
unsafe fn buffer(array: &Array) -> Buffer {
    // SAFETY: the array's memory, which stays where it is while it is kept.
    unsafe { Buffer::from_raw_parts(array.address as *mut u8, array.len) }
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (attachment, stream=None, *, short=None, fragment=None, depth=None, kernels=None))]
    fn new(
        py: Python<'_>,
        attachment: &Attachment,
        stream: Option<&Bound<'_, PyAny>>,
        short: Option<usize>,
        fragment: Option<usize>,
        depth: Option<usize>,
        kernels: Option<bool>,
    ) -> PyResult<Self> {
        let core = attachment.core()?.clone();
        let settings = short.is_some() || fragment.is_some() || depth.is_some() || kernels.is_some();
        let defaults = QueueSettings::default();
        let with = QueueSettings {
            short: short.unwrap_or(defaults.short),
            fragment: fragment.unwrap_or(defaults.fragment),
            depth: depth.unwrap_or(defaults.depth),
            kernels: kernels.unwrap_or(defaults.kernels),
        };
        let (on_stream, made_queue) = match (core.ordinal()?, core.context()) {
            (Some(ordinal), Some(context)) => {
                let owner = stream.map_or_else(|| py.None(), |stream| stream.clone().unbind());
                let stream = own_stream(stream)?;
                let (context, follows) = (context.clone(), context.event()?);
                let on_stream = OnStream { context, ordinal, stream, follows, _owner: owner };
                let made = detach(py, || {
                    core.with(|attachment| {
                        let device = attachment.cuda().ok_or(QueueError::WrongAttachment)?;
                        // SAFETY: the stream's object is kept until the operations have ended; that
                        // of a number is the program's promise (docs/python.md).
                        let stream = match unsafe { device.borrow_stream(stream as *mut _) } {
                            Ok(stream) => stream,
                            Err(error) => return Ok(Err(error)),
                        };
                        queue::Queue::cuda_with(attachment, stream, with).map(Ok)
                    })
                });
                let queue = made?.map(|made| made.map_err(|error| PyValueError::new_err(error.to_string())));
                (Some(on_stream), queue)
            }
            _ => {
                if settings || stream.is_some_and(|stream| !stream.is_none()) {
                    let text = "the CPU device has no streams; leave the stream and its settings out";
                    return Err(PyValueError::new_err(text));
                }
                (None, detach(py, || core.with(queue::Queue::cpu))?.map(Ok))
            }
        };
        let queue = made_queue.map_err(|error| error::queue(&error))??;
        let inner = Mutex::new(Inner { queue: Some(queue), ..Inner::default() });
        Ok(Self { core: Owned::new(Arc::new(QueueCore { inner, attachment: core, on_stream })) })
    }

    fn send(&self, py: Python<'_>, socket: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (socket, array) = (self.check_socket(socket)?, self.array(data, Access::Read)?);
        // SAFETY: `submit` keeps the array.
        let from = unsafe { buffer(&array) };
        self.core
            .get()?
            .submit(py, Some(array), move |queue| Ok(socket.with_sender(|sender| queue.send(sender, from))??))
    }

    fn recv(&self, py: Python<'_>, socket: &Bound<'_, PyAny>, into: &Bound<'_, PyAny>) -> PyResult<()> {
        let (socket, array) = (self.check_socket(socket)?, self.array(into, Access::Write)?);
        // SAFETY: `submit` keeps the array.
        let to = unsafe { buffer(&array) };
        self.core.get()?.submit(py, Some(array), move |queue| {
            Ok(socket.with_receiver(|receiver| queue.recv(receiver, to))??)
        })
    }

    fn start_send(
        &self,
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Started> {
        let (socket, array) = (self.check_socket(socket)?, self.array(data, Access::Read)?);
        // SAFETY: `start` keeps the array.
        let from = unsafe { buffer(&array) };
        self.core
            .get()?
            .start(py, array, move |queue| Ok(socket.with_sender(|sender| queue.start_send(sender, from))??))
    }

    fn start_recv(
        &self,
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        into: &Bound<'_, PyAny>,
    ) -> PyResult<Started> {
        let (socket, array) = (self.check_socket(socket)?, self.array(into, Access::Write)?);
        // SAFETY: `start` keeps the array.
        let to = unsafe { buffer(&array) };
        self.core.get()?.start(py, array, move |queue| {
            Ok(socket.with_receiver(|receiver| queue.start_recv(receiver, to))??)
        })
    }

    #[pyo3(signature = (*started))]
    fn finish(&self, py: Python<'_>, started: &Bound<'_, PyTuple>) -> PyResult<()> {
        let numbers = started.iter().map(|one| Ok(one.cast::<Started>()?.get().numbers));
        self.core.get()?.finish(py, numbers.collect::<PyResult<_>>()?)
    }

    #[pyo3(signature = (to, data, member, *, offset=0))]
    fn put(&self, to: &Symmetric, data: &Bound<'_, PyAny>, member: u32, offset: usize) -> PyResult<()> {
        self.move_to(to, data, offset, |queue, to, source| queue.put(to, source, Rank(member)))
    }

    #[pyo3(signature = (to, data, signal, value, member, *, offset=0))]
    fn put_signal(
        &self,
        to: &Symmetric,
        data: &Bound<'_, PyAny>,
        signal: u32,
        value: u64,
        member: u32,
        offset: usize,
    ) -> PyResult<()> {
        self.move_to(to, data, offset, |queue, to, source| {
            queue.put_signal(to, source, Signal(signal), value, Rank(member))
        })
    }

    fn signal_set(&self, py: Python<'_>, team: &Team, signal: u32, value: u64, member: u32) -> PyResult<()> {
        self.for_team(py, team, |queue, team| queue.signal(team, Signal(signal), value, Rank(member)))
    }

    fn signal_wait(&self, py: Python<'_>, team: &Team, signal: u32, source: u32, value: u64) -> PyResult<()> {
        self.for_team(py, team, |queue, team| queue.wait_until(team, Signal(signal), Rank(source), value))
    }

    fn barrier(&self, py: Python<'_>, team: &Team) -> PyResult<()> {
        self.for_team(py, team, queue::Queue::barrier)
    }

    #[pyo3(signature = (to, data, *, offset=0))]
    fn all_gather(&self, to: &Symmetric, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<()> {
        self.move_to(to, data, offset, |queue, to, source| queue.all_gather(to, source))
    }

    #[pyo3(signature = (to, data, root, *, offset=0))]
    fn broadcast(&self, to: &Symmetric, data: &Bound<'_, PyAny>, root: u32, offset: usize) -> PyResult<()> {
        self.move_to(to, data, offset, |queue, to, source| queue.broadcast(to, source, Rank(root)))
    }

    #[pyo3(signature = (to, data, *, offset=0))]
    fn all_to_all(&self, to: &Symmetric, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<()> {
        self.move_to(to, data, offset, |queue, to, source| queue.all_to_all(to, source))
    }

    /// Limits the waits of team operations that follow.
    #[pyo3(signature = (timeout))]
    fn set_team_timeout(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout
            .map_err(|_| PyValueError::new_err("a timeout is None, or a number of seconds, not below 0"))?;
        let core = self.core.get()?;
        Ok(detach(py, || core.lock().queue().map(|queue| queue.set_team_timeout(timeout)))?)
    }

    fn notify(&self, py: Python<'_>) -> PyResult<Done> {
        let core = self.core.get()?;
        let done = detach(py, || {
            let mut inner = core.lock();
            let done = inner.queue()?.notify();
            inner.enqueued += 1;
            Ok::<_, Failure>(done)
        })?;
        let state = Mutex::new(State::Pending(done));
        Ok(Done { inner: Owned::new(DoneInner { state, core: core.clone() }), notify: Arc::default() })
    }

    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.notify(py)?.wait(py, timeout)
    }

    /// Whether all that was enqueued is done.
    fn is_idle(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core.get()?;
        core.settle(py);
        Ok(detach(py, || core.lock().queue().map(|queue| queue.is_idle()))?)
    }

    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = self.core.get()?;
        let outcome = detach(py, || core.lock().queue().map(|queue| queue.outcome()))?;
        core.settle(py);
        let failure = outcome.failure.map(|failure| {
            json!({
                "operation": failure.operation,
                "errno": failure.error.errno(),
                "error": failure.error.to_string(),
                "bytes": failure.bytes,
            })
        });
        plain::python(py, &json!({ "done": outcome.done, "failure": failure }))
    }

    /// Ends it without waiting: what was enqueued is done nevertheless.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.get()?;
        // A job's thread, and the queue's own drop, need no GIL.
        detach(py, || core.close().end(None));
        Ok(())
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core.get()?;
        Ok(detach(py, || core.lock().queue.is_none()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if self.closed(py)? {
            return Ok(());
        }
        let ended = if kind.is_none() { self.synchronize(py, None) } else { Ok(()) };
        self.close(py)?;
        ended
    }

    fn __repr__(&self) -> String {
        match self.core.get() {
            Ok(core) => match &core.on_stream {
                Some(on) => format!("<gpunet.Queue on stream {:#x} of device {}>", on.stream, on.ordinal),
                None => "<gpunet.Queue of the CPU device>".to_owned(),
            },
            Err(_) => "<gpunet.Queue of another process>".to_owned(),
        }
    }
}

/// A stream of the program's own: the default streams cannot wait.
fn own_stream(stream: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    // 1 and 2 are CUDA's names for the legacy and the per-thread default stream.
    match stream.map_or(Ok(0), cuda::stream_of)? {
        0..=2 => Err(PyValueError::new_err(
            "a queue's stream may wait for the network, which a default stream must not; pass one of the program's own: \
             torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True), or device.create_stream() of cuda.core",
        )),
        stream => Ok(stream),
    }
}

/// How far what was enqueued before is.
enum State {
    Pending(queue::Done),
    Ended(Result<(), Ended>),
}

/// Why a queue has failed.
#[derive(Clone)]
struct Ended {
    errno: i32,
    text: String,
    first: Option<FirstFailure>,
}

impl Ended {
    fn of(error: &QueueError) -> Self {
        let first = if let QueueError::Failed(first) = error { Some(*first) } else { None };
        Self { errno: error.errno(), text: error.to_string(), first }
    }

    /// An OSError with what the failed operation has done.
    fn error(&self, py: Python<'_>) -> PyErr {
        let error = PyErr::from(Failure::new(self.errno, self.text.as_str()));
        if let Some(first) = self.first {
            let value = error.value(py);
            let set = value
                .setattr("operation", first.operation)
                .and_then(|()| value.setattr("bytes", first.bytes));
            if let Err(other) = set {
                return other;
            }
        }
        error
    }
}

struct DoneInner {
    state: Mutex<State>,
    core: Arc<QueueCore>,
}

impl DoneInner {
    fn poll(&self, cx: &mut task::Context<'_>) -> Poll<Result<(), Ended>> {
        let mut state = lock(&self.state);
        if let State::Pending(done) = &mut *state {
            match Pin::new(done).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => *state = State::Ended(result.map_err(|error| Ended::of(&error))),
            }
        }
        match &*state {
            State::Ended(result) => Poll::Ready(result.clone()),
            State::Pending(_) => Poll::Pending,
        }
    }
}

/// The end of all that was enqueued on a queue before.
#[pyclass(frozen, module = "gpunet", name = "Done")]
pub(crate) struct Done {
    inner: Owned<DoneInner>,
    notify: Arc<Notify>,
}

#[pymethods]
impl Done {
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let inner = self.inner.get()?;
        let limit = Limit::of(crate::socket::checked(timeout)?);
        let waited = until_ready(py, &self.notify, limit, |cx| inner.poll(cx))?;
        inner.core.settle(py);
        match waited {
            Waited::Done(result) => result.map_err(|ended| ended.error(py)),
            Waited::WouldBlock => {
                Err(Failure::new(libc::EAGAIN, "the queue is not done, and the timeout is 0").into())
            }
            Waited::TimedOut => Err(timed_out("the queue is not done; its operations go on")),
        }
    }

    /// Whether it has come.
    fn done(&self) -> PyResult<bool> {
        Ok(self.poll_now(self.inner.get()?))
    }

    fn fileno(&self) -> PyResult<i32> {
        let inner = self.inner.get()?;
        Ok(self.notify.descriptor(|| self.poll_now(inner))?)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("gpunet._aio")?.call_method1("ended", (slf,))?.call_method0("__await__")
    }
}

impl Done {
    fn poll_now(&self, inner: &DoneInner) -> bool {
        let waker = Waker::from(self.notify.clone());
        inner.poll(&mut task::Context::from_waker(&waker)).is_ready()
    }
}
