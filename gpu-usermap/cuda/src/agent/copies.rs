//! Copies between host bytes and GPU memory, on a stream and through staging memory of their own.

#![allow(unsafe_code, reason = "pinned staging memory and asynchronous copies")]

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use crate::driver::raw::constants::ERROR_NOT_READY;
use crate::driver::raw::{CUdeviceptr, StreamHandle};
use crate::driver::{CopyError, CudaError, Driver, StreamState};

/// How much goes through the staging memory at a time: at 1 MiB a copy runs at 40 GB/s on an H200,
/// and the agent is free for another request after 30 us.
pub(crate) const CHUNK: usize = 1 << 20;

/// Longer than any copy takes (256 MiB at a tenth of PCIe 3's rate: 0.3 s); after it the GPU counts
/// as stuck.
const LIMIT: Duration = Duration::from_secs(10);

/// Checks that `offset..offset + len` lies within `size` bytes.
pub(crate) fn check_bounds(offset: usize, len: usize, size: usize) -> Result<(), CopyError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(CopyError::OutOfBounds { offset, len, size }),
    }
}

/// Copies one chunk at a time. It belongs to the agent thread.
///
/// Invariant: the host touches `staging` only while `stream` is idle, and nobody ever writes
/// `zeros` after [`open`](Self::open).
pub(crate) struct CopyLane {
    stream: StreamHandle,
    staging: NonNull<u8>,
    zeros: NonNull<u8>,
    scratch: CUdeviceptr,
}

impl CopyLane {
    /// Makes stream and staging memory in the current context, and runs each kind of copy once.
    ///
    /// The stream has the most urgent priority, so that the driver has a reason not to give it the
    /// same hardware queue as the streams of kernels, behind which its copies would wait.
    pub(crate) fn open(driver: &Driver) -> Result<Self, CudaError> {
        let stream = driver.stream_create(driver.most_urgent_priority()?)?;
        let staging = driver.host_alloc(CHUNK)?;
        let zeros = driver.host_alloc(CHUNK)?;
        // SAFETY: `zeros` is CHUNK bytes that were just allocated and that nothing else knows.
        unsafe { zeros.as_ptr().write_bytes(0, CHUNK) };
        let scratch = driver.mem_alloc(4096)?;
        let mut lane = Self { stream, staging, zeros, scratch };
        // Whatever the driver sets up for its first copy, it sets up now, when no kernel waits for
        // the host.
        lane.zero(driver, scratch, 4096)?;
        lane.write(driver, scratch, &[1; 64])?;
        lane.read(driver, scratch, 64)?;
        Ok(lane)
    }

    /// Writes at most [`CHUNK`] bytes to GPU memory.
    pub(crate) fn write(&mut self, driver: &Driver, to: CUdeviceptr, bytes: &[u8]) -> Result<(), CudaError> {
        let len = bytes.len().min(CHUNK);
        self.wait_idle(driver)?;
        // SAFETY: `staging` has CHUNK >= len bytes, is disjoint from `bytes`, and the stream is
        // idle (the invariant).
        unsafe { self.staging.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        // SAFETY: the staged bytes stay until the stream is idle; the caller checked `to` against a
        // live buffer, which it holds.
        unsafe { driver.copy_to_device(to, self.staging.as_ptr(), len, self.stream) }?;
        self.wait_idle(driver)
    }

    /// Reads at most [`CHUNK`] bytes from GPU memory.
    pub(crate) fn read(
        &mut self,
        driver: &Driver,
        from: CUdeviceptr,
        len: usize,
    ) -> Result<Vec<u8>, CudaError> {
        let len = len.min(CHUNK);
        self.wait_idle(driver)?;
        // SAFETY: `staging` has room and is untouched until the stream is idle; the caller checked
        // `from` as in `write`.
        unsafe { driver.copy_to_host(self.staging.as_ptr(), from, len, self.stream) }?;
        self.wait_idle(driver)?;
        let mut bytes = vec![0; len];
        // SAFETY: the copy is done (the stream is idle), so `staging` holds `len` initialised bytes
        // that nothing writes.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(self.staging.as_ptr(), len) };
        Ok(bytes)
    }

    /// Zeroes GPU memory by copies of zeros: unlike a memset kernel they need no free SM.
    pub(crate) fn zero(&mut self, driver: &Driver, to: CUdeviceptr, len: usize) -> Result<(), CudaError> {
        for offset in (0..len).step_by(CHUNK) {
            let chunk = CHUNK.min(len - offset);
            // SAFETY: `zeros` is never written; the range lies within the allocation that the
            // caller just made.
            unsafe { driver.copy_to_device(to + offset as u64, self.zeros.as_ptr(), chunk, self.stream) }?;
        }
        self.wait_idle(driver)
    }

    /// Waits until every copy is done, polling and sleeping in turn.
    fn wait_idle(&self, driver: &Driver) -> Result<(), CudaError> {
        let deadline = Instant::now() + LIMIT;
        let mut backoff = Backoff::new();
        // SAFETY: the stream lives as long as the lane.
        while unsafe { driver.stream_query(self.stream) }? == StreamState::Busy {
            if Instant::now() >= deadline {
                // The staging memory stays with the copy: the next call begins by waiting for it
                // again.
                return Err(driver.error("waiting 10 s for a copy", ERROR_NOT_READY));
            }
            backoff.pause(Some(deadline));
        }
        Ok(())
    }

    /// Gives stream and memory back. The context's kernels have ended.
    pub(crate) fn close(self, driver: &Driver) -> [Result<(), CudaError>; 4] {
        if let Err(error) = self.wait_idle(driver) {
            // Freed by the end of the context or of the process: a copy may still be writing there.
            return [Err(error), Ok(()), Ok(()), Ok(())];
        }
        [
            // SAFETY: idle, made by `open`, and the lane is gone afterwards.
            unsafe { driver.stream_destroy(self.stream) },
            // SAFETY: as above.
            unsafe { driver.host_free(self.staging) },
            // SAFETY: as above.
            unsafe { driver.host_free(self.zeros) },
            // SAFETY: as above.
            unsafe { driver.mem_free(self.scratch) },
        ]
    }
}
