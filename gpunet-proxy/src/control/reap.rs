//! What a finished launch leaves behind, and the end of an attachment.

use super::Control;
use super::books::{Detaching, NO_LAUNCH, Role, Stream, StreamMemory};
use crate::message::{Command, Done, Message};
use crate::token::{FinishPolicy, Finished, MOST_HANDLES};
use gpunet_abi::{Error, Handle, Status};
use std::time::Duration;

/// How long the streams of a process that is gone may take to deliver what it sent.
const GONE_FLUSH: Duration = Duration::from_millis(500);
/// Everything of it is forgotten after that long.
const GONE: Duration = Duration::from_millis(700);
/// A closed stream drains for two seconds at most; one more for the turns it takes.
const DRAIN_MARGIN: Duration = Duration::from_secs(3);

impl Control {
    /// Ends the requests of a launch that has ended, and closes or keeps its sockets: some of them, if
    /// there are many. `fresh` are sockets that only the device knows: gsocket took a slot for them.
    ///
    /// A socket that is closed here is not the device's own close: kernels of other launches may know its
    /// handle, and may be copying into its rings. So its slot is retired, and not free before
    /// [`Control::release`].
    pub(super) fn finish_launch(
        &mut self,
        device_id: u32,
        launch: u32,
        policy: FinishPolicy,
        fresh: &[Handle],
    ) -> Finished {
        self.cancel_launch(device_id, launch);
        let mut left = self.left_by(device_id, launch);
        let Some(device) = self.device(device_id) else { return Finished::default() };
        let more = left.len() > MOST_HANDLES;
        left.truncate(MOST_HANDLES);
        // The launch's number will be given to another, whose end does not concern them.
        for &slot in &left {
            device.slots[slot as usize].launch = NO_LAUNCH;
        }
        let linger = match policy {
            FinishPolicy::Keep => {
                return Finished { kept: left.len() + fresh.len(), closed: Vec::new(), more };
            }
            FinishPolicy::Close => None,
            FinishPolicy::Reset => Some(0),
        };
        let mut closed: Vec<Handle> = left.iter().map(|&slot| self.retire(device_id, slot, linger)).collect();
        let Some(device) = self.device(device_id) else { return Finished::default() };
        closed.extend(fresh.iter().filter(|socket| device.retire_fresh(**socket)));
        Finished { kept: 0, closed, more }
    }

    /// A thread block has failed, and with it its launch: ends the launch's requests and resets its
    /// sockets, which are retired when the launch is finished.
    pub(super) fn abort_launch(&mut self, device_id: u32, launch: u32) {
        self.cancel_launch(device_id, launch);
        for slot in self.left_by(device_id, launch) {
            self.retire(device_id, slot, Some(0));
        }
    }

    fn cancel_launch(&mut self, device_id: u32, launch: u32) {
        let Some(device) = self.device(device_id) else { return };
        let of_launch = device.requests.iter().filter(|(_, waiting)| waiting.launch == launch);
        let waiting: Vec<u32> = of_launch.map(|(&control, _)| control).collect();
        for control in waiting {
            self.cancel(device_id, control, Error::Canceled);
        }
    }

    /// The slots of the sockets that a launch left open, and of those that were closed when it failed.
    fn left_by(&mut self, device_id: u32, launch: u32) -> Vec<u32> {
        let Some(device) = self.device(device_id) else { return Vec::new() };
        let left = device.slots.iter().filter(|(_, book)| {
            let open = match &book.role {
                Role::Free | Role::Opening | Role::Retired(_) => false,
                Role::Stream(stream) => !stream.closed,
                Role::Bound(_) | Role::Listener(_) => true,
            };
            book.launch == launch && (open || book.retiring)
        });
        left.map(|(slot, _)| slot).collect()
    }

