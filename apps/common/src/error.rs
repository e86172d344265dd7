//! Why a program cannot go on.

use crate::cli::ResolveError;
use crate::device::DeviceError;
use crate::kernel::RunError;
use crate::proxy::ProxyError;
use gpu_usermap::RegionError;
use gpu_usermap::cuda::{CopyError, LoadModuleError, RegisterError};
use gpunet_proxy::descriptors::hint;
use gpunet_proxy::team::TeamError;
use gpunet_proxy::{AllocError, KernelError, LaunchError};
use std::io;
use std::net::SocketAddr;

/// What ends any of the programs early. A connection that fails does not; it is counted.
///
/// A program with reasons of its own has an enum with this one in it, and a `From` for whatever
/// becomes this one.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system refused a thread or signal handlers.
    #[error("cannot take signals: {0}{hint}", hint = hint(.0))]
    Signals(io::Error),
    /// A name does not resolve.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// The errno.
        error: gpunet_proxy::abi::Error,
    },
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The PTX.
    #[error("cannot load the kernels: {0}")]
    Load(LoadModuleError),
    /// A launch.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A kernel failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A kernel failed, or did not end after it was cancelled.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A team.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// Device memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// Copies from and to it.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Memory that host and device share.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The same, on a GPU.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Not `#[from]`, which would return as the source what the message says already.
impl From<LoadModuleError> for AppError {
    fn from(error: LoadModuleError) -> Self {
        Self::Load(error)
    }
}
