//! Listeners: ready counts, waiting accepts, and who is served next.

use super::Control;
use super::books::{Listener, Role, Wait, Waiter, Waiting};
use super::request::bound_reply;
use crate::message::{Attempt, Message, Origin, Rings};
use gpunet_abi::Error;
use gpunet_abi::control::Request;
use gpunet_abi::options::TransportKind;
use gpunet_abi::place::{DEVICE, SHARED};
use gpunet_core::transport::Accepted;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

impl Control {
    pub(super) fn listen(&mut self, device_id: u32, control: u32, seq: u64, request: &Request) {
        let messages = self.messages.clone();
        let Some(device) = self.device(device_id) else { return };
        let slot = request.slot;
        let Role::Bound(mut bound) = std::mem::take(&mut device.slots[slot as usize].role) else { return };
        // What was set since bind counts: accepted streams inherit it.
        bound.options = request.options;
        let (addr, generation) = (bound.addr, request.generation);
        let peer = self.peer.clone();
        let opened = self.routes.listen(&peer, &bound, request.backlog).and_then(|listening| {
            let fds = listening.iter().filter_map(|l| l.readiness()).map(|fd| fd.try_clone_to_owned());
            let fds = fds.collect::<io::Result<Vec<_>>>()?;
            Ok((listening, fds))
        });
        let Some(device) = self.device(device_id) else { return };
        let (listening, fds) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                device.recycle(slot);
                return device.reply_result(control, seq, Err(crate::errno(&error)));
            }
        };
        let watches = fds.into_iter().map(|fd| {
            let rearm = Arc::new(Notify::new());
            let ready = Message::ListenerReady { device: device_id, slot, generation };
            (tokio::task::spawn_local(watch(fd, rearm.clone(), messages.clone(), ready)), rearm)
        });
        let watches = watches.collect();
        let by_peer = listening.iter().any(|l| l.kind() == TransportKind::Peer);
        let listener = Listener { addr, listening, waiters: VecDeque::new(), shown: 0, watches, bound };
        device.slots[slot as usize].role = Role::Listener(Box::new(listener));
        device.attached.memory.open_line(slot, generation);
        tracing::debug!(slot, %addr, "listening");
        let reply = bound_reply(device, slot);
        device.reply(control, seq, &reply);
        if by_peer {
            self.peer_listeners.insert(addr, (device_id, slot));
        }
    }

    pub(super) fn accept(&mut self, device_id: u32, control: u32, seq: u64, request: &Request) {
        let Some(device) = self.device(device_id) else { return };
        let (slot, target, launch) = (request.slot, request.target, request.launch);
        device.opening(target, request.target_generation, launch);
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return };
        let no_wait = request.flags & Request::NO_WAIT != 0;
        listener.waiters.push_back(Waiter { control, seq, target, launch, no_wait });
        device.wait(control, seq, launch, Wait::Accept { listener: slot });
        self.serve(device_id, slot);
        if no_wait {
            self.end_accept_without_wait(device_id, control, seq);
        }
    }

    /// Ends an accept that does not wait, if there was nothing to take: whoever came before it waits
    /// too.
    pub(super) fn end_accept_without_wait(&mut self, device_id: u32, control: u32, seq: u64) {
        let Some(device) = self.device(device_id) else { return };
        let waiting = device.requests.get(&control).filter(|waiting| waiting.seq == seq);
        if waiting.is_some_and(|waiting| matches!(waiting.what, Wait::Accept { .. })) {
            self.cancel(device_id, control, Error::WouldBlock);
        }
    }

    pub(super) fn handle_listener_ready(&mut self, device_id: u32, slot: u32, generation: u32) {
        let Some(device) = self.device(device_id) else { return };
        if device.slots[slot as usize].generation == generation {
            self.serve(device_id, slot);
        }
    }

    /// Gives waiting connections to waiting accepts, both in order, and shows what is left.
    pub(super) fn serve(&mut self, device_id: u32, slot: u32) {
        while self.serve_one(device_id, slot) {}
        let messages = self.messages.clone();
        let Some(device) = self.device(device_id) else { return };
        let (generation, growing) = (device.slots[slot as usize].generation, device.is_growing());
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return };
        let mut ready = 0;
        let mut watches = listener.watches.iter();
        for listening in &mut listener.listening {
            // Asked once: between two questions a connection may come, and its event be taken.
            let count = listening.ready();
            ready += count;
            if listening.readiness().is_some()
                && let Some((_, rearm)) = watches.next()
                && count == 0
            {
                rearm.notify_one();
            }
        }
        if ready > 0 && !listener.waiters.is_empty() && !growing {
            // One that came after the last look. (What waits for ring memory is served when there is more.)
            let _ = messages.send(Message::ListenerReady { device: device_id, slot, generation });
        }
        if std::mem::replace(&mut listener.shown, ready) != ready {
            let memory = &device.attached.memory;
            memory.landed(slot).publish(ready);
            memory.wake_slot(slot);
        }
    }

    /// Serves the first waiter, if a connection waits; says whether to go on.
    fn serve_one(&mut self, device_id: u32, slot: u32) -> bool {
        let Some(device) = self.device(device_id) else { return false };
        let Role::Listener(listener) = &mut device.slots[slot as usize].role else { return false };
        let Some(&waiter) = listener.waiters.front() else { return false };
        let options = listener.bound.options;
        let Some(at) = listener.listening.iter_mut().position(|l| l.ready() > 0) else { return false };
        // Rings first: a connection that cannot be given rings stays in the backlog. (Those of a
        // direct stream depend on its other end; it is put back if there are none.)
        let kind = listener.listening[at].kind();
        let rings = if kind == TransportKind::Peer {
            None
        } else {
            let region = if kind == TransportKind::Rc { device.rc_region() } else { SHARED };
            let card = kind == TransportKind::Rc;
            let Some(rings) = device.take_driven(region, card, options.send_log2, options.recv_log2) else {
                if device.is_growing() {
                    // It waits, as the connection does.
                    return false;
                }
                self.cancel(device_id, waiter.control, Error::NoBuffers);
                return true;
            };
            Some(rings)
        };
        let accepted = device.accept_from(slot, at, rings);
        if let (Some(rings), false) =
            (rings, matches!(accepted, Ok(Accepted::Driven(_) | Accepted::Opening(_))))
        {
            device.give_rings(rings);
        }
        match (accepted, rings) {
            (Ok(Accepted::Driven(opened)), Some(rings)) => {
                let request = (waiter.control, waiter.seq);
                self.open_driven(device_id, request, waiter.target, rings, &options, opened);
            }
            (Ok(Accepted::Opening(opening)), Some(rings)) => {
                let attempt = Attempt {
                    slot: waiter.target,
                    kind,
                    rings,
                    options,
                    origin: Origin::Accept { listener: slot, no_wait: waiter.no_wait },
                };
                let request = (waiter.control, waiter.seq);
                self.attempt(device_id, request, waiter.launch, attempt, opening);
            }
            (Ok(Accepted::Direct(ticket)), _) => return self.pair(device_id, slot, &waiter, ticket),
            (Ok(Accepted::Driven(_) | Accepted::Opening(_)), None) => device.wait_first(slot, waiter), // no transport is both
            (Err(e), _) if e.kind() == io::ErrorKind::WouldBlock => return false,
            // The connection is still there, for rings in other memory.
            (Err(error), Some(rings))
                if rings.region == DEVICE && error.kind() == io::ErrorKind::Unsupported =>
            {
                device.refuse_device_rings(&error);
                device.wait_first(slot, waiter);
            }
            (Err(error), _) => {
                tracing::error!(slot, %error, "accept failed");
                device.recycle(waiter.target);
                device.reply_result(waiter.control, waiter.seq, Err(crate::errno(&error)));
            }
        }
        true
    }

    pub(super) fn close_listener(&mut self, device_id: u32, slot: u32) {
        self.leave_joins_at((device_id, slot));
        let Some(device) = self.device(device_id) else { return };
        let Role::Listener(mut listener) = std::mem::take(&mut device.slots[slot as usize].role) else {
            return;
        };
        for (task, _) in &listener.watches {
            task.abort();
        }
        let backlog = self.peer.waiting_at(listener.addr);
        self.peer_listeners.retain(|_, &mut at| at != (device_id, slot));
        let mut refused: Vec<(u32, u32)> = Vec::new();
        for ticket in backlog {
            let Some(connector) = self.device(ticket.device) else { continue };
            let waits =
                |waiting: &Waiting| matches!(waiting.what, Wait::Queued { slot, .. } if slot == ticket.slot);
            let waiting = connector.requests.iter().filter(|(_, waiting)| waits(waiting));
            refused.extend(waiting.map(|(&control, _)| (ticket.device, control)));
        }
        let Some(device) = self.device(device_id) else { return };
        for waiter in std::mem::take(&mut listener.waiters) {
            device.recycle(waiter.target);
            device.reply_result(waiter.control, waiter.seq, Err(Error::BadHandle));
        }
        drop(listener);
        device.recycle(slot);
        for (connector, control) in refused {
            self.cancel(connector, control, Error::ConnectionRefused);
        }
    }
}

