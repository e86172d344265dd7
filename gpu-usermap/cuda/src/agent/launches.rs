//! The kernels that run, and the streams they run on. Belongs to the agent thread.

#![allow(unsafe_code, reason = "kernel launches and stream handles")]

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use super::busy_streams::BusyStreams;
use crate::driver::raw::{EventHandle, FunctionHandle, StreamHandle};
use crate::driver::{CudaError, Driver, StreamState, log};

/// Streams made in advance, so that a launch beside a running kernel usually creates none.
const STREAMS_IN_ADVANCE: usize = 4;

/// A checked launch, in the driver's terms.
pub(crate) struct Prepared {
    pub(crate) function: FunctionHandle,
    pub(crate) grid: (u32, u32, u32),
    pub(crate) block: (u32, u32, u32),
    pub(crate) shared_bytes: u32,
    /// Product of the grid.
    pub(crate) blocks: u64,
    /// Product of the block.
    pub(crate) threads: u32,
    pub(crate) params: Vec<Vec<u8>>,
    pub(crate) local_bytes: u32,
}

/// How a launch ended, shared with its handle. Empty while it runs.
pub(crate) type Outcome = Arc<OnceLock<Result<(), CudaError>>>;

struct Running {
    /// Streams whose kernel has not ended yet.
    streams: Vec<StreamHandle>,
    sms: u32,
    first_error: Option<CudaError>,
    outcome: Outcome,
}

/// Which kernel of a group could not be launched; the driver's order is not the caller's.
pub(crate) struct Failed {
    pub(crate) index: usize,
    pub(crate) started: usize,
    pub(crate) reason: FailureReason,
}

/// Why a kernel was not launched.
pub(crate) enum FailureReason {
    /// It needs more local memory per thread than the `set_aside` bytes, and others run.
    LocalMemory { set_aside: u32 },
    /// The driver refused.
    Cuda(CudaError),
}

impl Failed {
    /// The driver refused before anything was started.
    pub(crate) fn at(index: usize, source: CudaError) -> Self {
        Self { index, started: 0, reason: FailureReason::Cuda(source) }
    }
}

/// A stream whose handle was dropped, and which may have work left.
pub(crate) enum LeftStream {
    /// One that was made here. It is destroyed when it is idle.
    Owned(StreamHandle),
    /// The caller's, who may have destroyed it by now: an event behind the work tells, or was never
    /// recorded if there is none.
    Borrowed(EventHandle),
}

/// All launches of one device.
pub(crate) struct Launches {
    running: Vec<Running>,
    idle_streams: Vec<StreamHandle>,
    /// Streams that count as running, as one that waits for a word holds its work as a kernel does.
    busy_streams: Arc<BusyStreams>,
    left_streams: Vec<LeftStream>,
    /// Announced launches that others made: nothing can be asked about them.
    foreign: usize,
    /// Local memory that the driver has set aside, in bytes per thread: a kernel that needs more
    /// makes it wait for all that run.
    local_bytes: u32,
}

impl Launches {
    pub(crate) fn open(driver: &Driver) -> Result<Self, CudaError> {
        let idle_streams =
            (0..STREAMS_IN_ADVANCE).map(|_| driver.stream_create(0)).collect::<Result<_, _>>()?;
        Ok(Self {
            running: Vec::new(),
            idle_streams,
            busy_streams: Arc::default(),
            left_streams: Vec::new(),
            foreign: 0,
            local_bytes: stack_limit(driver),
        })
    }

    /// Sets local memory aside for stacks of so many bytes per thread, unless a kernel runs.
    pub(crate) fn set_local_memory_aside(&mut self, driver: &Driver, bytes: u32) {
        let busy_streams = self.busy_streams.clone();
        let streams = busy_streams.hold();
        if bytes <= self.local_bytes || self.has_running(driver) || streams.is_busy() {
            return;
        }
        // Others who use the context may have raised it; what they count on is not lowered.
        self.local_bytes = self.local_bytes.max(stack_limit(driver));
        if bytes <= self.local_bytes {
            return;
        }
        match driver.set_stack_limit(bytes as usize) {
            Ok(()) => self.local_bytes = bytes,
            Err(error) => tracing::debug!(%error, bytes, "local memory was not set aside"),
        }
    }

    /// Launches each kernel on a stream of its own. `sms` is how many multiprocessors they fill
    /// together.
    ///
    /// # Safety
    /// As for [`Device::launch`](crate::Device::launch), and the functions' modules are loaded.
    pub(crate) unsafe fn start(
        &mut self,
        driver: &Driver,
        kernels: &[Prepared],
        sms: u32,
        outcome: Outcome,
    ) -> Result<(), Failed> {
        let mut order: Vec<usize> = (0..kernels.len()).collect();
        // A kernel that needs more local memory than any before makes the driver enlarge it, which
        // waits for running kernels: so the largest need goes first, when none of the group runs
        // yet.
        order.sort_by_key(|&index| std::cmp::Reverse(kernels[index].local_bytes));
        let busy_streams = self.busy_streams.clone();
        let streams = busy_streams.hold();
        if let Some(&index) = order.first()
            && kernels[index].local_bytes > self.local_bytes
            && (self.has_running(driver) || streams.is_busy())
        {
            let reason = FailureReason::LocalMemory { set_aside: self.local_bytes };
            return Err(Failed { index, started: 0, reason });
        }
        while self.idle_streams.len() < kernels.len() {
            let stream = driver.stream_create(0).map_err(|source| Failed::at(0, source))?;
            self.idle_streams.push(stream);
        }

        let mut used = Vec::with_capacity(kernels.len());
        let mut failed = None;
        for index in order {
            let kernel = &kernels[index];
            let Some(stream) = self.idle_streams.pop() else { break };
            // The driver takes `void*` and only reads: it copies each parameter before it returns.
            let mut params: Vec<*mut c_void> =
                kernel.params.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
            // SAFETY: the caller's promise for the kernel; the parameters outlive the call; the
            // stream is ours and live.
            let launched = unsafe {
                driver.launch(
                    kernel.function,
                    kernel.grid,
                    kernel.block,
                    kernel.shared_bytes,
                    stream,
                    &mut params,
                )
            };
            match launched {
                Ok(()) => {
                    used.push(stream);
                    self.local_bytes = self.local_bytes.max(kernel.local_bytes);
                }
                Err(source) => {
                    self.idle_streams.push(stream);
                    failed = Some(Failed { index, started: used.len(), reason: FailureReason::Cuda(source) });
                    break;
                }
            }
        }
        if !used.is_empty() {
            self.running.push(Running { streams: used, sms, first_error: None, outcome });
        }
        drop(streams);
        self.note();
        failed.map_or(Ok(()), Err)
    }

