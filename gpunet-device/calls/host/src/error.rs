//! Errors of registering functions, and of making channels.

use gpu_usermap::RegionError;
use gpu_usermap::cuda::RegisterError;
use gpunet_proxy::AllocError;

/// A function of that number is registered already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a function with the number {0} is registered already: choose another number")]
pub struct Registered(pub u32);

/// Why calls cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Such channels cannot be.
    #[error(
        "no channels for {tickets} calls in flight with requests of {request} bytes and answers of {answer}: at most {} calls, {} and {} bytes",
        gpunet_calls::Shape::MAX_TICKETS,
        gpunet_calls::MAX_REQUEST,
        gpunet_calls::MAX_ANSWER
    )]
    Shape {
        /// Calls in flight of a channel.
        tickets: u32,
        /// Bytes of a request.
        request: usize,
        /// Bytes of an answer.
        answer: usize,
    },
    /// There is no pinned memory for them.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// CUDA does not take the pinned memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// There is no device memory for them.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The system refuses a thread.
    #[error("cannot start a thread that answers calls")]
    Thread(#[from] std::io::Error),
}
