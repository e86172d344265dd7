//! What a finished launch leaves behind, and the end of an attachment.

use super::Control;
use super::tables::slots::Role;
use super::tables::{AttachmentEntry, Delivering, Detaching, StreamEntry, StreamMemory};
use crate::model::launch::{FinishPolicy, Finished};
use crate::model::message::{Command, Done, Message, Sweep, SweepAction};
use gpunet_abi::{Error, Handle, Status};
use gpunet_core::ids::{AttachmentId, LaunchId, RequestId, SocketId};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the streams of a dead process may deliver what it sent.
const GONE_FLUSH: Duration = Duration::from_millis(500);
/// A dead process's attachment is forgotten after that long.
const GONE_TIMEOUT: Duration = Duration::from_millis(700);
/// A closed stream drains for two seconds at most; one more for the turns it takes.
const DRAIN_MARGIN: Duration = Duration::from_secs(3);

/// Requests and sockets that are ended in one turn. A close takes some microseconds.
const SWEEP_BATCH: usize = 256;

impl Control {
    /// Ends the requests of a finished launch, and closes or keeps its sockets; at most [`SWEEP_BATCH`] of them per
    /// call. `fresh` are sockets that only the device knows: a kernel called gsocket for them.
    ///
    /// A close here is not the device's own: kernels of other launches may know the handle, and may be copying into
    /// the socket's rings. So the slot is retired, and not free before [`Control::release`].
    pub(super) fn finish_launch(
        &mut self,
        attachment_id: AttachmentId,
        launch: LaunchId,
        policy: FinishPolicy,
        fresh: &[Handle],
    ) -> Finished {
        if let Some(attachment) = self.attachment(attachment_id) {
            attachment.assign_accepted(launch, policy != FinishPolicy::Keep);
        }
        let mut waiting = self.requests_of(attachment_id, launch);
        let mut left = self.left_by(attachment_id, launch);
        let more = waiting.len() + left.len() > SWEEP_BATCH;
        waiting.truncate(SWEEP_BATCH);
        left.truncate(SWEEP_BATCH - waiting.len());
        waiting.into_iter().for_each(|id| self.cancel(attachment_id, id, Error::Canceled));
        let Some(attachment) = self.attachment(attachment_id) else { return Finished::default() };
        // The launch's number will be reused, and the end of the next launch must not affect them.
        for &slot in &left {
            attachment.slots[slot as usize].launch = None;
        }
        let linger = match policy {
            FinishPolicy::Keep => {
                return Finished { kept: left.len() + fresh.len(), closed: Vec::new(), more };
            }
            FinishPolicy::Close => None,
            FinishPolicy::Reset => Some(0),
        };
        let mut closed: Vec<Handle> =
            left.iter().map(|&slot| self.retire(attachment_id, slot, linger)).collect();
        let Some(attachment) = self.attachment(attachment_id) else { return Finished::default() };
        closed.extend(fresh.iter().filter(|socket| attachment.retire_fresh(**socket)));
        Finished { kept: 0, closed, more }
    }

    /// Ends the requests of a launch of which a thread block failed, and resets its sockets. They are retired when
    /// the launch is finished.
    pub(super) fn abort_launch(&mut self, attachment_id: AttachmentId, launch: LaunchId) {
        if let Some(attachment) = self.attachment(attachment_id) {
            attachment.assign_accepted(launch, true);
        }
        let (requests, mut slots) =
            (self.requests_of(attachment_id, launch), self.left_by(attachment_id, launch));
        // All at once, so that a finish in between does not take any of them for open.
        slots.retain(|&slot| self.mark_retired(attachment_id, slot));
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let sockets = attachment.named(slots.into_iter());
        let (why, action, ends) = (Error::Canceled, SweepAction::Close(Some(0)), false);
        self.sweep(attachment_id, Box::new(Sweep { requests, why, sockets, action, ends }));
    }

    /// The pending requests of a launch.
    fn requests_of(&mut self, attachment_id: AttachmentId, launch: LaunchId) -> Vec<RequestId> {
        let Some(attachment) = self.attachment(attachment_id) else { return Vec::new() };
        let of_launch = attachment.requests.iter().filter(|(_, waiting)| waiting.launch == launch);
        of_launch.map(|(&id, _)| id).collect()
    }

