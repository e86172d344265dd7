//! A half of a channel: a queue of transfers, and the thread that does one after the other.
//!
//! What is in the queue has not begun. A thread that waits for the GIL holds no lock.

use super::held::{Devices, Held};
use super::transfer::{Fault, Finished, How, Op};
use super::{SLICE, is_nothing_yet, let_go};
use crate::array::Access;
use crate::detach::{attach, detach, with_thread_state};
use crate::error::Failure;
use crate::wait::{Notify, lock};
use gpu_usermap::threads;
use gpunet_channel::{ChannelError, Incoming, Receiver, Sender, TransferOptions};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How often the thread asks whether a stream is done: soon at first, and then less often.
const LOOKS: [Duration; 2] = [Duration::from_micros(10), Duration::from_micros(500)];

/// A send that was asked for.
pub(crate) struct Sending {
    pub(crate) arrays: Vec<Held>,
    pub(crate) how: How,
}

/// Where what is received goes.
pub(crate) enum Into {
    Arrays(Vec<Held>),
    /// A function that makes the arrays.
    Made(Py<PyAny>),
}

/// A receive that was asked for.
pub(crate) struct Receiving {
    pub(crate) into: Into,
    /// For how many bytes arrays are made.
    pub(crate) most: u64,
    pub(crate) devices: Devices,
    pub(crate) how: How,
}

pub(crate) struct Half<H, W> {
    state: Mutex<State<H, W>>,
    /// There is something to do, or the channel is closed.
    changed: Condvar,
    /// There may be nothing more to do.
    idle: Arc<Notify>,
}

struct State<H, W> {
    /// `None`: the thread has it, or the channel is closed.
    half: Option<H>,
    queue: VecDeque<(Arc<Op>, W)>,
    /// A transfer has begun and is not over.
    is_busy: bool,
    has_thread: bool,
    is_closed: bool,
}

/// Takes transfers back that have not begun.
pub(crate) trait Withdraw: Send + Sync {
    /// Ends a transfer with `fault`, if it has not begun; returns whether. The caller has the GIL.
    fn withdraw(&self, op: &Arc<Op>, fault: Fault) -> bool;
}

impl<H: Send + 'static, W: Send + 'static> Withdraw for Half<H, W> {
    fn withdraw(&self, op: &Arc<Op>, fault: Fault) -> bool {
        let mut state = self.lock();
        let at = state.queue.iter().position(|(queued, _)| Arc::ptr_eq(queued, op));
        let taken = at.and_then(|at| state.queue.remove(at));
        drop(state);
        let is_taken = taken.is_some();
        drop(taken);
        if is_taken {
            op.end(Err(fault));
            self.changed.notify_all();
            Waker::from(self.idle.clone()).wake();
        }
        is_taken
    }
}

