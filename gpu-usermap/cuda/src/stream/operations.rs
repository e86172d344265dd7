//! What is enqueued on a stream.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{CudaStream, StreamError};
use crate::driver::raw::{MemoryOperation, StreamHandle};
use crate::driver::{CudaError, Streams};
use crate::launch::{LaunchError, LaunchSpec, check};

/// The driver takes fewer than 256 memory operations in one call.
const LONGEST_BATCH: usize = 255;

/// An operation of [`CudaStream::batch`] on a word of 64 bits, at a device address that is a
/// multiple of 8.
///
/// # Examples
/// ```
/// use gpunet_cuda::MemOp;
///
/// # let (landed, consumed) = (0x1000, 0x2000);
/// let receive = [MemOp::WaitGeq { address: landed, value: 64 }, MemOp::Write { address: consumed, value: 64 }];
/// # assert_eq!(receive.len(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemOp {
    /// As [`CudaStream::wait_value_geq`].
    WaitGeq {
        /// The word.
        address: u64,
        /// What it has to reach.
        value: u64,
    },
    /// As [`CudaStream::write_value`].
    Write {
        /// The word.
        address: u64,
        /// What is written.
        value: u64,
    },
}

impl MemOp {
    fn for_driver(&self) -> MemoryOperation {
        match *self {
            Self::WaitGeq { address, value } => MemoryOperation::wait_geq(address, value),
            Self::Write { address, value } => MemoryOperation::write(address, value),
        }
    }
}

impl CudaStream {
    /// Writes a word, after all that is before it: what earlier operations have written is visible
    /// to everybody who has seen the new value.
    ///
    /// # Errors
    /// [`StreamError::Capturing`], or [`StreamError::Cuda`]; nothing was enqueued.
    ///
    /// # Safety
    /// `address` is a word of 8 bytes, aligned, at an address of this device: of GPU memory,
    /// registered or imported memory. It stays mapped until the operation has passed (buffers,
    /// registrations and imports of this device may be dropped, since their release waits), and
    /// whatever else accesses it then does so atomically, and bears to see the value.
    pub unsafe fn write_value(&self, address: u64, value: u64) -> Result<(), StreamError> {
        // SAFETY: the caller's promise; the stream is live.
        self.enqueue(|streams, stream| unsafe { streams.write(stream, address, value) })
    }

    /// Writes four bytes, as [`write_value`](Self::write_value) writes eight: one half of a word,
    /// for example, whose other half somebody else may write at the same time.
    ///
    /// # Errors
    /// As for [`write_value`](Self::write_value).
    ///
    /// # Safety
    /// As for [`write_value`](Self::write_value), but `address` is one of 4 bytes, aligned.
    pub unsafe fn write_value_32(&self, address: u64, value: u32) -> Result<(), StreamError> {
        // SAFETY: the caller's promise; the stream is live.
        self.enqueue(|streams, stream| unsafe { streams.write_32(stream, address, value) })
    }

    /// Lets all operations behind this one wait until the word has reached `value`: until `word -
    /// value`, as a signed number of 64 bits, is not negative.
    ///
    /// A word that is half a turn (2^63) or more ahead of `value` is thus behind it; to set bit 63
    /// of a word is no way to end a wait, while bit 62 or 61 always ends a wait for a value below
    /// 2^61. What this host and its GPUs wrote before the word is visible to the operations behind.
    /// For what a network card wrote, see [`WritesOrdering`](crate::WritesOrdering).
    ///
    /// Everybody's store of the word ends the wait: the host's, a kernel's, a copy engine's,
    /// another stream's. Nothing else does, not even the end of the program that would have written
    /// it, and the stream cannot be destroyed or reset meanwhile. Whoever enqueues a wait has a way
    /// to store the word for sure: a CPU that can, or a stream of
    /// [`StreamPriority::Highest`](crate::StreamPriority::Highest) that never waits.
    ///
    /// # Errors
    /// As for [`write_value`](Self::write_value).
    ///
    /// # Safety
    /// As for [`write_value`](Self::write_value), but the word is only read.
    pub unsafe fn wait_value_geq(&self, address: u64, value: u64) -> Result<(), StreamError> {
        // SAFETY: the caller's promise; the stream is live.
        self.enqueue(|streams, stream| unsafe { streams.wait_geq(stream, address, value) })
    }

    /// Enqueues several memory operations with fewer calls: one for every 255.
    ///
    /// # Errors
    /// As for [`write_value`](Self::write_value). Of more than 255 operations the first calls' may
    /// have been enqueued.
    ///
    /// # Safety
    /// As for [`write_value`](Self::write_value) and [`wait_value_geq`](Self::wait_value_geq), for
    /// each operation.
    pub unsafe fn batch(&self, operations: &[MemOp]) -> Result<(), StreamError> {
        if operations.is_empty() {
            return Ok(());
        }
        self.enqueue(|streams, stream| {
            for part in operations.chunks(LONGEST_BATCH) {
                let mut part: Vec<MemoryOperation> = part.iter().map(MemOp::for_driver).collect();
                // SAFETY: the caller's promise; the stream is live.
                unsafe { streams.batch(stream, &mut part) }?;
            }
            Ok(())
        })
    }

