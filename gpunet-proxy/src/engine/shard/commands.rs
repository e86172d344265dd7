//! Commands of the control plane to a data thread.

use super::Shard;
use super::scan::ServedAttachment;
use super::stream::DrivenStream;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::{Command, Message, OpenStream};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::{Error, Options};
use gpunet_core::ids::AttachmentId;
use std::sync::Arc;

impl Shard {
    /// Carries out the commands that have come; returns whether there were any.
    pub(super) fn take_commands(&mut self) -> bool {
        let mut busy = false;
        while let Ok(command) = self.setup.commands.try_recv() {
            busy = true;
            hand_off::at(HandOff::CommandTaken);
            self.handle_command(command);
        }
        busy
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Attach(state) => self.attach(state),
            Command::Detach { attachment, done } => {
                if let Some(gone) = self.attachments.remove(&attachment) {
                    if let Some(bell) = gone.state.doorbells.get(self.setup.index) {
                        self.events.remove_doorbell(bell);
                    }
                    // Streams that have not ended by now are aborted.
                    let lost = gone.streams.iter().map(|(_, stream)| stream.undelivered()).sum();
                    gone.state.totals.lose(lost);
                }
                self.ready.retain(|&(d, _)| d != attachment);
                self.pollable.retain(|&(d, ..)| d != attachment);
                self.deadlines.retain(|&(_, d, _)| d != attachment);
                let _ = done.send(());
            }
            Command::Open { attachment, slot, stream } => self.open(attachment, slot, stream),
            Command::Close { attachment, slot, linger_ns } => {
                let now = self.now();
                let Some((state, stream)) = self.stream(attachment, slot) else { return };
                stream.close(state, slot, now, linger_ns);
                self.enqueue(attachment, slot);
            }
            Command::Gone { attachment, slot, bound_ns } => {
                let now = self.now();
                let Some((state, stream)) = self.stream(attachment, slot) else { return };
                stream.abandon(state, slot, now, bound_ns);
                self.enqueue(attachment, slot);
            }
            Command::SetOptions { attachment, slot, options, linger_ns } => {
                self.set_options(attachment, slot, &options, linger_ns);
            }
            Command::OutQueue { attachment, slot, id } => {
                // The words first: what the device sent before it asked counts.
                let bytes = self.stream(attachment, slot).map(|(state, stream)| {
                    stream.observe_words(state, slot);
                    stream.undelivered()
                });
                let _ = self.setup.control.send(Message::OutQueue { attachment, id, bytes });
            }
            Command::Count { of, done } => {
                let counted = self.attachments.values().filter(|attachment| attachment.state.is_of(of));
                let _ = done.send(counted.flat_map(ServedAttachment::counts).collect());
            }
            Command::Stop => self.stop = true,
        }
    }

    pub(super) fn attach(&mut self, state: Arc<AttachmentState>) {
        if let Some(bell) = state.doorbells.get(self.setup.index)
            && let Err(error) = self.events.add_doorbell(state.id, bell)
        {
            tracing::warn!(attachment = state.id.0, %error, "cannot watch a doorbell: sends may be late");
        }
        self.attachments.insert(state.id, ServedAttachment::new(state));
    }

    fn set_options(&mut self, attachment: AttachmentId, slot: u32, options: &Options, linger_ns: u64) {
        if let Some((_, stream)) = self.stream(attachment, slot)
            && let Err(error) = stream.set_options(options, linger_ns)
        {
            tracing::debug!(slot, %error, "socket options not applied");
        }
        self.enqueue(attachment, slot);
    }

    pub(super) fn open(&mut self, attachment_id: AttachmentId, slot: u32, opened: OpenStream) {
        let Some(attachment) = self.attachments.get_mut(&attachment_id) else { return };
        let added = self.events.add_stream(attachment_id, slot, opened.io.readiness());
        let mut stream = Box::new(DrivenStream::new(opened, self.setup.index));
        if let Err(error) = added {
            tracing::warn!(slot, %error, "cannot watch a connection");
            stream.fail(&attachment.state, slot, Error::NoBuffers);
        }
        if stream.is_pollable() {
            self.pollable.push_back((attachment_id, slot, stream.generation));
        }
        attachment.streams.insert(slot, stream);
        self.enqueue(attachment_id, slot);
    }
}
