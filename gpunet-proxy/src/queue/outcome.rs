//! The outcome of a queue, and how the program gets it.

use super::error::{Failure, QueueError};
use tokio::sync::oneshot;

/// What a queue has done so far.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueueOutcome {
    /// Operations that are done, failed ones among them.
    pub done: u64,
    /// The first failure. It stays.
    pub failure: Option<Failure>,
}

/// Called when all earlier operations are done.
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
    /// [`QueueError::Failed`] with the first failure of the queue; [`QueueError::Canceled`], when
    /// its attachment was closed before.
    pub fn wait(self) -> Result<(), QueueError> {
        result(self.0.blocking_recv().ok())
    }
}

impl Future for Done {
    type Output = Result<(), QueueError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(|outcome| result(outcome.ok()))
    }
}

fn result(outcome: Option<QueueOutcome>) -> Result<(), QueueError> {
    match outcome {
        Some(QueueOutcome { failure: None, .. }) => Ok(()),
        Some(QueueOutcome { failure: Some(failure), .. }) => Err(QueueError::Failed(failure)),
        None => Err(QueueError::Canceled),
    }
}
