//! A connected stream.

use super::Timeout;
use crate::address;
use crate::buffer::View;
use crate::detach::detach;
use crate::error::{Failure, made, timed_out};
use crate::fork::Owned;
use crate::proxy::HostCore;
use crate::wait::{Limit, Moved, Notify, Waited, lock, until_moved, until_ready};
use gpunet_proxy::abi::TransportKind;
use gpunet_proxy::host::{ReadHalf, Stream, Waiter, WriteHalf};
use gpunet_proxy::socket::SocketError;
use pyo3::exceptions::{PyEOFError, PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncWrite, ReadBuf};

/// A future of the host's sockets.
pub(super) type Pending<T> = Pin<Box<dyn Future<Output = Result<T, SocketError>> + Send>>;

/// A connected stream of the host program, over any transport.
#[pyclass(frozen, weakref, subclass, module = "gpunet", name = "Socket")]
pub(crate) struct Socket {
    core: Owned<Core>,
    timeout: Timeout,
    /// How long a call polls before it sleeps.
    spin: Mutex<Duration>,
    /// Files of `makefile` that use it; as in `socket.socket` the last one closes it.
    files: AtomicUsize,
    closed: AtomicBool,
}

struct Core {
    /// `None` once the socket is closed.
    read: Mutex<Option<Reading>>,
    write: Mutex<Option<WriteHalf>>,
    readable: Arc<Notify>,
    writable: Arc<Notify>,
    local: SocketAddr,
    peer: SocketAddr,
    transport: TransportKind,
    /// What the stream's descriptors, rings and words belong to.
    host: Arc<HostCore>,
}

/// The receiving half.
struct Reading {
    half: ReadHalf,
    /// What calls had taken that ended by an error: it comes before what the stream has.
    kept: VecDeque<u8>,
}

impl Reading {
    /// Moves kept bytes to `buf`; returns whether there are any.
    fn take_kept(&mut self, buf: &mut ReadBuf<'_>, peek: bool) -> bool {
        let n = self.kept.len().min(buf.remaining());
        let (first, second) = self.kept.as_slices();
        let from_first = n.min(first.len());
        buf.put_slice(&first[..from_first]);
        buf.put_slice(&second[..n - from_first]);
        if !peek {
            self.kept.drain(..n);
        }
        n > 0
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

/// What flags `recv` takes.
const RECV_FLAGS: i32 = libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

fn check_flags(flags: i32, known: i32, names: &str) -> PyResult<()> {
    if flags & !known == 0 {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("unknown flags {:#x}; this call takes {names}", flags & !known)))
}

/// Tells a call that would wait from one that has failed: what it waits for.
fn blocked<R>(result: io::Result<R>, waiter: impl FnOnce() -> Waiter) -> io::Result<Result<R, Waiter>> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Err(waiter())),
        Err(error) => Err(error),
    }
}

impl Core {
    /// Makes a call on the reading half.
    ///
    /// # Errors
    /// EBADF, when the socket was closed; the call's.
    fn with_read<R>(&self, call: impl FnOnce(&mut Reading) -> io::Result<R>) -> Result<R, Failure> {
        match &mut *lock(&self.read) {
            Some(read) => Ok(call(read)?),
            None => Err(Failure::closed("socket")),
        }
    }

    /// Makes a call on the writing half.
    ///
    /// # Errors
    /// As [`Core::with_read`].
    fn with_write<R>(&self, call: impl FnOnce(&mut WriteHalf) -> io::Result<R>) -> Result<R, Failure> {
        match &mut *lock(&self.write) {
            Some(write) => Ok(call(write)?),
            None => Err(Failure::closed("socket")),
        }
    }

