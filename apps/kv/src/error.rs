//! Errors that end the program.

use crate::client::ClientError;
use gpu_usermap::cuda::LoadModuleError;
use gpunet_app::cli::ResolveError;
use gpunet_app::device::DeviceError;
use gpunet_app::proxy::ProxyError;
use gpunet_proxy::LaunchError;
use gpunet_proxy::descriptors::hint;
use std::io;

/// Everything that ends the program early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused a thread or signal handlers.
    #[error("cannot take signals: {0}{hint}", hint = hint(.0))]
    Signals(io::Error),
    /// A name does not resolve.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The PTX.
    #[error("cannot load the kernel: {0}")]
    Load(LoadModuleError),
    /// The blocks do not fit.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The server.
    #[error(transparent)]
    Server(#[from] gpunet_serve_host::Error),
    /// The password cannot be read from its file.
    #[error("cannot read the password in {}", path.display())]
    Password {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel ended by itself.
    #[error("the server ended by itself")]
    Ended,
    /// The demonstration's client.
    #[error("the demonstration: {0}")]
    Client(ClientError),
    /// The demonstration was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}
