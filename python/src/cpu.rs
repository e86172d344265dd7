//! Kernels on the CPU: Python functions on threads, which call what kernels on a GPU call.
//!
//! A thread is a block of one thread. Its calls find the launch by its net value, as a kernel's do,
//! and return a negative errno. A block may be a C function, too, which makes the calls of
//! gpunet.h: this module exports them.

use crate::address;
use crate::buffer::View;
use crate::detach::detach;
use crate::fork::Owned;
use crate::wait::{Notify, is_main_thread, lock};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Net, PollFd, PollSet, Timeout, poll};
use gpunet_posix as posix;
use gpunet_proxy::LaunchToken;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::task::Waker;

/// A block of one thread.
pub(crate) const BLOCK: Solo = Solo::new(0, 1);

/// What the threads of a launch use.
#[derive(Debug)]
pub(crate) struct Calls {
    /// `None` once the launch is finished. Calls hold it for reading.
    token: RwLock<Option<LaunchToken>>,
    net: u64,
    /// Blocks that run.
    blocks: AtomicUsize,
    /// Told when one has ended.
    pub(crate) ended: Arc<Notify>,
    /// What the first one raised that failed.
    failure: Mutex<Option<PyErr>>,
}

/// The launches on the CPU that are not finished, by their net values. It is locked with the GIL
/// held, as `os.fork` holds it.
static LAUNCHES: Mutex<Vec<Owned<Weak<Calls>>>> = Mutex::new(Vec::new());

impl Calls {
    pub(crate) fn new(token: LaunchToken, on_cpu: bool) -> Arc<Self> {
        let net = token.context();
        let calls = Arc::new(Self {
            token: RwLock::new(Some(token)),
            net,
            blocks: AtomicUsize::new(0),
            ended: Arc::default(),
            failure: Mutex::default(),
        });
        if on_cpu {
            let mut launches = lock(&LAUNCHES);
            launches.retain(|calls| calls.get().is_ok_and(|calls| calls.strong_count() > 0));
            launches.push(Owned::new(Arc::downgrade(&calls)));
        }
        calls
    }

    pub(crate) fn cancel(&self) {
        if let Some(token) = &*self.token.read().unwrap_or_else(PoisonError::into_inner) {
            token.cancel();
        }
    }