    /// Receives into `room`, from `at` on: what there is, or all. `at` tells how far that went,
    /// after an error, too.
    fn receive(&self, room: &mut [MaybeUninit<u8>], at: &mut usize, flags: i32) -> Moved {
        let (peek, all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
        while *at < room.len() {
            let mut buf = ReadBuf::uninit(&mut room[*at..]);
            let received = self.with_read(|read| {
                if read.take_kept(&mut buf, peek) {
                    return Ok(Ok(()));
                }
                let half = &mut read.half;
                let result = if peek { half.try_peek(&mut buf) } else { half.try_read(&mut buf) };
                blocked(result, || half.waiter())
            });
            match received {
                Ok(Ok(())) => {}
                Ok(Err(waiter)) => return Moved::Blocked(waiter),
                Err(failure) => return Moved::Done(Err(failure)),
            }
            let n = buf.filled().len();
            *at += n;
            if n == 0 || peek || !all {
                break;
            }
        }
        Moved::Done(Ok(()))
    }

    /// Gives bytes back that a call has taken and does not return: the next one gets them.
    fn keep(&self, taken: &[u8]) {
        if let Some(read) = &mut *lock(&self.read) {
            let mut kept: VecDeque<u8> = taken.to_vec().into();
            kept.append(&mut read.kept);
            read.kept = kept;
            // Other threads that wait.
            read.half.wake_waiters();
        }
        // Event loops.
        Waker::from(self.readable.clone()).wake();
    }

    /// Sends from `bytes`, from `at` on: what there is room for, or all.
    fn send(&self, bytes: &[u8], at: &mut usize, all: bool) -> Moved {
        while *at < bytes.len() {
            let sent = self.with_write(|write| blocked(write.try_write(&bytes[*at..]), || write.waiter()));
            match sent {
                Ok(Ok(n)) => *at += n,
                Ok(Err(waiter)) => return Moved::Blocked(waiter),
                Err(failure) => return Moved::Done(Err(failure)),
            }
            if !all {
                break;
            }
        }
        Moved::Done(Ok(()))
    }

    fn is_readable(&self) -> bool {
        let waker = Waker::from(self.readable.clone());
        let mut cx = Context::from_waker(&waker);
        self.with_read(|read| Ok(!read.kept.is_empty() || read.half.poll_ready(&mut cx).is_ready()))
            .unwrap_or(true)
    }

    fn is_writable(&self) -> bool {
        let waker = Waker::from(self.writable.clone());
        let mut cx = Context::from_waker(&waker);
        self.with_write(|write| Ok(write.poll_ready(&mut cx).is_ready())).unwrap_or(true)
    }

    /// Closes as one: a half that is dropped alone would end its direction first, and a reset would
    /// be none.
    fn close(&self) {
        let (read, write) = (lock(&self.read).take(), lock(&self.write).take());
        if let (Some(read), Some(write)) = (read, write) {
            drop(Stream::reunite(read.half, write));
        }
        self.readable.close();
        self.writable.close();
    }

    /// Takes the stream out; calls that wait, and later ones, find the socket closed.
    fn take(&self) -> Option<Stream> {
        let (read, write) = (lock(&self.read).take(), lock(&self.write).take());
        self.readable.close();
        self.writable.close();
        Stream::reunite(read?.half, write?).ok()
    }
}

impl Socket {
    /// Returns whether the stream can be given to something else as it is.
    ///
    /// # Errors
    /// The socket is closed, or a part of the stream is elsewhere.
    pub(crate) fn check_unused(&self) -> PyResult<()> {
        if self.files.load(Ordering::Relaxed) > 0 {
            return Err(PyValueError::new_err("a file of makefile() still uses the socket: close it first"));
        }
        if self.open()?.with_read(|read| Ok(!read.kept.is_empty()))? {
            let why = "the socket still has bytes that an interrupted call had received: receive them first";
            return Err(PyValueError::new_err(why));
        }
        Ok(())
    }

    /// Takes the stream out of the socket, which is closed from then on, and what it belongs to.
    ///
    /// # Errors
    /// EBADF: the socket is closed.
    pub(crate) fn take(&self) -> PyResult<(Stream, Arc<HostCore>)> {
        let core = self.open()?;
        let stream = core.take().ok_or_else(|| Failure::closed("socket"))?;
        self.closed.store(true, Ordering::Relaxed);
        Ok((stream, core.host.clone()))
    }

    pub(super) fn new(host: &Arc<HostCore>, stream: Stream, timeout: Option<f64>) -> PyResult<Self> {
        let address = |found: io::Result<SocketAddr>| found.map_err(Failure::from);
        let (local, peer) = (address(stream.local_addr())?, address(stream.peer_addr())?);
        let transport = stream.transport();
        let (read, write) = stream.into_split();
        let core = Core {
            read: Mutex::new(Some(Reading { half: read, kept: VecDeque::new() })),
            write: Mutex::new(Some(write)),
            readable: Arc::default(),
            writable: Arc::default(),
            local,
            peer,
            transport,
            host: host.clone(),
        };
        let (timeout, spin) = (Timeout::new(timeout)?, Mutex::default());
        let (files, closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { core: Owned::new(core), timeout, spin, files, closed })
    }

    fn limit(&self, flags: i32) -> Limit {
        if flags & libc::MSG_DONTWAIT != 0 { Limit::No } else { self.timeout.limit() }
    }

    fn spin(&self) -> Duration {
        *lock(&self.spin)
    }

