//! A running kernel with the memory it uses, and the results it leaves there.

use gpu_usermap::cuda::CopyError;
pub use gpunet_app_kernel::NUMBER;
use gpunet_proxy::abi::Error;
use gpunet_proxy::{DeviceBuffer, FinishPolicy, KernelError, Launch};
use std::time::Duration;

/// How long a cancelled kernel may take to end. Its waits end within a quarter of a second.
pub const STUCK: Duration = Duration::from_secs(15);

/// Why a kernel did not finish its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not end after it was cancelled.
    #[error("the kernel did not end within {STUCK:?} after it was cancelled")]
    Stuck,
    /// It failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A running kernel and the memory it uses, which is kept until the kernel has ended.
///
/// Dropping it cancels the kernel and waits. If the kernel is stuck, its memory is kept for as long
/// as the process lives.
#[derive(Debug)]
pub struct RunningKernel<M> {
    /// Present until `finish` consumes both.
    running: Option<(Launch, M)>,
}

impl<M> RunningKernel<M> {
    /// Combines a launch with all memory whose addresses it was given.
    #[must_use]
    pub const fn new(launch: Launch, memory: M) -> Self {
        Self { running: Some((launch, memory)) }
    }

    fn launch(&self) -> Option<&Launch> {
        self.running.as_ref().map(|(launch, _)| launch)
    }

    /// Returns the kernel's memory. Only the parts that the kernel does not use may be accessed.
    #[must_use]
    pub fn memory(&self) -> Option<&M> {
        self.running.as_ref().map(|(_, memory)| memory)
    }

    /// Returns whether the kernel has ended.
    ///
    /// # Errors
    /// It failed.
    pub fn is_finished(&self) -> Result<bool, KernelError> {
        self.launch().map_or(Ok(true), Launch::is_finished)
    }

    /// Waits for the end, for at most `limit`. Returns whether the kernel has ended.
    ///
    /// # Errors
    /// The kernel failed.
    pub fn wait(&self, limit: Duration) -> Result<bool, KernelError> {
        self.launch().map_or(Ok(true), |launch| launch.wait_timeout(limit))
    }

    /// Ends every wait of the kernel.
    pub fn cancel(&self) {
        if let Some(launch) = self.launch() {
            launch.cancel();
        }
    }

    /// Ends every wait of the kernel, and waits for its end.
    ///
    /// # Errors
    /// It is stuck, or has failed.
    pub fn end(&self) -> Result<(), RunError> {
        self.cancel();
        if self.wait(STUCK)? { Ok(()) } else { Err(RunError::Stuck) }
    }

    /// Waits for the end and returns the memory. `policy` decides whether sockets that the kernel
    /// left open are closed.
    ///
    /// # Errors
    /// The kernel failed.
    pub fn finish(mut self, policy: FinishPolicy) -> Result<M, KernelError> {
        let Some((launch, memory)) = self.running.take() else {
            unreachable!("only `finish` and `drop` take it, and they consume the value")
        };
        launch.finish(policy)?;
        Ok(memory)
    }
}

impl<M> Drop for RunningKernel<M> {
    fn drop(&mut self) {
        let Some((launch, memory)) = self.running.take() else { return };
        launch.cancel();
        // An error means that the kernel has ended too.
        if let Ok(false) = launch.wait_timeout(STUCK) {
            eprintln!("{}", RunError::Stuck);
            // The kernel may write there for as long as this process lives.
            return std::mem::forget((launch, memory));
        }
        let _ = launch.finish(FinishPolicy::Close);
    }
}

/// Reads the first `count` rows of `N` numbers that a kernel has left.
///
/// # Errors
/// The copy failed.
///
/// # Panics
/// The buffer is shorter.
pub fn rows<const N: usize>(buffer: &DeviceBuffer, count: usize) -> Result<Vec<[u64; N]>, CopyError> {
    let mut bytes = vec![0; count * N * NUMBER];
    buffer.read(0, &mut bytes)?;
    let (numbers, _) = bytes.as_chunks::<NUMBER>();
    let (rows, _) = numbers.as_chunks::<N>();
    Ok(rows.iter().map(|row| row.map(u64::from_ne_bytes)).collect())
}

/// Reads the one row of `N` numbers that a kernel has left.
///
/// # Errors
/// The copy failed.
///
/// # Panics
/// The buffer is shorter.
pub fn row<const N: usize>(buffer: &DeviceBuffer) -> Result<[u64; N], CopyError> {
    Ok(rows(buffer, 1)?.pop().unwrap_or([0; N]))
}

/// Describes an errno in the device library's words if it knows it, else in the system's.
#[must_use]
pub fn errno_text(errno: i32) -> String {
    let unknown = Error::from_errno(i32::MAX).text();
    match Error::from_errno(errno).text() {
        text if text == unknown => std::io::Error::from_raw_os_error(errno).to_string(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_words() {
        assert_eq!(errno_text(Error::ConnectionRefused.errno()), "connection refused");
        assert!(errno_text(18).contains("os error 18"), "{}", errno_text(18));
    }
}