    /// Takes the token, once no call is in progress.
    pub(crate) fn take(&self) -> Option<LaunchToken> {
        self.token.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn has_blocks(&self) -> bool {
        // Ordering: Acquire, pairs with the end of a block.
        self.blocks.load(Ordering::Acquire) > 0
    }

    pub(crate) fn failure(&self) -> Option<PyErr> {
        lock(&self.failure).take()
    }

    fn begin_block(&self) {
        // Ordering: Relaxed; the end orders what the block did.
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// A block has ended; `error` is what it raised. The others are cancelled then.
    fn end_block(&self, error: Option<PyErr>) {
        if let Some(error) = error {
            lock(&self.failure).get_or_insert(error);
            self.cancel();
        }
        // Ordering: Release, pairs with `has_blocks`.
        self.blocks.fetch_sub(1, Ordering::Release);
        Waker::from(self.ended.clone()).wake();
    }
}

/// The launch of a net value. One that is finished may have had the same.
fn find(net: u64) -> Option<Arc<Calls>> {
    let is_it =
        |calls: &Arc<Calls>| calls.net == net && calls.token.try_read().is_ok_and(|token| token.is_some());
    lock(&LAUNCHES).iter().find_map(|calls| calls.get().ok()?.upgrade().filter(is_it))
}

/// The blocks of a launch on the CPU, for `gpunet.cpu.run`.
#[pyclass(frozen, module = "gpunet._native")]
pub(crate) struct CpuLaunch {
    calls: Owned<Arc<Calls>>,
}

#[pymethods]
impl CpuLaunch {
    fn begin_block(&self) -> PyResult<()> {
        self.calls.get()?.begin_block();
        Ok(())
    }

    /// The calling thread begins to run a block.
    fn enter(&self) -> PyResult<()> {
        posix::capi::guard_nets(guard);
        RUNNING.set(Some(Owned::new(self.calls.get()?.clone())));
        Ok(())
    }

    /// The calling thread's block has ended.
    fn leave(&self) {
        RUNNING.take();
    }

    /// A block has ended, by this exception if by one.
    #[pyo3(signature = (error))]
    fn end_block(&self, py: Python<'_>, error: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let (calls, error) = (self.calls.get()?, error.map(PyErr::from_value));
        detach(py, || calls.end_block(error));
        Ok(())
    }
}

/// Finds the launch that `gpunet.cpu.run` is to start blocks of.
///
/// # Errors
/// ValueError, when there is none.
#[pyfunction]
pub(crate) fn cpu_launch(net: u64) -> PyResult<CpuLaunch> {
    let text = "no launch of the CPU device has this net value; take it from `with proxy.attach_cpu().launch() as net`";
    let calls = find(net).ok_or_else(|| PyValueError::new_err(text))?;
    Ok(CpuLaunch { calls: Owned::new(calls) })
}

thread_local! {
    /// The launch whose block this thread runs.
    static RUNNING: RefCell<Option<Owned<Arc<Calls>>>> = const { RefCell::new(None) };
}

/// The launch whose block the calling thread runs; none in a child that a block has forked.
fn running() -> Option<Arc<Calls>> {
    RUNNING.with_borrow(|running| running.as_ref()?.get().ok().cloned())
}

/// Returns whether the calling thread runs a block.
pub(crate) fn is_block() -> bool {
    running().is_some()
}

/// Makes a call of a C function, if it has the net value of the launch whose block calls.
fn guard(net: u64, body: &mut dyn FnMut(Net) -> Result<i64, Error>) -> i64 {
    let calls = running().filter(|calls| calls.net == net);
    let token = calls.as_ref().map(|calls| calls.token.read().unwrap_or_else(PoisonError::into_inner));
    let token = token.as_ref().and_then(|token| token.as_ref());
    posix::returned(token.map_or(Err(Error::NetworkDown), |token| body(token.net())))
}

/// A C function as a block: the type that docs/c-host.md has for kernels on the CPU.
type Function = unsafe extern "C" fn(net: u64, block: u32, blocks: u32, argument: *mut c_void);

/// Runs a C function as a block, on the calling thread.
///
/// # Errors
/// ValueError for no function.
#[pyfunction]
pub(crate) fn cpu_function(
    py: Python<'_>,
    net: u64,
    function: usize,
    block: u32,
    blocks: u32,
    argument: usize,
) -> PyResult<()> {
    if function == 0 {
        return Err(PyValueError::new_err("the function is a null pointer"));
    }
    // SAFETY: an address that the program says to be that of a function of this type.
    let function = unsafe { std::mem::transmute::<usize, Function>(function) };
    detach(py, || {
        let argument = argument as *mut c_void;
        // SAFETY: as above: it takes the argument on any thread.
        posix::capi::as_group(&Solo::new(block, blocks), || unsafe {
            function(net, block, blocks, argument);
        });
    });
    Ok(())
}

/// The clock of records, for gpunet_records.h.
#[unsafe(no_mangle)]
extern "C" fn gpunet_host_now_ns() -> u64 {
    gpunet_device::now_ns()
}

/// A block of one thread has no others that could run, for gpunet_records.h.
#[unsafe(no_mangle)]
const extern "C" fn gpunet_host_take_turns() -> c_int {
    0
}

/// # Errors
/// RuntimeError in the main thread, where nothing would end the wait.
fn refuse_main_thread() -> PyResult<()> {
    if !is_main_thread() {
        return Ok(());
    }
    let text = "kernels' calls are for blocks; start them with gpunet.cpu.run(launch, function, ...)";
    Err(PyRuntimeError::new_err(text))
}

/// A timeout that can be.
pub(crate) fn limit(timeout_ns: i64) -> PyResult<i64> {
    if timeout_ns >= -1 || timeout_ns == posix::SOCKET_TIMEOUT {
        return Ok(timeout_ns);
    }
    Err(PyValueError::new_err(format!(
        "timeout_ns is a number of nanoseconds, NO_WAIT (0), FOREVER (-1) or SOCKET_TIMEOUT, not {timeout_ns}"
    )))
}

/// Makes a call of the device without the GIL.
///
/// # Errors
/// RuntimeError in the main thread, where nothing would end the wait.
pub(crate) fn call(
    py: Python<'_>,
    net: u64,
    body: impl FnOnce(Net) -> Result<i64, Error> + Send,
) -> PyResult<i64> {
    refuse_main_thread()?;
    let Some(calls) = find(net) else { return Ok(-i64::from(libc::ENETDOWN)) };
    Ok(detach(py, || {
        let token = calls.token.read().unwrap_or_else(PoisonError::into_inner);
        let result = token.as_ref().map_or(Err(Error::NetworkDown), |token| body(token.net()));
        result.unwrap_or_else(|error| -i64::from(error.errno()))
    }))
}

/// How many bytes of a buffer a call moves.
pub(crate) fn length(n: Option<usize>, len: usize) -> PyResult<usize> {
    match n {
        Some(n) if n > len => Err(PyValueError::new_err(format!("n is {n}, and the data has {len} bytes"))),
        _ => Ok(n.unwrap_or(len)),
    }
}

#[pyfunction]
pub(crate) fn cpu_accept(py: Python<'_>, net: u64, listener: i32, timeout_ns: i64) -> PyResult<i64> {
    let timeout_ns = limit(timeout_ns)?;
    call(py, net, |net| {
        // SAFETY: no address is asked for.
        unsafe {
            posix::accept::accept(
                &BLOCK,
                net,
                listener,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                timeout_ns,
            )
        }
    })
}

#[pyfunction]
pub(crate) fn cpu_connect(
    py: Python<'_>,
    net: u64,
    address: &Bound<'_, PyAny>,
    timeout_ns: i64,
) -> PyResult<i64> {
    let timeout_ns = limit(timeout_ns)?;
    let address = match address.extract::<Vec<u8>>() {
        Ok(bytes) if !address.is_instance_of::<pyo3::types::PyString>() => bytes,
        _ => sockaddr(address::parse(address)?),
    };
    call(py, net, |net| {
        let (at, len) = (address.as_ptr(), u32::try_from(address.len()).unwrap_or(u32::MAX));
        // SAFETY: readable for its length; no options.
        unsafe { posix::open::connect_to(&BLOCK, net, at, len, std::ptr::null(), timeout_ns) }
    })
}

/// An address as C has it.
fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &v4.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(v6) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let (flow, scope) = (v6.flowinfo().to_be_bytes(), v6.scope_id().to_ne_bytes());
            [&family[..], &port, &flow, &v6.ip().octets(), &scope].concat()
        }
    }
}

