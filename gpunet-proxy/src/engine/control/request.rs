//! Requests of devices and host programs. Everything in them is checked before it is used.

use super::ahead::slots_of;
use super::at::At;
use super::tables::pending::Wait;
use super::tables::slots::Role;
use super::tables::{AttachmentEntry, StreamEntry};
use crate::model::message::Command;
use gpunet_abi::control::{Op, Query, Reply, Request};
use gpunet_abi::handle::MAX_GENERATION;
use gpunet_abi::layout::LAUNCHES;
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Error, SockAddr};
use gpunet_core::ids::{LaunchId, RequestId};
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::tcp;
use std::time::Instant;

impl At<'_> {
    /// Lets data thread 0 hand on the next request of that control slot.
    pub(super) fn leave_request(&mut self, id: RequestId, request: &Request) {
        self.state.inbox.leave_request(id);
        // The device may have made it already, and the data thread may have passed it over and gone
        // to sleep.
        if request.is_answered_first()
            && let Some(link) = self.control.threads.links().next()
        {
            link.bell.wake();
        }
    }

    pub(super) fn handle_request(&mut self, id: RequestId, request: &Request) {
        // A device waits for one answer before it makes the next request in that slot. If the word
        // changes meanwhile, a kernel has overwritten it: the group that waits there gets an error,
        // and the new request is not read.
        if let Some(waiting) = self.waiting_in_place_of(id) {
            tracing::warn!(
                control = id.control(),
                "a kernel overwrote a control slot: its request gets EPROTO"
            );
            return self.cancel(waiting, Error::Protocol);
        }
        // The data thread has answered it: the device may be using the control slot again.
        let is_answered = matches!(id, RequestId::Device { .. }) && request.is_answered_first();
        let op = match check(self, request) {
            Ok(op) => op,
            Err(error) => {
                tracing::debug!(?id, op = request.op, slot = request.slot, %error, "request refused");
                take_back(self, request);
                if !is_answered {
                    self.reply_result(id, Err(error));
                }
                return;
            }
        };
        if self.defer(id, op, request) {
            return;
        }
        if let Err(error) = permit(self, op, request) {
            tracing::debug!(?id, slot = request.slot, %error, "not permitted");
            if op == Op::Prepare {
                self.pass_over(request);
            }
            take_back(self, request);
            return self.reply_result(id, Err(error));
        }
        let slot = request.slot;
        match op {
            Op::Bind => match bind(self, request) {
                Ok(()) if request.flags & Request::LISTEN != 0 => {
                    self.listen(id, request);
                }
                Ok(()) => {
                    let reply = bound_reply(self, slot);
                    self.reply(id, &reply);
                }
                Err(error) => {
                    self.refuse_slot(slot, request.generation);
                    self.reply_result(id, Err(error));
                }
            },
            Op::Listen => self.listen(id, request),
            Op::Connect => self.connect(id, request),
            Op::Accept => self.accept(id, request),
            Op::Prepare => self.hold_slots(id, request),
            Op::Group => self.open_group(id, request),
            Op::Close => {
                self.close(request);
                if !is_answered {
                    self.reply_result(id, Ok(()));
                }
            }
            Op::SetOptions => {
                let (attachment, options) = (self.state.id, request.options);
                let linger_ns = self.control.linger_ns(options.linger_ms);
                if let Role::Stream(stream) = &mut self.slots[slot].role {
                    stream.linger_ms = options.linger_ms;
                    if let Some(thread) = stream.thread {
                        let command = Command::SetOptions { attachment, slot, options, linger_ns };
                        self.control.threads.link(thread).send(command);
                    }
                }
                self.reply_result(id, Ok(()));
            }
            Op::Query => {
                if request.value != Query::OutQueue as u64 {
                    return self.reply_result(id, Err(Error::InvalidArgument));
                }
                self.wait(id, LaunchId(request.launch), Wait::Query);
                match &self.slots[slot].role {
                    Role::Stream(StreamEntry { thread: Some(thread), .. }) => {
                        let command = Command::OutQueue { attachment: self.state.id, slot, id };
                        self.control.threads.link(*thread).send(command);
                    }
                    _ => self.handle_out_queue(id, None),
                }
            }
        }
    }

    pub(super) fn handle_out_queue(&mut self, id: RequestId, bytes: Option<u64>) {
        if self.waits(id) {
            let reply = match bytes {
                Some(bytes) => Reply::new(0, bytes),
                None => Reply::new(Error::NotConnected.errno() as u32, 0),
            };
            self.reply(id, &reply);
        }
    }

    /// Ends a request with an error and frees what it held, if it still waits.
    pub(super) fn cancel(&mut self, id: RequestId, error: Error) {
        let Some(waiting) = self.requests.remove(&id) else { return };
        match waiting.what {
            Wait::Accept { listener, place } => {
                let listener = self.slots.listener_mut(listener);
                if let Some(waiter) = listener.and_then(|listener| listener.waiters.remove(place)) {
                    self.recycle(waiter.target);
                }
            }
            Wait::Queued { slot, .. } => {
                let generation = self.slots[slot].generation;
                let ticket = Ticket { attachment: self.state.id, slot, generation, request: id };
                self.control.peer.withdraw(ticket);
                self.recycle(slot);
            }
            Wait::Joining { join } => self.leave_join(join),
            Wait::Deferred { request } => take_back(self, &request),
            // An attempt ends by itself when its `stop` is dropped, as it is here.
            Wait::Attempt { .. } | Wait::Query => {}
        }
        self.reply_result(id, Err(error));
    }
}

