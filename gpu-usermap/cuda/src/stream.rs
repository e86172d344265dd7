//! Streams: operations on words and memory, in the order in which they were enqueued. `operations`
//! enqueues, `event` orders streams, `availability` says whether streams can be used, and
//! `activity` when one counts as a running launch. `exchange` has other calls that the caller's
//! thread makes: about allocations that others have made.
//!
//! # Who calls
//! The thread that enqueues makes the driver call itself, unlike everything else here: its cost
//! decides how fast a stream can go, and a stream that is full (about a thousand operations behind
//! a wait) holds up the caller until there is room, which must not be the agent. The context is
//! current during the call only. Whatever the program had current before is so again afterwards.
//!
//! # A waiting stream is a running kernel
//! What a stream's operations use must not be unmapped before they have passed, and a call that
//! waits for all work of the context must not be made behind a wait that only the host can end. So
//! a stream counts as a running launch: from its first operation until
//! [`is_idle`](CudaStream::is_idle) or [`synchronize`](CudaStream::synchronize) finds all done, or,
//! if its handle is dropped before, until the device has found that. Meanwhile no dropped buffer or
//! registration of the device is given back.

#![allow(unsafe_code, reason = "stream handles, device addresses and host functions")]

mod activity;
mod availability;
mod event;
mod exchange;
mod operations;

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use activity::Activity;

use crate::agent::LeftStream;
use crate::device::Device;
use crate::driver::raw::constants::{ERROR_NOT_PERMITTED, STREAM_LEGACY, STREAM_PER_THREAD};
use crate::driver::raw::{EventHandle, StreamHandle};
use crate::driver::{CudaError, StreamState, Streams};

pub use availability::{NoStreamMemoryOperations, StreamError};
pub use event::CudaEvent;
pub use exchange::{Allocation, AllocationKind, IpcBuffer};
pub use operations::MemOp;

/// A stream of the device: the program's ([`Device::borrow_stream`]) or one of its own
/// ([`Device::create_stream`]).
///
/// Operations run one after the other, each once all before it have passed. The calls that enqueue
/// them do not wait for that.
///
/// Clones refer to the same stream. The last drop does not wait for operations that were enqueued,
/// but that of a borrowed stream waits for room in it, as every call that enqueues. Let neither it
/// nor any other call on a stream happen in a [`host_function`](Self::host_function), nor the drop
/// of a borrowed stream with work left during a capture of it.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, StreamPriority};
/// use gpunet_region::PinnedRegion;
///
/// let gpu = Cuda::load()?.device(0)?;
/// gpu.stream_memory_operations()?;
/// let words = gpu.register(PinnedRegion::create("words", 4096)?)?;
/// let stream = gpu.create_stream(StreamPriority::Normal)?;
/// // SAFETY: two words of the registered page, which nothing but streams and atomic accesses of the host uses.
/// unsafe {
///     stream.wait_value_geq(words.device_ptr(), 1)?;
///     stream.write_value(words.device_ptr() + 64, 1)?;
/// }
/// assert!(!stream.is_idle()?, "nobody has written the first word");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CudaStream {
    inner: Arc<StreamInner>,
}

struct StreamInner {
    device: Device,
    handle: StreamHandle,
    /// Recorded behind the last operation by the drop of a stream that is the caller's; `None` if
    /// it was made here.
    end: Option<EventHandle>,
    activity: Activity,
}

/// How urgent a stream is among those of the context.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, StreamPriority};
///
/// let gpu = Cuda::load()?.device(0)?;
/// // For writes that release other streams: it never waits itself.
/// let rescue = gpu.create_stream(StreamPriority::Highest)?;
/// # drop(rescue);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPriority {
    /// That of a stream for which nothing was asked.
    Normal,
    /// The most urgent one that the device has.
    Highest,
}

impl Device {
    /// Makes a stream that has no order towards the default streams.
    ///
    /// # Errors
    /// [`StreamError::DriverTooOld`], or [`StreamError::Cuda`].
    pub fn create_stream(&self, priority: StreamPriority) -> Result<CudaStream, StreamError> {
        let (streams, driver) = (self.stream_calls()?, self.cuda().driver());
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        let priority = match priority {
            StreamPriority::Normal => 0,
            StreamPriority::Highest => driver.most_urgent_priority()?,
        };
        Ok(CudaStream::new(self, driver.stream_create(priority)?, None))
    }

    /// Uses a stream that the program has made: a `CUstream` or `cudaStream_t`, from cudarc,
    /// PyTorch, CuPy or CUDA itself.
    ///
    /// A stream that was not made with `CU_STREAM_NON_BLOCKING` has an order towards the legacy
    /// default stream: while it waits, so does everything that the program does there, a plain
    /// `cudaMemcpy` included.
    ///
    /// # Errors
    /// [`StreamError::LegacyDefaultStream`], [`StreamError::PerThreadDefaultStream`] and
    /// [`StreamError::OtherContext`] say which stream to pass instead.
    /// [`StreamError::DriverTooOld`]; [`StreamError::Cuda`] where the driver does not know the
    /// stream.
    ///
    /// # Safety
    /// `stream` is one of the default streams, or a live stream, which stays so until the last
    /// clone of the result has been dropped. Nobody begins to capture it while a call on the result
    /// is in progress.
    ///
    /// # Examples
    /// ```no_run
    /// use gpunet_cuda::{Cuda, Device};
    ///
    /// let context = cudarc::driver::CudaContext::new(0)?;
    /// let theirs = context.new_stream()?;
    /// // SAFETY: `context` outlives the device and everything made from it.
    /// let gpu = unsafe { Device::from_raw_context(&Cuda::load()?, context.cu_ctx().cast()) }?;
    /// // SAFETY: `theirs` outlives `stream`, and nobody captures it.
    /// let stream = unsafe { gpu.borrow_stream(theirs.cu_stream().cast()) }?;
    /// # drop(stream);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn borrow_stream(&self, stream: *mut c_void) -> Result<CudaStream, StreamError> {
        match stream.addr() {
            0 | STREAM_LEGACY => return Err(StreamError::LegacyDefaultStream),
            STREAM_PER_THREAD => return Err(StreamError::PerThreadDefaultStream),
            _ => {}
        }
        let (streams, handle) = (self.stream_calls()?, StreamHandle(stream));
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        // SAFETY: the caller's promise; it is no default stream.
        if unsafe { streams.context_of(handle) }? != self.context() {
            return Err(StreamError::OtherContext);
        }
        Ok(CudaStream::new(self, handle, Some(streams.event_create()?)))
    }
}