    /// Copies `len` bytes from one device address to another by the copy engine: between GPU
    /// memory, registered and imported memory.
    ///
    /// A word that somebody polls is not written by a copy: it may be seen before other bytes of
    /// the same copy.
    ///
    /// # Errors
    /// As for [`write_value`](Self::write_value).
    ///
    /// # Safety
    /// The bytes lie at addresses of this device, stay mapped until the copy has passed (as in
    /// [`write_value`](Self::write_value)), and do not overlap. Whoever accesses those at `to`
    /// meanwhile, or writes those at `from`, bears any mixture of old and new bytes.
    pub unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), StreamError> {
        // SAFETY: the caller's promise; the stream is live.
        self.enqueue(|streams, stream| unsafe { streams.copy(stream, to, from, len) })
    }

    /// Copies several ranges, each as [`copy`](Self::copy): to, from, and how many bytes. The
    /// context is entered once for all of them.
    ///
    /// # Errors
    /// As for [`write_value`](Self::write_value), but the first copies may have been enqueued.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), for each.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(stream: &gpunet_cuda::CudaStream, near: &gpunet_cuda::GpuBuffer, far: u64)
    /// # -> Result<(), gpunet_cuda::StreamError> {
    /// let copies = [(near.ptr(), far, 4096), (near.ptr() + 8192, far + 4096, 100)];
    /// // SAFETY: both buffers are longer, and live until the stream is done.
    /// unsafe { stream.copy_all(&copies) }?;
    /// # stream.synchronize()
    /// # }
    /// ```
    pub unsafe fn copy_all(&self, copies: &[(u64, u64, usize)]) -> Result<(), StreamError> {
        if copies.is_empty() {
            return Ok(());
        }
        self.enqueue(|streams, stream| {
            copies.iter().try_for_each(|&(to, from, len)| {
                // SAFETY: the caller's promise; the stream is live.
                unsafe { streams.copy(stream, to, from, len) }
            })
        })
    }

    /// Calls a function on a thread of the driver, after all that is before it. Operations behind
    /// it wait for its end.
    ///
    /// The function makes no CUDA calls, not by dropping a handle of this crate either, and waits
    /// for nothing that needs them. If it panics, that is logged, and the stream goes on. It is not
    /// called where a kernel has broken the context before.
    ///
    /// # Errors
    /// As for [`write_value`](Self::write_value); the function was dropped.
    pub fn host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<(), StreamError> {
        let function: HostFunction = Box::new(function);
        self.enqueue(|streams, stream| {
            let data = Box::into_raw(Box::new(function)).cast::<c_void>();
            // SAFETY: the stream is live and not capturing (`enqueue`), so the driver calls once at
            // most; `data` is what `call_once` takes.
            let enqueued = unsafe { streams.host_function(stream, call_once, data) };
            if enqueued.is_err() {
                // SAFETY: made above, and the driver did not take it.
                drop(unsafe { Box::from_raw(data.cast::<HostFunction>()) });
            }
            enqueued
        })
    }

    /// Launches a kernel behind what is on the stream or, while the stream is being captured, adds
    /// it to the graph.
    ///
    /// What holds beside running kernels in [`Device::launch`](crate::Device::launch) holds here.
    /// Load the kernel before anything waits on a stream. The graph's launches are the program's:
    /// the device does not count them.
    ///
    /// # Errors
    /// [`LaunchError`].
    ///
    /// # Safety
    /// As for [`Device::launch`](crate::Device::launch). For a captured kernel that holds at each
    /// launch of the graph, and the module stays loaded for as long.
    pub unsafe fn launch(&self, spec: &LaunchSpec) -> Result<(), LaunchError> {
        check::all(self.device(), std::slice::from_ref(spec))?;
        let launched = self.launch_checked(spec);
        launched.map_err(|source| LaunchError::Cuda {
            index: 0,
            kernel: spec.function.name().to_owned(),
            started: 0,
            source,
        })
    }

    fn launch_checked(&self, spec: &LaunchSpec) -> Result<(), CudaError> {
        let driver = self.device().cuda().driver();
        // The stream was made by these calls.
        let Ok(streams) = driver.streams() else { return Ok(()) };
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.device().context()) }?;
        // SAFETY: the stream is live.
        let captures = unsafe { streams.is_capturing(self.inner.handle) }?;
        let _call = (!captures).then(|| self.inner.activity.begin(&self.inner.device));
        let mut params: Vec<*mut c_void> =
            spec.params.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
        let (function, stream) = (spec.function.handle(), self.inner.handle);
        // SAFETY: the promise of `launch`; the parameters outlive the call, which only reads them.
        unsafe { driver.launch(function, spec.grid, spec.block, spec.shared_bytes, stream, &mut params) }
    }

    /// Counts the stream as running, and makes a call that enqueues something.
    pub(super) fn enqueue(
        &self,
        call: impl FnOnce(Streams<'_>, StreamHandle) -> Result<(), CudaError>,
    ) -> Result<(), StreamError> {
        self.outside_capture(|streams, stream| {
            let _call = self.inner.activity.begin(&self.inner.device);
            call(streams, stream)
        })
    }
}

type HostFunction = Box<dyn FnOnce() + Send>;

/// What the driver calls.
///
/// # Safety
/// `data` is a boxed [`HostFunction`], which is passed on.
unsafe extern "C" fn call_once(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let function = unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    if catch_unwind(AssertUnwindSafe(*function)).is_err() {
        tracing::error!("a host function of a stream panicked");
    }
}