/// Checks every number of a request that is used as an index or a state.
fn check(attachment: &AttachmentEntry, request: &Request) -> Result<Op, Error> {
    let op = Op::from_raw(request.op).ok_or(Error::Protocol)?;
    let Some(slot) = attachment.slots.get(request.slot) else { return Err(Error::Protocol) };
    if request.launch >= LAUNCHES || request.generation == 0 || request.generation > MAX_GENERATION {
        return Err(Error::Protocol);
    }
    if !request.options.is_valid() {
        return Err(Error::InvalidArgument);
    }
    if attachment.ending {
        return Err(Error::NetworkDown);
    }
    let known = slot.generation == request.generation;
    let fresh = attachment.is_fresh(request.slot, request.generation);
    match (op, &slot.role) {
        (Op::Bind | Op::Connect | Op::Close | Op::Group, Role::Free) if fresh => Ok(op),
        (_, Role::Free | Role::Retired(_)) => Err(Error::BadHandle),
        _ if !known => Err(Error::BadHandle),
        (Op::Listen | Op::Connect, Role::Bound(_)) => Ok(op),
        (Op::Connect, Role::Stream(_)) => Err(Error::IsConnected),
        (Op::Accept, Role::Listener(_)) => {
            let fresh = attachment.is_fresh(request.target, request.target_generation);
            if fresh { Ok(op) } else { Err(Error::Protocol) }
        }
        (Op::Prepare, Role::Listener(listener)) => {
            if attachment.could_prepare(listener, request) {
                Ok(op)
            } else {
                Err(Error::Protocol)
            }
        }
        (Op::Close, Role::Opening | Role::Prepared) => Err(Error::Protocol),
        (Op::Close, Role::Stream(stream)) if stream.closed => Err(Error::BadHandle),
        (Op::Close, _) => Ok(op),
        (Op::Query, Role::Stream(stream)) if stream.partner.is_some() => Err(Error::NotSupported),
        (Op::SetOptions | Op::Query, Role::Stream(_)) => Ok(op),
        (Op::SetOptions | Op::Query, _) => Err(Error::NotConnected),
        _ => Err(Error::InvalidArgument),
    }
}

