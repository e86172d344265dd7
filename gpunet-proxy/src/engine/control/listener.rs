//! Listeners: ready counts, waiting accepts, and the order in which they are served.
//!
//! The words of a listener's line have other meanings than those of a stream: `landed` counts the
//! connections that wait for a request, `released` those that were ever accepted ahead
//! ([`gpunet_abi::layout::SocketLine`]).

use super::Control;
use super::at::At;
use super::request::bound_reply;
use super::tables::ahead::Ahead;
use super::tables::handshakes::Handshakes;
use super::tables::pending::Wait;
use super::tables::shortage::Shortage;
use super::tables::slots::Role;
use super::tables::{AttachmentEntry, Backlog, ListenerEntry, Waiter};
use crate::engine::control_queue::ControlSender;
use crate::model::message::Message;
use gpunet_abi::Error;
use gpunet_abi::control::Request;
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::SHARED;
use gpunet_core::ids::{AttachmentId, LaunchId, RequestId, SocketId};
use gpunet_core::transport::Accepted;
use gpunet_core::transport::peer::Ticket;
use gpunet_core::wait_queue::WaitQueue;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Connects in a closed listener's backlog that are refused in one turn: about a millisecond's
/// work.
const REFUSE_BATCH: usize = 512;

/// How serving an accept from a backlog ended.
enum Served {
    /// The accept was answered, or waits for something else than a connection.
    Answered,
    /// There was no connection after all.
    Nothing,
    /// Something was short; both wait where they were.
    Short(Shortage),
}

