//! Starting kernels, and waiting for their end.
//!
//! | file | holds |
//! |---|---|
//! | `spec` | what is to be launched |
//! | `check` | what can be known of it before |
//! | `residency` | whether kernels that wait for each other fit at the same time |
//! | `foreign` | what a program launches by its own means |

#![allow(unsafe_code, reason = "kernel parameters are unchecked memory")]

pub(crate) mod check;
mod foreign;
mod residency;
mod spec;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::agent::{Backoff, Context, Failed, FailureReason, Outcome, Prepared};
use crate::code::occupancy;
use crate::device::Device;
use crate::driver::CudaError;

pub use check::LaunchError;
pub use foreign::ForeignLaunches;
use residency::sms_needed;
pub use residency::{CoResidencyError, KernelDemand, NotCoResident, fit_together};
pub use spec::{LaunchSpec, param};

/// Launched kernels.
///
/// Clones refer to the same launch. Dropping it changes nothing: the kernels run on, and the device
/// keeps counting them.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// # fn end(launch: gpunet_cuda::Launch) -> Result<(), gpunet_cuda::CudaError> {
/// if !launch.wait_timeout(Duration::from_secs(1))? {
///     println!("{} still works", launch.device().name());
///     launch.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Launch {
    device: Device,
    outcome: Outcome,
}

impl Device {
    /// Launches each kernel on a stream of its own, so that they run at the same time if they fit.
    ///
    /// All are checked before the first starts. Kernels that wait for each other must fit on the
    /// GPU together: ask [`check_co_resident`](Self::check_co_resident) with the same slice first.
    ///
    /// # Beside a running kernel
    /// The driver waits for running kernels when it has to set more local memory aside
    /// ([`FunctionAttributes::local_bytes`](crate::FunctionAttributes::local_bytes)). It does not
    /// have to for a kernel whose module was loaded while none ran: see
    /// [`load_module`](Self::load_module). Another one with a larger stack than all before is
    /// refused with [`LaunchError::LocalMemory`] while a launch of this device runs. Within one
    /// call the largest need is launched first. At most 8 streams progress independently unless
    /// `CUDA_DEVICE_MAX_CONNECTIONS` (up to 32) is set before the program starts.
    ///
    /// # Errors
    /// [`LaunchError`] names the kernel. With [`LaunchError::Cuda`], `started` of the others run
    /// already and are not stopped.
    ///
    /// # Safety
    /// For every spec, `params` suit the kernel, and what its code reads and writes through them is
    /// valid, and stays so until the kernel ends. Buffers and registrations may be dropped earlier
    /// (their release waits), unless by other device handles.
    ///
    /// # Examples
    /// ```no_run
    /// use gpunet_cuda::{Cuda, LaunchSpec, param};
    ///
    /// let gpu = Cuda::load()?.device(0)?;
    /// let module = gpu.load_module(&std::fs::read_to_string("kernel.ptx")?)?;
    /// let buffer = gpu.alloc(4096)?;
    /// let spec = LaunchSpec {
    ///     function: module.function("fill")?,
    ///     grid: (1, 1, 1),
    ///     block: (256, 1, 1),
    ///     shared_bytes: 0,
    ///     // SAFETY: an integer has no padding.
    ///     params: vec![unsafe { param(buffer.ptr()) }],
    /// };
    /// // SAFETY: the kernel takes the address of 4096 bytes, and writes them.
    /// let launch = unsafe { gpu.launch(&[spec]) }?;
    /// launch.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn launch(&self, specs: &[LaunchSpec]) -> Result<Launch, LaunchError> {
        check::all(self, specs)?;
        let kernels: Vec<Prepared> = specs.iter().map(prepare).collect();
        let outcome: Outcome = Arc::new(OnceLock::new());
        let shared = Arc::clone(&outcome);
        let sms = self.multiprocessors();
        let started = self.agent().run(move |context| {
            let taken = filled(context, &kernels, sms)?;
            let (driver, launches) = context.launching();
            // SAFETY: the caller's promise; `specs` hold the modules while the caller waits for
            // this job, and modules are unloaded only when no launch runs.
            unsafe { launches.start(driver, &kernels, taken, shared) }
        });
        let failed = match started {
            Ok(Ok(())) => return Ok(Launch { device: self.clone(), outcome }),
            Ok(Err(failed)) => failed,
            Err(source) => Failed::at(0, source),
        };
        let Failed { index, started, reason } = failed;
        let function = &specs[index].function;
        let (kernel, needed) = (function.name().to_owned(), function.attributes().local_bytes);
        Err(match reason {
            FailureReason::LocalMemory { set_aside } => {
                LaunchError::LocalMemory { index, kernel, needed, set_aside }
            }
            FailureReason::Cuda(source) => LaunchError::Cuda { index, kernel, started, source },
        })
    }
}