    /// The slots of the sockets that a launch left open, and of those that were closed when it failed.
    fn left_by(&mut self, attachment_id: AttachmentId, launch: LaunchId) -> Vec<u32> {
        let Some(attachment) = self.attachment(attachment_id) else { return Vec::new() };
        let left = attachment.slots.iter().filter(|(_, entry)| {
            let open = match &entry.role {
                Role::Free | Role::Opening | Role::Prepared | Role::Retired(_) => false,
                Role::Stream(stream) => !stream.closed,
                Role::Bound(_) | Role::Listener(_) | Role::Group(_) => true,
            };
            entry.launch == Some(launch) && (open || entry.retiring)
        });
        left.map(|(slot, _)| slot).collect()
    }

    /// Closes a socket that its launch left open. Returns the handle.
    fn retire(&mut self, attachment_id: AttachmentId, slot: u32, linger_ms: Option<i32>) -> Handle {
        let generation =
            self.attachment(attachment_id).map_or(0, |attachment| attachment.slots[slot as usize].generation);
        if self.mark_retired(attachment_id, slot) {
            self.close_any(attachment_id, slot, linger_ms);
        }
        Handle::new(slot, generation)
    }

    /// Sets BadHandle in the socket's status for everybody who waits there, and keeps the slot out of use until it
    /// is released, whoever closes it. Returns whether that is new.
    fn mark_retired(&mut self, attachment_id: AttachmentId, slot: u32) -> bool {
        let Some(attachment) = self.attachment(attachment_id) else { return false };
        let entry = &mut attachment.slots[slot as usize];
        if std::mem::replace(&mut entry.retiring, true) {
            return false;
        }
        let status = Status::open(entry.generation).with_error(Error::BadHandle);
        let arena = match &entry.role {
            Role::Stream(StreamEntry { memory: StreamMemory::Arena(rings), .. }) => Some(*rings),
            _ => None,
        };
        attachment.state.memory.set_status(slot, status);
        if let Some(rings) = arena {
            self.arenas.wake(attachment_id, &rings);
        }
        true
    }

    /// Releases handles that [`Control::finish_launch`] returned and that no running launch knows any more: their
    /// slots and rings are free as soon as nothing else uses them.
    pub(super) fn release(&mut self, attachment_id: AttachmentId, handles: &[Handle]) {
        for handle in handles {
            let Some(attachment) = self.attachment(attachment_id) else { return };
            let Some(entry) = attachment.slots.get_mut(handle.slot() as usize) else { continue };
            if entry.generation != handle.generation() || !std::mem::take(&mut entry.retiring) {
                continue;
            }
            match &entry.role {
                Role::Retired(Some(stream)) => {
                    let stream = *stream;
                    self.release_stream(attachment_id, handle.slot(), &stream);
                }
                Role::Retired(None) => attachment.recycle(handle.slot()),
                // The stream still delivers what was sent.
                _ => {}
            }
        }
    }

