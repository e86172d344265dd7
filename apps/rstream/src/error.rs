//! Why the program cannot go on.

use gpu_usermap::cuda::{CopyError, LoadModuleError};
use gpunet_app::cli::ResolveError;
use gpunet_app::device::DeviceError;
use gpunet_app::kernel::RunError;
use gpunet_app::proxy::ProxyError;
use gpunet_proxy::descriptors::hint;
use gpunet_proxy::{AllocError, KernelError, LaunchError};
use std::io;
use std::net::SocketAddr;

/// Everything that ends the program early. A connection that fails does not; it is counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
        error: gpunet_abi::Error,
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
    /// Device memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// Copies from and to it.
    #[error(transparent)]
    Copy(#[from] CopyError),
}