impl At<'_> {
    pub(super) fn listen(&mut self, id: RequestId, request: &Request) {
        let (messages, attachment, slot) = (self.control.messages.clone(), self.state.id, request.slot);
        let Role::Bound(mut bound) = std::mem::take(&mut self.slots[slot].role) else { return };
        // Options set since bind count: accepted streams inherit them.
        bound.options = request.options;
        let (addr, generation, options) = (bound.addr, request.generation, bound.options);
        let could_carry = |kind| self.could_carry(kind, &options);
        let demanded = TransportKind::from_raw(options.transport).unwrap_or(TransportKind::Auto);
        let rc = could_carry(TransportKind::Rc);
        if !could_carry(demanded) {
            let region = if demanded == TransportKind::Rc { self.rc_region() } else { SHARED };
            let never = format_args!("cannot listen at {addr} with rings that can never be had");
            self.warn(Shortage::Rings { region }, never, None);
            self.recycle(slot);
            return self.reply_result(id, Err(Error::NoBuffers));
        }
        let peer = self.control.peer.clone();
        let opened = self.control.routes.listen(&peer, &bound, request.backlog).and_then(|mut listening| {
            // A client that connects over a transport that can never serve it would wait for ever.
            listening.retain(|l| rc || l.kind() != TransportKind::Rc);
            let fds = listening.iter().filter_map(|l| l.readiness()).map(|fd| fd.try_clone_to_owned());
            let fds = fds.collect::<io::Result<Vec<_>>>()?;
            Ok((listening, fds))
        });
        let (listening, fds) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let errno = self.refused(format_args!("cannot listen at {addr}"), &error);
                self.recycle(slot);
                return self.reply_result(id, Err(errno));
            }
        };
        let watches = fds.into_iter().map(|fd| {
            let rearm = Arc::new(Notify::new());
            let ready = Message::ListenerReady { attachment, socket: SocketId { slot, generation } };
            (tokio::task::spawn_local(watch(fd, rearm.clone(), messages.clone(), ready)), rearm)
        });
        let watches = watches.collect();
        let by_peer = listening.iter().any(|l| l.kind() == TransportKind::Peer);
        let backlogs = listening.into_iter().map(|listen| Backlog { listen, short: None }).collect();
        let listener = ListenerEntry {
            addr,
            backlogs,
            waiters: WaitQueue::default(),
            handshakes: Handshakes::default(),
            ahead: Ahead::default(),
            backlog: request.backlog.max(1),
            shown: 0,
            waiting: 0,
            watches,
            retry: None,
            turn: 0,
            bound,
        };
        self.slots[slot].role = Role::Listener(Box::new(listener));
        self.state.memory.open_line(slot, generation);
        tracing::debug!(slot, %addr, "listening");
        let reply = bound_reply(self, slot);
        self.reply(id, &reply);
        if by_peer {
            self.control.peer_listeners.insert(addr, (attachment, slot));
        }
    }

    pub(super) fn accept(&mut self, id: RequestId, request: &Request) {
        let (slot, target, launch) = (request.slot, request.target, LaunchId(request.launch));
        self.opening(target, request.target_generation, launch);
        let Some(listener) = self.slots.listener_mut(slot) else { return };
        let no_wait = request.flags & Request::NO_WAIT != 0;
        let waiter = Waiter { request: id, target, launch, taken: request.value };
        let place = listener.waiters.push_back(waiter);
        self.wait(id, launch, Wait::Accept { listener: slot, place });
        let short = self.serve(slot);
        if no_wait {
            self.end_accept_without_wait(id, short);
        }
    }

    /// Ends a non-blocking accept that got nothing: there was no connection (earlier accepts wait,
    /// too), or something was short.
    fn end_accept_without_wait(&mut self, id: RequestId, short: Option<Shortage>) {
        let waiting = self.requests.get(&id);
        if waiting.is_some_and(|waiting| matches!(waiting.what, Wait::Accept { .. })) {
            let error = match short {
                None | Some(Shortage::Growing) => Error::WouldBlock,
                Some(shortage) => shortage.errno(),
            };
            self.cancel(id, error);
        }
    }

    pub(super) fn handle_listener_ready(&mut self, socket: SocketId) {
        if self.slots.socket(socket).is_some()
            && let Some(listener) = self.slots.listener_mut(socket.slot)
        {
            listener.backlogs.iter_mut().for_each(|backlog| backlog.listen.handle_readable());
            self.serve(socket.slot);
        }
    }

    /// Gives waiting connections to waiting accepts, both in order, and publishes how many are
    /// left. Returns the shortage, if connections and accepts are left because of one.
    pub(super) fn serve(&mut self, slot: u32) -> Option<Shortage> {
        let listener = self.slots.listener_mut(slot)?;
        listener.backlogs.iter_mut().for_each(|backlog| backlog.short = None);
        let is_crowded = loop {
            let is_crowded = self.answer_clients(slot);
            if !self.serve_one(slot) {
                break is_crowded;
            }
        };
        let messages = self.control.messages.clone();
        let attachment: &mut AttachmentEntry = self;
        let (socket, is_full) = (attachment.slots.id(slot), attachment.is_full());
        let listener = attachment.slots.listener_mut(slot)?;
        let (addr, short) = (listener.addr, listener.backlogs.iter().find_map(|backlog| backlog.short));
        let established = listener.handshakes.established();
        let (mut ready, mut waiting, mut is_late) = (established, established, false);
        let mut watches = listener.watches.iter();
        for Backlog { listen, short } in &mut listener.backlogs {
            // Read once: a connection may arrive between two reads, and consume its event.
            let (count, request) = (listen.ready(), listen.has_request());
            // As ListenerEntry::ready counts.
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
            // A connection arrived after the last check.
            let _ = messages.send(Message::ListenerReady { attachment: attachment.state.id, socket });
        }
        if std::mem::replace(&mut listener.shown, ready) != ready {
            let memory = &attachment.state.memory;
            memory.landed(slot).publish(ready);
            memory.wake_slot(slot);
        }
        if ready > 0 && !is_awaited && is_full {
            // The device has no free slot to accept with, so it sends no request that the proxy
            // could refuse.
            self.warn(Shortage::Slots, format_args!("connections at {addr} wait"), None);
        }
        short
    }

    /// If a connection waits, serves the first waiter or accepts ahead. Returns whether to try the
    /// next.
    fn serve_one(&mut self, slot: u32) -> bool {
        let attachment: &mut AttachmentEntry = self;
        let Some(listener) = attachment.slots.listener_mut(slot) else { return false };
        let Some(&waiter) = listener.waiters.front() else {
            return self.accept_ahead(slot);
        };
        if waiter.taken != Request::UNCOUNTED && waiter.taken != listener.ahead.accepted() {
            // A connection was accepted ahead since the device last looked for one: the device must
            // look again.
            self.cancel(waiter.request, Error::WouldBlock);
            return true;
        }
        if attachment.state.memory.is_abandoned(waiter.request) {
            // The accept no longer waits for the reply: the next accept gets the connection.
            self.cancel(waiter.request, Error::Canceled);
            return true;
        }
        let Some(at) = listener.next_backlog() else { return false };
        if !listener.backlogs[at].may_serve() {
            listener.turn = at + 1;
            return self.accept_established(slot);
        }
        let served = self.serve_from(slot, at, waiter);
        if let Some(listener) = self.slots.listener_mut(slot) {
            // One that had nothing to accept is looked at again: there may be more to read, and
            // what it has established.
            listener.turn = if matches!(served, Served::Nothing) { at } else { at + 1 };
        }
        if let Served::Short(shortage) = served {
            // Connections by another transport may need something else.
            self.run_short(slot, at, shortage);
        }
        true
    }

    /// Gives a waiter a connection of that backlog.
    fn serve_from(&mut self, slot: u32, at: usize, waiter: Waiter) -> Served {
        let Some(listener) = self.slots.listener(slot) else { return Served::Nothing };
        let (addr, options) = (listener.addr, listener.bound.options);
        // Take rings first: a connection without rings stays in the backlog. (The rings of a direct
        // stream depend on its other end; it is put back if there are none.)
        let kind = listener.backlogs[at].listen.kind();
        let rings = if kind == TransportKind::Peer {
            None
        } else {
            match self.take_driven(kind, &options) {
                Ok(rings) => Some(rings),
                Err(shortage) => {
                    self.warn(shortage, format_args!("accepts at {addr} wait"), None);
                    return Served::Short(shortage);
                }
            }
        };
        let accepted = self.accept_from(slot, at);
        if let (Some(rings), false) = (rings, matches!(accepted, Ok(Accepted::Driven(_)))) {
            self.give_rings(rings);
        }
        match (accepted, rings) {
            (Ok(Accepted::Driven(opened)), Some(rings)) => {
                self.show_taken(slot);
                self.open_driven(waiter.request, waiter.target, rings, &options, opened);
            }
            (Ok(Accepted::Direct(ticket)), _) => {
                self.show_taken(slot);
                return match self.pair(slot, &waiter, ticket) {
                    Ok(()) => Served::Answered,
                    Err(shortage) => Served::Short(shortage),
                };
            }
            (Ok(Accepted::Driven(_)), None) => self.wait_first(slot, waiter), // no transport is both
            (Err(e), _) if e.kind() == io::ErrorKind::WouldBlock => return Served::Nothing,
            (Err(error), _) => {
                if let Some(shortage) = Shortage::of(&error) {
                    self.warn(shortage, format_args!("accepts at {addr} wait"), Some(&error));
                    self.wait_first(slot, waiter);
                    return Served::Short(shortage);
                }
                self.accept_failed(addr, &error);
                self.recycle(waiter.target);
                self.reply_result(waiter.request, Err(crate::os::errno::from_io(&error)));
            }
        }
        Served::Answered
    }

    /// Closes a listener. `taken` as in [`At::close_ahead`].
    pub(super) fn close_listener(&mut self, slot: u32, taken: Option<u64>) {
        let this = (self.state.id, slot);
        self.control.leave_joins_at(this);
        let Role::Listener(mut listener) = std::mem::take(&mut self.slots[slot].role) else { return };
        let tasks = listener.watches.iter().map(|(task, _)| task).chain(&listener.retry);
        tasks.for_each(JoinHandle::abort);
        let backlog = self.control.peer.waiting_at(listener.addr);
        if self.control.peer_listeners.get(&listener.addr) == Some(&this) {
            self.control.peer_listeners.remove(&listener.addr);
        }
        while let Some(waiter) = listener.waiters.pop_front() {
            self.recycle(waiter.target);
            self.reply_result(waiter.request, Err(Error::BadHandle));
        }
        self.close_handshakes(std::mem::take(&mut listener.handshakes));
        let ahead = std::mem::take(&mut listener.ahead);
        drop(listener);
        self.recycle(slot);
        self.close_ahead(&ahead, taken);
        self.control.refuse(this.0, backlog);
    }
}

