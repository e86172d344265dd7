//! Errors that end the program.

use gpunet_app::cli::spell;
use gpunet_app::error::AppError;

/// Everything that ends the program early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error that any of the programs can have.
    #[error(transparent)]
    App(AppError),
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
        /// Bytes of all buffers.
        total: u64,
    },
    /// The server cannot listen, or its kernel ended by itself.
    #[error(transparent)]
    Server(gpunet_serve_host::Error),
}

impl<E> From<E> for Error
where
    AppError: From<E>,
{
    fn from(error: E) -> Self {
        Self::App(error.into())
    }
}