    fn open(&self) -> PyResult<&Core> {
        if self.closed.load(Ordering::Relaxed) && self.files.load(Ordering::Relaxed) == 0 {
            return Err(Failure::closed("socket").into());
        }
        Ok(self.core.get()?)
    }

    /// Receives what there is, or with MSG_WAITALL all of `room`; returns how many bytes. What was
    /// taken when a call raises is there for the next one.
    ///
    /// With MSG_WAITALL, bytes that came before a failure or the end of the time are returned, as
    /// the system's sockets do; `or_raise` raises instead.
    fn recv_to(
        &self,
        py: Python<'_>,
        room: &mut [MaybeUninit<u8>],
        flags: i32,
        or_raise: bool,
    ) -> PyResult<usize> {
        check_flags(flags, RECV_FLAGS, "MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT and MSG_NOSIGNAL")?;
        let core = self.open()?;
        let mut at = 0;
        let (limit, spin) = (self.limit(flags), self.spin());
        let waited = until_moved(py, limit, spin, || core.receive(room, &mut at, flags));
        let returns = match &waited {
            Ok(Waited::Done(Ok(()))) => true,
            // A failure of the stream stays, for the next call.
            Ok(_) => at > 0 && !or_raise,
            Err(_) => false,
        };
        if at > 0 && !returns && flags & libc::MSG_PEEK == 0 {
            // SAFETY: `receive` has written the bytes up to `at`.
            let taken = unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), at) };
            core.keep(taken);
        }
        core.readable.settle(|| core.is_readable());
        match waited? {
            _ if returns => Ok(at),
            Waited::Done(result) => Ok(result.map(|()| at)?),
            Waited::WouldBlock => Err(Failure::would_block().into()),
            Waited::TimedOut if at > 0 => {
                Err(timed_out(&format!("{at} of {} bytes have come; the next receive gets them", room.len())))
            }
            Waited::TimedOut => Err(timed_out("no bytes have come")),
        }
    }

    /// Sends from `bytes`: what there is room for, or all.
    fn send_from(&self, py: Python<'_>, bytes: &[u8], flags: i32, all: bool) -> PyResult<usize> {
        check_flags(flags, SEND_FLAGS, "MSG_DONTWAIT and MSG_NOSIGNAL")?;
        let core = self.open()?;
        let mut at = 0;
        let (limit, spin) = (self.limit(flags), self.spin());
        let waited = until_moved(py, limit, spin, || core.send(bytes, &mut at, all));
        core.writable.settle(|| core.is_writable());
        match waited? {
            Waited::Done(result) => result.map(|()| at).map_err(PyErr::from),
            Waited::WouldBlock => Err(Failure::would_block().into()),
            Waited::TimedOut => Err(timed_out(&format!("the peer has left no room after {at} bytes"))),
        }
    }

    fn really_close(&self, py: Python<'_>) {
        if let Ok(core) = self.core.get() {
            detach(py, || core.close());
        }
    }
}

/// Makes `bytes` of what a call receives, with one allocation.
fn received<'py>(
    py: Python<'py>,
    size: usize,
    receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: a new object of that size, with room that nobody else knows.
    let object = unsafe { ffi::PyBytes_FromStringAndSize(std::ptr::null(), size.cast_signed()) };
    // SAFETY: a new reference, or null with an error set.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?.cast_into::<PyBytes>()?;
    // SAFETY: the object is bytes.
    let room = unsafe { ffi::PyBytes_AsString(object.as_ptr()) };
    // SAFETY: `size` bytes, which nobody reads before this function returns.
    let room = unsafe { std::slice::from_raw_parts_mut(room.cast::<MaybeUninit<u8>>(), size) };
    let n = receive(room)?;
    if n == size { Ok(object) } else { Ok(PyBytes::new(py, &object.as_bytes()[..n])) }
}

/// How much a `recv` of a large size allocates at most: more than a ring holds comes in no call.
const MOST_AT_ONCE: usize = 16 << 20;

#[pymethods]
impl Socket {
    #[pyo3(signature = (data, flags=0, /))]
    fn send(&self, data: &Bound<'_, PyAny>, flags: i32) -> PyResult<usize> {
        let view = View::readable(data)?;
        self.send_from(data.py(), view.bytes(), flags, false)
    }

    #[pyo3(signature = (data, flags=0, /))]
    fn sendall(&self, data: &Bound<'_, PyAny>, flags: i32) -> PyResult<()> {
        let view = View::readable(data)?;
        self.send_from(data.py(), view.bytes(), flags, true).map(drop)
    }