impl Control {
    /// Serves a listener, as [`At::serve`] does.
    pub(super) fn serve_at(&mut self, (attachment, slot): (AttachmentId, u32)) {
        if let Some(mut at) = self.at(attachment) {
            at.serve(slot);
        }
    }

    /// Refuses the connects in the backlog of a closed listener: some now, and the others in later
    /// turns of the attachment that closed it.
    pub(super) fn refuse(&mut self, attachment: AttachmentId, mut tickets: Vec<Ticket>) {
        for ticket in tickets.split_off(tickets.len().saturating_sub(REFUSE_BATCH)) {
            if let Some(mut connector) = self.at(ticket.attachment)
                && connector.queued(ticket).is_some()
            {
                connector.cancel(ticket.request, Error::ConnectionRefused);
            }
        }
        if !tickets.is_empty() {
            let _ = self.messages.send(Message::Refuse { attachment, tickets });
        }
    }
}

impl ListenerEntry {
    /// Returns how many connections accepts can get. Connections that no accept can get now are not
    /// counted: a kernel that polls would retry again and again without success.
    fn ready(&mut self) -> u64 {
        let backlogs = self.backlogs.iter_mut().filter(|backlog| backlog.short.is_none());
        self.handshakes.established() + backlogs.map(|backlog| backlog.listen.ready()).sum::<u64>()
    }

