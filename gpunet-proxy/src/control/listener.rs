//! Listeners: ready counts, waiting accepts, and who is served next.

use super::Control;
use super::handshake::Handshakes;
use super::request::bound_reply;
use super::shortage::Shortage;
use super::tables::{Backlog, Listener, Role, Wait, Waiter, Waiting};
use crate::control_queue::ControlSender;
use crate::model::message::Message;
use gpunet_abi::Error;
use gpunet_abi::control::Request;
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::SHARED;
use gpunet_core::ids::{AttachmentId, RequestId, SocketId};
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::{Accepted, Connect};
use gpunet_core::wait_queue::WaitQueue;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Connects of a closed listener's backlog that are refused without a pause: about a millisecond's worth.
const REFUSED_AT_ONCE: usize = 512;

/// What became of an accept and a backlog.
enum Served {
    /// The accept has its answer, or waits for something else than a connection.
    Answered,
    /// No connection was there after all.
    Nothing,
    /// There was too little of that; both wait where they were.
    Short(Shortage),
}

impl Control {
    pub(super) fn listen(&mut self, device_id: AttachmentId, id: RequestId, request: &Request) {
        let messages = self.messages.clone();
        let Some(device) = self.device(device_id) else { return };
        let slot = request.slot;
        let Role::Bound(mut bound) = std::mem::take(&mut device.slots[slot as usize].role) else { return };
        // What was set since bind counts: accepted streams inherit it.
        bound.options = request.options;
        let (addr, generation, options) = (bound.addr, request.generation, bound.options);
        let could_carry = |kind| device.could_carry(kind, options.send_log2, options.recv_log2);
        let demanded = TransportKind::from_raw(options.transport).unwrap_or(TransportKind::Auto);
        let rc = could_carry(TransportKind::Rc);
        if !could_carry(demanded) {
            let region = if demanded == TransportKind::Rc { device.rc_region() } else { SHARED };
            let never = format_args!("cannot listen at {addr} with rings that can never be had");
            device.warn(Shortage::Rings { region }, never, None);
            device.recycle(slot);
            return device.reply_result(id, Err(Error::NoBuffers));
        }
        let peer = self.peer.clone();
        let opened = self.routes.listen(&peer, &bound, request.backlog).and_then(|mut listening| {
            // Who connects by a transport that can never serve would wait for ever.
            listening.retain(|l| rc || l.kind() != TransportKind::Rc);
            let fds = listening.iter().filter_map(|l| l.readiness()).map(|fd| fd.try_clone_to_owned());
            let fds = fds.collect::<io::Result<Vec<_>>>()?;
            Ok((listening, fds))
        });
        let Some(device) = self.device(device_id) else { return };
        let (listening, fds) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let errno = device.refused(format_args!("cannot listen at {addr}"), &error);
                device.recycle(slot);
                return device.reply_result(id, Err(errno));
            }
        };
        let watches = fds.into_iter().map(|fd| {
            let rearm = Arc::new(Notify::new());
            let ready = Message::ListenerReady { device: device_id, socket: SocketId { slot, generation } };
            (tokio::task::spawn_local(watch(fd, rearm.clone(), messages.clone(), ready)), rearm)
        });
        let watches = watches.collect();
        let by_peer = listening.iter().any(|l| l.kind() == TransportKind::Peer);
        let backlogs = listening.into_iter().map(|listen| Backlog { listen, short: None }).collect();
        let listener = Listener {
            addr,
            backlogs,
            waiters: WaitQueue::default(),
            handshakes: Handshakes::default(),
            backlog: request.backlog.max(1),
            shown: 0,
            waiting: 0,
            watches,
            retry: None,
            bound,
        };
        device.slots[slot as usize].role = Role::Listener(Box::new(listener));
        device.attached.memory.open_line(slot, generation);
        tracing::debug!(slot, %addr, "listening");
        let reply = bound_reply(device, slot);
        device.reply(id, &reply);
        if by_peer {
            self.peer_listeners.insert(addr, (device_id, slot));
        }
    }

    pub(super) fn accept(&mut self, device_id: AttachmentId, id: RequestId, request: &Request) {
        let Some(device) = self.device(device_id) else { return };
        let (slot, target, launch) = (request.slot, request.target, request.launch);
        device.opening(target, request.target_generation, launch);
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return };
        let no_wait = request.flags & Request::NO_WAIT != 0;
        let place = listener.waiters.push_back(Waiter { request: id, target, launch });
        device.wait(id, launch, Wait::Accept { listener: slot, place });
        let short = self.serve(device_id, slot);
        if no_wait {
            self.end_accept_without_wait(device_id, id, short);
        }
    }

    /// Ends an accept that does not wait, if it got nothing: there was nothing to take (whoever came before it
    /// waits, too), or too little of something to take it.
    fn end_accept_without_wait(&mut self, device_id: AttachmentId, id: RequestId, short: Option<Shortage>) {
        let Some(device) = self.device(device_id) else { return };
        let waiting = device.waiting(id);
        if waiting.is_some_and(|waiting| matches!(waiting.what, Wait::Accept { .. })) {
            let error = match short {
                None | Some(Shortage::Growing) => Error::WouldBlock,
                Some(shortage) => shortage.errno(),
            };
            self.cancel(device_id, id.control, error);
        }
    }

    pub(super) fn handle_listener_ready(
        &mut self,
        device_id: AttachmentId,
        SocketId { slot, generation }: SocketId,
    ) {
        let Some(device) = self.device(device_id) else { return };
        if device.slots[slot as usize].generation == generation {
            self.serve(device_id, slot);
        }
    }

    /// Gives waiting connections to waiting accepts, both in order, and shows what is left. Returns what there was too
    /// little of, if connections and accepts are left for that reason.
    pub(super) fn serve(&mut self, device_id: AttachmentId, slot: u32) -> Option<Shortage> {
        let listener = self.device(device_id)?.listener(slot)?;
        listener.backlogs.iter_mut().for_each(|backlog| backlog.short = None);
        let is_crowded = loop {
            let is_crowded = self.answer_clients(device_id, slot);
            if !self.serve_one(device_id, slot) {
                break is_crowded;
            }
        };
        let messages = self.messages.clone();
        let device = self.device(device_id)?;
        let (generation, is_full) = (device.slots[slot as usize].generation, device.is_full());
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return None };
        let (addr, short) = (listener.addr, listener.backlogs.iter().find_map(|backlog| backlog.short));
        let established = listener.handshakes.established();
        let (mut ready, mut waiting, mut is_late) = (established, established, false);
        let mut watches = listener.watches.iter();
        for Backlog { listen, short } in &mut listener.backlogs {
            // Asked once: between two questions a connection may come, and its event be taken.
            let (count, request) = (listen.ready(), listen.has_request());
            // What nobody can be given is not shown: who polls for it would find it, and ask in vain, again and again.
            ready += if short.is_none() { count } else { 0 };
            waiting += count + u64::from(request);
            is_late |= request && !is_crowded && short.is_none();
            if listen.readiness().is_some()
                && let Some((_, rearm)) = watches.next()
                && count == 0
                && !request
            {
                rearm.notify_one();
            }
        }
        listener.waiting = waiting;
        let is_awaited = !listener.waiters.is_empty();
        if is_late || (ready > 0 && is_awaited) {
            // One that came after the last look.
            let _ = messages
                .send(Message::ListenerReady { device: device_id, socket: SocketId { slot, generation } });
        }
        if std::mem::replace(&mut listener.shown, ready) != ready {
            let memory = &device.attached.memory;
            memory.landed(slot).publish(ready);
            memory.wake_slot(slot);
        }
        if ready > 0 && !is_awaited && is_full {
            // The device finds no slot to accept with, and so asks for nothing that could be refused.
            device.warn(Shortage::Slots, format_args!("connections at {addr} wait"), None);
        }
        short
    }

    /// Serves the first waiter, if a connection waits; says whether to go on.
    fn serve_one(&mut self, device_id: AttachmentId, slot: u32) -> bool {
        let Some(device) = self.device(device_id) else { return false };
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return false };
        let Some(&waiter) = listener.waiters.front() else { return false };
        if device.attached.memory.is_abandoned(waiter.request.control, waiter.request.seq) {
            // Nobody waits for the reply any more: the connection is the next one's.
            self.cancel(device_id, waiter.request.control, Error::Canceled);
            return true;
        }
        let can_serve = |backlog: &mut Backlog| backlog.short.is_none() && backlog.listen.ready() > 0;
        let Some(at) = listener.backlogs.iter_mut().position(can_serve) else {
            return self.accept_established(device_id, slot);
        };
        match self.serve_from(device_id, slot, at, waiter) {
            Served::Answered => true,
            Served::Nothing => false,
            // Connections by another transport may need something else.
            Served::Short(shortage) => {
                self.run_short(device_id, slot, at, shortage);
                true
            }
        }
    }

    /// Gives a waiter a connection of that backlog.
    fn serve_from(&mut self, device_id: AttachmentId, slot: u32, at: usize, waiter: Waiter) -> Served {
        let Some(device) = self.device(device_id) else { return Served::Nothing };
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return Served::Nothing };
        let (addr, options) = (listener.addr, listener.bound.options);
        // Rings first: a connection that cannot be given rings stays in the backlog. (Those of a
        // direct stream depend on its other end; it is put back if there are none.)
        let kind = listener.backlogs[at].listen.kind();
        let rings = if kind == TransportKind::Peer {
            None
        } else {
            match device.take_driven(kind, options.send_log2, options.recv_log2) {
                Ok(rings) => Some(rings),
                Err(shortage) => {
                    device.warn(shortage, format_args!("accepts at {addr} wait"), None);
                    return Served::Short(shortage);
                }
            }
        };
        let accepted = device.accept_from(slot, at);
        if let (Some(rings), false) = (rings, matches!(accepted, Ok(Accepted::Driven(_)))) {
            device.give_rings(rings);
        }
        match (accepted, rings) {
            (Ok(Accepted::Driven(opened)), Some(rings)) => {
                self.open_driven(device_id, waiter.request, waiter.target, rings, &options, opened);
            }
            (Ok(Accepted::Direct(ticket)), _) => {
                return match self.pair(device_id, slot, &waiter, ticket) {
                    Ok(()) => Served::Answered,
                    Err(shortage) => Served::Short(shortage),
                };
            }
            (Ok(Accepted::Driven(_)), None) => device.wait_first(slot, waiter), // no transport is both
            (Err(e), _) if e.kind() == io::ErrorKind::WouldBlock => return Served::Nothing,
            (Err(error), _) => {
                if let Some(shortage) = Shortage::of(&error) {
                    device.warn(shortage, format_args!("accepts at {addr} wait"), Some(&error));
                    device.wait_first(slot, waiter);
                    return Served::Short(shortage);
                }
                device.accept_failed(addr, &error);
                device.recycle(waiter.target);
                device.reply_result(waiter.request, Err(crate::errno::errno(&error)));
            }
        }
        Served::Answered
    }

    pub(super) fn close_listener(&mut self, device_id: AttachmentId, slot: u32) {
        self.leave_joins_at((device_id, slot));
        let Some(device) = self.device(device_id) else { return };
        let Role::Listener(mut listener) = std::mem::take(&mut device.slots[slot as usize].role) else {
            return;
        };
        let tasks = listener.watches.iter().map(|(task, _)| task).chain(&listener.retry);
        tasks.for_each(JoinHandle::abort);
        let backlog = self.peer.waiting_at(listener.addr);
        if self.peer_listeners.get(&listener.addr) == Some(&(device_id, slot)) {
            self.peer_listeners.remove(&listener.addr);
        }
        let Some(device) = self.device(device_id) else { return };
        while let Some(waiter) = listener.waiters.pop_front() {
            device.recycle(waiter.target);
            device.reply_result(waiter.request, Err(Error::BadHandle));
        }
        device.close_handshakes(std::mem::take(&mut listener.handshakes));
        drop(listener);
        device.recycle(slot);
        self.refuse(device_id, backlog);
    }

    /// Refuses connects that waited in a backlog which is gone: some now, and the others in later turns of the
    /// attachment that closed the listener.
    pub(super) fn refuse(&mut self, device_id: AttachmentId, mut tickets: Vec<Ticket>) {
        for ticket in tickets.split_off(tickets.len().saturating_sub(REFUSED_AT_ONCE)) {
            let waiting = self.device(ticket.device).and_then(|device| device.requests.get(&ticket.control));
            let waits = |wish: &Connect| wish.ticket == ticket;
            if waiting
                .is_some_and(|waiting| matches!(&waiting.what, Wait::Queued { wish, .. } if waits(wish)))
            {
                self.cancel(ticket.device, ticket.control, Error::ConnectionRefused);
            }
        }
        if !tickets.is_empty() {
            let _ = self.messages.send(Message::Refuse { device: device_id, tickets });
        }
    }
}

