//! What a finished launch leaves behind, and the end of an attachment.

use super::Control;
use super::at::At;
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

impl At<'_> {
    /// Ends the requests of a finished launch, and closes or keeps its sockets; at most
    /// [`SWEEP_BATCH`] of them per call. `fresh` are sockets that only the device knows: a kernel
    /// called gsocket for them.
    ///
    /// A close here is not the device's own: kernels of other launches may know the handle, and may
    /// be copying into the socket's rings. So the slot is retired, and not free before
    /// [`At::release`].
    pub(super) fn finish_launch(
        &mut self,
        launch: LaunchId,
        policy: FinishPolicy,
        fresh: &[Handle],
    ) -> Finished {
        self.assign_accepted(launch, policy != FinishPolicy::Keep);
        let mut waiting = self.requests_of(launch);
        let mut left = self.left_by(launch);
        let more = waiting.len() + left.len() > SWEEP_BATCH;
        waiting.truncate(SWEEP_BATCH);
        left.truncate(SWEEP_BATCH - waiting.len());
        waiting.into_iter().for_each(|id| self.cancel(id, Error::Canceled));
        // The launch's number will be reused, and the end of the next launch must not affect them.
        for &slot in &left {
            self.slots[slot].launch = None;
        }
        let linger = match policy {
            FinishPolicy::Keep => {
                return Finished { kept: left.len() + fresh.len(), closed: Vec::new(), more };
            }
            FinishPolicy::Close => None,
            FinishPolicy::Reset => Some(0),
        };
        let mut closed: Vec<Handle> = left.iter().map(|&slot| self.retire(slot, linger)).collect();
        closed.extend(fresh.iter().filter(|socket| self.retire_fresh(**socket)));
        Finished { kept: 0, closed, more }
    }

    /// Ends the requests of a launch of which a thread block failed, and resets its sockets. They
    /// are retired when the launch is finished.
    pub(super) fn abort_launch(&mut self, launch: LaunchId) {
        self.assign_accepted(launch, true);
        let (requests, mut slots) = (self.requests_of(launch), self.left_by(launch));
        // All at once, so that a finish in between does not take any of them for open.
        slots.retain(|&slot| self.mark_retired(slot));
        let sockets = self.named(slots.into_iter());
        let (why, action, ends) = (Error::Canceled, SweepAction::Close(Some(0)), false);
        self.sweep(Box::new(Sweep { requests, why, sockets, action, ends }));
    }

    /// The pending requests of a launch.
    fn requests_of(&mut self, launch: LaunchId) -> Vec<RequestId> {
        let of_launch = self.requests.iter().filter(|(_, waiting)| waiting.launch == launch);
        of_launch.map(|(&id, _)| id).collect()
    }

    /// The slots of the sockets that a launch left open, and of those that were closed when it
    /// failed.
    fn left_by(&mut self, launch: LaunchId) -> Vec<u32> {
        let left = self.slots.iter().filter(|&(slot, entry)| {
            let open = match &entry.role {
                Role::Free | Role::Opening | Role::Prepared | Role::Retired(_) => false,
                Role::Stream(stream) => !self.is_closed(slot, stream),
                Role::Bound(_) | Role::Listener(_) | Role::Group(_) => true,
            };
            entry.launch == Some(launch) && (open || entry.retiring)
        });
        left.map(|(slot, _)| slot).collect()
    }

    /// Closes a socket that its launch left open. Returns the handle.
    fn retire(&mut self, slot: u32, linger_ms: Option<i32>) -> Handle {
        let SocketId { slot, generation } = self.slots.id(slot);
        if self.mark_retired(slot) {
            self.close_any(slot, linger_ms);
        }
        Handle::new(slot, generation)
    }

    /// Sets BadHandle in the socket's status for all groups that wait there, and keeps the slot out
    /// of use until it is released, no matter who closes the socket. Returns whether the slot was
    /// not retired before.
    fn mark_retired(&mut self, slot: u32) -> bool {
        let entry = &mut self.slots[slot];
        if std::mem::replace(&mut entry.retiring, true) {
            return false;
        }
        let status = Status::open(entry.generation).with_error(Error::BadHandle);
        let arena = match &entry.role {
            Role::Stream(StreamEntry { memory: StreamMemory::Arena(rings), .. }) => Some(*rings),
            _ => None,
        };
        self.state.memory.set_status(slot, status);
        if let Some(rings) = arena {
            self.control.arenas.wake(self.state.id, &rings);
        }
        true
    }

    /// Releases handles that [`At::finish_launch`] returned and that no running launch knows any
    /// more: their slots and rings are free as soon as nothing else uses them.
    pub(super) fn release(&mut self, handles: &[Handle]) {
        for handle in handles {
            let socket = SocketId { slot: handle.slot(), generation: handle.generation() };
            if !self.slots.socket(socket).is_some_and(|entry| entry.retiring) {
                continue;
            }
            let entry = &mut self.slots[socket.slot];
            entry.retiring = false;
            match entry.role {
                Role::Retired(Some(stream)) => self.release_stream(socket.slot, &stream),
                Role::Retired(None) => self.recycle(socket.slot),
                // The stream still delivers what was sent.
                _ => {}
            }
        }
    }

    fn close_any(&mut self, slot: u32, linger_ms: Option<i32>) {
        match &self.slots[slot].role {
            Role::Stream(_) => self.close_stream(slot, linger_ms),
            Role::Listener(_) => self.close_listener(slot, None),
            Role::Bound(_) => self.recycle(slot),
            Role::Group(_) => self.close_group(slot),
            Role::Free | Role::Opening | Role::Prepared | Role::Retired(_) => {}
        }
    }

    /// Ends all requests and resets all sockets of a device whose kernels are dead.
    pub(super) fn reset_all(&mut self) {
        self.sweep_all(Error::Canceled, SweepAction::Close(Some(0)), false);
    }

    /// Ends all requests and then all sockets of an attachment; with `ends`, then also the
    /// attachment.
    fn sweep_all(&mut self, why: Error, action: SweepAction, ends: bool) {
        let requests = self.requests.keys().copied().collect();
        let sockets = self.named(self.slots.used());
        self.sweep(Box::new(Sweep { requests, why, sockets, action, ends }));
    }

    /// Does a batch of a sweep, and leaves the rest to later turns of the attachment.
    pub(super) fn sweep(&mut self, mut sweep: Box<Sweep>) {
        for _ in 0..SWEEP_BATCH {
            // The slot may have been reused since.
            if let Some(id) = sweep.requests.pop() {
                self.cancel(id, sweep.why);
            } else if let Some(socket) = sweep.sockets.pop()
                && self.slots.socket(socket).is_some()
            {
                self.end_socket(socket.slot, sweep.action);
            }
        }
        if !(sweep.requests.is_empty() && sweep.sockets.is_empty()) {
            let attachment = self.state.id;
            let _ = self.control.messages.send(Message::Sweep { attachment, sweep });
        } else if sweep.ends {
            self.all_closed();
        }
    }

    fn end_socket(&mut self, slot: u32, action: SweepAction) {
        match action {
            SweepAction::Close(linger_ms) => self.close_any(slot, linger_ms),
            SweepAction::CloseOrReset => {
                let resets = match &self.slots[slot].role {
                    Role::Stream(stream) => stream.partner.is_some() && !stream.closed,
                    _ => false,
                };
                self.close_any(slot, resets.then_some(0));
            }
            SweepAction::Abort => self.abort_socket(slot),
        }
    }

    /// Closes everything of an attachment; `done` is called when all of it has ended, at the latest
    /// after the linger bound.
    pub(super) fn detach(&mut self, why: Error, done: Done<()>) {
        self.begin_end(self.control.linger + DRAIN_MARGIN, done);
        // The daemon ends, not the program: an end of stream would wrongly tell the peer that the
        // data is complete.
        let action =
            if why == Error::NetworkDown { SweepAction::CloseOrReset } else { SweepAction::Close(None) };
        self.sweep_all(why, action, true);
    }

    /// Ends the attachment of a dead process, which closed nothing: what it sent is delivered and
    /// what it left open is then reset, all within [`GONE_TIMEOUT`]. Its peers see a reset after
    /// the data, not an end of stream that the program did not intend.
    pub(super) fn gone(&mut self, done: Done<()>) {
        // A process can end while its attachment is being closed.
        self.begin_end(GONE_TIMEOUT, done);
        self.dead = true;
        self.sweep_all(Error::NetworkDown, SweepAction::Abort, true);
    }

    /// Begins the end of an attachment: from here on the proxy closes its sockets, while kernels
    /// may still use them. Once all are closed, streams deliver what was sent for at most `bound`.
    fn begin_end(&mut self, bound: Duration, done: Done<()>) {
        self.ending = true;
        let before = self.detaching.replace(Detaching { done, bound, delivering: None });
        if let Some(Detaching { delivering: Some(before), .. }) = before {
            before.timeout.abort();
        }
    }

    /// Starts the wait for deliveries, after all sockets are closed. Not sooner: direct streams end
    /// at once, and the attachment would be forgotten too early.
    fn all_closed(&mut self) {
        let (messages, attachment) = (self.control.messages.clone(), self.state.id);
        let Some(detaching) = &mut self.detaching else { return };
        let bound = detaching.bound;
        let timeout = tokio::task::spawn_local(async move {
            tokio::time::sleep(bound).await;
            let _ = messages.send(Message::DetachTimeout { attachment });
        });
        if let Some(before) = detaching.delivering.replace(Delivering { timeout, from: 0 }) {
            before.timeout.abort();
        }
        self.check_detach();
    }

    /// Ends the socket in a slot of a dead process.
    fn abort_socket(&mut self, slot: u32) {
        let attachment = self.state.id;
        match &mut self.slots[slot].role {
            // One that was closed before ends as it would have, if it manages to in that time.
            Role::Stream(StreamEntry { thread: Some(thread), closed, .. }) => {
                *closed = true;
                let (thread, bound_ns) = (*thread, GONE_FLUSH.as_nanos() as u64);
                self.control.threads.link(thread).send(Command::Gone { attachment, slot, bound_ns });
            }
            // Both ends are gone, and neither is notified: as if the other had closed first.
            Role::Stream(StreamEntry { partner: Some(partner), closed, .. })
                if partner.attachment == attachment =>
            {
                *closed = false;
                let partner = partner.socket.slot;
                if let Role::Stream(other) = &mut self.slots[partner].role {
                    other.closed = true;
                }
                self.close_any(slot, Some(0));
            }
            _ => self.close_any(slot, Some(0)),
        }
    }

    /// Ends a detach once everything is closed and no stream is left.
    pub(super) fn check_detach(&mut self) {
        let attachment: &mut AttachmentEntry = self;
        let Some(Detaching { delivering: Some(delivering), .. }) = &mut attachment.detaching else { return };
        // Bytes that a closed end has sent through an arena lie in its peer's part: there is
        // nothing to wait for.
        let on_its_way = |role: &Role| match role {
            Role::Stream(stream) => !(stream.closed && matches!(stream.memory, StreamMemory::Arena(_))),
            _ => false,
        };
        // No new ones begin: the slots before it need not be checked again.
        let next = attachment.slots.iter_from(delivering.from).find(|(_, entry)| on_its_way(&entry.role));
        match next {
            Some((slot, _)) => delivering.from = slot,
            None => self.end_detach(),
        }
    }

    /// Ends a detach after this message, if all sockets are closed.
    pub(super) fn end_detach(&mut self) {
        if matches!(&self.detaching, Some(Detaching { delivering: Some(_), .. })) {
            let id = self.state.id;
            self.control.ended.push(id);
        }
    }
}

