//! How an attachment ends, whatever its connection ends with.

use super::answer_to;
use crate::daemon::DaemonState;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::Message;
use gpunet_abi::Error;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The end of an attachment. Dropped before it was forgotten, it does what is left to do.
pub(super) struct Teardown {
    pub(super) daemon: Arc<DaemonState>,
    pub(super) attachment: Arc<AttachmentState>,
    pub(super) forgotten: bool,
}

impl Teardown {
    pub(super) fn new(daemon: Arc<DaemonState>, attachment: Arc<AttachmentState>) -> Self {
        Self { daemon, attachment, forgotten: false }
    }

    /// No more signs of life, and no word that there will be none: of a process that was killed the GPU's
    /// kernels run on for a moment, and one that is told closes its streams, which its peers would take for
    /// an end in good order. A process that lives sees the end of its connection.
    pub(super) fn stop_heartbeat(&self) {
        self.daemon.proxy.heart.remove(self.attachment.id);
    }

    /// No more signs of life: its devices report ENETDOWN.
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

    /// The proxy knows nothing of it any more.
    pub(super) async fn forget(mut self) {
        self.forgotten = true;
        self.daemon.proxy.heart.remove(self.attachment.id);
        let attachment = self.attachment.clone();
        drop(self);
        // To give back hundreds of megabytes takes a while.
        let _ = tokio::task::spawn_blocking(move || drop(attachment)).await;
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        if !self.forgotten {
            self.stop_heartbeat();
            drop(self.gone());
        }
    }
}
