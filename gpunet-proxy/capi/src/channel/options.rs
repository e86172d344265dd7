//! What a transfer is told, beside its arrays, and what it says at its end.

use super::array::Devices;
use crate::failure::Failure;
use crate::memory;
use gpu_usermap::cuda::CudaStream;
use gpunet_channel::{TransferOptions, Via};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Flag of gpunet_host_transfer_options: the sender has a checksum (CRC-32) made of each piece,
/// which the receiver checks. The bytes then go by the connections. A receive need not ask for it.
pub const GPUNET_HOST_CHECKSUM: u32 = 1;

/// Called with the bytes of a transfer that are through, and all of its bytes, as often as a piece
/// is, and at its end.
///
/// It runs on any thread, also on several at a time, must return soon, and must not wait for the
/// transfer. It may cancel it. No C++ exception may leave it.
pub type gpunet_host_progress_fn = Option<unsafe extern "C" fn(moved: u64, total: u64, user: *mut c_void)>;

/// What a transfer is to be, beside its arrays. All zeros: the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gpunet_host_transfer_options {
    /// A CUstream or cudaStream_t of a primary context, made with cudaStreamNonBlocking: the bytes
    /// move when everything on it is done, for which neither `timeout_ns` nor a cancel shortens the
    /// wait. NULL: none. It stays until the transfer has ended.
    pub custream: *mut c_void,
    /// The number of the stream's GPU.
    pub custream_device: i32,
    /// GPUNET_HOST_CHECKSUM, or 0.
    pub flags: u32,
    /// When the transfer must have ended, in nanoseconds from the call on. 0: without limit but the
    /// channel's.
    pub timeout_ns: u64,
    /// Hears how far the transfer has come. NULL: nobody does.
    pub progress: gpunet_host_progress_fn,
    /// The last argument of `progress`.
    pub user: *mut c_void,
}

/// How a transfer has ended.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) via: Option<Via>,
}

/// What a transfer was told.
pub(super) struct Told {
    checksum: bool,
    after: Option<CudaStream>,
    pub(super) deadline: Option<Instant>,
    progress: gpunet_host_progress_fn,
    user: *mut c_void,
}

// SAFETY: `gpunet_host_progress_fn` says that the callback takes `user` on any thread.
unsafe impl Send for Told {}
// SAFETY: as above.
unsafe impl Sync for Told {}

impl Told {
    /// Reads the options; the defaults for null.
    pub(super) fn new(from: *const gpunet_host_transfer_options, devices: &Devices) -> Result<Self, Failure> {
        let mut told =
            Self { checksum: false, after: None, deadline: None, progress: None, user: std::ptr::null_mut() };
        if from.is_null() {
            return Ok(told);
        }
        // SAFETY: not null, readable and aligned: the caller's promise.
        let given = unsafe { from.read() };
        if given.flags > GPUNET_HOST_CHECKSUM {
            return Err(Failure::new(libc::EINVAL, "flags is GPUNET_HOST_CHECKSUM, or 0"));
        }
        told.checksum = given.flags & GPUNET_HOST_CHECKSUM != 0;
        if given.timeout_ns > 0 {
            told.deadline = memory::deadline(i64::try_from(given.timeout_ns).unwrap_or(i64::MAX));
        }
        if !given.custream.is_null() {
            let device = devices.get(given.custream_device)?;
            // SAFETY: a live stream, which stays until the transfer has ended: the caller's
            // promise.
            told.after = Some(unsafe { device.borrow_stream(given.custream) }?);
        }
        (told.progress, told.user) = (given.progress, given.user);
        Ok(told)
    }

    /// Lends the options as the channel takes them. `progress` is how far the transfer is.
    pub(super) fn with<R>(&self, progress: &AtomicU64, body: impl FnOnce(&TransferOptions<'_>) -> R) -> R {
        let show = |moved: u64, total: u64| {
            progress.fetch_max(moved, Ordering::Relaxed);
            if let Some(tell) = self.progress {
                // SAFETY: a function of this type, which takes `user` on any thread: the caller's
                // promise.
                unsafe { tell(moved, total, self.user) };
            }
        };
        body(&TransferOptions {
            checksum: self.checksum,
            progress: Some(&show),
            after: self.after.as_ref(),
            deadline: self.deadline,
        })
    }
}