impl super::tables::Device {
    /// Takes a connection from transport `at` of a listener, and the first waiter off its queue unless
    /// there is none to take.
    fn accept_from(&mut self, slot: u32, at: usize) -> io::Result<Accepted> {
        let none = || io::Error::from(io::ErrorKind::WouldBlock);
        let Role::Listener(listener) = &mut self.slots[slot as usize].role else { return Err(none()) };
        let backlog = listener.backlogs.get_mut(at);
        let result = backlog.map_or_else(|| Err(none()), |backlog| backlog.listen.accept());
        if !matches!(&result, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            && let Some(waiter) = listener.waiters.pop_front()
        {
            self.requests.remove(&waiter.request.control);
        }
        result
    }

    /// Puts a waiter back at the head of a listener's queue.
    pub(super) fn wait_first(&mut self, listener_slot: u32, waiter: Waiter) {
        if let Role::Listener(listener) = &mut self.slots[listener_slot as usize].role {
            let place = listener.waiters.push_front(waiter);
            let what = Wait::Accept { listener: listener_slot, place };
            let waiting = Waiting { seq: waiter.request.seq, launch: waiter.launch, what };
            self.requests.insert(waiter.request.control, waiting);
        }
    }
}

/// Tells the control plane each time a listener's descriptor becomes readable.
async fn watch(fd: OwnedFd, rearm: Arc<Notify>, messages: ControlSender, ready: Message) {
    let Message::ListenerReady { device, socket } = ready else { return };
    let fd = match crate::readiness::watch(fd) {
        Ok(fd) => fd,
        Err(error) => return tracing::error!(slot = socket.slot, %error, "cannot watch a listener"),
    };
    while let Ok(mut guard) = fd.readable().await {
        if messages.send(Message::ListenerReady { device, socket }).is_err() {
            return;
        }
        // The control plane accepts until nothing waits and then asks for the next event. An event
        // that came meanwhile is newer than `guard`, and clearing this guard does not clear it.
        rearm.notified().await;
        guard.clear_ready();
    }
}
