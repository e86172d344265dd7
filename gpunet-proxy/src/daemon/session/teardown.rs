//! How an attachment ends, however its connection does.

use crate::daemon::DaemonState;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::{Message, answer_to};
use gpunet_abi::Error;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Ends an attachment. Dropping it before [`Teardown::forget`] does what is left to do.
pub(super) struct Teardown {
    pub(super) daemon: Arc<DaemonState>,
    pub(super) attachment: Arc<AttachmentState>,
    pub(super) forgotten: bool,
}

impl Teardown {
    pub(super) fn new(daemon: Arc<DaemonState>, attachment: Arc<AttachmentState>) -> Self {
        Self { daemon, attachment, forgotten: false }
    }

    /// Stops the heartbeat without writing "down". The GPU kernels of a killed process run on for a
    /// moment, and on "down" they would close their streams, which peers would take for an orderly
    /// end. A process that lives sees the end of its connection.
    pub(super) fn stop_heartbeat(&self) {
        self.daemon.proxy.heart.remove(self.attachment.id);
    }

    /// Stops the heartbeat and writes "down": the device reports ENETDOWN.
    pub(super) fn mark_down(&mut self) {
        self.daemon.proxy.heart.remove(self.attachment.id);
        self.attachment.memory.beat_down();
    }

    pub(super) fn detach(&mut self, why: Error) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        let _ = self.daemon.proxy.messages.send(Message::Detach {
            attachment: self.attachment.id,
            why,
            done: answer_to(done),
        });
        wait
    }

    pub(super) fn gone(&mut self) -> oneshot::Receiver<()> {
        self.forgotten = true;
        let (done, wait) = oneshot::channel();
        let _ = self
            .daemon
            .proxy
            .messages
            .send(Message::Gone { attachment: self.attachment.id, done: answer_to(done) });
        wait
    }

    /// Frees the attachment, which the proxy has forgotten.
    pub(super) async fn forget(mut self) {
        self.forgotten = true;
        self.daemon.proxy.heart.remove(self.attachment.id);
        let (attachment, pool) = (self.attachment.clone(), self.daemon.pool.clone());
        drop(self);
        // Freeing hundreds of megabytes takes a while.
        let _ = pool.call(move || drop(attachment)).await;
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        self.daemon.logs.ended(self.attachment.id);
        if !self.forgotten {
            self.stop_heartbeat();
            drop(self.gone());
        }
    }
}
