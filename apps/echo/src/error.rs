//! Why the program cannot go on.

use gpu_usermap::RegionError;
use gpu_usermap::cuda::{CopyError, LoadModuleError, RegisterError};
use gpunet_app::cli::{ResolveError, spell};
use gpunet_app::device::DeviceError;
use gpunet_app::kernel::RunError;
use gpunet_app::proxy::ProxyError;
use gpunet_proxy::descriptors::hint;
use gpunet_proxy::{AllocError, KernelError, LaunchError};
use std::io;

/// Everything that ends the program early. A connection that fails does not; it is counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused a thread or signal handlers.
    #[error("cannot take signals: {0}{hint}", hint = hint(.0))]
    Signals(io::Error),
    /// A name does not resolve.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// rc was asked for, and there is no RDMA.
    #[error("rc cannot be used: {0}")]
    NoRdma(gpunet_proxy::rdma::Unavailable),
    /// Message buffers would not fit.
    #[error("{blocks} blocks with two buffers of {} need {} MiB; use a smaller --size or fewer --connections", spell(*.size), .total >> 20)]
    TooMuchMemory {
        /// Thread blocks.
        blocks: u32,
        /// Bytes of a message.
        size: u64,
        /// Bytes of all.
        total: u64,
    },
    /// The server cannot listen, or its kernel ended by itself.
    #[error(transparent)]
    Server(#[from] gpunet_serve_host::Error),
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
    /// The memory for progress reports.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The same, on a GPU.
    #[error(transparent)]
    Register(#[from] RegisterError),
}
