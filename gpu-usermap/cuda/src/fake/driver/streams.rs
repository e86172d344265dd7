//! The stand-in's streams: queues of operations, which one thread carries out, each stream's in
//! order.

mod calls;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::memory::pointer;
use super::{event, fault, handle, has_kernel, lock};
use crate::driver::raw::constants::{ERROR_NOT_PERMITTED, ERROR_NOT_READY, SUCCESS};
use crate::driver::raw::{CUdeviceptr, CUresult, ContextHandle, StreamHandle};

pub(super) use calls::{
    CALLS, memcpy_dtoh_async, memcpy_htod_async, set_context, stream_create, stream_destroy, stream_query,
};

const ERROR_INVALID_CONTEXT: CUresult = 201;
const ERROR_INVALID_HANDLE: CUresult = 400;
const ERROR_STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;

/// How often a word that a stream waits for is read: the host's store of it tells nobody.
const POLL: Duration = Duration::from_micros(50);

enum Operation {
    WaitGeq { address: CUdeviceptr, value: u64 },
    Write { address: CUdeviceptr, value: u64 },
    Write32 { address: CUdeviceptr, value: u32 },
    Copy { to: CUdeviceptr, from: CUdeviceptr, len: usize },
    Call { function: unsafe extern "C" fn(*mut c_void), data: usize },
    Record { passed: Arc<AtomicU64> },
    WaitEvent { passed: Arc<AtomicU64>, records: u64 },
}

struct Stream {
    context: usize,
    operations: VecDeque<Operation>,
    /// The thread is at the operation that was the first.
    busy: bool,
    capturing: bool,
}

/// How often an event was recorded, and how many of these records have passed.
#[derive(Default)]
struct Event {
    recorded: u64,
    /// It outlives the event for those who wait.
    passed: Arc<AtomicU64>,
}

struct State {
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
    has_thread: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { streams: BTreeMap::new(), events: BTreeMap::new(), has_thread: false });
static WORK: Condvar = Condvar::new();

thread_local! {
    /// The contexts that are current on this thread, the last of them in use.
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Forgets all streams and what is left on them.
pub(super) fn reset() {
    let mut state = lock(&STATE);
    state.streams.clear();
    state.events.clear();
}

/// Returns how many streams and events there are.
pub(super) fn count() -> (usize, usize) {
    let state = lock(&STATE);
    (state.streams.len(), state.events.len())
}

/// Makes a stream in a context.
pub(super) fn create_in(context: ContextHandle) -> StreamHandle {
    let stream = handle();
    lock(&STATE).streams.insert(
        stream.addr(),
        Stream { context: context.0.addr(), operations: VecDeque::new(), busy: false, capturing: false },
    );
    StreamHandle(stream)
}

/// Begins or ends a capture.
pub(super) fn capture(stream: usize, capturing: bool) {
    lock(&STATE).streams.get_mut(&stream).expect("a stream").capturing = capturing;
}

/// Returns the context that is current on this thread.
pub(super) fn current() -> Option<usize> {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied())
}

impl Stream {
    fn is_idle(&self) -> bool {
        !self.busy && self.operations.is_empty()
    }

    /// Takes the first operation, if it can be done now.
    fn next(&mut self) -> Option<Operation> {
        if self.busy {
            return None;
        }
        let is_due = match self.operations.front()? {
            Operation::WaitGeq { address, value } => has_reached(*address, *value),
            Operation::WaitEvent { passed, records } => passed.load(Ordering::SeqCst) >= *records,
            _ => true,
        };
        if !is_due {
            return None;
        }
        self.busy = true;
        self.operations.pop_front()
    }
}

fn word(address: CUdeviceptr) -> &'static AtomicU64 {
    // SAFETY: an aligned word (checked when it was enqueued), which stays mapped until the
    // operation has passed, and to which all access is atomic: the promise of who enqueued. The
    // reference ends with the access.
    unsafe { AtomicU64::from_ptr(pointer(address)) }
}

/// The driver's comparison: signed and cyclic.
fn has_reached(address: CUdeviceptr, value: u64) -> bool {
    word(address).load(Ordering::Acquire).wrapping_sub(value).cast_signed() >= 0
}

/// The one thread that carries out all operations. It never ends.
fn serve() {
    let mut state = lock(&STATE);
    loop {
        let ready =
            state.streams.iter_mut().find_map(|(&name, stream)| stream.next().map(|next| (name, next)));
        state = match ready {
            Some((name, operation)) => {
                drop(state);
                perform(operation);
                let mut state = lock(&STATE);
                if let Some(stream) = state.streams.get_mut(&name) {
                    stream.busy = false;
                }
                state
            }
            None if state.streams.values().all(Stream::is_idle) => {
                WORK.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
            None => {
                drop(state);
                thread::sleep(POLL);
                lock(&STATE)
            }
        };
    }
}

fn perform(operation: Operation) {
    match operation {
        Operation::WaitGeq { .. } | Operation::WaitEvent { .. } => {}
        Operation::Write { address, value } => word(address).store(value, Ordering::SeqCst),
        // SAFETY: aligned, and mapped until the operation has passed: the promise of who enqueued.
        // All access is atomic.
        Operation::Write32 { address, value } => unsafe {
            AtomicU32::from_ptr(pointer(address)).store(value, Ordering::SeqCst);
        },
        // SAFETY: mapped until the copy has passed, and disjoint: the promise of who enqueued.
        Operation::Copy { to, from, len } => unsafe {
            pointer::<u8>(to).copy_from_nonoverlapping(pointer(from), len);
        },
        Operation::Call { function, data } => {
            IN_HOST_FUNCTION.set(true);
            // SAFETY: enqueued once, called once, with what it was enqueued with.
            unsafe { function(std::ptr::with_exposed_provenance_mut(data)) };
            IN_HOST_FUNCTION.set(false);
        }
        Operation::Record { passed } => _ = passed.fetch_add(1, Ordering::SeqCst),
    }
}

/// Does something with a stream, if the driver would allow it.
fn with(stream: StreamHandle, change: impl FnOnce(&mut Stream) -> CUresult) -> CUresult {
    if IN_HOST_FUNCTION.get() {
        return ERROR_NOT_PERMITTED;
    }
    let mut state = lock(&STATE);
    let Some(stream) = state.streams.get_mut(&stream.0.addr()) else { return ERROR_INVALID_HANDLE };
    if current() != Some(stream.context) {
        return ERROR_INVALID_CONTEXT;
    }
    change(stream)
}

fn enqueue(stream: StreamHandle, operations: impl IntoIterator<Item = Operation>) -> CUresult {
    let enqueued = with(stream, |stream| {
        if stream.capturing {
            return event("captured");
        }
        stream.operations.extend(operations);
        SUCCESS
    });
    if enqueued == SUCCESS {
        start();
    }
    enqueued
}

fn start() {
    let mut state = lock(&STATE);
    if !state.has_thread {
        thread::Builder::new().name("fake-cuda-streams".to_owned()).spawn(serve).expect("a thread");
        state.has_thread = true;
    }
    WORK.notify_one();
}

/// Whether everything on a stream is done; a kernel of [`launch_kernel`](super::launch_kernel)
/// included.
fn idle(stream: StreamHandle) -> CUresult {
    if let code @ 1.. = fault() {
        return code;
    }
    with(stream, |found| match found {
        Stream { capturing: true, .. } => {
            event("capture broken");
            ERROR_STREAM_CAPTURE_UNSUPPORTED
        }
        found if found.is_idle() && !has_kernel(stream) => SUCCESS,
        _ => ERROR_NOT_READY,
    })
}