    #[pyo3(signature = (bufsize, flags=0, /))]
    fn recv<'py>(&self, py: Python<'py>, bufsize: isize, flags: i32) -> PyResult<Bound<'py, PyBytes>> {
        let size =
            usize::try_from(bufsize).map_err(|_| PyValueError::new_err("negative buffersize in recv"))?;
        let size = if flags & libc::MSG_WAITALL == 0 { size.min(MOST_AT_ONCE) } else { size };
        received(py, size, |room| self.recv_to(py, room, flags, false))
    }

    #[pyo3(signature = (size, /))]
    fn recv_exact<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyBytes>> {
        let size = usize::try_from(size).map_err(|_| PyValueError::new_err("negative size in recv_exact"))?;
        let bytes = received(py, size, |room| self.recv_to(py, room, libc::MSG_WAITALL, true))?;
        if bytes.as_bytes().len() < size {
            let text = format!("the stream ended after {} of {size} bytes", bytes.as_bytes().len());
            let error = made::<PyEOFError>(py, text);
            error.value(py).setattr("partial", bytes)?;
            error.value(py).setattr("expected", size)?;
            return Err(error);
        }
        Ok(bytes)
    }

    /// Gives bytes back that were received: the next receive gets them. For `gpunet.AsyncSocket`.
    fn _keep(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let view = View::readable(data)?;
        let core = self.open()?;
        core.keep(view.bytes());
        core.readable.settle(|| core.is_readable());
        Ok(())
    }

    #[pyo3(signature = (buffer, nbytes=0, flags=0))]
    fn recv_into(&self, buffer: &Bound<'_, PyAny>, nbytes: isize, flags: i32) -> PyResult<usize> {
        let mut view = View::writable(buffer)?;
        let nbytes =
            usize::try_from(nbytes).map_err(|_| PyValueError::new_err("negative buffersize in recv_into"))?;
        let len = view.len();
        if nbytes > len {
            return Err(PyValueError::new_err(format!("nbytes is {nbytes}, and the buffer has {len} bytes")));
        }
        let room = if nbytes == 0 { len } else { nbytes };
        self.recv_to(buffer.py(), &mut view.room()[..room], flags, false)
    }

    fn shutdown(&self, py: Python<'_>, how: i32) -> PyResult<()> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(PyValueError::new_err("shutdown takes SHUT_RD, SHUT_WR or SHUT_RDWR")),
        };
        let core = self.open()?;
        let ended = detach(py, || {
            if write {
                let end = |half: &mut WriteHalf| {
                    let _ = Pin::new(half).poll_shutdown(&mut Context::from_waker(Waker::noop()));
                    Ok(())
                };
                core.with_write(end)?;
            }
            if read {
                let stop = |read: &mut Reading| {
                    read.half.stop();
                    Ok(())
                };
                core.with_read(stop)?;
            }
            Ok::<_, Failure>(())
        });
        ended?;
        // Threads that wait were woken by it. Event loops find the end.
        core.readable.settle(|| core.is_readable());
        core.writable.settle(|| core.is_writable());
        Ok(())
    }

    fn close(&self, py: Python<'_>) {
        self.closed.store(true, Ordering::Relaxed);
        if self.files.load(Ordering::Relaxed) == 0 {
            self.really_close(py);
        }
    }

    /// For `socket.SocketIO`.
    fn _decref_socketios(&self, py: Python<'_>) {
        let before = self.files.fetch_sub(1, Ordering::Relaxed);
        if before == 1 && self.closed.load(Ordering::Relaxed) {
            self.really_close(py);
        }
    }

    #[pyo3(signature = (mode="r", buffering=None, *, encoding=None, errors=None, newline=None))]
    fn makefile<'py>(
        slf: &Bound<'py, Self>,
        mode: &str,
        buffering: Option<isize>,
        encoding: Option<&str>,
        errors: Option<&str>,
        newline: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().open()?;
        let make = slf.py().import("gpunet._files")?.getattr("makefile")?;
        slf.get().files.fetch_add(1, Ordering::Relaxed);
        let made = make.call1((slf, mode, buffering, encoding, errors, newline));
        if made.is_err() {
            slf.get().files.fetch_sub(1, Ordering::Relaxed);
        }
        made
    }

    fn fileno(&self) -> PyResult<i32> {
        let Ok(core) = self.open() else { return Ok(-1) };
        Ok(core.readable.descriptor(|| core.is_readable())?)
    }

    fn write_fileno(&self) -> PyResult<i32> {
        let Ok(core) = self.open() else { return Ok(-1) };
        Ok(core.writable.descriptor(|| core.is_writable())?)
    }

    fn getpeername<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.open()?.peer)
    }

    fn getsockname<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::tuple(py, self.open()?.local)
    }

    #[getter]
    fn transport(&self) -> PyResult<&'static str> {
        Ok(address::name_of(self.core.get()?.transport))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
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

    fn getspin(&self) -> f64 {
        self.spin().as_secs_f64()
    }

    fn setspin(&self, value: f64) -> PyResult<()> {
        let text = "a spin is a number of seconds, not negative";
        *lock(&self.spin) = Duration::try_from_secs_f64(value).map_err(|_| PyValueError::new_err(text))?;
        Ok(())
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
            Err(_) => "<gpunet.Socket of another process>".to_owned(),
            Ok(_) if self.closed.load(Ordering::Relaxed) => "<gpunet.Socket [closed]>".to_owned(),
            Ok(core) => {
                format!(
                    "<gpunet.Socket {} -> {} over {}>",
                    core.local,
                    core.peer,
                    address::name_of(core.transport)
                )
            }
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err("a socket cannot be pickled; each process connects its own"))
    }
}

