//! What can go wrong.

use gpu_usermap::cuda::CopyError;
use gpunet_app::device::DeviceError;
use gpunet_app::proxy::ProxyError;
use gpunet_proxy::KernelError;
use gpunet_proxy::team::TeamError;

/// Why an example did not come to its end, or came to a wrong one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The team.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The kernels cannot be loaded.
    #[error("cannot load the kernels: {0}")]
    Load(String),
    /// A kernel cannot be started.
    #[error("cannot start a kernel: {0}")]
    Launch(String),
    /// A kernel has failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A block of a kernel has failed.
    #[error("block {block}: {reason}")]
    Block {
        /// Which.
        block: usize,
        /// Why.
        reason: String,
    },
    /// CUDA.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A queue.
    #[error(transparent)]
    Queue(#[from] std::io::Error),
    /// An element is not what it should be.
    #[error("element {at} of {what} is {found} instead of {expected}")]
    Differs {
        /// Of what.
        what: &'static str,
        /// Which.
        at: usize,
        /// As it is.
        found: String,
        /// As it should be.
        expected: String,
    },
}
