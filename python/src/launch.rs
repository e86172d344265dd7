//! Launches: what the sockets of kernels belong to.

use crate::attachment::AttachmentCore;
use crate::cpu::Calls;
use crate::cuda::Event;
use crate::detach::detach;
use crate::error::{Failure, made};
use crate::fork::Owned;
use crate::job;
use crate::wait::{Limit, lock, until_ready};
use gpunet_proxy::{FinishPolicy, LaunchToken};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How often the GPU is asked whether a launch has ended: the longer it runs, the less often.
const SHORTEST_LOOK: Duration = Duration::from_micros(20);
const LONGEST_LOOK: Duration = Duration::from_millis(2);

/// What happens to the sockets that a launch leaves open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy(FinishPolicy);

impl Policy {
    pub(crate) fn parse(name: &str) -> PyResult<Self> {
        Ok(Self(match name {
            "keep" => FinishPolicy::Keep,
            "close" => FinishPolicy::Close,
            "reset" => FinishPolicy::Reset,
            _ => {
                let text = format!("leftover is \"close\", \"reset\" or \"keep\", not {name:?}");
                return Err(PyValueError::new_err(text));
            }
        }))
    }
}

/// A launch that has not been finished.
struct Running {
    calls: Arc<Calls>,
    /// Of a GPU.
    event: Option<Event>,
    _attachment: Arc<AttachmentCore>,
}

/// The kernels that are started with one net value.
#[pyclass(frozen, weakref, module = "gpunet", name = "Launch")]
pub(crate) struct Launch {
    /// `None` once it is finished.
    running: Owned<Mutex<Option<Running>>>,
    /// To be cancelled while another thread waits for its end.
    calls: Weak<Calls>,
    net: u64,
    stream: u64,
    policy: Policy,
}

impl Launch {
    pub(crate) fn new(
        attachment: &Arc<AttachmentCore>,
        token: LaunchToken,
        event: Option<Event>,
        stream: u64,
        policy: Policy,
    ) -> Self {
        let net = token.context();
        let calls = Calls::new(token, event.is_none());
        let running = Running { calls, event, _attachment: attachment.clone() };
        let calls = Arc::downgrade(&running.calls);
        Self { running: Owned::new(Mutex::new(Some(running))), calls, net, stream, policy }
    }

    /// Waits for the stream's work, and ends the launch. A KeyboardInterrupt cancels it first; a
    /// second one leaves the rest to a thread.
    fn end(&self, py: Python<'_>, cancel: bool, policy: Policy) -> PyResult<usize> {
        let Some(running) = lock(self.running.get()?).take() else { return Ok(0) };
        if cancel {
            running.calls.cancel();
        }
        let mut interrupted = None;
        let fault = loop {
            match wait(py, &running, self.stream) {
                Ok(fault) => break fault,
                Err(error) if interrupted.is_none() => {
                    running.calls.cancel();
                    interrupted = Some(error);
                }
                Err(error) => {
                    leave(running, policy);
                    return Err(error);
                }
            }
        };
        let failure = running.calls.failure();
        let policy = if fault.is_some() || failure.is_some() { FinishPolicy::Reset } else { policy.0 };
        let left = job::run(py, move || finish(&running, policy))?;
        if let Some(error) = interrupted {
            return Err(error);
        }
        if let Some(failure) = failure {
            let text =
                format!("a block failed: {failure}; the {left} sockets that the launch had open were reset");
            let error = made::<PyRuntimeError>(py, text);
            error.set_cause(py, Some(failure));
            return Err(error);
        }
        match fault {
            Some(fault) => Err(PyRuntimeError::new_err(format!(
                "the kernel failed: {fault}; the {left} sockets that it had open were reset"
            ))),
            None => Ok(left),
        }
    }
}

/// Waits until what is on the stream is done; returns the fault of its kernel.
///
/// # Errors
/// What a signal handler raised.
fn wait(py: Python<'_>, running: &Running, stream: u64) -> PyResult<Option<String>> {
    let Some(event) = &running.event else {
        let calls = &running.calls;
        let ended = |_: &mut Context<'_>| if calls.has_blocks() { Poll::Pending } else { Poll::Ready(()) };
        return until_ready(py, &calls.ended, Limit::Never, ended).map(|_| None);
    };
    if let Err(error) = event.record(stream) {
        // A kernel that has failed makes every call fail.
        return Ok(Some(error.value(py).to_string()));
    }
    let (mut pause, mut looked) = (SHORTEST_LOOK, Instant::now());
    loop {
        match event.is_done() {
            Ok(true) => return Ok(None),
            Ok(false) => {}
            Err(fault) => return Ok(Some(fault)),
        }
        detach(py, || std::thread::sleep(pause));
        pause = (pause * 2).min(LONGEST_LOOK);
        if looked.elapsed() > Duration::from_millis(20) {
            py.check_signals()?;
            looked = Instant::now();
        }
    }
}

/// Ends a launch whose kernels have ended; returns how many sockets they left open.
fn finish(running: &Running, policy: FinishPolicy) -> usize {
    running.calls.take().map_or(0, |token| token.finish(policy).left_open)
}

/// Finishes a launch that nobody waits for.
fn leave(running: Running, policy: Policy) {
    job::begin(move || {
        while let Some(Ok(false)) = running.event.as_ref().map(Event::is_done) {
            std::thread::sleep(LONGEST_LOOK);
        }
        while running.calls.has_blocks() {
            std::thread::sleep(LONGEST_LOOK);
        }
        finish(&running, policy.0);
    });
}

#[pymethods]
impl Launch {
    #[getter]
    fn net(&self) -> PyResult<u64> {
        if self.finished()? {
            let text = "the launch is finished; begin a new one: attachment.launch()";
            return Err(Failure::new(libc::EBADF, text).into());
        }
        Ok(self.net)
    }

    #[getter]
    const fn stream(&self) -> u64 {
        self.stream
    }

    fn cancel(&self) -> PyResult<()> {
        self.running.get()?;
        if let Some(calls) = self.calls.upgrade() {
            calls.cancel();
        }
        Ok(())
    }

    #[pyo3(signature = (leftover=None))]
    fn finish(&self, py: Python<'_>, leftover: Option<&str>) -> PyResult<usize> {
        let policy = leftover.map_or(Ok(self.policy), Policy::parse)?;
        self.end(py, false, policy)
    }

    #[getter]
    fn finished(&self) -> PyResult<bool> {
        Ok(lock(self.running.get()?).is_none())
    }

    fn __enter__(&self) -> PyResult<u64> {
        self.net()
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let failed = !kind.is_none();
        match self.end(py, failed, self.policy) {
            // The program's own exception says more.
            Err(error) if failed => {
                error.write_unraisable(py, None);
                Ok(())
            }
            ended => ended.map(drop),
        }
    }

    fn __repr__(&self) -> String {
        match self.net() {
            Ok(net) => format!("<gpunet.Launch with net {net:#x}>"),
            Err(_) => "<gpunet.Launch [finished]>".to_owned(),
        }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        let Ok(running) = self.running.get() else { return };
        if let Some(running) = lock(running).take() {
            running.calls.cancel();
            if let Some(event) = &running.event {
                let _ = event.record(self.stream);
            }
            leave(running, self.policy);
        }
    }
}
