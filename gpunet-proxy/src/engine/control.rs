//! The control plane: everything that is not bytes, on one tokio thread.
//!
//! An actor: it owns the tables of every attachment and changes them one message at a time. What
//! takes time (connect, waiting for a listener) runs as a local task that sends its result back as
//! a message.
//!
//! A request comes in by [`Control::run`], is checked and dispatched in `request`, and answered by
//! `AttachmentEntry::reply` in `tables/pending`.
//!
//! | file | holds |
//! |---|---|
//! | `at` | a message's attachment, found once, and the control plane around it |
//! | `tables` | what is kept for an attachment: sockets, requests without an answer, what is short |
//! | `request` | the checks of requests, and who carries them out |
//! | `listener`, `shortage` | listeners and waiting accepts; when an accept tries again after a shortage |
//! | `ahead`, `handshake` | connections before an accept; clients before that |
//! | `connect`, `route` | connects, and what all driven streams begin with; which transport |
//! | `pair`, `join`, `arena` | direct streams: within an attachment, between two; the memory that two share |
//! | `data_threads` | which data thread a stream belongs to |
//! | `descriptor` | how a stream is described to its device |
//! | `rings`, `grow`, `quota` | ring memory, and what of it is allocated later; what a user may take |
//! | `poll_group` | the memory of the lists of poll groups |
//! | `close`, `reap` | the end of a socket; what a finished launch, a detach or a dead process leaves |
//! | `snapshot` | what gpunetctl and metrics see |

mod ahead;
mod arena;
mod at;
mod close;
mod connect;
mod data_threads;
mod descriptor;
mod grow;
mod handshake;
mod join;
mod listener;
mod pair;
#[cfg(test)]
mod plane;
mod poll_group;
mod quota;
mod reap;
mod request;
mod rings;
mod route;
mod shortage;
mod snapshot;
mod tables;

use crate::engine::control_queue::{ControlReceiver, ControlSender};
use crate::engine::pulse::{Load, Pulse, PulseGuard};
use crate::model::attachment_state::Usage;
use crate::model::config::{Config, Lines};
use crate::model::launch::Finished;
use crate::model::message::{Command, Message};
use crate::os::doorbell::Bell;
use crate::os::thread_pool::ThreadPool;
use arena::Arenas;
use at::{At, Attachments};
use crossbeam_channel::Sender;
use data_threads::DataThreads;
use gpunet_abi::Error;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_core::ids::{AttachmentId, RequestId};
use gpunet_core::transport::peer::Peer;
use join::Joins;
use route::Routes;
use snapshot::Past;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tables::AttachmentEntry;

/// Bytes that the control plane keeps for each socket slot of an attachment, in use or not.
pub(crate) const SLOT_BYTES: u64 = size_of::<tables::slots::Slot>() as u64;

/// How the control plane reaches a data thread.
#[derive(Clone)]
pub(crate) struct ShardLink {
    pub(crate) commands: Sender<Command>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) load: Arc<Load>,
}

impl ShardLink {
    pub(crate) fn send(&self, command: Command) {
        // The heartbeat notices a data thread that has ended.
        let _ = self.commands.send(command);
        self.bell.wake();
    }
}

/// The control plane's state.
pub(crate) struct Control {
    attachments: Attachments,
    /// Attachments that have ended: they are removed after the message.
    ended: Vec<AttachmentId>,
    threads: DataThreads,
    messages: ControlSender,
    /// Runs slow work that is no task of this thread.
    pool: ThreadPool,
    routes: Routes,
    /// Where connects and listeners of all attachments meet.
    peer: Peer,
    /// The listeners that `peer` knows: attachment and slot.
    peer_listeners: HashMap<SocketAddr, (AttachmentId, u32)>,
    arenas: Arenas,
    joins: Joins,
    /// Totals of closed streams and detached attachments.
    past: Past,
    started: Instant,
    linger: Duration,
    lines: Lines,
}

