//! The errors of an example.

use gpu_usermap::cuda::StreamError;
use gpunet_app::error::AppError;
use gpunet_proxy::queue::QueueError;

/// Why an example did not finish, or had a wrong result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error that any of the programs can have.
    #[error(transparent)]
    App(AppError),
    /// A kernel cannot be started.
    #[error("cannot start a kernel: {0}")]
    Launch(String),
    /// A block of a kernel has failed.
    #[error("block {block}: {reason}")]
    Block {
        /// Which.
        block: usize,
        /// Why.
        reason: String,
    },
    /// A queue.
    #[error(transparent)]
    Queue(QueueError),
    /// CUDA has no stream for a queue.
    #[error("cannot make a stream: {0}")]
    Stream(StreamError),
    /// An element is not what it should be.
    #[error("element {at} of {what} is {found} instead of {expected}")]
    Differs {
        /// The checked memory.
        what: &'static str,
        /// Which.
        at: usize,
        /// Its value.
        found: String,
        /// The expected value.
        expected: String,
    },
}

impl<E> From<E> for Error
where
    AppError: From<E>,
{
    fn from(error: E) -> Self {
        Self::App(error.into())
    }
}