    /// Finds the launches that have ended, tells their handles, and returns how many still run,
    /// dropped streams with work left included.
    pub(crate) fn reap(&mut self, driver: &Driver) -> usize {
        self.find_ended(driver);
        self.note();
        self.running.len() + self.left_streams.len()
    }

    /// As [`reap`](Self::reap), for one who holds the streams still.
    fn has_running(&mut self, driver: &Driver) -> bool {
        self.find_ended(driver);
        self.running.len() + self.left_streams.len() > 0
    }

    /// Tells those who ask without the agent.
    fn note(&self) {
        self.busy_streams.set_launches(self.running.len() + self.left_streams.len() + self.foreign);
    }

    fn find_ended(&mut self, driver: &Driver) {
        let idle_streams = &mut self.idle_streams;
        self.running.retain_mut(|launch| {
            launch.streams.retain(|&stream| {
                // SAFETY: streams of launches are destroyed only in `close`.
                match unsafe { driver.stream_query(stream) } {
                    Ok(StreamState::Busy) => return true,
                    Ok(StreamState::Idle) => {}
                    // The context is lost, and with it the kernel: it will not run on.
                    Err(error) => drop(launch.first_error.get_or_insert(error)),
                }
                idle_streams.push(stream);
                false
            });
            if !launch.streams.is_empty() {
                return true;
            }
            // Set once: a launch leaves the list as it ends.
            let _ = launch.outcome.set(launch.first_error.take().map_or(Ok(()), Err));
            false
        });
        self.left_streams.retain(|left| !has_passed(driver, left));
    }

    /// Returns the count of streams with work on them.
    pub(crate) fn busy_streams(&self) -> &Arc<BusyStreams> {
        &self.busy_streams
    }

    /// Takes a stream over whose handle was dropped.
    pub(crate) fn leave(&mut self, stream: LeftStream) {
        self.left_streams.push(stream);
        self.note();
    }

    /// Returns whether dropped streams are waited for.
    pub(crate) fn has_left(&self) -> bool {
        !self.left_streams.is_empty()
    }

    /// Counts a launch that others make, or its end.
    pub(crate) fn count_foreign(&mut self, begins: bool) {
        self.foreign = if begins { self.foreign + 1 } else { self.foreign.saturating_sub(1) };
        self.note();
    }

    /// Returns whether launches of others run, whose end will be announced.
    pub(crate) fn has_foreign(&self) -> bool {
        self.foreign > 0
    }

    /// Returns how many multiprocessors the running launches fill, as of the last
    /// [`reap`](Self::reap).
    pub(crate) fn busy_sms(&self) -> u32 {
        self.running.iter().fold(0, |sum, launch| sum.saturating_add(launch.sms))
    }

    /// Destroys the streams. No launch runs.
    pub(crate) fn close(self, driver: &Driver) -> Vec<Result<(), CudaError>> {
        // SAFETY: idle streams of our own, gone afterwards.
        self.idle_streams.into_iter().map(|stream| unsafe { driver.stream_destroy(stream) }).collect()
    }
}

/// Returns whether a dropped stream's work is done, and gives it back then.
fn has_passed(driver: &Driver, left: &LeftStream) -> bool {
    // It was made by these calls.
    let Ok(streams) = driver.streams() else { return true };
    let state = match *left {
        // SAFETY: it is destroyed only here, when it leaves the list.
        LeftStream::Owned(stream) => unsafe { driver.stream_query(stream) },
        // SAFETY: as above.
        LeftStream::Borrowed(end) => unsafe { streams.event_query(end) },
    };
    match state {
        Ok(StreamState::Busy) => return false,
        Ok(StreamState::Idle) => {}
        // The context is lost, and with it the work.
        Err(error) => tracing::debug!(%error, "a stream ended by an error"),
    }
    log(match *left {
        // SAFETY: made by `stream_create`; the last handle is gone, and the work is done.
        LeftStream::Owned(stream) => unsafe { driver.stream_destroy(stream) },
        // SAFETY: the last handle is gone.
        LeftStream::Borrowed(end) => unsafe { streams.event_destroy(end) },
    });
    true
}

/// Returns how many bytes of stack each thread can have; 0 where the driver does not say.
fn stack_limit(driver: &Driver) -> u32 {
    driver.stack_limit().map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}