impl Control {
    pub(crate) fn new(
        shards: Vec<ShardLink>,
        messages: ControlSender,
        pool: ThreadPool,
        config: &Config,
    ) -> Self {
        let routes = Routes::new(config);
        Self {
            attachments: Attachments::default(),
            ended: Vec::new(),
            threads: DataThreads::new(shards),
            messages,
            pool,
            routes,
            peer: Peer::new(),
            peer_listeners: HashMap::new(),
            arenas: Arenas::default(),
            joins: Joins::default(),
            past: Past::default(),
            started: Instant::now(),
            linger: config.linger,
            lines: config.lines,
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(mut self, mut inbox: ControlReceiver, pulse: Arc<Pulse>) {
        let _guard = PulseGuard(pulse.clone());
        loop {
            let message = inbox.recv().await;
            hand_off::at(HandOff::MessageTaken);
            match message {
                Message::Stop => return,
                Message::Ping => pulse.beat(),
                message => self.handle(message),
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message.attachment().and_then(|id| self.at(id)) {
            Some(mut at) => at.handle(message),
            None => self.handle_unattached(message),
        }
        while let Some(id) = self.ended.pop() {
            self.forget(id);
        }
    }

    /// Handles a message that is not of one attachment, or is of one that is gone.
    fn handle_unattached(&mut self, message: Message) {
        match message {
            Message::Attach(state) => {
                self.grow(&state);
                self.attachments.insert(AttachmentEntry::new(state));
            }
            Message::Agent { attachment, answer } => self.handle_agent(attachment, answer),
            Message::ArenaParts { arena, parts } => self.handle_arena_parts(arena, parts),
            Message::ArenaTimeout { arena } => self.handle_arena_timeout(arena),
            Message::Refuse { attachment, tickets } => self.refuse(attachment, tickets),
            Message::Snapshot { of, done } => self.take_snapshot(of, done),
            Message::FinishLaunch { done, .. } => done(Finished::default()),
            Message::Usage { done, .. } => done(Usage::default()),
            Message::Detach { done, .. } | Message::Gone { done, .. } => done(()),
            // What is open in the others closes as they are dropped.
            Message::Request { .. }
            | Message::Ask { .. }
            | Message::Abandon { .. }
            | Message::Attempted { .. }
            | Message::Handshake { .. }
            | Message::Sweep { .. }
            | Message::ListenerReady { .. }
            | Message::Finished { .. }
            | Message::OutQueue { .. }
            | Message::Grown { .. }
            | Message::AbortLaunch { .. }
            | Message::Release { .. }
            | Message::ResetAll { .. }
            | Message::DetachTimeout { .. }
            | Message::Ping
            | Message::Stop => {}
        }
    }
}

impl At<'_> {
    fn handle(&mut self, message: Message) {
        match message {
            Message::Request { id, request, .. } => {
                self.leave_request(id, &request);
                self.handle_request(id, &request);
            }
            Message::Ask { id, request, answer, .. } => {
                self.answers.insert(id, answer);
                self.handle_request(RequestId::Host(id), &request);
            }
            Message::Abandon { id, .. } => {
                self.state.inbox.leave_abandon(id);
                // Answers at once a request whose requester no longer waits, unless it was answered
                // before.
                self.cancel(id, Error::Canceled);
            }
            Message::Attempted { id, attempt, result, .. } => self.handle_attempted(id, attempt, result),
            Message::Handshake { listener, number, rings, result, .. } => {
                self.handle_handshake(listener, number, rings, result);
            }
            Message::Sweep { sweep, .. } => self.sweep(sweep),
            Message::ListenerReady { socket, .. } => self.handle_listener_ready(socket),
            Message::Finished { socket, undelivered, counts, .. } => {
                self.warn_undelivered(socket.slot, undelivered);
                self.handle_finished(socket, counts);
            }
            Message::OutQueue { id, bytes, .. } => self.handle_out_queue(id, bytes),
            Message::Grown { rings, last, .. } => self.handle_grown(rings, last),
            Message::FinishLaunch { launch, policy, fresh, done, .. } => {
                done(self.finish_launch(launch, policy, &fresh));
            }
            Message::AbortLaunch { launch, .. } => self.abort_launch(launch),
            Message::Release { handles, .. } => self.release(&handles),
            Message::ResetAll { .. } => self.reset_all(),
            Message::Usage { done, .. } => done(self.usage()),
            Message::Detach { why, done, .. } => self.detach(why, done),
            Message::Gone { done, .. } => self.gone(done),
            Message::DetachTimeout { .. } => self.end_detach(),
            message => self.control.handle_unattached(message),
        }
    }
}