impl<H: Send + 'static, W: Send + 'static> Half<H, W> {
    pub(crate) fn new(half: H) -> Arc<Self> {
        let (queue, half) = (VecDeque::new(), Some(half));
        let state = State { half, queue, is_busy: false, has_thread: false, is_closed: false };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), idle: Arc::default() })
    }

    /// Puts a transfer into the queue. The first one starts the thread.
    ///
    /// # Errors
    /// EBADF once the channel is closed; the system's, when it has no thread.
    pub(crate) fn push(
        self: &Arc<Self>,
        py: Python<'_>,
        op: Arc<Op>,
        work: W,
        serve: fn(&Self),
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return Err(Failure::closed("channel"));
        }
        let is_first = !std::mem::replace(&mut state.has_thread, true);
        state.queue.push_back((op.clone(), work));
        drop(state);
        if !is_first {
            self.changed.notify_all();
            return Ok(());
        }
        let half = self.clone();
        let body = move || {
            with_thread_state(|| {
                serve(&half);
                half.thread_ends();
            });
        };
        detach(py, || threads::spawn("gpunet-python", body)).map(drop).map_err(|error| {
            self.lock().has_thread = false;
            self.withdraw(&op, Fault::Given { moved: 0, total: 0 });
            error.into()
        })
    }

    /// Ends it. Transfers that have not begun fail; an idle half is dropped here, one that is in
    /// use by its thread.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let (half, queue) = (state.half.take(), std::mem::take(&mut state.queue));
        drop(state);
        self.changed.notify_all();
        drop(half);
        for (op, work) in queue {
            let_go(work);
            op.end(Err(Fault::Given { moved: 0, total: 0 }));
        }
        Waker::from(self.idle.clone()).wake();
    }

    /// Who is woken when it may be idle, or over.
    pub(crate) fn idle(&self) -> &Arc<Notify> {
        &self.idle
    }

    /// Whether no transfer waits or goes on.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.queue.is_empty() && !state.is_busy
    }

    /// Whether its thread has ended, after the close.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.is_closed && !state.has_thread
    }

    fn lock(&self) -> MutexGuard<'_, State<H, W>> {
        lock(&self.state)
    }

    fn thread_ends(&self) {
        self.lock().has_thread = false;
        Waker::from(self.idle.clone()).wake();
    }

    /// Waits until there is something in the queue; returns whether there is, and not the close.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State<H, W>>) -> (MutexGuard<'a, State<H, W>>, bool) {
        while state.queue.is_empty() && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_open = !state.is_closed;
        (state, is_open)
    }

    /// Waits until there is something in the queue, and takes the half; `None` once it is closed.
    fn take(&self) -> Option<H> {
        let (mut state, is_open) = self.wait(self.lock());
        is_open.then(|| state.half.take()).flatten()
    }

    /// Gives the half back; drops it once it is closed.
    fn give_back(&self, half: H) {
        let mut state = self.lock();
        state.is_busy = false;
        if state.is_closed {
            drop(state);
            drop(half);
        } else {
            state.half = Some(half);
            drop(state);
        }
        Waker::from(self.idle.clone()).wake();
    }

    /// Takes the first transfer out of the queue: it begins. `None` if there is none.
    fn begin(&self) -> Option<(Arc<Op>, W)> {
        let mut state = self.lock();
        let first = state.queue.pop_front();
        state.is_busy = first.is_some();
        first
    }

    /// Waits for a transfer that is ready, and begins it: takes it and the half. `None` once it is
    /// closed.
    fn begin_when(&self, is_ready: impl Fn(&W) -> bool) -> Option<(H, Arc<Op>, W)> {
        let mut pause = LOOKS[0];
        loop {
            self.expire();
            let (mut state, is_open) = self.wait(self.lock());
            if !is_open {
                return None;
            }
            if state.queue.front().is_some_and(|(_, work)| is_ready(work)) {
                state.is_busy = true;
                let (op, work) = state.queue.pop_front()?;
                return state.half.take().map(|half| (half, op, work));
            }
            drop(state);
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOKS[1]);
        }
    }

    /// Ends transfers that have not begun and whose time is over.
    fn expire(&self) {
        let late: Vec<_> = {
            let state = self.lock();
            state.queue.iter().map(|(op, _)| op.clone()).filter(|op| op.is_late()).collect()
        };
        for op in late {
            attach(|_| self.withdraw(&op, Fault::TimedOut));
        }
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Lets the arrays go, gives the half back, and then tells who waits: who closes the channel at
    /// once finds it idle.
    fn end(&self, half: H, op: &Op, how: How, result: Result<Finished, Fault>, arrays: impl Sized) {
        let raised = how.raised();
        let_go((arrays, how));
        let result = match (result, raised) {
            (_, Some(error)) => Err(Fault::raised(error)),
            (Err(Fault::Channel(_)), None) if op.is_given_up() || self.is_closed() => {
                let (moved, total) = op.progress();
                Err(Fault::Given { moved, total })
            }
            (result, None) => result,
        };
        self.give_back(half);
        op.end(result);
    }
}

/// The thread of a sending half.
pub(crate) fn serve_sending(half: &Half<Sender, Sending>) {
    // A fault of the stream is the send's own.
    let is_ready = |sending: &Sending| sending.arrays.iter().all(|array| array.is_ready().unwrap_or(true));
    while let Some((mut sender, op, Sending { arrays, how })) = half.begin_when(is_ready) {
        let result = send(&mut sender, &op, &arrays, &how);
        half.end(sender, &op, how, result.map_err(Fault::Channel), arrays);
    }
}

fn send(sender: &mut Sender, op: &Op, arrays: &[Held], how: &How) -> Result<Finished, ChannelError> {
    for array in arrays {
        array.is_ready()?;
    }
    let sources = arrays.iter().map(Held::source).collect::<Result<Vec<_>, _>>()?;
    op.begin(sources.iter().map(gpunet_channel::Array::bytes).sum());
    let show = |moved, total| how.show(op, moved, total);
    let options = TransferOptions {
        checksum: how.checksum,
        progress: Some(&show),
        deadline: op.deadline,
        ..TransferOptions::default()
    };
    let outcome = sender.send_all(&sources, &options)?;
    Ok(Finished { outcome: Some(outcome), value: None })
}

/// The thread of a receiving half.
pub(crate) fn serve_receiving(half: &Half<Receiver, Receiving>) {
    while let Some(receiver) = half.take() {
        receive_next(half, receiver);
    }
}