fn prepare(spec: &LaunchSpec) -> Prepared {
    Prepared {
        function: spec.function.handle(),
        grid: spec.grid,
        block: spec.block,
        shared_bytes: spec.shared_bytes,
        blocks: spec.blocks(),
        threads: spec.threads(),
        params: spec.params.clone(),
        local_bytes: spec.function.attributes().local_bytes,
    }
}

/// Returns how many multiprocessors the kernels fill, all of them at most; asks for large shared
/// memory on the way.
fn filled(context: &Context, kernels: &[Prepared], sms: u32) -> Result<u32, Failed> {
    let mut taken: u64 = 0;
    for (index, kernel) in kernels.iter().enumerate() {
        let per_sm = occupancy(context, kernel.function, kernel.threads, kernel.shared_bytes)
            .map_err(|source| Failed::at(index, source))?;
        taken = taken.saturating_add(sms_needed(kernel.blocks, per_sm).unwrap_or(u64::MAX));
    }
    Ok(u32::try_from(taken).unwrap_or(sms).min(sms))
}

impl Launch {
    /// Returns whether all kernels of the launch have ended.
    ///
    /// # Errors
    /// [`CudaError`] if one faulted, or another kernel of the context did: then the context is
    /// lost, every later call on the device fails with the same error, and the program opens a new
    /// process or context.
    pub fn is_finished(&self) -> Result<bool, CudaError> {
        if let Some(outcome) = self.outcome.get() {
            return outcome.clone().map(|()| true);
        }
        self.device.agent().run(|context| context.reap())?;
        self.outcome.get().map_or(Ok(false), |outcome| outcome.clone().map(|()| true))
    }

    /// Waits until all kernels of the launch have ended, polling at intervals that grow to 2 ms. It
    /// blocks the calling thread.
    ///
    /// # Errors
    /// As for [`is_finished`](Self::is_finished).
    pub fn wait(&self) -> Result<(), CudaError> {
        let mut backoff = Backoff::new();
        while !self.is_finished()? {
            backoff.pause(None);
        }
        Ok(())
    }

    /// Waits as [`wait`](Self::wait) does, at most for `limit`, and returns whether the launch has
    /// ended.
    ///
    /// It returns in time even if the agent is held up by the driver.
    ///
    /// # Errors
    /// As for [`is_finished`](Self::is_finished).
    pub fn wait_timeout(&self, limit: Duration) -> Result<bool, CudaError> {
        let Some(deadline) = Instant::now().checked_add(limit) else {
            return self.wait().map(|()| true);
        };
        let mut backoff = Backoff::new();
        loop {
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone().map(|()| true);
            }
            let asked = self.device.agent().run_until(deadline, |context| context.reap())?;
            if self.outcome.get().is_none() && (asked.is_none() || Instant::now() >= deadline) {
                return Ok(false);
            }
            backoff.pause(Some(deadline));
        }
    }

    /// Returns the device that the kernels run on.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("device", &self.device).field("outcome", &self.outcome.get()).finish()
    }
}