    /// Returns the backlog that serves the next accept; a backlog with handshakes serves from the
    /// connections that it has established. Each backlog has its turn, so that no client waits for
    /// ever behind clients of another transport.
    fn next_backlog(&mut self) -> Option<usize> {
        let (count, established) = (self.backlogs.len(), self.handshakes.established() > 0);
        let backlogs = &mut self.backlogs;
        let mut has_some = |&at: &usize| {
            let backlog = &mut backlogs[at];
            backlog.may_serve() || established && backlog.listen.kind() == TransportKind::Rc
        };
        (self.turn..self.turn + count).map(|turn| turn % count).find(&mut has_some)
    }
}

impl AttachmentEntry {
    /// If fewer connections are ready, shows that to the device before a group learns that it has
    /// one of them: a group that has accepted the only connection then finds the listener not
    /// readable.
    pub(super) fn show_taken(&mut self, slot: u32) {
        let memory = self.state.memory.clone();
        let Some(listener) = self.slots.listener_mut(slot).filter(|listener| listener.shown > 0) else {
            return;
        };
        let ready = listener.ready();
        if ready < listener.shown {
            listener.shown = ready;
            memory.landed(slot).publish(ready);
        }
    }

    /// Accepts a connection from transport `at` of a listener, and removes the first waiter unless
    /// there is no connection.
    fn accept_from(&mut self, slot: u32, at: usize) -> io::Result<Accepted> {
        let none = || io::Error::from(io::ErrorKind::WouldBlock);
        let listener = self.slots.listener_mut(slot).ok_or_else(none)?;
        let result = listener.backlogs.get_mut(at).ok_or_else(none)?.listen.accept();
        if !matches!(&result, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            && let Some(waiter) = listener.waiters.pop_front()
        {
            self.requests.remove(&waiter.request);
        }
        result
    }

    /// Puts a waiter back at the head of a listener's queue.
    pub(super) fn wait_first(&mut self, listener_slot: u32, waiter: Waiter) {
        if let Some(listener) = self.slots.listener_mut(listener_slot) {
            let place = listener.waiters.push_front(waiter);
            let what = Wait::Accept { listener: listener_slot, place };
            self.wait(waiter.request, waiter.launch, what);
        }
    }
}

/// Tells the control plane each time a listener's descriptor becomes readable.
async fn watch(fd: OwnedFd, rearm: Arc<Notify>, messages: ControlSender, ready: Message) {
    let Message::ListenerReady { attachment, socket } = ready else { return };
    let fd = match crate::os::readiness::watch(fd) {
        Ok(fd) => fd,
        Err(error) => return tracing::error!(slot = socket.slot, %error, "cannot watch a listener"),
    };
    while let Ok(mut guard) = fd.readable().await {
        if messages.send(Message::ListenerReady { attachment, socket }).is_err() {
            return;
        }
        // The control plane accepts until no connection waits, and then re-arms this task. An event
        // that has arrived in between is newer than `guard`, and clearing this guard does not clear
        // it.
        rearm.notified().await;
        guard.clear_ready();
    }
}