impl super::books::Device {
    /// Takes a connection from transport `at` of a listener, and the first waiter off its queue unless
    /// there is none to take.
    fn accept_from(&mut self, slot: u32, at: usize, rings: Option<Rings>) -> io::Result<Accepted> {
        let memory = rings.map(|rings| self.memory_of(rings));
        let none = || io::Error::from(io::ErrorKind::WouldBlock);
        let Role::Listener(listener) = &mut self.slots[slot as usize].role else { return Err(none()) };
        let result =
            listener.listening.get_mut(at).map_or_else(|| Err(none()), |one| one.accept(memory.as_ref()));
        if !matches!(&result, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            && let Some(waiter) = listener.waiters.pop_front()
        {
            self.requests.remove(&waiter.control);
        }
        result
    }

    /// Puts a waiter back at the head of a listener's queue.
    pub(super) fn wait_first(&mut self, listener_slot: u32, waiter: Waiter) {
        if let Role::Listener(listener) = &mut self.slots[listener_slot as usize].role {
            listener.waiters.push_front(waiter);
            let what = Wait::Accept { listener: listener_slot };
            let waiting = Waiting { seq: waiter.seq, launch: waiter.launch, what };
            self.requests.insert(waiter.control, waiting);
        }
    }
}

/// Tells the control plane each time a listener's descriptor becomes readable.
async fn watch(fd: OwnedFd, rearm: Arc<Notify>, messages: UnboundedSender<Message>, ready: Message) {
    let Message::ListenerReady { device, slot, generation } = ready else { return };
    let fd = match crate::readiness::watch(fd) {
        Ok(fd) => fd,
        Err(error) => return tracing::error!(slot, %error, "cannot watch a listener"),
    };
    while let Ok(mut guard) = fd.readable().await {
        if messages.send(Message::ListenerReady { device, slot, generation }).is_err() {
            return;
        }
        // The control plane accepts until nothing waits and then asks for the next event. An event
        // that came meanwhile is newer than `guard`, and clearing this guard does not clear it.
        rearm.notified().await;
        guard.clear_ready();
    }
}
