//! The streams of a data thread that have something to do, and whom their changes wake.

use super::Shard;
use super::stream::Progress;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::Message;
use gpunet_core::ids::SocketId;
use gpunet_core::memory::SleepingPollers;
use std::sync::Arc;
use std::time::Duration;

/// How long pollers sleep on, where cores are few, while further streams are driven: as long as
/// some ten messages take. A poller that is woken for the first of several changes takes the core
/// from this thread, handles one, and sleeps again: two switches for each message.
const DEFERRED_FOR: Duration = Duration::from_micros(100);

/// Pollers of one attachment whose changes are published, and who are not woken yet.
#[derive(Default)]
struct Deferred {
    state: Option<(Arc<AttachmentState>, SleepingPollers)>,
    /// When the first of the changes was found, by the thread's clock.
    since: u64,
}

impl Deferred {
    /// Adds pollers, and wakes those that have waited for long, or are another attachment's.
    fn add(&mut self, state: &Arc<AttachmentState>, sleepers: SleepingPollers, now: u64) {
        if sleepers == SleepingPollers::NONE {
            return;
        }
        match &mut self.state {
            Some((other, all)) if Arc::ptr_eq(other, state) => all.add(sleepers),
            _ => {
                self.wake();
                (self.state, self.since) = (Some((state.clone(), sleepers)), now);
            }
        }
        if now.saturating_sub(self.since) >= DEFERRED_FOR.as_nanos() as u64 {
            self.wake();
        }
    }

    fn wake(&mut self) {
        if let Some((state, sleepers)) = self.state.take() {
            state.memory.wake_pollers(sleepers);
        }
    }
}

impl Shard {
    /// Drives the streams that have something to do. Returns whether there were any.
    pub(super) fn drive(&mut self) -> bool {
        let count = self.ready.len();
        let mut deferred = Deferred::default();
        for _ in 0..count {
            let Some((attachment_id, slot)) = self.ready.pop_front() else { break };
            let now = self.now();
            let Some(attachment) = self.attachments.get_mut(&attachment_id) else { continue };
            let Some(stream) = attachment.streams.get_mut(slot) else { continue };
            stream.queued = false;
            let mut sleepers = SleepingPollers::NONE;
            let progress = stream.drive(&attachment.state, slot, now, &mut sleepers);
            match self.idle.yields() {
                true => deferred.add(&attachment.state, sleepers, now),
                false => attachment.state.memory.wake_pollers(sleepers),
            }
            match progress {
                Progress::Idle => {
                    let at = stream.deadline();
                    if let Some(old) = std::mem::replace(&mut stream.timer, at)
                        && Some(old) != at
                    {
                        self.deadlines.remove(&(old, attachment_id, slot));
                    }
                    if let Some(at) = at {
                        self.deadlines.insert((at, attachment_id, slot));
                    }
                }
                Progress::More => {
                    stream.queued = true;
                    self.ready.push_back((attachment_id, slot));
                }
                Progress::Finished { undelivered } => {
                    let socket = SocketId { slot, generation: stream.generation };
                    let counts = stream.connection.counts();
                    if let Some(at) = stream.timer {
                        self.deadlines.remove(&(at, attachment_id, slot));
                    }
                    attachment.remove(slot);
                    attachment.state.totals.close(undelivered);
                    let message =
                        Message::Finished { attachment: attachment_id, socket, undelivered, counts };
                    // Nobody waits for it but who is short of slots or of ring memory.
                    let _ = self.setup.control.leave(message);
                    self.unannounced.get_or_insert(self.turn_began);
                }
            }
        }
        deferred.wake();
        count > 0
    }
}
