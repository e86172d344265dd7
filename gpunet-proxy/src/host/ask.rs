//! Requests to the control plane as futures.

use super::Core;
use super::reactor::WaitId;
use crate::attached::device::AttachedDevice;
use crate::model::ids::next_host_request;
use crate::model::message::Answer;
use gpunet_abi::control::{Reply, Request};
use gpunet_core::ids::HostRequestId;
use gpunet_device::Error;
use gpunet_device::cpu::deferred::Opening;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// Posts a request whose answer is not needed: a close.
pub(super) fn tell(shared: &AttachedDevice, request: Request) {
    shared.link.ask(next_host_request(), request, Box::new(|_| {}));
}

/// A request that opens a socket, until its reply.
///
/// Dropped, it gives the request up; and if the reply is a socket after all, here or on its way,
/// that is closed. So no slot is lost.
#[derive(Debug)]
pub(super) struct Asking {
    core: Arc<Core>,
    opening: Opening,
    id: HostRequestId,
    wait: WaitId,
    /// `None` once the reply was taken.
    reply: Option<oneshot::Receiver<Reply>>,
}

impl Asking {
    pub(super) fn new(core: &Arc<Core>, opening: Opening) -> Self {
        let (id, (sender, reply)) = (next_host_request(), oneshot::channel());
        let shared = core.shared.clone();
        let answer: Answer = Box::new(move |reply: &Reply| {
            if let Err(reply) = sender.send(*reply) {
                discard(&shared, opening, &reply);
            }
        });
        core.shared.link.ask(id, *opening.request(), answer);
        Self { core: core.clone(), opening, id, wait: core.reactor.id(), reply: Some(reply) }
    }

    pub(super) const fn opening(&self) -> Opening {
        self.opening
    }
}

/// Closes what a reply opened that came too late.
fn discard(shared: &AttachedDevice, opening: Opening, reply: &Reply) {
    if let Some(close) = opening.discard(reply) {
        tell(shared, close);
    }
}

impl Future for Asking {
    /// The reply, which may be an error; NetworkDown or Canceled if there will be none.
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(reply) = &mut this.reply else { return Poll::Ready(Err(Error::InvalidArgument)) };
        match Pin::new(reply).poll(cx) {
            Poll::Ready(result) => {
                this.reply = None;
                Poll::Ready(result.map_err(|_| {
                    this.opening.forget();
                    Error::NetworkDown
                }))
            }
            // The reply wakes the task; the reactor wakes it if the proxy has failed.
            Poll::Pending => match this.core.reactor.register(this.wait, None, cx.waker()) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.core.reactor.forget(self.wait);
        let Some(mut reply) = self.reply.take() else { return };
        // From here on the reply is either in the channel or goes back to its sender.
        reply.close();
        match reply.try_recv() {
            Ok(reply) => discard(&self.core.shared, self.opening, &reply),
            Err(_) => self.core.shared.link.abandon(self.id),
        }
    }
}