impl Device {
    /// Returns whether the driver knows the memory at an address: memory of a GPU, managed or
    /// pinned memory. Copies on a stream from or to any other memory, which is pageable, hold up
    /// the caller, and must not be enqueued behind a wait.
    ///
    /// # Errors
    /// [`StreamError::DriverTooOld`], or [`StreamError::Cuda`].
    pub fn knows(&self, address: u64) -> Result<bool, StreamError> {
        let streams = self.stream_calls()?;
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        Ok(streams.knows(address)?)
    }
}

impl CudaStream {
    fn new(device: &Device, handle: StreamHandle, end: Option<EventHandle>) -> Self {
        let (device, activity) = (device.clone(), Activity::default());
        Self { inner: Arc::new(StreamInner { device, handle, end, activity }) }
    }

    /// Returns the device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns whether operations go into a graph that is being captured (`cuStreamBeginCapture`)
    /// instead of the stream. Those of this type are refused then.
    ///
    /// # Errors
    /// [`StreamError::Cuda`].
    pub fn is_capturing(&self) -> Result<bool, StreamError> {
        let streams = self.device().stream_calls()?;
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.device().context()) }?;
        // SAFETY: the stream is live.
        Ok(unsafe { streams.is_capturing(self.inner.handle) }?)
    }

    /// Returns whether everything on the stream is done. If so, the device no longer counts it as a
    /// running launch.
    ///
    /// # Errors
    /// [`StreamError::Capturing`]: the driver would end the capture. [`StreamError::Cuda`], also if
    /// a kernel of the context faulted.
    pub fn is_idle(&self) -> Result<bool, StreamError> {
        let moment = self.inner.activity.moment();
        let idle = self.outside_capture(|_, stream| {
            // SAFETY: the stream is live.
            Ok(unsafe { self.device().cuda().driver().stream_query(stream) }? == StreamState::Idle)
        })?;
        if idle {
            self.inner.activity.was_idle_at(moment);
        }
        Ok(idle)
    }

    /// Blocks the calling thread until everything on the stream is done, as long as that may take:
    /// for ever, if a wait is not ended.
    ///
    /// # Errors
    /// As for [`is_idle`](Self::is_idle).
    pub fn synchronize(&self) -> Result<(), StreamError> {
        let moment = self.inner.activity.moment();
        // SAFETY: the stream is live.
        self.outside_capture(|streams, stream| unsafe { streams.synchronize(stream) })?;
        self.inner.activity.was_idle_at(moment);
        Ok(())
    }

    /// Makes a call with the context current, unless the stream is being captured.
    fn outside_capture<R>(
        &self,
        call: impl FnOnce(Streams<'_>, StreamHandle) -> Result<R, CudaError>,
    ) -> Result<R, StreamError> {
        let (streams, stream) = (self.device().stream_calls()?, self.inner.handle);
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.device().context()) }?;
        // SAFETY: the stream is live.
        if unsafe { streams.is_capturing(stream) }? {
            return Err(StreamError::Capturing);
        }
        Ok(call(streams, stream)?)
    }
}

impl StreamInner {
    /// Puts the event behind all operations. Returns whether it can tell when they have passed.
    fn record(&self, end: EventHandle) -> bool {
        let Ok(streams) = self.device.stream_calls() else { return true };
        // SAFETY: the device holds its context.
        let recorded = unsafe { streams.enter(self.device.context()) }.and_then(|_current| {
            // SAFETY: the stream is live, a caller's until this drop ends.
            if unsafe { streams.is_capturing(self.handle) }? {
                return Ok(false);
            }
            // SAFETY: as above; the event was made for this stream and is destroyed by the agent,
            // later.
            unsafe { streams.event_record(end, self.handle) }.map(|()| true)
        });
        match recorded {
            Ok(known) => known,
            // In a host function. Every other error means that the context is lost, and the
            // operations with it.
            Err(error) => error.code != ERROR_NOT_PERMITTED,
        }
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let counted = self.activity.end();
        let left = match self.end {
            None => LeftStream::Owned(self.handle),
            Some(end) if counted.is_none() || self.record(end) => LeftStream::Borrowed(end),
            Some(_) => {
                tracing::error!(
                    "a borrowed stream was dropped during its capture or in a host function: nothing is given back any more"
                );
                std::mem::forget(counted);
                return;
            }
        };
        let count = counted.map(activity::BusyStream::pass_on);
        self.device.agent().post(move |context| {
            context.launches.leave(left);
            // After it, so that there is no gap in which nothing counts.
            if let Some(count) = count {
                // The agent itself looks for what it can give back, after each message.
                let _ = count.end();
            }
        });
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaStream")
            .field("device", &self.inner.device)
            .field("handle", &self.inner.handle.0)
            .field("owned", &self.inner.end.is_none())
            .finish_non_exhaustive()
    }
}