#[pyfunction]
pub(crate) fn cpu_send(
    py: Python<'_>,
    net: u64,
    socket: i32,
    data: &Bound<'_, PyAny>,
    n: Option<usize>,
    timeout_ns: i64,
    flags: i32,
) -> PyResult<i64> {
    let (view, timeout_ns) = (View::readable(data)?, limit(timeout_ns)?);
    let bytes = &view.bytes()[..length(n, view.len())?];
    call(py, net, |net| {
        // SAFETY: readable for its length, until the call returns.
        unsafe {
            posix::send::send_timeout(&BLOCK, net, socket, bytes.as_ptr(), bytes.len(), flags, timeout_ns)
        }
    })
}

#[pyfunction]
pub(crate) fn cpu_recv(
    py: Python<'_>,
    net: u64,
    socket: i32,
    data: &Bound<'_, PyAny>,
    n: Option<usize>,
    timeout_ns: i64,
    flags: i32,
) -> PyResult<i64> {
    let (mut view, timeout_ns) = (View::writable(data)?, limit(timeout_ns)?);
    let len = length(n, view.len())?;
    let room = &mut view.room()[..len];
    call(py, net, |net| {
        let (to, len) = (room.as_mut_ptr().cast(), room.len());
        // SAFETY: writable for its length, until the call returns.
        unsafe { posix::recv::recv_timeout(&BLOCK, net, socket, to, len, flags, timeout_ns) }
    })
}

#[pyfunction]
pub(crate) fn cpu_shutdown(py: Python<'_>, net: u64, socket: i32, how: i32) -> PyResult<i64> {
    call(py, net, |net| posix::shutdown::shutdown(&BLOCK, net, socket, how))
}

#[pyfunction]
pub(crate) fn cpu_close(py: Python<'_>, net: u64, socket: i32) -> PyResult<i64> {
    call(py, net, |net| posix::close::close(&BLOCK, net, socket))
}

/// An entry of a poll, as C has it: a socket, what is asked and what is found.
const ENTRY: usize = size_of::<PollFd>();

#[pyfunction]
pub(crate) fn cpu_poll(
    py: Python<'_>,
    net: u64,
    entries: &Bound<'_, PyAny>,
    count: Option<usize>,
    timeout_ns: i64,
) -> PyResult<i64> {
    let (mut view, timeout_ns) = (View::writable(entries)?, limit(timeout_ns)?);
    let room = view.len() / ENTRY;
    if view.len() % ENTRY != 0 || count.is_some_and(|count| count > room) {
        let text = format!("entries have {ENTRY} bytes each: {} bytes are {room} of them", view.len());
        return Err(PyValueError::new_err(text));
    }
    let count = count.unwrap_or(room);
    // They may lie anywhere in Python's memory: not aligned.
    let entry = |bytes: &[u8; ENTRY]| {
        let [a, b, c, d, e, f, g, h] = *bytes;
        PollFd {
            handle: i32::from_ne_bytes([a, b, c, d]),
            events: i16::from_ne_bytes([e, f]),
            revents: i16::from_ne_bytes([g, h]),
        }
    };
    let mut polled: Vec<PollFd> = view.bytes().as_chunks().0[..count].iter().map(entry).collect();
    let set = &mut polled;
    let ready = call(py, net, |net| {
        // SAFETY: entries that nobody else uses until the call returns.
        let set = unsafe { PollSet::from_raw_parts(set.as_mut_ptr(), set.len()) };
        let timeout = match timeout_ns {
            0 => Timeout::NON_BLOCKING,
            ns if ns < 0 => Timeout::NEVER,
            ns => Timeout::ns(ns.unsigned_abs()),
        };
        poll(&BLOCK, net, set, timeout).map(|ready| ready as i64)
    })?;
    for (bytes, entry) in view.room().chunks_exact_mut(ENTRY).zip(&polled) {
        for (to, from) in bytes[ENTRY - 2..].iter_mut().zip(entry.revents.to_ne_bytes()) {
            to.write(from);
        }
    }
    Ok(ready)
}