    /// Closes a socket for a launch that does not: whoever waits on it hears that the handle is dead, and
    /// the slot stays out of use until it is released. Returns the handle.
    fn retire(&mut self, device_id: u32, slot: u32, linger_ms: Option<i32>) -> Handle {
        let Some(device) = self.device(device_id) else { return Handle::new(slot, 0) };
        let book = &mut device.slots[slot as usize];
        let handle = Handle::new(slot, book.generation);
        if std::mem::replace(&mut book.retiring, true) {
            return handle;
        }
        let arena = match &book.role {
            Role::Stream(Stream { memory: StreamMemory::Arena(rings), .. }) => Some(*rings),
            _ => None,
        };
        let status = Status::open(handle.generation()).with_error(Error::BadHandle);
        device.attached.memory.set_status(slot, status);
        if let Some(rings) = arena {
            self.arenas.wake(device_id, &rings);
        }
        self.close_any(device_id, slot, linger_ms);
        handle
    }

    /// No running launch knows these handles any more, which [`Control::finish_launch`] returned: their
    /// slots and rings are free as soon as nothing else uses them.
    pub(super) fn release(&mut self, device_id: u32, handles: &[Handle]) {
        for handle in handles {
            let Some(device) = self.device(device_id) else { return };
            let Some(book) = device.slots.get_mut(handle.slot() as usize) else { continue };
            if book.generation != handle.generation() || !std::mem::take(&mut book.retiring) {
                continue;
            }
            match &book.role {
                Role::Retired(Some(stream)) => {
                    let stream = *stream;
                    self.release_stream(device_id, handle.slot(), &stream);
                }
                Role::Retired(None) => device.recycle(handle.slot()),
                // Its stream still delivers what was sent.
                _ => {}
            }
        }
    }

    fn close_any(&mut self, device_id: u32, slot: u32, linger_ms: Option<i32>) {
        let Some(device) = self.device(device_id) else { return };
        match &device.slots[slot as usize].role {
            Role::Stream(_) => self.close_stream(device_id, slot, linger_ms),
            Role::Listener(_) => self.close_listener(device_id, slot),
            Role::Bound(_) => device.recycle(slot),
            Role::Free | Role::Opening | Role::Retired(_) => {}
        }
    }

    /// Ends all requests and resets all sockets of a device whose kernels are dead.
    pub(super) fn reset_all(&mut self, device_id: u32) {
        self.cancel_all(device_id, Error::Canceled);
        self.close_all(device_id, Some(0));
    }

    fn cancel_all(&mut self, device_id: u32, why: Error) {
        let Some(device) = self.device(device_id) else { return };
        let waiting: Vec<u32> = device.requests.keys().copied().collect();
        waiting.into_iter().for_each(|control| self.cancel(device_id, control, why));
    }

    fn close_all(&mut self, device_id: u32, linger_ms: Option<i32>) {
        let Some(device) = self.device(device_id) else { return };
        let used = device.slots.used();
        used.into_iter().for_each(|slot| self.close_any(device_id, slot, linger_ms));
    }

    /// Closes everything of an attachment; `done` is called when it is over, at the latest after the
    /// linger bound.
    pub(super) fn detach(&mut self, device_id: u32, why: Error, done: Done<()>) {
        self.begin_end(device_id);
        self.cancel_all(device_id, why);
        if why == Error::NetworkDown {
            self.reset_direct(device_id);
        }
        self.close_all(device_id, None);
        self.await_end(device_id, self.linger + DRAIN_MARGIN, done);
    }

    /// The process of an attachment is gone, and closed nothing: what it sent is delivered and what it
    /// left open then reset, all within [`GONE`]. Its peers see a reset after the data, not an end that
    /// nobody meant.
    pub(super) fn gone(&mut self, device_id: u32, done: Done<()>) {
        // A process can end while its attachment is being closed.
        if let Some(before) = self.device(device_id).and_then(|device| device.detaching.take()) {
            before.timeout.abort();
        }
        self.begin_end(device_id);
        if let Some(device) = self.device(device_id) {
            device.dead = true;
        }
        self.cancel_all(device_id, Error::NetworkDown);
        let used = self.device(device_id).map_or(Vec::new(), |device| device.slots.used());
        used.into_iter().for_each(|slot| self.cut(device_id, slot));
        self.await_end(device_id, GONE, done);
    }

