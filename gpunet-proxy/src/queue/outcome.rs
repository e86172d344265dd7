//! How a queue has fared, and who is told.

use gpunet_abi::Error;
use std::io;
use tokio::sync::oneshot;

/// How a queue has fared.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueueOutcome {
    /// Operations that are done, failed ones among them.
    pub done: u64,
    /// The first failure. It stays.
    pub failure: Option<Failure>,
}

/// The first operation of a queue that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Which one: 0 for the first that was enqueued.
    pub operation: u64,
    /// Why.
    pub error: Error,
    /// Bytes of it that were sent or received before. Of a short message that was reset, a queue on
    /// a CUDA stream counts none.
    pub bytes: u64,
}

/// Whom the end of all operations before is told.
pub(super) type Notify = Box<dyn FnOnce(QueueOutcome) + Send>;

/// A future of what a queue has done: see [`Queue::notify`](super::Queue::notify).
#[derive(Debug)]
#[must_use]
pub struct Done(oneshot::Receiver<QueueOutcome>);

impl Done {
    /// The future, and what completes it.
    pub(super) fn new() -> (Notify, Self) {
        let (sender, done) = oneshot::channel();
        // Nobody waits if the future was dropped.
        (Box::new(move |outcome| _ = sender.send(outcome)), Self(done))
    }

    /// Blocks until it is done.
    ///
    /// # Errors
    /// The first failure of the queue; ECANCELED, when its attachment was closed before.
    pub fn wait(self) -> io::Result<()> {
        result(self.0.blocking_recv().ok())
    }
}

impl Future for Done {
    type Output = io::Result<()>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(|outcome| result(outcome.ok()))
    }
}

fn result(outcome: Option<QueueOutcome>) -> io::Result<()> {
    let error = match outcome {
        Some(QueueOutcome { failure: None, .. }) => return Ok(()),
        Some(QueueOutcome { failure: Some(failure), .. }) => failure.error,
        None => Error::Canceled,
    };
    Err(crate::socket::io_error(error))
}