impl Control {
    /// Forgets an attachment: no thread of the proxy touches its memory afterwards.
    pub(super) fn forget(&mut self, id: AttachmentId) {
        // One message may have ended it twice.
        let Some(mut gone) = self.attachments.remove(id) else { return };
        let detaching = gone.detaching.take();
        if let Some(Detaching { delivering: Some(delivering), .. }) = &detaching {
            delivering.timeout.abort();
        }
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
                self.give_arena_rings(id, &rings, false);
            }
        }
        self.forget_arenas(id, gone.state.account.as_deref());
        self.routes.forget(id);
        self.messages.forget(id);
        let (ack, mut acks) = mpsc::unbounded_channel();
        for shard in self.threads.links() {
            shard.send(Command::Detach { attachment: id, done: ack.clone() });
        }
        drop(ack);
        // The data threads answer within a turn, which other messages need not wait for.
        tokio::task::spawn_local(async move {
            while acks.recv().await.is_some() {}
            if let Some(Detaching { done, .. }) = detaching {
                done(());
            }
        });
    }
}

impl AttachmentEntry {
    /// The sockets in these slots; the first one last.
    fn named(&self, slots: impl Iterator<Item = u32>) -> Vec<SocketId> {
        let mut named: Vec<_> = slots.map(|slot| self.slots.id(slot)).collect();
        named.reverse();
        named
    }
}

#[cfg(test)]
mod tests;
