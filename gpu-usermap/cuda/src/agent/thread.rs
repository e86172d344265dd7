//! The one thread that makes CUDA calls for a device.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::backoff::Backoff;
use super::context::Context;
use super::release::Release;
use crate::driver::CudaError;
use gpunet_region::threads;

type Job = Box<dyn FnOnce(&mut Context) + Send>;

enum Message {
    Job(Job),
    Release(Release),
}

/// Runs closures on the agent thread. Dropping it ends the thread, after the kernels of the device
/// (bounded) and all releases.
pub(crate) struct Agent {
    /// `None` only during drop.
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts the thread; `open` makes its state there.
    pub(crate) fn spawn(
        open: impl FnOnce() -> Result<Context, CudaError> + Send + 'static,
    ) -> Result<Self, CudaError> {
        let (messages, inbox) = unbounded();
        let (ready, opened) = bounded(1);
        let thread = threads::spawn("gpunet-cuda-agent", move || match open() {
            Ok(context) => {
                // The spawner waits for this; should it be gone, so is the sender of messages, and
                // the loop ends.
                let _ = ready.send(Ok(()));
                serve(context, &inbox);
            }
            Err(error) => drop(ready.send(Err(error))),
        })
        .map_err(|error| CudaError {
            call: "starting gpunet-cuda-agent",
            code: CudaError::AGENT_GONE,
            name: error.to_string(),
        })?;
        let agent = Self { messages: Some(messages), thread: Some(thread) };
        opened.recv().unwrap_or_else(|_| Err(CudaError::agent_gone()))?;
        Ok(agent)
    }

    /// Runs `job` on the agent thread and waits for its result.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Context) -> R + Send + 'static,
    ) -> Result<R, CudaError> {
        self.submit(job).recv().map_err(|_| CudaError::agent_gone())
    }

    /// As [`run`](Self::run), but stops waiting at `deadline`: `None`. The job still runs.
    pub(crate) fn run_until<R: Send + 'static>(
        &self,
        deadline: Instant,
        job: impl FnOnce(&mut Context) -> R + Send + 'static,
    ) -> Result<Option<R>, CudaError> {
        match self.submit(job).recv_deadline(deadline) {
            Ok(result) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(CudaError::agent_gone()),
        }
    }

    /// Gives something back when no kernel runs. Returns at once.
    pub(crate) fn release(&self, release: Release) {
        self.send(Message::Release(release));
    }

    /// Runs `job` on the agent thread. Returns at once.
    pub(crate) fn post(&self, job: impl FnOnce(&mut Context) + Send + 'static) {
        self.send(Message::Job(Box::new(job)));
    }

    fn submit<R: Send + 'static>(&self, job: impl FnOnce(&mut Context) -> R + Send + 'static) -> Receiver<R> {
        let (reply, result) = bounded(1);
        self.send(Message::Job(Box::new(move |context| {
            // Nobody may be waiting any more.
            let _ = reply.send(job(context));
        })));
        result
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // A send fails when the thread has ended by a panic. A job's caller learns it from its
            // reply channel, and a release is leaked, as it should be: a kernel may be using it.
            let _ = messages.send(message);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.messages.take());
        if let Some(thread) = self.thread.take() {
            // On the agent thread itself (a last handle inside a job) it cannot be waited for; it
            // ends by itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("gpunet-cuda-agent panicked");
            }
        }
    }
}

/// Serves messages until the last sender is gone. Waits without waking up unless a release is due.
fn serve(mut context: Context, inbox: &Receiver<Message>) {
    let mut backoff = Backoff::new();
    loop {
        let message = if context.has_deferred() {
            inbox.recv_timeout(backoff.next_sleep())
        } else {
            backoff = Backoff::new();
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match message {
            Ok(Message::Job(job)) => job(&mut context),
            Ok(Message::Release(release)) => context.defer(release),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        context.release_if_idle();
    }
    context.close();
}
