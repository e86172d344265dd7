//! What the driver can answer instead of a result.

use std::fmt;

use super::version::DriverVersion;

/// A driver call that failed.
///
/// Codes stay numbers: a driver newer than this crate may return ones that it does not know.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::Cuda;
///
/// let error = Cuda::load()?.device(99).unwrap_err();
/// println!("{} failed: {}", error.call, error.name); // cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError {
    /// The driver function, or what was being waited for.
    pub call: &'static str,
    /// The `CUresult`; [`CudaError::AGENT_GONE`] is this crate's own.
    pub code: u32,
    /// The driver's name of the code, e.g. `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
}

impl CudaError {
    /// The code of an error that did not come from the driver: the device's agent thread has ended.
    pub const AGENT_GONE: u32 = u32::MAX;

    pub(crate) fn agent_gone() -> Self {
        Self {
            call: "gpunet-cuda-agent",
            code: Self::AGENT_GONE,
            name: "the device's agent thread has ended".to_owned(),
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == Self::AGENT_GONE {
            return write!(f, "{}: {}", self.call, self.name);
        }
        write!(f, "{} failed: {} ({})", self.call, self.name, self.code)
    }
}

impl std::error::Error for CudaError {}

/// Why CUDA cannot be used on this machine. It is a fact to report, not a fault.
///
/// # Examples
/// ```
/// use gpunet_cuda::{Cuda, Unavailable};
///
/// if let Err(Unavailable::Init { name, .. }) = Cuda::load() {
///     println!("the driver is installed, and does not work: {name}");
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The driver library is not installed, or does not load.
    #[error("the CUDA driver library cannot be loaded: {reason}")]
    Library {
        /// The dynamic loader's message for the first name that was tried.
        reason: String,
    },
    /// The driver library lacks a function that this crate needs.
    #[error("the CUDA driver library has no {symbol}: the driver is too old (11.0 is needed)")]
    Symbol {
        /// The missing function.
        symbol: &'static str,
    },
    /// The library is there and its initialisation failed, e.g. because the machine has no GPU or
    /// the kernel module is not loaded.
    #[error("the CUDA driver {} cannot be initialised: {name} ({code})", display_version(.version))]
    Init {
        /// The `CUresult` of `cuInit`.
        code: u32,
        /// The driver's name of the code, e.g. `CUDA_ERROR_NO_DEVICE`.
        name: String,
        /// The version of the library, where it told.
        version: Option<DriverVersion>,
    },
}

fn display_version(version: &Option<DriverVersion>) -> String {
    version.map_or_else(|| "(unknown version)".to_owned(), |version| version.to_string())
}

/// Why a copy was refused or failed.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::CopyError;
///
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// let buffer = gpu.alloc(4)?;
/// let refused = gpu.write(&buffer, 0, b"too long");
/// assert_eq!(refused, Err(CopyError::OutOfBounds { offset: 0, len: 8, size: 4 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The range is not within the memory.
    #[error("bytes {offset}..+{len} are not within the {size} bytes of the memory")]
    OutOfBounds {
        /// Where the copy was to start.
        offset: usize,
        /// How many bytes were to be copied.
        len: usize,
        /// The size of the memory.
        size: usize,
    },
    /// The memory belongs to another device handle.
    #[error("the memory belongs to another device than the one asked to copy")]
    OtherDevice,
    /// The module has no global of this name.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// The two kinds of names in a module.
///
/// # Examples
/// ```
/// use gpunet_cuda::SymbolKind;
///
/// assert_eq!(SymbolKind::Function.to_string(), "kernel");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// A kernel (`.entry`).
    Function,
    /// A variable (`.global`, `.const`).
    Global,
}

impl fmt::Display for SymbolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "kernel",
            Self::Global => "global",
        })
    }
}

/// A name that could not be used.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// # let module = gpu.load_module(&std::fs::read_to_string("kernel.ptx")?)?;
/// if let Err(error) = module.function("ecko") {
///     eprintln!("{error}"); // the kernel `ecko` of the module: ... CUDA_ERROR_NOT_FOUND (500)
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {kind} `{name}` of the module: {source}")]
pub struct SymbolError {
    /// What was looked for.
    pub kind: SymbolKind,
    /// Its name.
    pub name: String,
    /// The driver's error; `CUDA_ERROR_NOT_FOUND` if the module has no such name.
    pub r#source: CudaError,
}

/// For calls whose result nobody waits for, releases mostly; a failure usually means that a kernel
/// broke the context.
pub(crate) fn log(result: Result<(), CudaError>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a driver call failed whose result nobody needs");
    }
}