    fn close_any(&mut self, attachment_id: AttachmentId, slot: u32, linger_ms: Option<i32>) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        match &attachment.slots[slot as usize].role {
            Role::Stream(_) => self.close_stream(attachment_id, slot, linger_ms),
            Role::Listener(_) => self.close_listener(attachment_id, slot, None),
            Role::Bound(_) => attachment.recycle(slot),
            Role::Group(_) => self.close_group(attachment_id, slot),
            Role::Free | Role::Opening | Role::Prepared | Role::Retired(_) => {}
        }
    }

    /// Ends all requests and resets all sockets of a device whose kernels are dead.
    pub(super) fn reset_all(&mut self, attachment_id: AttachmentId) {
        self.sweep_all(attachment_id, Error::Canceled, SweepAction::Close(Some(0)), false);
    }

    /// Ends all requests and then all sockets of an attachment; with `ends`, then also the attachment.
    fn sweep_all(&mut self, attachment_id: AttachmentId, why: Error, action: SweepAction, ends: bool) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let requests = attachment.requests.keys().copied().collect();
        let sockets = attachment.named(attachment.slots.used());
        self.sweep(attachment_id, Box::new(Sweep { requests, why, sockets, action, ends }));
    }

    /// Does a batch of a sweep, and leaves the rest to later turns of the attachment.
    pub(super) fn sweep(&mut self, attachment_id: AttachmentId, mut sweep: Box<Sweep>) {
        for _ in 0..SWEEP_BATCH {
            let Some(attachment) = self.attachment(attachment_id) else { return };
            // The slot may have been reused since.
            if let Some(id) = sweep.requests.pop() {
                self.cancel(attachment_id, id, sweep.why);
            } else if let Some(SocketId { slot, generation }) = sweep.sockets.pop() {
                let is_same = attachment.slots[slot as usize].generation == generation;
                is_same.then(|| self.end_socket(attachment_id, slot, sweep.action));
            }
        }
        if !(sweep.requests.is_empty() && sweep.sockets.is_empty()) {
            let _ = self.messages.send(Message::Sweep { attachment: attachment_id, sweep });
        } else if sweep.ends {
            self.all_closed(attachment_id);
        }
    }

    fn end_socket(&mut self, attachment_id: AttachmentId, slot: u32, action: SweepAction) {
        match action {
            SweepAction::Close(linger_ms) => self.close_any(attachment_id, slot, linger_ms),
            SweepAction::CloseOrReset => {
                let Some(attachment) = self.attachment(attachment_id) else { return };
                let resets = match &attachment.slots[slot as usize].role {
                    Role::Stream(stream) => stream.partner.is_some() && !stream.closed,
                    _ => false,
                };
                self.close_any(attachment_id, slot, resets.then_some(0));
            }
            SweepAction::Abort => self.abort_socket(attachment_id, slot),
        }
    }

    /// Closes everything of an attachment; `done` is called when it is over, at the latest after the
    /// linger bound.
    pub(super) fn detach(&mut self, attachment_id: AttachmentId, why: Error, done: Done<()>) {
        self.begin_end(attachment_id, self.linger + DRAIN_MARGIN, done);
        // The daemon ends, not the program: an end of stream would wrongly tell the peer that everything was said.
        let action =
            if why == Error::NetworkDown { SweepAction::CloseOrReset } else { SweepAction::Close(None) };
        self.sweep_all(attachment_id, why, action, true);
    }

    /// Ends the attachment of a dead process, which closed nothing: what it sent is delivered and what it left open
    /// is then reset, all within [`GONE_TIMEOUT`]. Its peers see a reset after the data, not an end of stream that
    /// nobody meant.
    pub(super) fn gone(&mut self, attachment_id: AttachmentId, done: Done<()>) {
        // A process can end while its attachment is being closed.
        self.begin_end(attachment_id, GONE_TIMEOUT, done);
        if let Some(attachment) = self.attachment(attachment_id) {
            attachment.dead = true;
        }
        self.sweep_all(attachment_id, Error::NetworkDown, SweepAction::Abort, true);
    }

    /// Begins the end of an attachment: from here on the proxy closes its sockets, while kernels may still use
    /// them. Once all are closed, streams deliver what was sent for at most `bound`.
    fn begin_end(&mut self, attachment_id: AttachmentId, bound: Duration, done: Done<()>) {
        let Some(attachment) = self.attachment(attachment_id) else { return done(()) };
        attachment.ending = true;
        let before = attachment.detaching.replace(Detaching { done, bound, delivering: None });
        if let Some(Detaching { delivering: Some(before), .. }) = before {
            before.timeout.abort();
        }
    }

    /// Starts the wait for deliveries, after all sockets are closed. Not sooner: direct streams end at once, and
    /// the attachment would be forgotten too early.
    fn all_closed(&mut self, attachment_id: AttachmentId) {
        let messages = self.messages.clone();
        let Some(detaching) =
            self.attachment(attachment_id).and_then(|attachment| attachment.detaching.as_mut())
        else {
            return;
        };
        let bound = detaching.bound;
        let timeout = tokio::task::spawn_local(async move {
            tokio::time::sleep(bound).await;
            let _ = messages.send(Message::DetachTimeout { attachment: attachment_id });
        });
        if let Some(before) = detaching.delivering.replace(Delivering { timeout, from: 0 }) {
            before.timeout.abort();
        }
        self.check_detach(attachment_id);
    }

    /// Ends the socket in a slot of a dead process.
    fn abort_socket(&mut self, attachment_id: AttachmentId, slot: u32) {
        let Some(attachment) = self.attachments.get_mut(&attachment_id) else { return };
        match &mut attachment.slots[slot as usize].role {
            // One that was closed before ends as it would have, if it manages to in that time.
            Role::Stream(StreamEntry { thread: Some(thread), closed, .. }) => {
                *closed = true;
                let bound_ns = GONE_FLUSH.as_nanos() as u64;
                self.threads.link(*thread).send(Command::Gone { attachment: attachment_id, slot, bound_ns });
            }
            // Both ends are gone, and neither is notified: as if the other had closed first.
            Role::Stream(StreamEntry { partner: Some(partner), closed, .. })
                if partner.attachment == attachment_id =>
            {
                *closed = false;
                let partner = partner.slot;
                if let Role::Stream(other) = &mut attachment.slots[partner as usize].role {
                    other.closed = true;
                }
                self.close_any(attachment_id, slot, Some(0));
            }
            _ => self.close_any(attachment_id, slot, Some(0)),
        }
    }

    /// Ends a detach once everything is closed and no stream is left.
    pub(super) fn check_detach(&mut self, attachment_id: AttachmentId) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let Some(Detaching { delivering: Some(delivering), .. }) = &mut attachment.detaching else { return };
        // What a closed end has sent through an arena lies in its peer's part: nothing to wait for.
        let on_its_way = |role: &Role| match role {
            Role::Stream(stream) => !(stream.closed && matches!(stream.memory, StreamMemory::Arena(_))),
            _ => false,
        };
        // No new ones begin: the slots before it need not be checked again.
        let next = attachment.slots.iter_from(delivering.from).find(|(_, entry)| on_its_way(&entry.role));
        match next {
            Some((slot, _)) => delivering.from = slot,
            None => self.finish_detach(attachment_id),
        }
    }

    /// Forgets an attachment: no thread of the proxy touches its memory afterwards.
    pub(super) fn finish_detach(&mut self, attachment_id: AttachmentId) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let all_closed = |detaching: &mut Detaching| detaching.delivering.is_some();
        let Some(Detaching { done, delivering, .. }) = attachment.detaching.take_if(all_closed) else {
            return;
        };
        if let Some(delivering) = delivering {
            delivering.timeout.abort();
        }
        let mut account = None;
        if let Some(mut gone) = self.attachments.remove(&attachment_id) {
            account.clone_from(&gone.state.account);
            self.past.forget(&gone);
            gone.settle_account();
            for (_, entry) in gone.slots.iter() {
                // The data thread aborts it and does not report its end.
                if let Role::Stream(stream) = &entry.role {
                    self.threads.release(stream);
                }
                if let Role::Stream(stream) | Role::Retired(Some(stream)) = &entry.role
                    && let StreamMemory::Arena(rings) = stream.memory
                {
                    self.give_arena_rings(attachment_id, &rings, false);
                }
            }
        }
        self.forget_arenas(attachment_id, account.as_deref());
        self.routes.forget(attachment_id);
        self.messages.forget(attachment_id);
        let (ack, mut acks) = mpsc::unbounded_channel();
        for shard in self.threads.links() {
            shard.send(Command::Detach { attachment: attachment_id, done: ack.clone() });
        }
        drop(ack);
        // The data threads answer within a turn, which other messages need not wait for.
        tokio::task::spawn_local(async move {
            while acks.recv().await.is_some() {}
            done(());
        });
    }
}

impl AttachmentEntry {
    /// The sockets in these slots; the first one last.
    fn named(&self, slots: impl Iterator<Item = u32>) -> Vec<SocketId> {
        let socket = |slot: u32| SocketId { slot, generation: self.slots[slot as usize].generation };
        let mut named: Vec<_> = slots.map(socket).collect();
        named.reverse();
        named
    }
}

#[cfg(test)]
mod tests;
