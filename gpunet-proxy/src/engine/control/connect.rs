//! Connecting: which transports are tried, and how a connection becomes a stream.

use super::at::At;
use super::request::allowed;
use super::tables::pending::Wait;
use super::tables::slots::Role;
use super::tables::{StreamEntry, StreamMemory};
use crate::model::message::{Attempt, Command, Message, OpenStream, Rings};
use gpunet_abi::control::{Descriptor, Reply, Request};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::DEVICE;
use gpunet_abi::{Error, Options};
use gpunet_core::ids::{LaunchId, RequestId};
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::{Connect, Connecting, Opened, Opening, Transport};
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

impl At<'_> {
    /// Connects: a peer of this proxy first, then TCP, as far as the socket's option allows.
    pub(super) fn connect(&mut self, id: RequestId, request: &Request) {
        let (slot, options, launch) = (request.slot, request.options, LaunchId(request.launch));
        let bound = match self.opening(slot, request.generation, launch) {
            Role::Bound(bound) => Some(bound),
            _ => None,
        };
        let bound = bound.map(Arc::new);
        let Some(to) = request.address.to_std() else {
            self.recycle(slot);
            return self.reply_result(id, Err(Error::FamilyNotSupported));
        };
        let ticket = Ticket { attachment: self.state.id, slot, generation: request.generation, request: id };
        let connect = Connect { to, from: bound, options, ticket, memory: None };
        // The arena is prepared before the connect joins the backlog, so that an accept need not
        // wait for it.
        if !(allowed(options.transport, TransportKind::Peer) && self.prepare(id, launch, &connect)) {
            self.connect_prepared(id, launch, connect);
        }
    }

    /// Continues a connect: by peer if there is such a listener, otherwise over a driven transport.
    pub(super) fn connect_prepared(&mut self, id: RequestId, launch: LaunchId, connect: Connect) {
        let (slot, options, to) = (connect.ticket.slot, connect.options, connect.to);
        let connect = if !allowed(options.transport, TransportKind::Peer) {
            Ok(connect)
        } else if !self.could_meet(&connect) {
            // Over TCP each end has rings of its own, which may be smaller.
            if options.transport == TransportKind::Peer as u8 { Err(Error::NoBuffers) } else { Ok(connect) }
        } else {
            let kept = connect.clone();
            match self.control.peer.connect(connect) {
                Connecting::Elsewhere(connect) => Ok(connect),
                Connecting::Queued => {
                    let what = Wait::Queued { slot, connect: Box::new(kept) };
                    self.wait(id, launch, what);
                    if let Some(listener) = self.control.listener_at(to) {
                        self.control.serve_at(listener);
                    }
                    return;
                }
                Connecting::Pending(_) => Err(Error::ConnectionRefused),
            }
        };
        match connect {
            // Peer was demanded, and this proxy holds no such listener.
            Ok(_) if options.transport == TransportKind::Peer as u8 => {
                self.recycle(slot);
                self.reply_result(id, Err(Error::ConnectionRefused));
            }
            Ok(connect) => {
                let (kind, next) = self.control.routes.plan(&connect);
                self.start_connect(id, launch, connect, kind, next);
            }
            Err(error) => {
                self.recycle(slot);
                self.reply_result(id, Err(error));
            }
        }
    }

    /// Starts a connect over a driven transport; `next` is tried if it fails.
    pub(super) fn start_connect(
        &mut self,
        id: RequestId,
        launch: LaunchId,
        connect: Connect,
        kind: TransportKind,
        next: Option<TransportKind>,
    ) {
        let (slot, options) = (connect.ticket.slot, connect.options);
        let rings = match self.take_driven(kind, &options) {
            Ok(rings) => rings,
            Err(shortage) => {
                self.warn(shortage, format_args!("cannot connect to {}", connect.to), None);
                self.recycle(slot);
                return self.reply_result(id, Err(shortage.errno()));
            }
        };
        let memory = self.memory_of(rings);
        let with_memory = Connect { memory: Some(memory), ..connect.clone() };
        let opening = self.control.routes.connect(kind, with_memory, next.is_some());
        let attempt = Attempt { slot, kind, rings, options, connect, next };
        self.attempt(id, launch, attempt, opening);
    }

    /// Opens a driven stream in a task of its own, which reports to [`At::handle_attempted`].
    fn attempt(&mut self, id: RequestId, launch: LaunchId, attempt: Attempt, opening: Opening) {
        let attempt = Box::new(attempt);
        let (messages, attachment) = (self.control.messages.clone(), self.state.id);
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::task::spawn_local(async move {
            // If it is given up, the attempt is dropped here, before the message says that its
            // rings are free.
            let result = tokio::select! {
                result = opening => result,
                _ = stopped => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            let _ = messages.send(Message::Attempted { attachment, id, attempt, result });
        });
        self.wait(id, launch, Wait::Attempt { _stop: stop });
    }

    /// Handles the end of an attempt: opens the stream, tries the next transport, or takes back
    /// what was taken for it.
    pub(super) fn handle_attempted(
        &mut self,
        id: RequestId,
        attempt: Box<Attempt>,
        result: io::Result<Opened>,
    ) {
        let Attempt { slot, kind, rings, options, connect, next } = *attempt;
        let launch = self.requests.get(&id).map(|w| w.launch);
        let (error, launch) = match (result, launch) {
            (Ok(opened), Some(_)) => {
                self.requests.remove(&id);
                self.control.routes.note(connect.to, kind, true);
                return self.open_driven(id, slot, rings, &options, opened);
            }
            // The connect was given up in the meantime: the connection closes as `result` is
            // dropped here, before its rings are free for others.
            (_, None) => {
                self.give_rings(rings);
                self.recycle(slot);
                return self.serve_starved();
            }
            (Err(error), Some(launch)) => (error, launch),
        };
        self.give_rings(rings);
        let no_device_rings = rings.region == DEVICE && error.kind() == io::ErrorKind::Unsupported;
        if no_device_rings {
            self.refuse_device_rings(&error);
        }
        match next {
            _ if no_device_rings => self.start_connect(id, launch, connect, kind, next),
            Some(next) => {
                tracing::info!(to = %connect.to, %error, "not by rc: tcp instead");
                self.control.routes.note(connect.to, kind, false);
                self.start_connect(id, launch, connect, next, None);
            }
            None => {
                tracing::debug!(slot, %error, "not connected");
                let errno = self.refused(format_args!("cannot open a connection"), &error);
                self.recycle(slot);
                self.reply_result(id, Err(errno));
            }
        }
        self.serve_starved();
    }

    /// Hands an open connection to its data thread and answers the request that waits for it.
    pub(super) fn open_driven(
        &mut self,
        id: RequestId,
        slot: u32,
        rings: Rings,
        options: &Options,
        opened: Opened,
    ) {
        let mut reply = Reply::new(0, 0);
        reply.descriptor = self.open_stream(slot, rings, options, opened);
        self.reply(id, &reply);
    }

    /// Hands an open connection to its data thread; returns what its device is to know.
    pub(super) fn open_stream(
        &mut self,
        slot: u32,
        rings: Rings,
        options: &Options,
        opened: Opened,
    ) -> Descriptor {
        let addrs = (opened.local, opened.peer);
        let thread = self.control.threads.assign(opened.kind, addrs);
        let entry = &mut self.slots[slot];
        let generation = entry.generation;
        entry.role = Role::Stream(StreamEntry {
            memory: StreamMemory::Own(rings),
            linger_ms: options.linger_ms,
            closed: false,
            thread: Some(thread),
            partner: None,
            final_positions: None,
            addrs,
            transport: opened.kind,
        });
        self.state.memory.open_line(slot, generation);
        // Counted here and not by the data thread: when the reply arrives, the statistics include
        // the stream.
        self.state.totals.open();
        let descriptor = self.driven_descriptor(slot, thread, rings, &opened);
        let span = self.enter_span(slot, opened.kind, addrs);
        let send_low = options.low_water().0;
        let linger_ns = self.control.linger_ns(options.linger_ms);
        let stream = OpenStream { generation, io: opened.io, rings, send_low, linger_ns, span };
        self.control.threads.link(thread).send(Command::Open { attachment: self.state.id, slot, stream });
        hand_off::at(HandOff::StreamGiven);
        descriptor
    }
}