    /// Resets the direct streams that the device has not closed: the daemon ends, not the program, and an
    /// end of stream would tell the peer that all was said.
    fn reset_direct(&mut self, device_id: u32) {
        let Some(device) = self.device(device_id) else { return };
        let open = device.slots.iter().filter(|(_, book)| match &book.role {
            Role::Stream(stream) => stream.partner.is_some() && !stream.closed,
            _ => false,
        });
        let open: Vec<u32> = open.map(|(slot, _)| slot).collect();
        open.into_iter().for_each(|slot| self.close_any(device_id, slot, Some(0)));
    }

    /// From here on it is not the device that closes its sockets: its kernels may still use them.
    fn begin_end(&mut self, device_id: u32) {
        if let Some(device) = self.device(device_id) {
            device.ending = true;
        }
    }

    /// Ends whatever stands in a slot of a process that is gone.
    fn cut(&mut self, device_id: u32, slot: u32) {
        let shard = self.shard(slot).clone();
        let Some(device) = self.device(device_id) else { return };
        match &mut device.slots[slot as usize].role {
            // One that was closed before ends as it would have, if it can in that time.
            Role::Stream(stream) if stream.partner.is_none() => {
                stream.closed = true;
                let bound_ns = GONE_FLUSH.as_nanos() as u64;
                shard.send(Command::Gone { device: device_id, slot, bound_ns });
            }
            // Both ends are gone, and neither is told anything: as if the other had closed first.
            Role::Stream(Stream { partner: Some(partner), closed, .. }) if partner.device == device_id => {
                *closed = false;
                let partner = partner.slot;
                if let Role::Stream(other) = &mut device.slots[partner as usize].role {
                    other.closed = true;
                }
                self.close_any(device_id, slot, Some(0));
            }
            _ => self.close_any(device_id, slot, Some(0)),
        }
    }

    /// Everything of an attachment was closed: forgets it as soon as that is done, at the latest after
    /// `bound`. Not before all was closed, since a direct stream is done at once.
    fn await_end(&mut self, device_id: u32, bound: Duration, done: Done<()>) {
        let messages = self.messages.clone();
        let Some(device) = self.device(device_id) else { return done(()) };
        let timeout = tokio::task::spawn_local(async move {
            tokio::time::sleep(bound).await;
            let _ = messages.send(Message::DetachTimeout { device: device_id });
        });
        device.detaching = Some(Detaching { done, timeout });
        self.check_detach(device_id);
    }

    /// Ends a detach once no stream is left.
    pub(super) fn check_detach(&mut self, device_id: u32) {
        let Some(device) = self.device(device_id) else { return };
        // What a closed end has sent through an arena lies in its peer's part: nothing to wait for.
        let on_its_way = |role: &Role| match role {
            Role::Stream(stream) => !(stream.closed && matches!(stream.memory, StreamMemory::Arena(_))),
            _ => false,
        };
        if device.detaching.is_some() && !device.slots.iter().any(|(_, book)| on_its_way(&book.role)) {
            self.finish_detach(device_id);
        }
    }

    /// Forgets an attachment: no thread of the proxy touches its memory afterwards.
    pub(super) fn finish_detach(&mut self, device_id: u32) {
        let Some(device) = self.device(device_id) else { return };
        let Some(Detaching { done, timeout }) = device.detaching.take() else { return };
        timeout.abort();
        let mut account = None;
        if let Some(mut gone) = self.devices.remove(&device_id) {
            account.clone_from(&gone.attached.account);
            self.past.forget(&gone);
            gone.settle_account();
            for (_, book) in gone.slots.iter() {
                if let Role::Stream(stream) | Role::Retired(Some(stream)) = &book.role
                    && let StreamMemory::Arena(rings) = stream.memory
                {
                    self.give_arena_rings(device_id, &rings, false);
                }
            }
        }
        self.forget_arenas(device_id, account.as_deref());
        self.routes.forget(device_id);
        let (ack, acks) = crossbeam_channel::unbounded();
        for shard in &self.shards {
            shard.send(Command::Detach { device: device_id, done: ack.clone() });
        }
        drop(ack);
        // The data threads answer within a turn; waiting for them here would hold up the others.
        tokio::task::spawn_blocking(move || {
            while acks.recv().is_ok() {}
            done(());
        });
    }
}