/// A connect that has begun.
#[pyclass(frozen, module = "gpunet._native")]
pub(crate) struct Connecting {
    core: Owned<ConnectingCore>,
}

struct ConnectingCore {
    /// `None` once it has ended, or was given up.
    pending: Mutex<Option<Pending<Stream>>>,
    /// It has ended, and nobody has asked for it.
    ended: Mutex<Option<Result<Stream, SocketError>>>,
    notify: Arc<Notify>,
    to: SocketAddr,
    host: Arc<HostCore>,
}

impl ConnectingCore {
    /// Returns whether it has ended.
    fn progress(&self, cx: &mut Context<'_>) -> bool {
        let mut pending = lock(&self.pending);
        if let Some(connect) = &mut *pending
            && let Poll::Ready(result) = connect.as_mut().poll(cx)
        {
            *pending = None;
            *lock(&self.ended) = Some(result);
        }
        pending.is_none()
    }
}

impl Connecting {
    pub(crate) fn begin(
        host: Arc<HostCore>,
        to: SocketAddr,
        options: gpunet_proxy::abi::Options,
    ) -> PyResult<Self> {
        let sockets = host.host()?;
        let pending: Pending<Stream> = Box::pin(async move { sockets.connect(to, options).await });
        let (pending, ended) = (Mutex::new(Some(pending)), Mutex::new(None));
        Ok(Self { core: Owned::new(ConnectingCore { pending, ended, notify: Arc::default(), to, host }) })
    }

    /// Waits for its end. What is not there in time is given up.
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Socket> {
        let core = self.core.get()?;
        let timeout = Timeout::new(timeout)?;
        let waited = until_ready(py, &core.notify, timeout.limit(), |cx| match core.progress(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        if !matches!(waited, Ok(Waited::Done(()))) {
            detach(py, || drop(lock(&core.pending).take()));
        }
        match waited? {
            Waited::Done(()) => self.result(timeout.get()),
            Waited::WouldBlock => {
                let text =
                    "a connect waits for an answer; give it a timeout, or use `await gpunet.connect(...)`";
                Err(Failure::new(libc::EINPROGRESS, text).into())
            }
            Waited::TimedOut => Err(timed_out(&format!("no connection to {}", core.to))),
        }
    }
}

#[pymethods]
impl Connecting {
    /// A descriptor that is readable once the connect has ended.
    fn fileno(&self) -> PyResult<i32> {
        let core = self.core.get()?;
        let waker = Waker::from(core.notify.clone());
        Ok(core.notify.descriptor(|| core.progress(&mut Context::from_waker(&waker)))?)
    }

    /// The socket.
    ///
    /// # Errors
    /// BlockingIOError while it connects; how it failed.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, timeout: Option<f64>) -> PyResult<Socket> {
        let core = self.core.get()?;
        let waker = Waker::from(core.notify.clone());
        core.notify.settle(|| core.progress(&mut Context::from_waker(&waker)));
        if !core.progress(&mut Context::from_waker(&waker)) {
            return Err(Failure::new(libc::EAGAIN, "the connect goes on").into());
        }
        let ended = lock(&core.ended).take();
        let ended = ended.ok_or_else(|| Failure::closed("connect"))?;
        core.notify.close();
        Socket::new(&core.host, ended.map_err(|error| Failure::from(error).at(core.to))?, timeout)
    }

    /// Gives it up.
    fn close(&self) -> PyResult<()> {
        let core = self.core.get()?;
        drop((lock(&core.pending).take(), lock(&core.ended).take()));
        core.notify.close();
        Ok(())
    }
}
