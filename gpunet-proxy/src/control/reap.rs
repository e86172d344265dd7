//! What a finished launch leaves behind, and the end of an attachment.

use super::Control;
use super::slots::Role;
use super::tables::{AttachmentEntry, Delivering, Detaching, StreamEntry, StreamMemory};
use crate::model::launch::{FinishPolicy, Finished};
use crate::model::message::{Command, Done, Message, Sweep, SweepAction};
use gpunet_abi::{Error, Handle, Status};
use gpunet_core::ids::{AttachmentId, LaunchId, RequestId, SocketId};
use std::time::Duration;

/// How long the streams of a process that is gone may take to deliver what it sent.
const GONE_FLUSH: Duration = Duration::from_millis(500);
/// Everything of it is forgotten after that long.
const GONE_TIMEOUT: Duration = Duration::from_millis(700);
/// A closed stream drains for two seconds at most; one more for the turns it takes.
const DRAIN_MARGIN: Duration = Duration::from_secs(3);

/// Requests and sockets that are ended without a pause. A close takes some microseconds.
const SWEEP_BATCH: usize = 256;

impl Control {
    /// Ends the requests of a launch that has ended, and closes or keeps its sockets: some of them, if
    /// there are many. `fresh` are sockets that only the device knows: gsocket took a slot for them.
    ///
    /// A socket that is closed here is not the device's own close: kernels of other launches may know its
    /// handle, and may be copying into its rings. So its slot is retired, and not free before
    /// [`Control::release`].
    pub(super) fn finish_launch(
        &mut self,
        attachment_id: AttachmentId,
        launch: LaunchId,
        policy: FinishPolicy,
        fresh: &[Handle],
    ) -> Finished {
        let mut waiting = self.requests_of(attachment_id, launch);
        let mut left = self.left_by(attachment_id, launch);
        let more = waiting.len() + left.len() > SWEEP_BATCH;
        waiting.truncate(SWEEP_BATCH);
        left.truncate(SWEEP_BATCH - waiting.len());
        waiting.into_iter().for_each(|id| self.cancel(attachment_id, id, Error::Canceled));
        let Some(attachment) = self.attachment(attachment_id) else { return Finished::default() };
        // The launch's number will be given to another, whose end does not concern them.
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

    /// A thread block has failed, and with it its launch: ends the launch's requests and resets its
    /// sockets, which are retired when the launch is finished.
    pub(super) fn abort_launch(&mut self, attachment_id: AttachmentId, launch: LaunchId) {
        let (requests, mut slots) =
            (self.requests_of(attachment_id, launch), self.left_by(attachment_id, launch));
        // All at once, so that whoever finishes the launch meanwhile takes none of them for open.
        slots.retain(|&slot| self.mark_retired(attachment_id, slot));
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let sockets = attachment.named(slots.into_iter());
        let (why, action, ends) = (Error::Canceled, SweepAction::Close(Some(0)), false);
        self.sweep(attachment_id, Box::new(Sweep { requests, why, sockets, action, ends }));
    }

    /// The requests of a launch that wait.
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
                Role::Free | Role::Opening | Role::Retired(_) => false,
                Role::Stream(stream) => !stream.closed,
                Role::Bound(_) | Role::Listener(_) => true,
            };
            entry.launch == Some(launch) && (open || entry.retiring)
        });
        left.map(|(slot, _)| slot).collect()
    }

    /// Closes a socket for a launch that does not. Returns the handle.
    fn retire(&mut self, attachment_id: AttachmentId, slot: u32, linger_ms: Option<i32>) -> Handle {
        let generation =
            self.attachment(attachment_id).map_or(0, |attachment| attachment.slots[slot as usize].generation);
        if self.mark_retired(attachment_id, slot) {
            self.close_any(attachment_id, slot, linger_ms);
        }
        Handle::new(slot, generation)
    }

    /// Whoever waits on that socket hears that the handle is dead, and the slot stays out of use until it is released,
    /// whoever closes it. Returns whether that is new.
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

    /// No running launch knows these handles any more, which [`Control::finish_launch`] returned: their
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
                // Its stream still delivers what was sent.
                _ => {}
            }
        }
    }

    fn close_any(&mut self, attachment_id: AttachmentId, slot: u32, linger_ms: Option<i32>) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        match &attachment.slots[slot as usize].role {
            Role::Stream(_) => self.close_stream(attachment_id, slot, linger_ms),
            Role::Listener(_) => self.close_listener(attachment_id, slot),
            Role::Bound(_) => attachment.recycle(slot),
            Role::Free | Role::Opening | Role::Retired(_) => {}
        }
    }

    /// Ends all requests and resets all sockets of a device whose kernels are dead.
    pub(super) fn reset_all(&mut self, attachment_id: AttachmentId) {
        self.sweep_all(attachment_id, Error::Canceled, SweepAction::Close(Some(0)), false);
    }

    /// Ends all requests, then all sockets, and with them the attachment if it `ends`.
    fn sweep_all(&mut self, attachment_id: AttachmentId, why: Error, action: SweepAction, ends: bool) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let requests = attachment.requests.keys().copied().collect();
        let sockets = attachment.named(attachment.slots.used());
        self.sweep(attachment_id, Box::new(Sweep { requests, why, sockets, action, ends }));
    }

    /// Does some of it, and the rest in later turns of the attachment.
    pub(super) fn sweep(&mut self, attachment_id: AttachmentId, mut sweep: Box<Sweep>) {
        for _ in 0..SWEEP_BATCH {
            let Some(attachment) = self.attachment(attachment_id) else { return };
            // The slot of either may have been given to another since.
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
        // The daemon ends, not the program: an end of stream would tell the peer that all was said.
        let action =
            if why == Error::NetworkDown { SweepAction::CloseOrReset } else { SweepAction::Close(None) };
        self.sweep_all(attachment_id, why, action, true);
    }

    /// The process of an attachment is gone, and closed nothing: what it sent is delivered and what it
    /// left open then reset, all within [`GONE_TIMEOUT`]. Its peers see a reset after the data, not an end that
    /// nobody meant.
    pub(super) fn gone(&mut self, attachment_id: AttachmentId, done: Done<()>) {
        // A process can end while its attachment is being closed.
        self.begin_end(attachment_id, GONE_TIMEOUT, done);
        if let Some(attachment) = self.attachment(attachment_id) {
            attachment.dead = true;
        }
        self.sweep_all(attachment_id, Error::NetworkDown, SweepAction::Abort, true);
    }

    /// From here on it is not the device that closes its sockets: its kernels may still use them. Once all are closed,
    /// streams deliver for at most `bound` what was sent.
    fn begin_end(&mut self, attachment_id: AttachmentId, bound: Duration, done: Done<()>) {
        let Some(attachment) = self.attachment(attachment_id) else { return done(()) };
        attachment.ending = true;
        let before = attachment.detaching.replace(Detaching { done, bound, delivering: None });
        if let Some(Detaching { delivering: Some(before), .. }) = before {
            before.timeout.abort();
        }
    }

    /// All sockets of an attachment that ends are closed. Not sooner is it forgotten: a direct stream is done at once.
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

    /// Ends whatever stands in a slot of a process that is gone.
    fn abort_socket(&mut self, attachment_id: AttachmentId, slot: u32) {
        let shard = self.shard(slot).clone();
        let Some(attachment) = self.attachment(attachment_id) else { return };
        match &mut attachment.slots[slot as usize].role {
            // One that was closed before ends as it would have, if it can in that time.
            Role::Stream(stream) if stream.partner.is_none() => {
                stream.closed = true;
                let bound_ns = GONE_FLUSH.as_nanos() as u64;
                shard.send(Command::Gone { attachment: attachment_id, slot, bound_ns });
            }
            // Both ends are gone, and neither is told anything: as if the other had closed first.
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
        // None begins any more: those before it need not be looked at again.
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
        let (ack, acks) = crossbeam_channel::unbounded();
        for shard in &self.shards {
            shard.send(Command::Detach { attachment: attachment_id, done: ack.clone() });
        }
        drop(ack);
        // The data threads answer within a turn; waiting for them here would hold up the others.
        tokio::task::spawn_blocking(move || {
            while acks.recv().is_ok() {}
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