/// Waits for a transfer of the other end as long as one of this end wants it, and receives it.
fn receive_next(half: &Half<Receiver, Receiving>, mut receiver: Receiver) {
    let came = loop {
        half.expire();
        if half.is_closed() || half.lock().queue.is_empty() {
            return half.give_back(receiver);
        }
        match receiver.next_until(Some(Instant::now() + SLICE)) {
            Err(error) if is_nothing_yet(&error) => {}
            Ok(Some(incoming)) => break incoming,
            ended => {
                let result = ended.map(|_| Finished { outcome: None, value: None });
                return match half.begin() {
                    Some((op, Receiving { into, how, .. })) => {
                        half.end(receiver, &op, how, result.map_err(Fault::Channel), into);
                    }
                    None => half.give_back(receiver),
                };
            }
        }
    };
    // Who wanted it may have given up meanwhile: it is for the next one.
    let (op, Receiving { into, most, devices, how }) = loop {
        // To drop what came refuses it.
        if !half.wait(half.lock()).1 {
            drop(came);
            return half.give_back(receiver);
        }
        if let Some(begun) = half.begin() {
            break begun;
        }
    };
    let made = match into {
        Into::Arrays(arrays) => Ok((arrays, None)),
        Into::Made(make) if came.bytes() > most => {
            let_go(make);
            let why = format!("{} bytes in one transfer, where {most} are allowed", came.bytes());
            let refused = came.refuse(libc::EFBIG, &why);
            return half.end(
                receiver,
                &op,
                how,
                Err(Fault::Channel(refused.err().unwrap_or(ChannelError::Mismatch(why)))),
                (),
            );
        }
        Into::Made(make) => {
            let made = make_arrays(&make, &devices, &incoming_arrays(&came));
            let_go(make);
            made.map(|(arrays, value)| (arrays, Some(value)))
        }
    };
    match made {
        Ok((mut arrays, value)) => {
            let result = receive(came, &op, &mut arrays, &how, || half.is_closed());
            let result = result.map(|outcome| Finished { outcome: Some(outcome), value });
            half.end(receiver, &op, how, result, arrays);
        }
        Err(error) => {
            let text = attach(|py| error.value(py).to_string()).unwrap_or_default();
            let refused = came.refuse(libc::ENOMEM, &format!("it is not received: {text}"));
            let result = refused.map_err(Fault::Channel).and(Err(Fault::raised(error)));
            half.end(receiver, &op, how, result, ());
        }
    }
}

type Described = (String, (u8, u8, u16), Vec<u64>, bool);

fn incoming_arrays(incoming: &Incoming<'_>) -> Vec<Described> {
    let one = |array: &gpunet_channel::Description| {
        let dtype = array.dtype;
        (array.name.clone(), (dtype.code, dtype.bits, dtype.lanes), array.shape.clone(), array.on_gpu)
    };
    incoming.arrays().iter().map(one).collect()
}

/// Has Python make the arrays.
fn make_arrays(
    make: &Py<PyAny>,
    devices: &Devices,
    described: &[Described],
) -> PyResult<(Vec<Held>, Arc<Py<PyAny>>)> {
    attach(|py| {
        let made = make.call1(py, (described.to_vec(),))?;
        let (arrays, value) = made.extract::<(Vec<super::Passed<'_>>, Py<PyAny>)>(py)?;
        Ok((Held::all(devices, arrays, Access::Write)?, Arc::new(value)))
    })
    .unwrap_or_else(|| Err(Failure::new(libc::ECANCELED, "the interpreter ends").into()))
}

fn receive(
    incoming: Incoming<'_>,
    op: &Op,
    arrays: &mut [Held],
    how: &How,
    is_closed: impl Fn() -> bool,
) -> Result<gpunet_channel::Outcome, Fault> {
    // To drop what came refuses it.
    until_ready(arrays, op, is_closed)?;
    let targets =
        arrays.iter_mut().map(Held::target).collect::<Result<Vec<_>, _>>().map_err(Fault::Channel)?;
    op.begin(incoming.bytes());
    let show = |moved, total| how.show(op, moved, total);
    let options =
        TransferOptions { progress: Some(&show), deadline: op.deadline, ..TransferOptions::default() };
    incoming.into_arrays(targets, &options).map_err(Fault::Channel)
}

/// Waits until what was on the arrays' streams is done.
fn until_ready(arrays: &[Held], op: &Op, is_closed: impl Fn() -> bool) -> Result<(), Fault> {
    let mut pause = LOOKS[0];
    for array in arrays {
        while !array.is_ready().map_err(Fault::Channel)? {
            if op.is_late() {
                return Err(Fault::TimedOut);
            }
            if op.is_given_up() || is_closed() {
                return Err(Fault::Given { moved: 0, total: 0 });
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOKS[1]);
        }
    }
    Ok(())
}