/// Checks a request against the limits of the owner's account, if there is one.
fn permit(attachment: &mut AttachmentEntry, op: Op, request: &Request) -> Result<(), Error> {
    if let Some(account) = &attachment.state.account {
        match op {
            Op::Bind => {
                account.bind(request.address.to_std().map_or(0, |addr| addr.port()))?;
                account.pace(Instant::now())?;
            }
            Op::Connect => account.pace(Instant::now())?,
            _ => {}
        }
    }
    let (slot, listens) = (request.slot, request.flags & Request::LISTEN != 0);
    match op {
        Op::Bind => {
            attachment.count_socket(slot)?;
            attachment.count_descriptors(slot, 1)?;
        }
        Op::Connect | Op::Group => attachment.count_socket(slot)?,
        Op::Accept => attachment.count_socket(request.target)?,
        Op::Prepare if !attachment.may_hold(request) => return Err(Error::TooManySockets),
        _ => {}
    }
    if op == Op::Listen || (op == Op::Bind && listens) {
        // The listening socket, and the descriptor that watches it.
        attachment.count_descriptors(slot, 2)?;
    }
    Ok(())
}

/// Takes back the slot of the socket that a refused request was to open, even a bound one: the
/// device gives the socket up.
fn take_back(attachment: &mut AttachmentEntry, request: &Request) {
    let slot = attachment.slots.get(request.slot);
    let bound =
        slot.is_some_and(|slot| matches!(slot.role, Role::Bound(_)) && slot.generation == request.generation);
    match Op::from_raw(request.op) {
        Some(Op::Connect | Op::Listen) if bound => attachment.recycle(request.slot),
        Some(Op::Bind | Op::Connect | Op::Group) => attachment.refuse_slot(request.slot, request.generation),
        Some(Op::Accept) => attachment.refuse_slot(request.target, request.target_generation),
        Some(Op::Prepare) => {
            let slots = slots_of(request).flatten();
            slots.for_each(|handle| attachment.refuse_slot(handle.slot(), handle.generation()));
        }
        _ => {}
    }
}

/// Binds the slot to the request's address.
fn bind(attachment: &mut AttachmentEntry, request: &Request) -> Result<(), Error> {
    let addr = request.address.to_std().ok_or(Error::FamilyNotSupported)?;
    let bound = tcp::bind(addr, request.options);
    let bound = bound.map_err(|error| attachment.refused(format_args!("cannot bind {addr}"), &error))?;
    attachment.opening(request.slot, request.generation, LaunchId(request.launch));
    attachment.slots[request.slot].role = Role::Bound(bound);
    Ok(())
}

/// The reply to bind and listen: the local address.
pub(super) fn bound_reply(attachment: &AttachmentEntry, slot: u32) -> Reply {
    let mut reply = Reply::new(0, 0);
    reply.descriptor.local = match &attachment.slots[slot].role {
        Role::Bound(bound) => SockAddr::from_std(bound.addr),
        Role::Listener(listener) => SockAddr::from_std(listener.addr),
        _ => SockAddr::NONE,
    };
    reply
}

/// Returns whether a socket whose transport option is `option` may use transport `which`.
pub(super) fn allowed(option: u8, which: TransportKind) -> bool {
    match TransportKind::from_raw(option) {
        Some(TransportKind::Auto) | None => true,
        Some(forced) => forced == which,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plane::{Plane, run};
    use crate::model::message::Message;
    use gpunet_abi::control::{Op, Request};
    use gpunet_abi::park::ParkFlag;
    use gpunet_core::ids::{AttachmentId, RequestId};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn a_data_thread_that_has_answered_looks_for_the_next_request_of_that_slot() {
        for (flags, wakes) in [(Request::ANSWER_FIRST, 1), (0, 0)] {
            run(async {
                let mut plane = Plane::new();
                plane.attach(AttachmentId(1), false);
                let bell = plane.control.threads.links().next().expect("a data thread").bell.clone();
                let state = plane.at(AttachmentId(1)).state.clone();
                assert!(state.inbox.enter_request(0));
                bell.store(true);
                let mut request = Box::new(Request::new(Op::Close, 0, 1, 0));
                request.flags = flags;
                let id = RequestId::Device { control: 0, seq: 1 };
                plane.control.handle(Message::Request { attachment: AttachmentId(1), id, request });
                assert!(state.inbox.enter_request(0), "the next one may come");
                let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
                assert_eq!(poll(&mut [PollFd::new(&*bell, PollFlags::IN)], Some(&at_once)), Ok(wakes));
            });
        }
    }
}
