//! Running kernels: as PTX on a GPU, as thread blocks on the CPU.

use crate::attached::device::AttachedDevice;
use crate::launch::program::Program;
use crate::launch::token::LaunchToken;
use crate::model::error::TooManyLaunches;
use crate::model::launch::{FinishPolicy, FinishReport};
use gpu_usermap::cuda::{self, CoResidencyError, CudaError, LaunchSpec, SymbolError};
use gpu_usermap::threads;
use gpunet_device::{Kernel, Net, cpu};
use std::sync::Arc;
use std::time::Duration;

/// Why a kernel was not started.
///
/// # Examples
/// ```
/// use gpunet_proxy::device::{Group, Kernel};
/// use gpunet_proxy::LaunchError;
///
/// #[derive(Clone, Copy)]
/// struct Nothing;
/// impl Kernel for Nothing {
///     const ENTRY: &'static str = "nothing";
///     fn run<G: Group>(self, _group: &G) {}
/// }
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let program = attachment.load("", 1)?;
/// // SAFETY: the kernel has no parameters.
/// let refused = unsafe { attachment.launch(&program, 0, 1, |_net| Nothing) };
/// assert!(matches!(refused, Err(LaunchError::Empty { blocks: 0, threads: 1 })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// All launch numbers are in use.
    #[error(transparent)]
    TooMany(#[from] TooManyLaunches),
    /// A launch without blocks or threads, or with more than 1024 threads per block.
    #[error("a launch needs at least one block and one thread, at most 1024 threads: {blocks} x {threads}")]
    Empty {
        /// Blocks asked for.
        blocks: u32,
        /// Threads per block asked for.
        threads: u32,
    },
    /// The program was loaded for another kind of device.
    #[error("the program was loaded for another device; load it with this attachment")]
    WrongProgram,
    /// The module has no such entry.
    #[error(transparent)]
    Entry(#[from] SymbolError),
    /// The kernels that must run at the same time do not fit on the GPU together.
    #[error(transparent)]
    NotCoResident(#[from] CoResidencyError),
    /// The operating system refused a thread for a CPU block.
    #[error("cannot start a thread block: {0}")]
    Threads(std::io::Error),
    /// CUDA refused the launch.
    #[error(transparent)]
    Cuda(#[from] cuda::LaunchError),
}

/// How a kernel failed.
///
/// # Examples
/// ```no_run
/// use gpunet_proxy::{FinishPolicy, KernelError, Launch};
///
/// fn report(launch: Launch) {
///     match launch.finish(FinishPolicy::Close) {
///         Ok(report) => println!("{} sockets were left open", report.left_open),
///         Err(KernelError::Panicked(panic)) => eprintln!("{panic}"),
///         Err(KernelError::Cuda(error)) => eprintln!("the GPU reports {error}"),
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// CUDA reports a fault; all sockets of the device were reset.
    #[error("the kernel failed: {0}")]
    Cuda(CudaError),
    /// A thread block panicked. On the CPU the launch's sockets were reset. On a GPU the panic
    /// ended all kernels of the context, and all sockets of the device were reset.
    #[error(transparent)]
    Panicked(cpu::BlockPanicked),
}

#[derive(Debug)]
enum Running {
    Cpu(cpu::Launch),
    Cuda { launch: cuda::Launch, _watch: Watch },
}

/// Watches a GPU's kernel for its host, which may be waiting for something else: a kernel that
/// fails (a panic, too) has its sockets reset at once. Dropping it ends the watch.
#[derive(Debug)]
struct Watch {
    _ends: crossbeam_channel::Sender<()>,
}

impl Watch {
    /// How often the GPU is asked.
    const PERIOD: Duration = Duration::from_millis(50);

    fn start(launch: cuda::Launch, token: &LaunchToken) -> Self {
        let (ends, ended) = crossbeam_channel::bounded::<()>(0);
        let fail = token.fail_device();
        let watch = move || {
            while let Err(crossbeam_channel::RecvTimeoutError::Timeout) = ended.recv_timeout(Self::PERIOD) {
                match launch.is_finished() {
                    Ok(false) => {}
                    Ok(true) => return,
                    Err(error) => {
                        tracing::error!(%error, "a kernel failed: the device's sockets are reset");
                        return fail();
                    }
                }
            }
        };
        if let Err(error) = threads::spawn("gpunet-watch", watch) {
            tracing::warn!(%error, "no thread to watch a kernel: if it fails, its sockets are reset late");
        }
        Self { _ends: ends }
    }
}

/// A running kernel and its launch token.
///
/// Dropping it cancels the kernel's waits and blocks until the kernel has ended, for at most ten
/// seconds, and not at all inside a tokio runtime. The sockets are closed when the kernel ends.
/// [`Launch::finish`] reports.
///
/// # Examples
/// ```
/// use gpunet_proxy::device::{Group, Kernel, Listener, Net, SockAddr};
/// use gpunet_proxy::{Config, FinishPolicy, embed};
/// use std::time::Duration;
///
/// /// Accepts connections until the host cancels it.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Accept {
///     net: Net,
/// }
///
/// impl Kernel for Accept {
///     const ENTRY: &'static str = "accept";
///     fn run<G: Group>(self, group: &G) {
///         let Ok(listener) = Listener::bind(group, self.net, SockAddr::v4([127, 0, 0, 1], 0)) else { return };
///         while let Ok(stream) = listener.accept(group) {
///             let _ = stream.close(group);
///         }
///     }
/// }
///
/// let attachment = embed(Config::small())?.attach_cpu()?;
/// let program = attachment.load("", 1)?;
/// // SAFETY: the kernel has no buffers.
/// let launch = unsafe { attachment.launch(&program, 1, 1, |net| Accept { net }) }?;
///
/// assert!(!launch.wait_timeout(Duration::from_millis(10))?, "it waits for a connection");
/// launch.cancel();
/// assert_eq!(launch.finish(FinishPolicy::Close)?.left_open, 1, "the listener");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Launch {
    /// `None` once it is finished.
    parts: Option<(Running, LaunchToken)>,
}

/// How long a dropped [`Launch`] holds up its thread.
const DROP_WAIT: Duration = Duration::from_secs(10);

impl LaunchToken {
    /// Returns the parameter by which kernels of this launch find their sockets.
    #[must_use]
    pub fn net(&self) -> Net {
        // SAFETY: the attachment wrote a Context for this launch number at that address of the
        // device's memory, and the token keeps the attachment's memory alive.
        unsafe { Net::from_raw(self.context()) }
    }
}

impl Launch {
    /// See [`Attachment::check_co_resident`](crate::Attachment::check_co_resident).
    pub(crate) fn check_co_resident(
        attached: &AttachedDevice,
        program: &Program,
        shapes: &[(&str, u32, u32)],
    ) -> Result<(), LaunchError> {
        let Some(device) = attached.cuda() else { return Ok(()) };
        let specs = shapes
            .iter()
            .map(|&(entry, blocks, threads)| spec(program, entry, blocks, threads, Vec::new()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(device.check_co_resident(&specs)?)
    }

    /// See [`Attachment::launch`](crate::Attachment::launch).
    ///
    /// # Safety
    /// The buffers and addresses in the kernel's parameters are valid on this device until the
    /// kernel ends, and used as their types demand.
    pub(crate) unsafe fn start<K: Kernel>(
        attached: &Arc<AttachedDevice>,
        program: &Program,
        blocks: u32,
        threads: u32,
        kernel: impl FnOnce(Net) -> K,
    ) -> Result<Self, LaunchError> {
        if blocks == 0 || threads == 0 || threads > 1024 {
            return Err(LaunchError::Empty { blocks, threads });
        }
        let token = LaunchToken::take(attached)?;
        let kernel = kernel(token.net());
        let running = match attached.cuda() {
            None => match launch_blocks(blocks, threads, kernel, &token) {
                Ok(launch) => Running::Cpu(launch),
                Err(error) => {
                    // The blocks that were started use the attachment's memory for as long as they
                    // run, and nobody knows how long that is.
                    token.cancel();
                    std::mem::forget(token);
                    return Err(LaunchError::Threads(error));
                }
            },
            Some(device) => {
                // SAFETY: a kernel is plain data for the device (`Kernel: Copy`).
                let params = vec![unsafe { cuda::param(kernel) }];
                let spec = spec(program, K::ENTRY, blocks, threads, params)?;
                // SAFETY: the entry named `K::ENTRY` takes one `K` by value (`kernel_entry!`), and
                // the caller answers for what the parameters point to.
                let launch = unsafe { device.launch(&[spec]) }?;
                Running::Cuda { _watch: Watch::start(launch.clone(), &token), launch }
            }
        };
        Ok(Self { parts: Some((running, token)) })
    }
}

/// Starts the blocks of a launch on the CPU, on threads that take none of the program's signals.
fn launch_blocks<K: Kernel>(
    blocks: u32,
    threads: u32,
    kernel: K,
    token: &LaunchToken,
) -> std::io::Result<cpu::Launch> {
    cpu::launch_with(blocks, threads, kernel, fail_launch(token))
}

/// Returns the call that ends a launch on the CPU when one of its blocks has panicked.
fn fail_launch(token: &LaunchToken) -> impl Fn(&cpu::BlockPanicked) + Send + Sync + 'static {
    let abort = token.abort();
    move |panicked| {
        tracing::error!(%panicked, "a thread block panicked: its launch ends, and its sockets are reset");
        abort();
    }
}

fn spec(
    program: &Program,
    entry: &str,
    blocks: u32,
    threads: u32,
    params: Vec<Vec<u8>>,
) -> Result<LaunchSpec, LaunchError> {
    let module = program.module().ok_or(LaunchError::WrongProgram)?;
    let function = module.function(entry)?;
    Ok(LaunchSpec { function, grid: (blocks, 1, 1), block: (threads, 1, 1), shared_bytes: 0, params })
}

impl Running {
    fn is_finished(&self, token: &LaunchToken) -> Result<bool, KernelError> {
        match self {
            Self::Cpu(launch) => match launch.panicked() {
                Some(panicked) => Err(KernelError::Panicked(panicked.clone())),
                None => Ok(launch.is_finished()),
            },
            Self::Cuda { launch, .. } => launch.is_finished().map_err(|error| token.why(error)),
        }
    }

    /// Waits for the end; a GPU that has failed has its sockets reset.
    fn wait(self, token: &LaunchToken) -> Result<(), KernelError> {
        match self {
            Self::Cpu(launch) => launch.wait().map_err(KernelError::Panicked),
            Self::Cuda { launch, .. } => launch.wait().map_err(|error| {
                token.reset_device();
                token.why(error)
            }),
        }
    }
}

impl LaunchToken {
    /// Returns why a GPU's kernel failed: the panic that it recorded, or CUDA's error.
    fn why(&self, error: CudaError) -> KernelError {
        match self.panic_record() {
            Some(record) => KernelError::Panicked(cpu::BlockPanicked::from_record(&record)),
            None => KernelError::Cuda(error),
        }
    }
}

impl Launch {
    /// Returns whether the kernel has ended.
    ///
    /// # Errors
    /// [`KernelError`], as soon as it has failed: other thread blocks may still run.
    pub fn is_finished(&self) -> Result<bool, KernelError> {
        self.parts.as_ref().map_or(Ok(true), |(running, token)| running.is_finished(token))
    }

    /// Blocks until the kernel has ended, for at most `limit`; returns whether it has.
    ///
    /// # Errors
    /// [`KernelError`], as soon as it has failed.
    pub fn wait_timeout(&self, limit: Duration) -> Result<bool, KernelError> {
        if let Some((Running::Cuda { launch, .. }, token)) = &self.parts {
            return launch.wait_timeout(limit).map_err(|error| token.why(error));
        }
        let start = std::time::Instant::now();
        while !self.is_finished()? {
            if start.elapsed() >= limit {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }

    /// Cancels the kernel's waits, as [`LaunchToken::cancel`] does.
    pub fn cancel(&self) {
        if let Some((_, token)) = &self.parts {
            token.cancel();
        }
    }

    /// Blocks until the kernel has ended, then closes, keeps or resets the sockets that it left
    /// open. A failed kernel's sockets are reset.
    ///
    /// # Errors
    /// [`KernelError`], when it failed.
    pub fn finish(mut self, policy: FinishPolicy) -> Result<FinishReport, KernelError> {
        let Some((running, token)) = self.parts.take() else { return Ok(FinishReport::default()) };
        let result = running.wait(&token);
        let report = token.finish(if result.is_ok() { policy } else { FinishPolicy::Reset });
        result.map(|()| report)
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        let Some((running, token)) = self.parts.take() else { return };
        token.cancel();
        // The token keeps the attachment's memory for as long as the kernel runs, on a thread of
        // its own: a kernel that waits for nothing may run for ever.
        let (done, wait) = crossbeam_channel::bounded(1);
        let end = move || {
            let result = running.wait(&token);
            token.finish(if result.is_err() { FinishPolicy::Reset } else { FinishPolicy::Close });
            let _ = done.send(());
        };
        if let Err(error) = threads::spawn("gpunet-launch", end) {
            tracing::warn!(%error, "no thread to wait for a dropped launch");
        } else if tokio::runtime::Handle::try_current().is_err() && wait.recv_timeout(DROP_WAIT).is_err() {
            tracing::warn!("a dropped launch still runs: its buffers must stay");
        }
    }
}
