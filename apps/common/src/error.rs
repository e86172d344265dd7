//! Errors that end a program.

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

/// An error that ends any of the programs early. A failed connection does not end a program; it is
/// counted.
///
/// A program with errors of its own wraps this enum in its own one, with a `From` for the types
/// that convert to this one.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system refused a thread or signal handlers.
    #[error("cannot take signals: {0}{hint}", hint = hint(.0))]
    Signals(io::Error),
    /// A name does not resolve.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The program cannot listen on the address.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// The address.
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

/// Not `#[from]`: the source would repeat the message.
impl From<LoadModuleError> for AppError {
    fn from(error: LoadModuleError) -> Self {
        Self::Load(error)
    }
}
