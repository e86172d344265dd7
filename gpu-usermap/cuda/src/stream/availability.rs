//! Whether streams can be used, and why not.

use crate::device::{Device, DeviceAttribute};
use crate::driver::{CudaError, DriverVersion, Streams};

/// Why something was not done on a stream.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, StreamError};
///
/// let gpu = Cuda::load()?.device(0)?;
/// // SAFETY: the default stream is none that could end.
/// let refused = unsafe { gpu.borrow_stream(std::ptr::null_mut()) };
/// assert!(matches!(refused, Err(StreamError::LegacyDefaultStream)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The driver does not have the call.
    #[error("the CUDA driver {found} has no {call}: streams need CUDA 11.7")]
    DriverTooOld {
        /// The driver's version.
        found: DriverVersion,
        /// The missing call.
        call: &'static str,
    },
    /// The stream is the legacy default stream (0 or `CU_STREAM_LEGACY`).
    #[error(
        "the legacy default stream cannot be used: while it waits, all blocking streams of the program wait; \
         pass a stream made with CU_STREAM_NON_BLOCKING"
    )]
    LegacyDefaultStream,
    /// The stream is the per-thread default stream (`CU_STREAM_PER_THREAD`).
    #[error(
        "the per-thread default stream cannot be used: its handle means another stream on each thread; \
         pass a stream made with CU_STREAM_NON_BLOCKING"
    )]
    PerThreadDefaultStream,
    /// The stream belongs to another context.
    #[error(
        "the stream belongs to another CUDA context than the device; pass a stream of this one, \
         or open the device in the stream's context"
    )]
    OtherContext,
    /// The stream is being captured into a graph, which would repeat the operation with the same
    /// values and addresses.
    #[error(
        "the stream is being captured into a graph, which would repeat the operation with the same values"
    )]
    Capturing,
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Why streams of a device cannot wait for words.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, NoStreamMemoryOperations};
///
/// match Cuda::load()?.device(0)?.stream_memory_operations() {
///     Ok(()) => println!("streams can wait for words"),
///     Err(NoStreamMemoryOperations::LaunchBlocking) => println!("unset CUDA_LAUNCH_BLOCKING"),
///     Err(other) => println!("{other}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoStreamMemoryOperations {
    /// The driver does not have the call.
    #[error("the CUDA driver {found} has no {call}: stream memory operations need CUDA 11.7")]
    DriverTooOld {
        /// The driver's version.
        found: DriverVersion,
        /// The missing call.
        call: &'static str,
    },
    /// The device or its driver says that it has none.
    #[error("the GPU has no 64-bit stream memory operations")]
    NotSupported,
    /// `CUDA_LAUNCH_BLOCKING` is set: the call that enqueues a wait returns when the wait has
    /// ended, so that its caller can no longer end it.
    #[error("CUDA_LAUNCH_BLOCKING is set: enqueueing a wait would block the program for ever; unset it")]
    LaunchBlocking,
    /// `CUDA_DEVICE_MAX_CONNECTIONS` is 1: a stream that waits holds up all others, among them
    /// those that would end its wait.
    #[error(
        "CUDA_DEVICE_MAX_CONNECTIONS is 1: a stream that waits would hold up all others; \
         unset it, or set it to 8 or more"
    )]
    OneConnection,
}

impl Device {
    /// Returns whether streams can wait for words of 64 bits and write them, or why not. Ask before
    /// the first wait.
    ///
    /// The environment counts as it was when the driver was loaded. Makes no context call, so it
    /// may be used at any time.
    ///
    /// # Errors
    /// [`NoStreamMemoryOperations`], whose text says what to do.
    pub fn stream_memory_operations(&self) -> Result<(), NoStreamMemoryOperations> {
        if let Err(call) = self.cuda().driver().streams() {
            let found = self.cuda().driver_version();
            return Err(NoStreamMemoryOperations::DriverTooOld { found, call });
        }
        let settings = self.cuda().stream_settings();
        if settings.launch_blocking {
            return Err(NoStreamMemoryOperations::LaunchBlocking);
        }
        if settings.connections == 1 {
            return Err(NoStreamMemoryOperations::OneConnection);
        }
        // An error means that the driver does not know the attribute.
        if self.attribute(DeviceAttribute::StreamMemoryOperations).unwrap_or(0) == 0 {
            return Err(NoStreamMemoryOperations::NotSupported);
        }
        Ok(())
    }

    /// Returns how many queues of the hardware the streams of this context share:
    /// `CUDA_DEVICE_MAX_CONNECTIONS` as it was when the driver was loaded, 8 unless it was set.
    ///
    /// A stream that waits holds up those that share its connection. The driver gives each stream a
    /// connection of its own as long as there are any. So as many streams as there are connections
    /// never hold each other up (measured on an H200: 7 streams that wait and one more of 8; 31 and
    /// one more of 32).
    pub fn stream_connections(&self) -> u32 {
        self.cuda().stream_settings().connections
    }

    /// The driver's calls for streams.
    pub(super) fn stream_calls(&self) -> Result<Streams<'_>, StreamError> {
        let found = self.cuda().driver_version();
        self.cuda().driver().streams().map_err(|call| StreamError::DriverTooOld { found, call })
    }
}
